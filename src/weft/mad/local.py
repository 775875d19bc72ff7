"""The carrier in this process: a program on a port of a `Subnet`.

    carrier = LocalCarrier(subnet, slot)
    carrier = LocalCarrier(subnet, slot, sleep=clock.sleep)     with `clock = ManualClock()` also given to the Subnet

Agents answer at once, so an answer is there when `send` returns; what is lost waits for its timeout on the subnet's
clock and is sent again. With a `ManualClock` waiting costs nothing: time jumps to the next thing that is due.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from weft.errors import ConfigError
from weft.mad.carrier import (
    HERE,
    RETRIES,
    SMP_CLASSES,
    TIMEOUT_MS,
    WATCH_S,
    Address,
    Answers,
    Arrived,
    Carrier,
    Lids,
    Mads,
    as_rows,
    check_requests,
    number_requests,
)
from weft.mad.subnet import Arrival, Subnet
from weft.mad.transfers import Transfers, is_message, is_rmpp
from weft.runtime import wait_ready
from weft.wire.fields import Buffer
from weft.wire.mad import MAD_BYTES, RESPONSE

_ID = slice(8, 16)
_TIMEOUT_S = 60.0


class ManualClock:
    """A clock that advances only by `sleep`."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass(slots=True)
class _Asked:
    mad: bytes | bytearray
    lid: int
    timeout_s: float
    retries: int
    pkey_index: int = 0
    heard_s: float = float("-inf")  # when a segment of its answer came


