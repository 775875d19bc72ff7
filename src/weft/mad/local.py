"""The carrier in this process: a program on a port of a `Subnet`.

    carrier = LocalCarrier(subnet, slot)
    carrier = LocalCarrier(subnet, slot, sleep=clock.sleep)     with `clock = ManualClock()` also given to the Subnet

Agents answer at once, so an answer is there when `send` returns; what is lost waits for its timeout on the subnet's
clock and is sent again. With a `ManualClock` waiting costs nothing: time jumps to the next thing that is due.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from weft.errors import ConfigError
from weft.mad.carrier import HERE, RETRIES, SMP_CLASSES, TIMEOUT_MS, Address, Arrived, Carrier
from weft.mad.subnet import Arrival, Subnet
from weft.wire.fields import Buffer
from weft.wire.mad import MAD_BYTES, RESPONSE

_ID = slice(8, 16)


class ManualClock:
    """A clock that stands until somebody sleeps on it."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass(slots=True)
class _Asked:
    mad: bytearray
    lid: int
    timeout_s: float
    retries: int


class LocalCarrier(Carrier):
    """See `Carrier`. At a switch it is on port 0, whichever port is given."""

    def __init__(self, subnet: Subnet, slot: int, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._subnet, self.slot, self._sleep = subnet, subnet.devices.own_slot(slot), sleep
        self._clock = subnet.devices.clock
        self._last = 0
        self._asked: dict[int, _Asked] = {}  # in flight
        self._deadlines: list[tuple[float, int]] = []  # heap; what was answered since is still in it
        self._done: dict[int, bytes | None] = {}
        self._arrived: list[Arrived] = []
        self._classes: dict[int, set[int]] = {}  # methods that were registered for
        # The upper half of its transaction ids; ibsim's clients have small numbers there.
        self._name = (0x7765_0000 + subnet.attach(self.slot, self._receive)).to_bytes(4, "big")

    def send(self, mad: Buffer, to: Address = HERE, *, timeout_ms: int = TIMEOUT_MS, retries: int = RETRIES) -> int:
        self._last = token = self._last + 1
        asked = _Asked(self._checked(mad), to.lid, timeout_ms / 1000, retries)
        asked.mad[_ID] = self._name + (token & 0xFFFF_FFFF).to_bytes(4, "big")
        self._asked[token] = asked
        self._try(token, asked)
        return token

    def post(self, mad: Buffer, to: Address = HERE) -> None:
        self._subnet.send(self.slot, self._checked(mad), to.lid)

    def poll(self, wait_s: float = 0.0, *, only: int | None = None) -> list[tuple[int, bytes | None]]:
        ends_s = self._clock() + wait_s
        while True:
            now_s = self._clock()
            next_trap_s = self._subnet.due(now_s)
            self._expire(now_s)
            found = self._take(only)
            if found or (self._arrived and only is None) or now_s >= ends_s:
                return found
            due = [when for when in (next_trap_s, self._deadlines[0][0] if self._deadlines else None) if when]
            self._sleep(max(min([ends_s, *due]) - now_s, 1e-6))

    def arrivals(self) -> list[Arrived]:
        found, self._arrived = self._arrived, []
        return found

    def register(self, mgmt_class: int, methods: Iterable[int], *, class_version: int = 1, oui: int = 0) -> None:
        self._classes.setdefault(mgmt_class, set()).update(methods)

    def set_is_sm(self, on: bool) -> None:
        self._subnet.devices.set_is_sm(self.slot, on)

    def close(self) -> None:
        self._subnet.detach(self.slot, self._receive)
        self._asked.clear()

    # -- what happens ----------------------------------------------------------------------------------------------

    def _checked(self, mad: Buffer) -> bytearray:
        if len(mad) != MAD_BYTES:
            raise ConfigError(f"a MAD has {MAD_BYTES} bytes, this one has {len(mad)}")
        return bytearray(mad)

    def _try(self, token: int, asked: _Asked) -> None:
        """Send it; if no agent answers at once, note when to try again."""
        reply = self._subnet.send(self.slot, asked.mad, asked.lid)
        if reply is not None:
            del self._asked[token]
            self._done[token] = bytes(reply)
        elif token in self._asked:
            heapq.heappush(self._deadlines, (self._clock() + asked.timeout_s, token))

    def _expire(self, now_s: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now_s:
            _, token = heapq.heappop(self._deadlines)
            asked = self._asked.get(token)
            if asked is None:
                continue
            if asked.retries:
                asked.retries -= 1
                self._try(token, asked)
            else:
                del self._asked[token]
                self._done[token] = None

    def _take(self, only: int | None) -> list[tuple[int, bytes | None]]:
        if only is not None:
            return [(only, self._done.pop(only))] if only in self._done else []
        found = list(self._done.items())
        self._done.clear()
        return found

    def _receive(self, arrival: Arrival) -> bool:
        mad = arrival.mad
        if mad[3] & RESPONSE:
            return self._answered(mad)
        methods = self._classes.get(mad[1], set())
        if mad[1] in SMP_CLASSES:  # one registration is for both
            methods = set().union(*(self._classes.get(one, set()) for one in SMP_CLASSES))
        if mad[3] not in methods:
            return False
        qp = 0 if mad[1] in SMP_CLASSES else 1
        self._arrived.append(Arrived(mad, Address(arrival.slid, qp)))
        return True

    def _answered(self, mad: bytes) -> bool:
        """A response of another program; is it to one of ours?"""
        low = int.from_bytes(mad[12:16], "big")
        if mad[8:12] != self._name or low not in self._asked:
            return False
        del self._asked[low]
        self._done[low] = mad
        return True
