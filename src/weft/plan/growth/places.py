"""Assign places to switches without hosts: an upper bound on cables kept, and a search for a better choice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Joins = dict[int, Counter[int]]  # node -> number of cables to each neighbour
FORBIDDEN = -(10**9)  # gain of an impossible choice
_PAIRS = 2_000  # of switch and place, above which no exchanges are tried
_TRIES = 20_000  # assignments before the exhaustive search gives up
_Ints = NDArray[np.int64]


@dataclass(slots=True, eq=False)
class Choice:
    """A choice of places: switches of today by row, places of the target by column."""

    beside: _Ints  # [row, column] cables kept to devices with a fixed place; FORBIDDEN: too few ports
    mine: _Ints  # [row, row] cables between these switches
    theirs: _Ints  # [column, column] cables between places
    at: _Ints  # [row] -> column, -1 for none

    def kept(self) -> int:
        """Return the number of cables of these switches that stay."""
        rows = np.flatnonzero(self.at >= 0)
        columns = self.at[rows]
        between = np.minimum(self.mine[np.ix_(rows, rows)], self.theirs[np.ix_(columns, columns)]).sum() // 2
        return int(self.beside[rows, columns].sum() + between)

    def most(self) -> int:
        """Return an upper bound on kept cables: the best assignment to fixed devices, plus the best of each alone."""
        best = best_assignment(self.beside)
        return int(sum(self.beside[pair] for pair in best) + self.alone().sum() // 2)

    def alone(self) -> _Ints:
        """Return the most cables to other switches that each can keep, regardless of the others."""
        ours, row_of = np.unique(-np.sort(-self.mine, axis=1), axis=0, return_inverse=True)
        places = np.unique(-np.sort(-self.theirs, axis=1), axis=0)
        width = min(ours.shape[1], places.shape[1])
        most_kept = [np.minimum(row[:width], places[:, :width]).sum(axis=1).max(initial=0) for row in ours]
        return np.array(most_kept, np.int64)[row_of.ravel()] if len(ours) else np.zeros(0, np.int64)

    # -- a better one ---------------------------------------------------------------------------------------------

    def improve(self) -> bool:
        """Exchange pairs, then search exhaustively within a limit; return whether the choice is optimal."""
        if self.beside.size > _PAIRS:
            return False
        while any(self._exchange(row, column) for row in range(len(self.at)) for column in range(self.theirs.shape[0])):
            pass
        return _Search(self).run()

    def _exchange(self, row: int, column: int) -> bool:
        """Swap places with the holder of a column if more cables stay; return whether it did."""
        before, kept = self.at.copy(), self.kept()
        self.at[self.at == column] = before[row]
        self.at[row] = column
        if self.kept() > kept:
            return True
        self.at[:] = before
        return False


class _Search:
    """A depth-first branch-and-bound search, switches with the most cables first."""

    def __init__(self, choice: Choice) -> None:
        self.choice, self.best, self.tries = choice, choice.kept(), 0
        self.rows = np.argsort(-choice.mine.sum(axis=1) - choice.beside.max(axis=1, initial=0), kind="stable")
        most = choice.beside.max(axis=1, initial=0) + choice.alone()
        self.bound = np.append(np.cumsum(most[self.rows][::-1])[::-1], 0)  # [depth] most cables that the rest can keep
        self.at = np.full(len(self.rows), -1, np.int64)

    def run(self) -> bool:
        """Search, and return whether it was exhaustive."""
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
            if gain[column] < 0 or kept + gain[column] + self.bound[depth + 1] <= self.best or self.tries >= _TRIES:
                break
            self.at[row] = column
            self._place(depth + 1, kept + int(gain[column]))
        self.at[row] = -1
        if kept + self.bound[depth + 1] > self.best:  # without a place
            self._place(depth + 1, kept)


def best_assignment(gain: _Ints) -> list[tuple[int, int]]:
    """Return the pairs of row and column with the largest sum of gains, without forbidden ones."""
    if gain.shape[0] > gain.shape[1]:
        return sorted((i, j) for j, i in best_assignment(gain.T))
    rows, columns = gain.shape
    cost = np.zeros((rows + 1, columns + 1), np.int64)
    cost[1:, 1:] = -gain
    of_row, of_column = np.zeros(rows + 1, np.int64), np.zeros(columns + 1, np.int64)  # potentials
    taker = np.zeros(columns + 1, np.int64)  # [column] -> row; column 0 holds the current row
    for row in range(1, rows + 1):
        taker[0], j = row, 0
        least = np.full(columns + 1, np.iinfo(np.int64).max // 2)
        way, done = np.zeros(columns + 1, np.int64), np.zeros(columns + 1, bool)
        while taker[j]:
            done[j] = True
            i = taker[j]
            reduced = cost[i] - of_row[i] - of_column
            shorter = ~done & (reduced < least)
            least[shorter], way[shorter] = reduced[shorter], j
            j = int(np.argmin(np.where(done, np.iinfo(np.int64).max, least)))
            step = least[j]
            of_row[taker[done]] += step
            of_column[done] -= step
            least[~done] -= step
        while j:
            taker[j], j = taker[way[j]], int(way[j])
    pairs = ((int(taker[j]) - 1, j - 1) for j in range(1, columns + 1) if taker[j])
    return sorted(pair for pair in pairs if gain[pair] > FORBIDDEN // 2)
