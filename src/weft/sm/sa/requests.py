"""Queue requests to the subnet administrator.

Hosts may request more tables than can be computed, and repeat a request that is not answered. So short queries come
before tables, a repeated query is queued once, and beyond a limit of time or number the answer is BUSY ("Common MAD
status field"). SMInfo queries bypass this queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from weft.mad.carrier import Address, Arrived
from weft.sm.events import Event
from weft.sm.sender import Sender
from weft.units import format_items
from weft.wire.mad import RESPONSE, Method, Status
from weft.wire.sa import SaMad

MOST = 1024  # that wait
_UNSENT_BYTES = 1 << 24  # unsent bytes of tables above which no further table is built
_LONG = (Method.GET_TABLE, Method.GET_MULTI, Method.GET_TRACE_TABLE)
_Key = tuple[int, bytes]  # the LID it is from; method, attribute and transaction


@dataclass(slots=True, eq=False, kw_only=True)
class Requests:
    """The queue of requests. `timeout_s` is the longest wait, 0 for no limit; `say` writes to the log."""

    clock: Callable[[], float]
    say: Callable[[Event, str], None]
    timeout_s: float
    _short: deque[tuple[float, Arrived]] = field(default_factory=deque)
    _long: deque[tuple[float, Arrived]] = field(default_factory=deque)
    _waiting: set[_Key] = field(default_factory=set)
    _refused: int = 0  # since there was last nothing to do
    _is_answering: bool = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, arrived: Arrived) -> bytes | None:
        """Queue a request; return an immediate answer if the queue is full."""
        key = _key(arrived)
        if key in self._waiting:
            return None
        if len(self._waiting) >= MOST:
            return self._refuse(arrived.mad)
        self._waiting.add(key)
        (self._long if is_long(arrived.mad) else self._short).append((self.clock(), arrived))
        return None

    def answer_next(self, answer: Callable[[bytes, Address], bytes | None], sender: Sender) -> bool:
        """Answer the next request; return False if none is queued, or tables must wait for output."""
        if self._is_answering:  # a table, aside
            return False
        request = self.next(tables=sender.carrier.unsent_bytes() < _UNSENT_BYTES)
        if request is None:
            return False
        arrived, response = request
        work = partial(answer, arrived.mad, arrived.source)
        self._is_answering = True
        try:
            if response is None:
                response = sender.aside(work) if is_long(arrived.mad) else work()
        finally:
            self._is_answering = False
        if response is not None:
            sender.carrier.post(response, arrived.source)
        return True

    def next(self, *, tables: bool) -> tuple[Arrived, bytes | None] | None:
        """Return the next request, with its answer if it waited too long; None if none is queued.

        `tables`: whether it may be a long one.
        """
        queue = self._short or (self._long if tables else None)
        if not queue:
            return None
        came_s, arrived = queue.popleft()
        self._waiting.discard(_key(arrived))
        late = 0 < self.timeout_s < self.clock() - came_s
        refusal = self._refuse(arrived.mad) if late else None
        if not self._waiting and self._refused:
            self.say(Event.SA_BUSY, f"it is over: BUSY was the answer to {format_items(self._refused, 'question')}")
            self._refused = 0
        return arrived, refusal

    def _refuse(self, mad: bytes) -> bytes | None:
        if mad[3] & RESPONSE:
            return None
        self._refused += 1
        if self._refused == 1:
            self.say(
                Event.SA_BUSY,
                f"hosts ask more than can be answered, the queue has {format_items(len(self._waiting), 'question')}",
            )
        answer = bytearray(mad)
        answer[3] |= RESPONSE
        SaMad.status.set(answer, Status.BUSY)
        return bytes(answer)


def is_long(mad: bytes) -> bool:
    """Return whether the answer may be a table."""
    return mad[3] in _LONG


def _key(arrived: Arrived) -> _Key:
    return arrived.source.lid, arrived.mad[3:4] + arrived.mad[8:18]
