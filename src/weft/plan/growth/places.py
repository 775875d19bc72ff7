"""Places for switches that hold no hosts: what no choice can exceed, and a better choice where there is one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Joins = dict[int, Counter[int]]  # node -> how many cables to which
FORBIDDEN = -(10**9)  # a gain that nobody takes
_PAIRS = 2_000  # of a switch and a place: with more, no exchanges are tried
_TRIES = 20_000  # places given, before a search for the best gives up
_Ints = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Choice:
    """Who could stand where: switches of today by row, places of the target by column."""

    beside: _Ints  # [row, column] cables to devices whose places are settled that stay; FORBIDDEN: too few ports
    mine: _Ints  # [row, row] cables between them
    theirs: _Ints  # [column, column] cables between places
    at: _Ints  # [row] -> column, -1 for none

    def kept(self) -> int:
        """Cables of these switches that stay."""
        rows = np.flatnonzero(self.at >= 0)
        here = self.at[rows]
        between = np.minimum(self.mine[np.ix_(rows, rows)], self.theirs[np.ix_(here, here)]).sum() // 2
        return int(self.beside[rows, here].sum() + between)

    def most(self) -> int:
        """The best for cables to what is settled, and for those between them the best of each alone."""
        best = best_assignment(self.beside)
        return int(sum(self.beside[pair] for pair in best) + self.alone().sum() // 2)

    def alone(self) -> _Ints:
        """[row] -> cables between these switches that it can keep at most, whatever the others do."""
        ours, which = np.unique(-np.sort(-self.mine, axis=1), axis=0, return_inverse=True)
        places = np.unique(-np.sort(-self.theirs, axis=1), axis=0)
        width = min(ours.shape[1], places.shape[1])
        kept = [np.minimum(one[:width], places[:, :width]).sum(axis=1).max(initial=0) for one in ours]
        return np.array(kept, np.int64)[which.ravel()] if len(ours) else np.zeros(0, np.int64)

    # -- a better one ---------------------------------------------------------------------------------------------

    def improve(self) -> bool:
        """Exchange, then try everything if that is not too much: is it the best now?"""
        if self.beside.size > _PAIRS:
            return False
        while any(self._exchange(row, column) for row in range(len(self.at)) for column in range(self.theirs.shape[0])):
            pass
        return _Search(self).run()

    def _exchange(self, row: int, column: int) -> bool:
        """Take that place, and give one's own to whoever has it, if more cables stay."""
        before, kept = self.at.copy(), self.kept()
        self.at[self.at == column] = before[row]
        self.at[row] = column
        if self.kept() > kept:
            return True
        self.at[:] = before
        return False


class _Search:
    """Depth first, who has the most cables first; no further where the best of what is left would not be enough."""

    def __init__(self, choice: Choice) -> None:
        self.choice, self.best, self.tries = choice, choice.kept(), 0
        self.rows = np.argsort(-choice.mine.sum(axis=1) - choice.beside.max(axis=1, initial=0), kind="stable")
        most = choice.beside.max(axis=1, initial=0) + choice.alone()
        self.hope = np.append(np.cumsum(most[self.rows][::-1])[::-1], 0)  # [depth] all that those from here on can keep
        self.at = np.full(len(self.rows), -1, np.int64)

    def run(self) -> bool:
        """Has everything been tried?"""
        self._place(0, 0)
        return self.tries < _TRIES

    def _place(self, depth: int, kept: int) -> None:
        if depth == len(self.rows):
            if kept > self.best:
                self.best, self.choice.at = kept, self.at.copy()
            return
        row = self.rows[depth]
        done = self.rows[:depth][self.at[self.rows[:depth]] >= 0]
        gain = self.choice.beside[row] + np.minimum(
            self.choice.mine[row, done], self.choice.theirs[:, self.at[done]]
        ).sum(axis=1)
        gain[self.at[done]] = FORBIDDEN
        for column in np.argsort(-gain, kind="stable").tolist():
            self.tries += 1
            if gain[column] < 0 or kept + gain[column] + self.hope[depth + 1] <= self.best or self.tries >= _TRIES:
                break
            self.at[row] = column
            self._place(depth + 1, kept + int(gain[column]))
        self.at[row] = -1
        if kept + self.hope[depth + 1] > self.best:  # without a place
            self._place(depth + 1, kept)


def best_assignment(gain: _Ints) -> list[tuple[int, int]]:
    """Pairs of row and column, as many as the shorter side has, of the largest sum; forbidden ones are left out."""
    if gain.shape[0] > gain.shape[1]:
        return sorted((i, j) for j, i in best_assignment(gain.T))
    rows, columns = gain.shape
    cost = np.zeros((rows + 1, columns + 1), np.int64)
    cost[1:, 1:] = -gain
    of_row, of_column = np.zeros(rows + 1, np.int64), np.zeros(columns + 1, np.int64)  # potentials
    taker = np.zeros(columns + 1, np.int64)  # [column] -> row; column 0 holds the row that is being placed
    for row in range(1, rows + 1):
        taker[0], j = row, 0
        least = np.full(columns + 1, np.iinfo(np.int64).max // 2)
        way, done = np.zeros(columns + 1, np.int64), np.zeros(columns + 1, bool)
        while taker[j]:
            done[j] = True
            i = taker[j]
            here = cost[i] - of_row[i] - of_column
            shorter = ~done & (here < least)
            least[shorter], way[shorter] = here[shorter], j
            j = int(np.argmin(np.where(done, np.iinfo(np.int64).max, least)))
            step = least[j]
            of_row[taker[done]] += step
            of_column[done] -= step
            least[~done] -= step
        while j:
            taker[j], j = taker[way[j]], int(way[j])
    pairs = ((int(taker[j]) - 1, j - 1) for j in range(1, columns + 1) if taker[j])
    return sorted(pair for pair in pairs if gain[pair] > FORBIDDEN // 2)
