"""One queue pair: its attributes, its state, and what each state allows.

    RESET -> INIT -> RTR -> RTS <-> SQD
                             |       any but RESET -> ERR;  any -> RESET
                            SQE -> RTS    (not RC: a failed send stops only the sending side)

Which attributes each step needs, and which it may have besides, is a table, as in Linux's
drivers/infiniband/core/verbs.c (InfiniBand Architecture volume 1, "QueuePair state transition properties").
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.verbs.enums import (
    ibv_event_type,
    ibv_qp_attr_mask,
    ibv_qp_state,
    ibv_qp_type,
    ibv_wc_opcode,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.gpudirect.cuda import in_use
from weft.verbs.hca.carrier import MemoryPath, MemoryPeer
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.parts import Host, Receiving, Sending, Unconnected
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.segment import Service
from weft.verbs.hca.work import ReceiveWork, Refused, SendWork
from weft.verbs.shm import layout
from weft.verbs.shm.layout import CompletionRecord

S, M = ibv_qp_state, ibv_qp_attr_mask
_RESET, _INIT, _RTR, _RTS, _SQD, _SQE, _ERR, _UNKNOWN = S
_PKEY, _PORT, _ACCESS, _QKEY = M.IBV_QP_PKEY_INDEX, M.IBV_QP_PORT, M.IBV_QP_ACCESS_FLAGS, M.IBV_QP_QKEY
_AV, _MTU, _DEST, _RQ_PSN = M.IBV_QP_AV, M.IBV_QP_PATH_MTU, M.IBV_QP_DEST_QPN, M.IBV_QP_RQ_PSN
_DEST_RD, _MIN_RNR, _TIMEOUT = M.IBV_QP_MAX_DEST_RD_ATOMIC, M.IBV_QP_MIN_RNR_TIMER, M.IBV_QP_TIMEOUT
_RETRY, _RNR, _SQ_PSN, _RD = M.IBV_QP_RETRY_CNT, M.IBV_QP_RNR_RETRY, M.IBV_QP_SQ_PSN, M.IBV_QP_MAX_QP_RD_ATOMIC
_ALT, _MIG, _CUR, _NOTIFY = M.IBV_QP_ALT_PATH, M.IBV_QP_PATH_MIG_STATE, M.IBV_QP_CUR_STATE, M.IBV_QP_EN_SQD_ASYNC_NOTIFY
_RC, _UC, _UD, _RD_QP = ibv_qp_type.IBV_QPT_RC, ibv_qp_type.IBV_QPT_UC, ibv_qp_type.IBV_QPT_UD, ibv_qp_type.IBV_QPT_RD
_XRC_SEND, _XRC_RECV = ibv_qp_type.IBV_QPT_XRC_SEND, ibv_qp_type.IBV_QPT_XRC_RECV
SERVICES = {_RC: Service.RC, _UC: Service.UC, _UD: Service.UD, _RD_QP: Service.RD}
SERVICES |= {_XRC_SEND: Service.XRC, _XRC_RECV: Service.XRC}
RECEIVES = (_RTR, _RTS, _SQD, _SQE)  # states in which what arrives is taken
_TAKES_RECEIVES = (_RTS, _INIT, _RTR, _SQD, _SQE)  # states in which a receive request is kept
Masks = dict[ibv_qp_type, tuple[int, int]]  # needed, and allowed besides
_HAVE_PATHS = (Service.RC, Service.UC)
SHM_PATH_AFTER = 16  # requests; a program that sends less does not wait for kernels to be loaded
_PRIME = (1 << 61) - 1
_LARGE_BYTES = 1 << 16  # count as one more
_ASK_AGAIN_S = 1.0
_NOTHING: Masks = dict.fromkeys(SERVICES, (0, 0))
_TO_INIT: dict[ibv_qp_type, int] = dict.fromkeys(SERVICES, _PKEY | _PORT | _ACCESS) | {
    _UD: _PKEY | _PORT | _QKEY,
    _RD_QP: _ACCESS | _QKEY,  # port and partition are those of an EE context
}
_IN_RTS: Masks = {
    _RC: (0, _CUR | _ACCESS | _ALT | _MIG | _MIN_RNR),
    _UC: (0, _CUR | _ACCESS | _ALT | _MIG),
    _UD: (0, _CUR | _QKEY),
    _RD_QP: (0, _CUR | _QKEY | _ACCESS | _MIN_RNR),
    _XRC_SEND: (0, _CUR | _ACCESS | _ALT | _MIG),
    _XRC_RECV: (0, _CUR | _ACCESS | _ALT | _MIG | _MIN_RNR),
}
TRANSITIONS: dict[tuple[ibv_qp_state, ibv_qp_state], Masks] = {
    (_RESET, _INIT): {kind: (mask, 0) for kind, mask in _TO_INIT.items()},
    (_INIT, _INIT): {kind: (0, mask) for kind, mask in _TO_INIT.items()},
    (_INIT, _RTR): {
        _RC: (_AV | _MTU | _DEST | _RQ_PSN | _DEST_RD | _MIN_RNR, _ALT | _ACCESS | _PKEY),
        _UC: (_AV | _MTU | _DEST | _RQ_PSN, _ALT | _ACCESS | _PKEY),
        _UD: (0, _PKEY | _QKEY),
        _RD_QP: (int(_MIN_RNR), _QKEY | _ACCESS),
        _XRC_SEND: (_AV | _MTU | _DEST | _RQ_PSN, _ALT | _ACCESS | _PKEY),
        _XRC_RECV: (_AV | _MTU | _DEST | _RQ_PSN | _DEST_RD | _MIN_RNR, _ALT | _ACCESS | _PKEY),
    },
    (_RTR, _RTS): {
        _RC: (_TIMEOUT | _RETRY | _RNR | _SQ_PSN | _RD, _CUR | _ALT | _ACCESS | _MIN_RNR | _MIG),
        _UC: (_SQ_PSN, _CUR | _ALT | _ACCESS | _MIG),
        _UD: (_SQ_PSN, _CUR | _QKEY),
        _RD_QP: (0, _CUR | _QKEY | _ACCESS | _MIN_RNR),
        _XRC_SEND: (_TIMEOUT | _RETRY | _RNR | _SQ_PSN | _RD, _CUR | _ALT | _ACCESS | _MIG),
        _XRC_RECV: (_TIMEOUT | _SQ_PSN, _CUR | _ALT | _ACCESS | _MIN_RNR | _MIG),
    },
    (_RTS, _RTS): _IN_RTS,
    (_RTS, _SQD): {kind: (0, int(_NOTIFY)) for kind in SERVICES},
    (_SQD, _RTS): _IN_RTS,
    (_SQD, _SQD): {
        _RC: (
            0,
            _PORT | _AV | _TIMEOUT | _RETRY | _RNR | _RD | _DEST_RD | _ALT | _CUR | _PKEY | _ACCESS | _MIN_RNR | _MIG,
        ),
        _UC: (0, _AV | _ALT | _CUR | _PKEY | _ACCESS | _MIG),
        _UD: (0, _PKEY | _QKEY),
        _RD_QP: (0, _CUR | _QKEY | _ACCESS | _MIN_RNR),
        _XRC_SEND: (0, _PORT | _AV | _TIMEOUT | _RETRY | _RNR | _RD | _ALT | _CUR | _PKEY | _ACCESS | _MIG),
        _XRC_RECV: (0, _PORT | _AV | _TIMEOUT | _DEST_RD | _ALT | _CUR | _PKEY | _ACCESS | _MIN_RNR | _MIG),
    },
    (_SQE, _RTS): {_UC: (0, _CUR | _ACCESS), _UD: (0, _CUR | _QKEY), _RD_QP: _IN_RTS[_RD_QP]},
} | {(state, target): _NOTHING for state in S if state != _UNKNOWN for target in (_RESET, _ERR)}
del TRANSITIONS[_RESET, _ERR]


def wrong_step(what: str, masks: tuple[int, int] | None, before: ibv_qp_state, after: ibv_qp_state, mask: int) -> str:
    """Return why a transition is invalid with these attributes; empty if it is valid. `masks`: required, optional."""
    if masks is None:
        return f"{what} does not go from {before.name} to {after.name}"
    given, (needed, allowed) = mask & ~M.IBV_QP_STATE, masks
    missing, extra = needed & ~given, given & ~(needed | allowed)
    if missing:
        return f"from {before.name} to {after.name} needs {_names(missing)} too"
    return f"from {before.name} to {after.name} does not take {_names(extra)}" if extra else ""


def _names(mask: int) -> str:
    return ", ".join(bit.name for bit in M if mask & bit)


@dataclass(slots=True, kw_only=True)
class Settings:
    """The settings of modify_qp; times are the standard's codes."""

    pkey_index: int = 0
    port_num: int = 1
    access: int = 0
    q_key: int = 0
    destination: object = None  # whom the carrier sends to
    source: object = None  # the carrier's source of the peer's packets
    mtu_bytes: int = 1024
    dest_qp: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    max_dest_rd_atomic: int = 1
    max_rd_atomic: int = 1
    min_rnr_timer: int = 0
    timeout: int = 0
    retry_cnt: int = 0
    rnr_retry: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class QueuePair:
    """A queue pair: its queues and settings. The protocol is in `requester`, `responder` and `datagram`."""

    adapter: Host
    number: int
    service: Service
    pd: object
    send_cq: CompletionQueue
    recv_cq: CompletionQueue
    receives: ReceiveQueue
    send_capacity: int
    send_places_max: int
    inline_max: int
    signal_all: bool
    at: int = field(init=False)  # offset of its record in the adapter's memory
    record: layout.QueuePairRecord = field(init=False)
    _state: ibv_qp_state = field(default=_RESET, init=False)
    settings: Settings = field(default_factory=Settings)
    sends: deque[SendWork] = field(default_factory=deque)  # posted and not complete, in order
    on_event: Callable[[ibv_event_type], None] = lambda event: None
    domain: object = None  # XRC: domain of the shared receive queues; RD: domain of the EE contexts
    wants_drained: bool = False
    requester: Sending = field(init=False)
    responder: Receiving = field(init=False)
    datagrams: Unconnected = field(init=False)
    shm_path: MemoryPath | None = None  # through shared memory, to the other end
    _asks: int = 0  # posts to go until it is looked for
    _not_before_s: float = 0.0

    def __post_init__(self) -> None:
        self.at = layout.queue_pair_at(self.number)
        self.record = layout.QueuePairRecord.from_buffer(self.adapter.memory.bytes, self.at)
        self.record.clear()
        self.adapter.memory.queue_pairs[self.number] = self.record
        self.record.number, self.record.service = self.number, self.service
        self.record.signals_all, self.record.max_send_wr = self.signal_all, self.send_capacity

    @property
    def state(self) -> ibv_qp_state:
        return self._state

    @state.setter
    def state(self, state: ibv_qp_state) -> None:
        self._state = state
        self.record.state = state

    def show(self) -> None:
        """Write what others need to know where they look for it."""
        record, settings = self.record, self.settings
        for name in ("dest_qp", "access", "q_key", "mtu_bytes", "pkey_index", "max_dest_rd_atomic", "max_rd_atomic"):
            setattr(record, name, getattr(settings, name))
        if self.service == Service.UD:
            record.mtu_bytes = self.adapter.mtu_bytes
        record.source, record.p_key = mark(settings.source), self.adapter.p_key(settings.pkey_index)
        record.receive_queue, record.receive_cq = self.receives.at, self.told_of_receives.at
        record.send_cq = self.send_cq.at
        record.domain, record.receive_domain = id(self.pd), id(self.receive_pd)

    @property
    def receive_pd(self) -> object:
        """The protection domain of receive requests."""
        return self.receives.pd or self.pd

    @property
    def told_of_receives(self) -> CompletionQueue:
        """The completion queue of receive requests."""
        return self.recv_cq if self.receives.cq is None else self.receives.cq

    # -- posting ------------------------------------------------------------------------------------------------------

    def post_send(self, work: SendWork) -> None:
        self.check_send(work)
        if not self.sends and self.service != Service.UD:
            self.requester.resume()
        self.record.posted += 1
        work.posted = self.record.posted
        self.sends.append(work)
        if self.state in (_SQE, _ERR):
            self.flush_sends()

    def find_shm_path(self, size_bytes: int = 0, *, at_once: bool = False) -> MemoryPath | None:
        """Return the shared-memory path of a busy connection. The caller does not hold the adapter's lock.

        In a process that uses a GPU reliable connections find it before the first request: packets take memory of a GPU
        through the host.
        """
        can = self.service in _HAVE_PATHS and self._state == _RTS and self.send_capacity
        if self.shm_path is not None or not can:
            return self.shm_path
        self._asks += 1 + size_bytes // _LARGE_BYTES
        is_busy = self._asks >= SHM_PATH_AFTER or (in_use() is not None and self.service != Service.UC)
        if not at_once and (not is_busy or self.adapter.clock() < self._not_before_s):
            return None
        asked_s = self.adapter.clock()
        peer = self.shm_peer()
        took_s = self.adapter.clock() - asked_s
        self._not_before_s = asked_s + _ASK_AGAIN_S + 10 * took_s  # a peer without an answer is asked rarely
        if peer is not None:
            self.shm_path = peer.path_from(self, self.settings.dest_qp)
        return self.shm_path

    def shm_peer(self) -> MemoryPeer | None:
        """Return the peer's memory, if the carrier provides it."""
        to, p_key = self.settings, self.adapter.p_key(self.settings.pkey_index)
        return self.adapter.carrier.shm_peer(to.destination, to.dest_qp, p_key=p_key, mtu_bytes=to.mtu_bytes)

    def check_send(self, work: SendWork, before: int = 0) -> None:
        """Raise Refused if a request cannot be posted after others."""
        if self.state not in (_RTS, _SQD, _SQE, _ERR):
            raise Refused(errno.EINVAL, f"in state {self.state.name} nothing can be posted to send")
        if len(work.places) > self.send_places_max:
            raise Refused(errno.EINVAL, f"{len(work.places)} elements are more than the {self.send_places_max} allowed")
        is_word = work.opcode == ibv_wr_opcode.IBV_WR_ATOMIC_WRITE  # which is part of the request
        if work.inline is not None and not is_word and len(work.inline) > self.inline_max:
            raise Refused(errno.EINVAL, f"{len(work.inline)} bytes are too many for inline: {self.inline_max} at most")
        unpolled = self.record.posted - self.record.polled  # a polled completion frees its own place and all before it
        if unpolled + before >= self.send_capacity:
            why = f"the send queue is full: {self.send_capacity} requests wait until a completion of theirs is polled"
            raise Refused(errno.ENOMEM, why)

    def put_receive(self, request: bytes) -> bool:
        """Post a packed request; return False if it is not allowed, for which `post_receive` raises the reason."""
        threads = self.adapter.lock.threads
        threads.acquire()  # `with` takes twice as long
        try:
            return self._state in _TAKES_RECEIVES and not self.receives.is_shared and self.receives.put(request)
        finally:
            threads.release()

    def post_receive(self, work: ReceiveWork) -> None:
        if self.state == _RESET:
            raise Refused(errno.EINVAL, "in state RESET nothing can be posted to receive")
        if self.receives.is_shared:
            raise Refused(errno.EINVAL, "it takes from a shared receive queue: post there")
        self.receives.post(work)
        if self.state == _ERR:
            self.flush_receives()

    # -- states -------------------------------------------------------------------------------------------------------

    def enter(self, state: ibv_qp_state) -> None:
        """Change the state. The caller has checked the transition."""
        before, self.state = self.state, state
        if state == _RESET:
            self.clear()
        elif state == _RTR and self.service != Service.UD:
            self.responder.reset()
        elif state == _RTS and before == _RTR:
            (self.datagrams if self.service == Service.UD else self.requester).reset()
        elif state == _ERR:
            self.state = before
            self.fail()
        if state in (_RTS, _SQD):
            self.adapter.wake(self)
        self.show()

    def clear(self) -> None:
        """Reset: empty the queues and drop completions that were not polled."""
        self.sends.clear()
        if not self.receives.is_shared:
            self.receives.clear()
        self.send_cq.forget(self.number)
        self.recv_cq.forget(self.number)
        self.record.posted = self.record.polled = 0
        self.settings, self.record.is_established = Settings(), 0
        self.shm_path = None
        (self.datagrams if self.service == Service.UD else self.requester).reset()

    def drained(self) -> None:
        if self.wants_drained:
            self.wants_drained = False
            self.on_event(ibv_event_type.IBV_EVENT_SQ_DRAINED)

    def note_established(self) -> None:
        """Tell the program of the first request from the other end, if that came through shared memory."""
        if self.record.is_established == layout.ESTABLISHED_BY_PATH:
            self.record.is_established = 1
            self.on_event(ibv_event_type.IBV_EVENT_COMM_EST)

    # -- completing ---------------------------------------------------------------------------------------------------

    def complete(self, cq: CompletionQueue, completion: CompletionRecord) -> None:
        if not cq.add(completion):
            self.fail()

    def receive_error(self, work: ReceiveWork, status: ibv_wc_status) -> None:
        failed = CompletionRecord(wr_id=work.wr_id, qp_num=self.number, status=status, opcode=ibv_wc_opcode.IBV_WC_RECV)
        self.complete(self.told_of_receives, failed)

    def fail(self) -> None:
        """Go to the error state and flush all requests."""
        if self.state != _ERR:
            self.state = _ERR
            self.flush_sends()
            if self.service != Service.UD:
                self.responder.abandon()
            self.flush_receives()

    def flush_sends(self) -> None:
        self.record.unacked = 0
        while self.sends:
            work = self.sends.popleft()
            self.send_cq.add(_flushed(work.wr_id, self.number, ibv_wc_opcode.IBV_WC_SEND, work.posted))

    def flush_receives(self) -> None:
        if self.receives.is_shared:
            self.on_event(ibv_event_type.IBV_EVENT_QP_LAST_WQE_REACHED)
            return
        while (work := self.receives.take()) is not None:
            self.recv_cq.add(_flushed(work.wr_id, self.number, ibv_wc_opcode.IBV_WC_RECV))


def mark(source: object) -> int:
    """Return a hash of the source of packets, the same in all processes."""
    return int.from_bytes(repr(source).encode(), "big") % _PRIME


def _flushed(wr_id: int, qp_num: int, opcode: ibv_wc_opcode, posted: int = 0) -> CompletionRecord:
    status = ibv_wc_status.IBV_WC_WR_FLUSH_ERR
    return CompletionRecord(wr_id=wr_id, qp_num=qp_num, status=status, opcode=opcode, posted=posted)
