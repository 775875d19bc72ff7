"""One port of an adapter: all its queue pairs and regions, and the carrier that joins it to others.

    adapter.progress()        take what arrived, act on time, send what may be sent; poll and post call it

Nothing happens by itself: like a program that polls, an adapter moves when somebody calls it. Whoever blocks on a
completion channel waits in `Carrier.wait`.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator

from weft.ids import p_keys_match
from weft.verbs.enums import ibv_event_type, ibv_qp_state
from weft.verbs.gpudirect.gpu import DeviceBytes
from weft.verbs.hca.carrier import TO_GROUP, Arrival, Carrier
from weft.verbs.hca.datagram import Datagrams
from weft.verbs.hca.end_to_end import EEContext, Outbox
from weft.verbs.hca.queue_pair import RECEIVES, QueuePair
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.regions import Regions
from weft.verbs.hca.requester import Requester
from weft.verbs.hca.responder import Responder
from weft.verbs.hca.segment import REQUESTS, Segment, Service
from weft.verbs.hca.work import Refused
from weft.verbs.shm.queue_memory import Lock, QueueMemory

_LOADING_S = 10.0
_IDLE_S, _SHORTEST_S = 0.5, 0.0005


class Adapter:
    def __init__(
        self,
        carrier: Carrier,
        *,
        mtu_bytes: int = 4096,
        p_keys: tuple[int, ...] = (0xFFFF,),
        clock: Callable[[], float] = time.monotonic,
        memory: QueueMemory | None = None,
    ) -> None:
        self.carrier, self.mtu_bytes, self.p_keys, self.clock = carrier, mtu_bytes, p_keys, clock
        self.memory = memory or QueueMemory(can_be_shared=False)
        self.lock = Lock(self.memory)  # of whoever posts, changes something or makes progress
        self.regions = Regions(self.memory, self.lock)
        self.counters: Counter[str] = Counter()
        self.queue_pairs: dict[int, QueuePair] = {}
        self.ee_contexts: dict[int, EEContext] = {}
        self.groups: dict[object, list[QueuePair]] = {}
        self.shared: dict[int, ReceiveQueue] = {}  # those that XRC names
        self._numbers = carrier.numbers
        self._next_number = 0
        self._shared_numbers = itertools.count(1)
        self.background = 0  # the thread that answers others
        self._loaded: threading.Event | None = None
        self._awake: deque[QueuePair | EEContext] = deque()
        self._timed: set[QueuePair | EEContext] = set()

    # -- queue pairs --------------------------------------------------------------------------------------------------

    def add(self, make: Callable[[int], QueuePair]) -> QueuePair:
        """A new one, made with its number."""
        qp = make(self._free_number())
        if qp.service == Service.UD:
            qp.datagrams = Datagrams(qp)
        else:
            qp.requester = Outbox(qp) if qp.service == Service.RD else Requester(qp)
            qp.responder = Responder(qp)
        self.queue_pairs[qp.number] = qp
        qp.show()
        return qp

    def _free_number(self) -> int:
        """One that was not in use for as long as possible."""
        for _ in self._numbers:
            number = self._numbers[self._next_number % len(self._numbers)]
            self._next_number += 1
            if number not in self.queue_pairs and number not in self.ee_contexts:
                return number
        raise Refused(errno.ENOMEM, f"there are {len(self._numbers)} queue pairs already")

    def add_ee_context(self, domain: object) -> EEContext:
        """A new one; its number is none of a queue pair's, so that carriers find the process by either."""
        ee = EEContext(self, self._free_number(), domain)
        self.ee_contexts[ee.number] = ee
        return ee

    def remove(self, qp: QueuePair | EEContext) -> None:
        self.queue_pairs.pop(qp.number, None)
        self.ee_contexts.pop(qp.number, None)
        self.memory.queue_pairs.pop(qp.number, None)
        qp.record.number = qp.record.state = 0
        self._timed.discard(qp)
        if qp in self._awake:
            self._awake.remove(qp)

    def add_shared(self, receives: ReceiveQueue) -> None:
        """Give it the number that XRC uses."""
        receives.number = next(self._shared_numbers) & 0xFF_FFFF
        self.shared[receives.number] = receives

    def join(self, qp: QueuePair, group: object) -> None:
        """What is sent to the group comes to this queue pair too; twice is as once."""
        members = self.groups.setdefault(group, [])
        if qp not in members:
            members.append(qp)

    def leave(self, qp: QueuePair, group: object) -> bool:
        """False if it was not in the group."""
        members = self.groups.get(group, [])
        if qp not in members:
            return False
        members.remove(qp)
        if not members:
            del self.groups[group]
        return True

    def wake(self, qp: QueuePair | EEContext) -> None:
        """It may have something to send."""
        if qp not in self._awake:
            self._awake.append(qp)

    # -- moving -------------------------------------------------------------------------------------------------------

    def send(self, qp: QueuePair | EEContext, segment: Segment, to: object = None) -> None:
        segment.p_key = self.p_key(qp.settings.pkey_index)
        segment.source_qp = segment.source_qp or qp.number  # for the carrier, where no header says it
        if isinstance(segment.payload, DeviceBytes):
            answered = segment.service not in (Service.UC, Service.UD)
            if not answered or not self.carrier.carries_device_bytes:  # else the other end answers when it has a copy
                segment.payload = segment.payload.to_host()
        self.carrier.send(segment, qp.settings.destination if to is None else to, qp.settings.mtu_bytes)

    def p_key(self, index: int) -> int:
        return self.p_keys[index] if index < len(self.p_keys) else 0

    def show(self) -> None:
        """Queues are elsewhere, or have other keys."""
        for qp in self.queue_pairs.values():
            qp.show()

    def was_rung(self) -> None:
        """Another process put something where somebody here may wait for it."""
        with self.lock:
            for queue in {id(qp.told_of_receives): qp.told_of_receives for qp in self.queue_pairs.values()}.values():
                queue.was_rung()
            for qp in list(self.queue_pairs.values()):
                qp.note_established()

    def next_s(self) -> float | None:
        """When something is due; None if nothing is."""
        with self.lock:
            return min((due for one in self._timed if (due := one.requester.next_s()) is not None), default=None)

    def rest_s(self) -> float:
        """How long who works in the background may wait for something to come."""
        due_s = self.next_s()
        return _IDLE_S if due_s is None else max(_SHORTEST_S, due_s - self.clock())

    def progress(self) -> bool:
        """False if there was nothing to do."""
        loaded = self._loaded
        if loaded is not None and threading.get_ident() != self.background:
            loaded.wait(_LOADING_S)
        if self._awake or self._timed or not self.carrier.is_idle():  # who polls does not keep others from the lock
            with self.lock:
                self._progress()
            return True
        return loaded is not None

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Kernels are being loaded: a program that polls meanwhile sleeps, or it would take many times as long."""
        self._loaded = threading.Event()
        try:
            yield
        finally:
            self._loaded.set()
            self._loaded = None

    def _progress(self) -> None:
        for arrival in self.carrier.receive():
            self._on_arrival(arrival)
        if self._timed:
            now_s = self.clock()
            for qp in [one for one in self._timed if (due := one.requester.next_s()) is not None and due <= now_s]:
                qp.requester.on_time(now_s)
                self.note_time(qp)
        while self._awake:
            self.run(self._awake.popleft())

    def run(self, qp: QueuePair | EEContext) -> None:
        if isinstance(qp, QueuePair) and qp.service == Service.UD:
            qp.datagrams.run()
        else:
            qp.requester.run()
            self.note_time(qp)

    def note_time(self, qp: QueuePair | EEContext) -> None:
        """Something of it may be due at a time, or not any more."""
        if qp.requester.next_s() is not None:
            self._timed.add(qp)
        else:
            self._timed.discard(qp)

    def _on_arrival(self, arrival: Arrival) -> None:
        segment = arrival.segment
        if segment.dest_qp == TO_GROUP:
            members = self.groups.get(arrival.group, ())
            for member in members:
                self._deliver(arrival, member)
            self.counters["no_queue_pair"] += not members
            return
        is_rd = segment.service == Service.RD
        end = self.ee_contexts.get(segment.ee) if is_rd else self.queue_pairs.get(segment.dest_qp)
        self._deliver(arrival, end)

    def _deliver(self, arrival: Arrival, qp: QueuePair | EEContext | None) -> None:
        segment = arrival.segment
        if qp is None or qp.state not in RECEIVES or qp.service != segment.service:
            self.counters["no_queue_pair"] += 1
            return
        if not p_keys_match(self.p_key(qp.settings.pkey_index), segment.p_key):
            self.counters["pkey_violations"] += 1
            return
        if isinstance(qp, QueuePair) and qp.service == Service.UD:
            qp.datagrams.on_request(segment, arrival.grh, arrival.slid, arrival.sl)
            return
        if arrival.source != qp.settings.source:
            self.counters["strangers"] += 1
            return
        if segment.op in REQUESTS:
            if qp.state == ibv_qp_state.IBV_QPS_RTR and not qp.record.is_established:
                qp.record.is_established = 1
                qp.on_event(ibv_event_type.IBV_EVENT_COMM_EST)
            qp.responder.on_request(segment)
        else:
            qp.requester.on_response(segment)
            self.note_time(qp)
