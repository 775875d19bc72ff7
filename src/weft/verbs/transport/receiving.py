"""Receive queues: of one queue pair, or shared by many."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable

from weft.verbs.transport.completion import CompletionQueue
from weft.verbs.transport.work import ReceiveWork, Refused


class ReceiveQueue:
    """First in, first out. A shared one tells once when fewer than `limit` are left."""

    def __init__(self, capacity: int, places_max: int, *, shared: bool = False) -> None:
        self.capacity, self.places_max, self.is_shared = capacity, places_max, shared
        self.works: deque[ReceiveWork] = deque()
        self.pd: object = None  # of a shared one
        self.number = 0  # of one for XRC: what a sender calls it,
        self.domain: object = None  # who may use it,
        self.cq: CompletionQueue | None = None  # and who is told
        self.limit = 0
        self.on_limit: Callable[[], None] = lambda: None

    def post(self, work: ReceiveWork) -> None:
        if len(work.places) > self.places_max:
            raise Refused(errno.EINVAL, f"{len(work.places)} elements are more than the {self.places_max} allowed")
        if len(self.works) >= self.capacity:
            raise Refused(errno.ENOMEM, f"the receive queue is full: it holds {self.capacity}")
        self.works.append(work)

    def take(self) -> ReceiveWork | None:
        """The next; None if there is none."""
        if not self.works:
            return None
        work = self.works.popleft()
        if self.limit and len(self.works) < self.limit:
            self.limit = 0
            self.on_limit()
        return work

    def put_back(self, work: ReceiveWork) -> None:
        """One that was taken and not used."""
        self.works.appendleft(work)
