"""Completion queues: what came of work, in order, and who is told when something comes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from weft.verbs.enums import ibv_wc_status
from weft.verbs.transport.work import Completion


class CompletionQueue:
    """Holds up to `capacity`; one more is an overflow, after which it takes nothing: `on_overflow` says so, once."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.entries: deque[Completion] = deque()
        self.is_broken = False
        self.stamps = False  # whether completions get the time when they came
        self.on_event: Callable[[], None] = lambda: None  # somebody asked to be told of the next
        self.on_overflow: Callable[[], None] = lambda: None
        self._armed = False
        self._solicited_only = False

    def add(self, completion: Completion) -> bool:
        """False if there is no room."""
        if self.is_broken:
            return False
        if len(self.entries) >= self.capacity:
            self.is_broken = True
            self.on_overflow()
            return False
        if self.stamps:
            completion.time_ns = time.monotonic_ns()
        self.entries.append(completion)
        failed = completion.status != ibv_wc_status.IBV_WC_SUCCESS
        if self._armed and (not self._solicited_only or completion.solicited or failed):
            self._armed = False
            self.on_event()
        return True

    def take(self, most: int) -> list[Completion]:
        return [self.entries.popleft() for _ in range(min(most, len(self.entries)))]

    def arm(self, *, solicited_only: bool) -> None:
        """One event, at the next that comes; a request for all goes before one for solicited ones."""
        self._solicited_only = solicited_only and (self._solicited_only or not self._armed)
        self._armed = True

    def forget(self, qp_num: int) -> None:
        """What belongs to a queue pair that is reset or gone."""
        kept = [entry for entry in self.entries if entry.qp_num != qp_num]
        self.entries = deque(kept)
