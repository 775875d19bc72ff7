"""Agents of programs at ports: what the kernel's MAD layer does on a real host, for hosts that have none.

A program registers an agent at a port for a class and methods. Its requests get transaction ids by which answers find
it; what waits too long is sent again, and in the end goes back as timed out; long messages go over the links as RMPP
segments. (Linux drivers/infiniband/core/mad.c and user_mad.c are the model.)
"""

from __future__ import annotations

import errno
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from weft.mad.subnet import Arrival, Subnet
from weft.mad.transfers import Transfers, is_rmpp
from weft.wire.mad import MAD_BYTES, RESPONSE, MadHeader, Method, VendorMad

AGENTS_PER_PORT = 32
_HIGH_TID = 0x8000_0000  # own agents; clients of ibsim's protocol have lower numbers in the same bits
Push = Callable[[bytes, int, int, int], None]  # message, LID that it came from, 0 or ETIMEDOUT, index of its P_Key


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agent:
    """A receiver of the MADs of a class at a port, by `push`; `high_tid` marks its own requests."""

    slot: int
    mgmt_class: int
    version: int
    methods: int  # bit n: method n
    oui: int
    does_rmpp: bool  # the program sends and gets whole messages
    push: Push
    high_tid: int = 0

    def wants(self, mad: bytes) -> bool:
        if (mad[1], mad[2]) != (self.mgmt_class, self.version) or not self.methods >> (mad[3] & 0x7F) & 1:
            return False
        return not 0x30 <= mad[1] <= 0x4F or VendorMad.oui.get(mad) == self.oui


@dataclass(slots=True, eq=False)
class _Request:
    """A request that waits for an answer."""

    agent: Agent
    message: bytes
    lid: int
    pkey_index: int
    timeout_s: float
    retries_left: int


