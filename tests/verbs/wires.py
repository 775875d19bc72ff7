"""Two adapters in this process, joined by a wire with the packet faults that a test selects."""

from __future__ import annotations

import ctypes
import os
from collections import deque
from collections.abc import Callable

from weft.mad.local import ManualClock
from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_SEND_SIGNALED,
    ibv_qp_state,
    ibv_wr_opcode,
)
from weft.verbs.hca.adapter import Adapter
from weft.verbs.hca.carrier import Arrival, Carrier
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.queue_pair import QueuePair, Settings
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.segment import Segment, Service
from weft.verbs.hca.work import ReceiveWork, SendWork
from weft.verbs.shm.layout import CompletionRecord
from weft.verbs.shm.memory import Place

ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC
Fate = Callable[[Segment], list[Segment]]  # the delivered packets: none if lost, two if duplicated, ...


def taken(cq: CompletionQueue, most: int) -> list[CompletionRecord]:
    """Return the oldest completions."""
    return [CompletionRecord(*numbers) for numbers in cq.poll(most)]


class End(Carrier):
    """A carrier of `Wire`."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire, self.name = wire, name
        self.inbox: deque[Arrival] = deque()
        self.sent: list[Segment] = []

    def send(self, segment: Segment, to: object, mtu_bytes: int) -> None:
        self.sent.append(segment)
        far = self.wire.ends[str(to)]
        packets = segment.packets(mtu_bytes) if self.wire.fate else [segment]
        for packet in packets:
            packet.payload = bytes(packet.payload)  # a copy: later changes of the memory do not reach it
            for item in self.wire.fate(packet) if self.wire.fate else [packet]:
                far.inbox.append(Arrival(segment=item, source=self.name))

    def receive(self) -> list[Arrival]:
        came, self.inbox = list(self.inbox), deque()
        return came

    def is_idle(self) -> bool:
        return not self.inbox

    def wait(self, seconds: float) -> None:
        self.wire.clock.sleep(seconds)

    def close(self) -> None: ...


class Wire:
    def __init__(self, fate: Fate | None = None) -> None:
        self.clock, self.fate = ManualClock(), fate
        self.ends = {name: End(self, name) for name in ("a", "b")}
        self.a, self.b = (Host(Adapter(self.ends[name], clock=self.clock)) for name in ("a", "b"))

    def run(self, seconds: float = 0.0) -> None:
        """Run until both ends are idle, for at least this simulated time."""
        until_s = self.clock() + seconds
        while True:
            self.a.adapter.progress()
            self.b.adapter.progress()
            if not self.ends["a"].inbox and not self.ends["b"].inbox:
                if self.clock() >= until_s:
                    return
                self.clock.sleep(0.001)


class Host:
    """An adapter with memory, one completion queue, and queue pairs."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter, self.pd = adapter, object()
        self.cq = CompletionQueue(1000, adapter.memory)
        self.memory = (ctypes.c_ubyte * (1 << 20))()
        self.at = ctypes.addressof(self.memory)
        self.region = self.adapter.regions.register(self.pd, self.at, 1 << 20, ALL)

    @classmethod
    def over(cls, carrier: Carrier) -> Host:
        return cls(Adapter(carrier))

    def queue_pair(self, service: Service = Service.RC, **more: int) -> QueuePair:
        def make(number: int) -> QueuePair:
            return QueuePair(
                adapter=self.adapter,
                number=number,
                service=service,
                pd=self.pd,
                send_cq=self.cq,
                recv_cq=self.cq,
                receives=ReceiveQueue(100, 4),
                send_capacity=100,
                send_places_max=4,
                inline_max=256,
                signal_all=False,
            )

        return self.adapter.add(make)

    def place(self, offset: int, length: int) -> Place:
        return Place(self.at + offset, length, self.region.key)

    def put(self, offset: int, data: bytes) -> None:
        self.memory[offset : offset + len(data)] = data  # type: ignore[assignment]

    def get(self, offset: int, length: int) -> bytes:
        return bytes(self.memory[offset : offset + length])

    def receive(self, qp: QueuePair, wr_id: int, offset: int, length: int) -> None:
        qp.post_receive(ReceiveWork(wr_id=wr_id, places=(self.place(offset, length),)))

    def send(
        self, qp: QueuePair, wr_id: int, offset: int, length: int, opcode=ibv_wr_opcode.IBV_WR_SEND, **more
    ) -> None:
        work = SendWork(
            wr_id=wr_id, opcode=opcode, places=(self.place(offset, length),), flags=IBV_SEND_SIGNALED, **more
        )
        qp.post_send(work)
        self.adapter.wake(qp)

    def done(self) -> list[tuple[int, int]]:
        return [(item.wr_id, int(item.status)) for item in taken(self.cq, 1000)]


def connected(wire: Wire, service: Service = Service.RC, **settings: int) -> tuple[QueuePair, QueuePair]:
    """Return a queue pair at each end, ready to send."""
    return connect(wire.a, wire.b, "b", "a", service, **settings)


def connect(
    a: Host, b: Host, to_b: object, to_a: object, service: Service = Service.RC, **settings: int
) -> tuple[QueuePair, QueuePair]:
    """Return two connected queue pairs of any two hosts; the addresses have the form of their carriers."""
    pair = a.queue_pair(service), b.queue_pair(service)
    for mine, other, far in ((pair[0], pair[1], to_b), (pair[1], pair[0], to_a)):
        expected = {
            "access": ALL,
            "mtu_bytes": 1024,
            "max_dest_rd_atomic": 4,
            "max_rd_atomic": 4,
            "timeout": 10,
            "retry_cnt": 7,
            "rnr_retry": 7,
            "min_rnr_timer": 1,
        }
        mine.settings = Settings(destination=far, source=far, dest_qp=other.number, **(expected | settings))
        for state in (ibv_qp_state.IBV_QPS_INIT, ibv_qp_state.IBV_QPS_RTR, ibv_qp_state.IBV_QPS_RTS):
            mine.enter(state)
    return pair


def loopback_address(number: int) -> str:
    """Return an address of 127.0.0.0/8 that no other process of the tests has."""
    place = os.getpid() % 60_000 + 300
    return f"127.{100 + number}.{place >> 8 & 0xFF}.{place & 0xFF}"