class LocalCarrier(Carrier):
    """A carrier within this process, see `Carrier`. At a switch it uses port 0, not the given port."""

    def __init__(self, subnet: Subnet, slot: int, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._subnet, self.slot, self._sleep = subnet, subnet.devices.own_slot(slot), sleep
        self._clock = subnet.devices.clock
        self._last = 0
        self._asked: dict[int, _Asked] = {}  # in flight
        self._deadlines: list[tuple[float, int]] = []  # heap; what was answered since is still in it
        self._done: dict[int, bytes | None] = {}
        self._arrived: list[Arrived] = []
        self._watched: list[int] = []
        self._classes: dict[int, set[int]] = {}  # methods that were registered for
        self._transfers = Transfers(lambda mad, lid: self._outbox.append((mad, lid)), self._clock)
        self._outbox: deque[tuple[bytes, int]] = deque()
        self._is_draining = False
        # The upper half of its transaction ids; ibsim's clients have small numbers there.
        self._name = (0x7765_0000 + subnet.attach(self.slot, self._receive)).to_bytes(4, "big")

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        self._last = token = self._last + 1
        if len(mad) != MAD_BYTES:
            raise ConfigError(f"a MAD has {MAD_BYTES} bytes, this one has {len(mad)}")
        named = bytearray(mad)
        named[_ID] = self._name + (token & 0xFFFF_FFFF).to_bytes(4, "big")
        self._asked[token] = request = _Asked(named, to.lid, timeout_ms / 1000, retries, to.pkey_index)
        self._try(token, request)
        return token

    def exchange(
        self, mads: Mads, to: Lids | None = None, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES
    ) -> Answers:
        mads, lids = check_requests(mads, to)
        tokens = range(self._last + 1, self._last + 1 + len(mads))
        self._last += len(mads)
        numbered = number_requests(mads, tokens.start)
        numbered[:, 8:12] = np.frombuffer(self._name, np.uint8)
        raw, timeout_s = numbered.tobytes(), timeout_ms / 1000
        for row, (token, lid) in enumerate(zip(tokens, lids.tolist(), strict=True)):
            request = _Asked(raw[row * MAD_BYTES : (row + 1) * MAD_BYTES], lid, timeout_s, retries)
            self._asked[token] = request
            self._try(token, request)
        return as_rows([self._await(token) for token in tokens])

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        if is_message(mad):
            self._transfers.start(bytes(mad), to.lid)
            self._drain()
        else:
            self._subnet.send(self.slot, bytes(mad), to.lid, to.pkey_index)

    def unsent_bytes(self) -> int:
        return self._transfers.unsent_bytes()

    def poll(self, wait_s: float = 0.0, *, only: int | None = None) -> list[tuple[int, bytes | None]]:
        ends_s = self._clock() + wait_s
        while True:
            now_s = self._clock()
            next_trap_s = self._subnet.due(now_s)
            self._expire(now_s)
            self._transfers.on_timer()
            self._drain()
            results = self._take(only)
            if results or (only is None and (self._arrived or wait_ready(self._watched))) or now_s >= ends_s:
                return results
            next_try_s = self._deadlines[0][0] if self._deadlines else None
            due = [when for when in (next_trap_s, next_try_s, self._transfers.next_deadline_s()) if when]
            nap_s = max(min([ends_s, *due]) - now_s, 1e-6)
            self._sleep(min(nap_s, WATCH_S) if self._watched else nap_s)

    def watch(self, file: int) -> None:
        self._watched = [file]

    def arrivals(self) -> list[Arrived]:
        arrived, self._arrived = self._arrived, []
        return arrived

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        self._classes.setdefault(mgmt_class, set()).update(methods)

    def set_is_sm(self, on: bool) -> None:
        self._subnet.devices.set_is_sm(self.slot, on)

    def close(self) -> None:
        self._subnet.detach(self.slot, self._receive)
        self._asked.clear()

    # -- what happens ----------------------------------------------------------------------------------------------

    def _await(self, token: int) -> bytes | None:
        while token not in self._done:
            for _, answer in self.poll(_TIMEOUT_S, only=token):
                return answer
        return self._done.pop(token)

    def _drain(self) -> None:
        """Send the segments that wait, and what that leads to: in a queue, not by recursion."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._outbox:
                mad, lid = self._outbox.popleft()
                self._subnet.send(self.slot, mad, lid, None)
        finally:
            self._is_draining = False

    def _try(self, token: int, request: _Asked) -> None:
        """Send it; if no agent answers at once, note when to try again."""
        reply = self._subnet.send(self.slot, request.mad, request.lid, request.pkey_index)
        if reply is not None:
            del self._asked[token]
            self._done[token] = bytes(reply)
        elif token in self._asked:
            heapq.heappush(self._deadlines, (self._clock() + request.timeout_s, token))

    def _expire(self, now_s: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, token = heapq.heappop(self._deadlines)
            request = self._asked.get(token)
            if request is None:
                continue
            if request.heard_s + request.timeout_s > now_s:
                heapq.heappush(self._deadlines, (request.heard_s + request.timeout_s, token))
            elif request.retries:
                request.retries -= 1
                self._try(token, request)
            else:
                del self._asked[token]
                self._done[token] = None

    def _take(self, only: int | None) -> list[tuple[int, bytes | None]]:
        if only is not None:
            return [(only, self._done.pop(only))] if only in self._done else []
        results = list(self._done.items())
        self._done.clear()
        return results

    def _receive(self, arrival: Arrival) -> bool:
        mad, lid = arrival.mad, arrival.slid
        if not is_rmpp(mad):
            return self._is_ours(mad) and self._on_message(mad, arrival)
        if not self._transfers.knows(mad, lid) and not self._is_ours(mad):
            return False
        message = self._transfers.receive(mad, lid)
        self._drain()
        return True if message is None else self._on_message(message, arrival)

    def _is_ours(self, mad: bytes) -> bool:
        if mad[3] & RESPONSE:
            request = self._asked.get(int.from_bytes(mad[12:16], "big")) if mad[8:12] == self._name else None
            if request is not None:
                request.heard_s = self._clock()
            return request is not None
        methods = self._classes.get(mad[1], set())
        if mad[1] in SMP_CLASSES:  # one registration is for both
            methods = set().union(*(self._classes.get(mgmt_class, set()) for mgmt_class in SMP_CLASSES))
        return mad[3] in methods

    def _on_message(self, mad: bytes, last: Arrival) -> bool:
        """Take a complete message of another program: an answer to our request, or of a class we registered for."""
        if mad[3] & RESPONSE:
            low = int.from_bytes(mad[12:16], "big")
            del self._asked[low]
            self._done[low] = mad
        else:
            queue_pair = 0 if mad[1] in SMP_CLASSES else 1
            source = Address(last.slid, queue_pair, pkey_index=last.pkey_index)
            self._arrived.append(Arrived(mad, source))
        return True