class Agents:
    """The agents of a lab, attached to the ports of their subnet; `clock` is in seconds."""

    def __init__(self, subnet: Subnet, clock: Callable[[], float]) -> None:
        self.subnet, self.clock = subnet, clock
        self._by_tid: dict[int, Agent] = {}
        self._at: dict[int, list[Agent]] = {}  # by slot
        self._transfers: dict[int, Transfers] = {}  # by slot
        self._requests: dict[tuple[int, int], _Request] = {}  # by high and low half of the transaction
        self._timers: list[tuple[float, int, tuple[int, int]]] = []
        self._tids, self._order = itertools.count(_HIGH_TID), itertools.count()
        self._outbox: deque[tuple[int, bytes, int, int | None]] = deque()
        self._is_draining = False

    def register(self, agent: Agent) -> Agent:
        """Register an agent and set its mark; raise OSError if another agent at this port has one of its methods."""
        for other in self._at.get(agent.slot, ()):
            same = (other.mgmt_class, other.version, other.oui) == (agent.mgmt_class, agent.version, agent.oui)
            if same and other.methods & agent.methods:
                raise OSError(errno.EBUSY, "another program has these methods")
        agent = replace(agent, high_tid=next(self._tids))
        self._by_tid[agent.high_tid] = agent
        if not self._at.setdefault(agent.slot, []):
            self.subnet.attach(agent.slot, self.deliver)
        self._at[agent.slot].append(agent)
        return agent

    def unregister(self, agent: Agent) -> None:
        del self._by_tid[agent.high_tid]
        self._at[agent.slot].remove(agent)
        if not self._at[agent.slot]:
            self.subnet.detach(agent.slot, self.deliver)
        for key in [key for key in self._requests if key[0] == agent.high_tid]:
            del self._requests[key]

    # -- from a program --

    def send(self, agent: Agent, message: bytes, lid: int, timeout_ms: int, retries: int, pkey_index: int = 0) -> None:
        """Send a MAD, or a longer message if the agent does RMPP. Without a timeout no answer is expected."""
        if not is_rmpp(message):
            message = message[:MAD_BYTES].ljust(MAD_BYTES, b"\0")
        if message[3] & RESPONSE or message[3] == Method.TRAP_REPRESS:
            self._put(agent, message, lid, pkey_index)
        else:
            message = message[:8] + agent.high_tid.to_bytes(4, "big") + message[12:]
            key = agent.high_tid, int.from_bytes(message[12:16], "big")
            request = _Request(agent, message, lid, pkey_index, timeout_ms / 1000, retries)
            if timeout_ms:
                self._requests[key] = request
            self._send_request(key, request)
        self._drain()

    def _send_request(self, key: tuple[int, int], request: _Request) -> None:
        if request.timeout_s:
            heapq.heappush(self._timers, (self.clock() + request.timeout_s, next(self._order), key))
        self._put(request.agent, request.message, request.lid, request.pkey_index)

    def _put(self, agent: Agent, message: bytes, lid: int, pkey_index: int) -> None:
        if agent.does_rmpp and is_rmpp(message):
            self.subnet.pkey_indexes[agent.slot, lid] = pkey_index  # segments go by it
            self._transfers_at(agent.slot).start(message, lid)
        else:
            self._outbox.append((agent.slot, message[:MAD_BYTES], lid, pkey_index))

    def _transfers_at(self, slot: int) -> Transfers:
        if slot not in self._transfers:
            self._transfers[slot] = Transfers(lambda mad, lid: self._outbox.append((slot, mad, lid, None)), self.clock)
        return self._transfers[slot]

    def _drain(self) -> None:
        """Send what waits, and what that leads to: in a queue, not by recursion, however many segments there are."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._outbox:
                slot, mad, lid, pkey_index = self._outbox.popleft()
                answer = self.subnet.send(slot, bytearray(mad), lid, pkey_index)
                if answer is not None:
                    self.deliver(Arrival(slot, lid, self.subnet.lid(slot), bytes(answer), pkey_index or 0))
        finally:
            self._is_draining = False

    # -- to a program --

    def deliver(self, arrival: Arrival) -> bool:
        """Give a MAD that arrived to the agent that wants it; False if there is none."""
        mad, slot, lid = arrival.mad, arrival.slot, arrival.slid
        in_transfer = is_rmpp(mad)
        if in_transfer and slot in self._transfers and self._transfers[slot].knows(mad, lid):
            self._transfers[slot].receive(mad, lid)
            self._drain()
            return True
        agent = self._agent_for(slot, mad)
        if agent is None:
            return False
        message: bytes | None = mad
        if in_transfer and agent.does_rmpp:
            message = self._transfers_at(slot).receive(mad, lid)
            self._drain()
        if message is not None:
            if mad[3] & RESPONSE:
                self._requests.pop((agent.high_tid, int.from_bytes(mad[12:16], "big")), None)
            agent.push(message, lid, 0, arrival.pkey_index)
        return True

    def _agent_for(self, slot: int, mad: bytes) -> Agent | None:
        if mad[3] & RESPONSE:
            high, low = int.from_bytes(mad[8:12], "big"), int.from_bytes(mad[12:16], "big")
            agent = self._by_tid.get(high)
            return agent if agent is not None and agent.slot == slot and (high, low) in self._requests else None
        return next((agent for agent in self._at.get(slot, ()) if agent.wants(mad)), None)

    # -- time --

    def next_deadline_s(self) -> float | None:
        """Return when `on_timer` has work, by `clock`."""
        deadlines = [transfers.next_deadline_s() for transfers in self._transfers.values()]
        deadlines += [self._timers[0][0]] if self._timers else []
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_timer(self) -> None:
        """Send unanswered requests again, or return them to the program as timed out."""
        now_s = self.clock()
        while self._timers and self._timers[0][0] <= now_s:
            _, _, key = heapq.heappop(self._timers)
            request = self._requests.get(key)
            if request is None:
                continue
            if request.retries_left:
                request.retries_left -= 1
                self._send_request(key, request)
            else:
                del self._requests[key]
                request.agent.push(request.message[: MadHeader.size], request.lid, errno.ETIMEDOUT, request.pkey_index)
        for transfers in self._transfers.values():
            transfers.on_timer()
        self._drain()
