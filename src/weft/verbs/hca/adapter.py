"""Implement one port of an adapter: its queue pairs, its regions, and the carrier that connects it to others.

    adapter.progress()        handle arrivals and timers, and send; poll and post call it

An adapter only works when it is called. A thread that blocks on a completion channel waits in `Carrier.wait`.
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
        self.lock = Lock(self.memory)  # held by a thread that posts, modifies an object or makes progress
        self.regions = Regions(self.memory, self.lock)
        self.counters: Counter[str] = Counter()
        self.queue_pairs: dict[int, QueuePair] = {}
        self.ee_contexts: dict[int, EEContext] = {}
        self.groups: dict[object, list[QueuePair]] = {}
        self.shared: dict[int, ReceiveQueue] = {}  # by the number that XRC uses
        self._numbers = carrier.numbers
        self._next_number = 0
        self._shared_numbers = itertools.count(1)
        self.background = 0  # the thread that responds to other processes
        self._loaded: threading.Event | None = None
        self._awake: deque[QueuePair | EEContext] = deque()
        self._timed: set[QueuePair | EEContext] = set()
        self._arrival: Arrival  # the packet that is being delivered

    # -- queue pairs --------------------------------------------------------------------------------------------------

    def add(self, make: Callable[[int], QueuePair]) -> QueuePair:
        """Create a queue pair with a free number."""
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
        """Return the number that has been unused for the longest time."""
        for _ in self._numbers:
            number = self._numbers[self._next_number % len(self._numbers)]
            self._next_number += 1
            if number not in self.queue_pairs and number not in self.ee_contexts:
                return number
        raise Refused(errno.ENOMEM, f"there are {len(self._numbers)} queue pairs already: close some")

    def add_ee_context(self, domain: object) -> EEContext:
        """Create an EE context. No queue pair has its number, so that carriers find the process by either."""
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
        """Add a shared receive queue under a number for XRC."""
        receives.number = next(self._shared_numbers) & 0xFF_FFFF
        self.shared[receives.number] = receives

    def join(self, qp: QueuePair, group: object) -> None:
        """Add a queue pair to a multicast group; joining twice changes nothing."""
        members = self.groups.setdefault(group, [])
        if qp not in members:
            members.append(qp)

    def leave(self, qp: QueuePair, group: object) -> bool:
        """Remove a queue pair from a multicast group; return whether it was a member."""
        members = self.groups.get(group, [])
        if qp not in members:
            return False
        members.remove(qp)
        if not members:
            del self.groups[group]
        return True

    def wake(self, qp: QueuePair | EEContext) -> None:
        """Schedule a queue pair that may have something to send."""
        if qp not in self._awake:
            self._awake.append(qp)

    # -- progress -----------------------------------------------------------------------------------------------------

    def send(self, qp: QueuePair | EEContext, segment: Segment, to: object = None) -> None:
        segment.p_key = self.p_key(qp.settings.pkey_index)
        segment.source_qp = segment.source_qp or qp.number  # for carriers without such a header
        if isinstance(segment.payload, DeviceBytes):
            answered = segment.service not in (Service.UC, Service.UD)
            if not answered or not self.carrier.carries_device_bytes:  # else the peer responds when it has a copy
                segment.payload = segment.payload.to_host()
        self.carrier.send(segment, qp.settings.destination if to is None else to, qp.settings.mtu_bytes)

    def p_key(self, index: int) -> int:
        return self.p_keys[index] if index < len(self.p_keys) else 0

    def show(self) -> None:
        """Publish changed queue addresses and keys of all queue pairs."""
        for qp in self.queue_pairs.values():
            qp.show()

    def on_bell(self) -> None:
        """Wake waiting threads after another process has added completions."""
        with self.lock:
            for queue in {id(qp.told_of_receives): qp.told_of_receives for qp in self.queue_pairs.values()}.values():
                queue.on_bell()
            for qp in list(self.queue_pairs.values()):
                qp.note_established()

    def next_s(self) -> float | None:
        """Return the time of the next timer; None if no timer is armed."""
        with self.lock:
            return min((due for qp in self._timed if (due := qp.requester.next_s()) is not None), default=None)

    def rest_s(self) -> float:
        """Return how long the background thread may wait for arrivals."""
        due_s = self.next_s()
        return _IDLE_S if due_s is None else max(_SHORTEST_S, due_s - self.clock())

    def progress(self) -> bool:
        """Handle arrivals and timers, and send. Return False if there was nothing to do."""
        loaded = self._loaded
        if loaded is not None and threading.get_ident() != self.background:
            loaded.wait(_LOADING_S)
        if self._awake or self._timed or not self.carrier.is_idle():  # an idle poll does not take the lock
            with self.lock:
                self._progress()
            return True
        return loaded is not None

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Make polling threads wait while kernels are loaded: polling would slow the loading down many times."""
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
            for qp in [qp for qp in self._timed if (due := qp.requester.next_s()) is not None and due <= now_s]:
                qp.requester.on_timer(now_s)
                self.arm_timer(qp)
        while self._awake:
            self.run(self._awake.popleft())

    def run(self, qp: QueuePair | EEContext) -> None:
        if isinstance(qp, QueuePair) and qp.service == Service.UD:
            qp.datagrams.run()
        else:
            qp.requester.run()
            self.arm_timer(qp)

    def arm_timer(self, qp: QueuePair | EEContext) -> None:
        """Add the queue pair to those with a timer, or remove it."""
        if qp.requester.next_s() is not None:
            self._timed.add(qp)
        else:
            self._timed.discard(qp)

    def _on_arrival(self, arrival: Arrival) -> None:
        self._arrival, segment = arrival, arrival.segment
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
            self.on_bad_key(is_q_key=False)
            return
        if isinstance(qp, QueuePair) and qp.service == Service.UD:
            if segment.q_key != qp.settings.q_key:
                self.on_bad_key(is_q_key=True)
                return
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
            self.arm_timer(qp)

    def on_bad_key(self, *, is_q_key: bool) -> None:
        """Count the packet that is being delivered, and report it to the network: its Q_Key or P_Key is wrong."""
        self.counters["qkey_violations" if is_q_key else "pkey_violations"] += 1
        self.carrier.report_bad_key(self._arrival, is_q_key=is_q_key)
