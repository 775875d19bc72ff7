"""The requests of one `exchange`, by row: which wait, which are under way, which are answered or given up.

It sends nothing. A carrier takes rows to send, and tells what became of them, many at a time.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from weft.wire.mad import MAD_BYTES

Rows = NDArray[np.int64]
_WAITS, _FLIES, _ANSWERED, _GIVEN_UP = range(4)


class Bulk:
    """A batch of requests, each of which is sent again up to `retries` times."""

    def __init__(self, count: int, timeout_s: float, retries: int) -> None:
        self.answers = np.zeros((count, MAD_BYTES), np.uint8)
        self.under_way = 0
        self.count = self._open = count
        self._timeout_s = timeout_s
        self._state = np.full(count, _WAITS, np.uint8)
        self._due_s = np.zeros(count)  # requests in flight
        self._retries_left = np.full(count, retries, np.int64)
        self._next = 0
        self._again: deque[Rows] = deque()
        self._sent: deque[tuple[float, Rows]] = deque()  # when they are due; what was answered since is still in it

    @property
    def is_over(self) -> bool:
        return self._open == 0

    @property
    def came(self) -> NDArray[np.bool_]:
        came: NDArray[np.bool_] = self._state == _ANSWERED
        return came

    def to_send(self, most: int) -> Rows:
        """Return the rows to send next; report the result by `on_sent` and `put_back`."""
        while self._again:
            rows: Rows = self._again.popleft()
            rows = rows[self._state[rows] == _WAITS]  # it may have been answered after all
            if len(rows):
                self.put_back(rows[most:])
                return rows[:most]
        first, self._next = self._next, min(self._next + most, self.count)
        return np.arange(first, self._next)

    def put_back(self, rows: Rows) -> None:
        if len(rows):
            self._again.appendleft(rows)

    def on_sent(self, rows: Rows, now_s: float) -> None:
        self._state[rows] = _FLIES
        self._due_s[rows] = now_s + self._timeout_s
        self._sent.append((now_s + self._timeout_s, rows))
        self.under_way += len(rows)

    def on_answers(self, rows: Rows, mads: NDArray[np.uint8]) -> None:
        if not ((self._state[rows] == _FLIES).all() and (rows[1:] > rows[:-1]).all()):
            # A row is there twice, or late: both tries of it were answered.
            rows, where = np.unique(rows, return_index=True)
            first_time = self._state[rows] < _ANSWERED
            rows, mads = rows[first_time], mads[where[first_time]]
        self.answers[rows] = mads
        self._end(rows, _ANSWERED)

    def on_bounced(self, rows: Rows) -> None:
        """End the current try of requests that came back unanswered."""
        rows = np.unique(rows)
        self._try_again(rows[self._state[rows] == _FLIES])

    def on_timer(self, now_s: float) -> None:
        while self._sent and self._sent[0][0] <= now_s:
            _, rows = self._sent.popleft()
            self._try_again(rows[(self._state[rows] == _FLIES) & (self._due_s[rows] <= now_s)])

    def next_due_s(self) -> float:
        return self._sent[0][0] if self._sent else np.inf

    def _try_again(self, rows: Rows) -> None:
        """Queue requests that are under way for another try, or give them up."""
        has_tries = self._retries_left[rows] > 0
        again = rows[has_tries]
        self._retries_left[again] -= 1
        self.under_way -= len(again)
        self._state[again] = _WAITS
        self._again.append(again)
        self._end(rows[~has_tries], _GIVEN_UP)

    def _end(self, rows: Rows, state: int) -> None:
        self.under_way -= int(np.count_nonzero(self._state[rows] == _FLIES))
        self._state[rows] = state
        self._open -= len(rows)
