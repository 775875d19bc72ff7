"""Queue pairs, with which programs send and receive, and their initial attributes."""

from __future__ import annotations

import errno

from weft.verbs import enums as e
from weft.verbs.attributes.objects import Unsigned, table
from weft.verbs.attributes.text import name_flags, qp_state_to_str, qp_type_to_str
from weft.verbs.enums import IBV_QPT_UD, ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type, ibv_wr_opcode
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.hca.carrier import MemoryPath
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.queue_pair import SERVICES, TRANSITIONS, QueuePair
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.hca.segment import PSN_MASK, Service
from weft.verbs.hca.work import Refused, SendWork
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.cq import CQ, CQEX
from weft.verbs.pyverbs.eec import RDD
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.posting import post_chain, prepare, receive_work, send_work
from weft.verbs.pyverbs.qp_attributes import ECE, QPAttr, QPCap, QPRateLimitAttr
from weft.verbs.pyverbs.qp_changes import Changeable, copy_attributes
from weft.verbs.pyverbs.srq import SRQ
from weft.verbs.pyverbs.windows import MW, Binding, MWBind
from weft.verbs.pyverbs.wr import RecvWR, SendWR
from weft.verbs.pyverbs.xrcd import XRCD
from weft.verbs.shm.memory import total

_MASKS = {1: "PD", 2: "XRCD", 4: "Create Flags", 8: "Max TSO header", 16: "Indirection Table", 32: "RX hash"}
_CREATE_FLAGS = {
    1: "Block self mcast loopback",
    2: "Scatter FCS",
    4: "CVLAN stripping",
    8: "Source QPN",
    16: "PCI write end padding",
}  # pyverbs numbers them from 0, unlike verbs.h


class QPInitAttr(QPCap):
    """The attributes of a new queue pair. `cap` is a copy, as in pyverbs: to change a value, set `max_send_wr` etc.

    `rdd` is the domain of a queue pair for reliable datagrams; pyverbs does not have it.
    """

    qp_type = Unsigned(32)
    sq_sig_all = Unsigned(32)

    def __init__(
        self,
        qp_type: int = IBV_QPT_UD,
        qp_context: object = None,
        scq: CQ | CQEX | None = None,
        rcq: CQ | CQEX | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 1,
        rdd: RDD | None = None,
    ) -> None:
        self.take(cap)
        self.qp_type, self.sq_sig_all = qp_type, sq_sig_all
        self.qp_context, self.srq, self.rdd = qp_context, srq, rdd
        self.send_cq, self.recv_cq = _checked(scq), _checked(rcq)

    @property
    def cap(self) -> QPCap:
        return self.only_cap()

    @cap.setter
    def cap(self, val: QPCap) -> None:
        self.take(val)

    def __str__(self) -> str:
        head = {"QP type": qp_type_to_str(self.qp_type), "SQ sig. all": self.sq_sig_all}
        return table(**head) + "QP caps:\n" + self._lines("    ")


def _checked(cq: CQ | CQEX | None) -> CQ | CQEX | None:
    if cq is not None and not isinstance(getattr(cq, "core", None), CompletionQueue):
        raise PyverbsUserError(f"Expected CQ/CQEX, got {type(cq)}")
    return cq


class QPInitAttrEx(QPInitAttr):
    """The attributes of a new extended queue pair; `comp_mask` selects those that are set."""

    comp_mask = Unsigned(32)
    create_flags = Unsigned(32)
    max_tso_header = Unsigned(16)
    source_qpn = Unsigned(32)
    send_ops_flags = Unsigned(64)

    def __init__(
        self,
        qp_type: int = IBV_QPT_UD,
        qp_context: object = None,
        scq: CQ | CQEX | None = None,
        rcq: CQ | CQEX | None = None,
        srq: SRQ | None = None,
        cap: QPCap | None = None,
        sq_sig_all: int = 0,
        comp_mask: int = 0,
        pd: PD | None = None,
        xrcd: XRCD | None = None,
        create_flags: int = 0,
        max_tso_header: int = 0,
        source_qpn: int = 0,
        hash_conf: object = None,
        ind_table: object = None,
        send_ops_flags: int = 0,
        rdd: RDD | None = None,
    ) -> None:
        super().__init__(qp_type, qp_context, scq, rcq, srq, cap, sq_sig_all, rdd)
        self.comp_mask, self.pd, self.xrcd, self.create_flags = comp_mask, pd, xrcd, create_flags
        self.max_tso_header, self.source_qpn, self.send_ops_flags = max_tso_header, source_qpn, send_ops_flags
        self.hash_conf, self.ind_table = hash_conf, ind_table

    def mask_to_str(self, mask: int) -> str:
        return name_flags(mask, _MASKS)

    def flags_to_str(self, flags: int) -> str:
        return name_flags(flags, _CREATE_FLAGS)

    def __str__(self) -> str:
        tail = {
            "comp mask": self.mask_to_str(self.comp_mask),
            "create flags": self.flags_to_str(self.create_flags),
            "max TSO header": self.max_tso_header,
            "Source QPN": self.source_qpn,
        }
        return super().__str__() + table(**tail)


INLINE_MAX_BYTES = 4096
_S, _M, _T = ibv_qp_state, ibv_qp_attr_mask, ibv_qp_type


class QP(Changeable):
    """A queue pair, created from a PD, or from a Context with QPInitAttrEx. `core` is its state in the adapter.

    With a `qp_attr` it goes to RTS (UD and RD), or to INIT (the others).
    """

    _name = "QP"
    core: QueuePair

    def __init__(
        self, creator: PD | Context, init_attr: QPInitAttr | QPInitAttrEx, qp_attr: QPAttr | None = None
    ) -> None:
        self.pd = creator if isinstance(creator, PD) else None
        self.xrcd = None
        if isinstance(creator, Context):
            if not isinstance(init_attr, QPInitAttrEx):
                raise PyverbsUserError("A QP of a Context needs QPInitAttrEx")
            self.pd = init_attr.pd if init_attr.comp_mask & e.IBV_QP_INIT_ATTR_PD else None
            self.xrcd = init_attr.xrcd if init_attr.comp_mask & e.IBV_QP_INIT_ATTR_XRCD else None
        self.ctx: Context = creator if isinstance(creator, Context) else creator.ctx
        self._kind = _kind(init_attr)
        self._called = f"a queue pair of {self._kind.name}"
        self._check(init_attr)
        self.scq, self.rcq, self.srq, self.rdd = init_attr.send_cq, init_attr.recv_cq, init_attr.srq, init_attr.rdd
        self._init_attr = init_attr
        self._cap = init_attr.cap
        self._attr = QPAttr()
        try:
            with self.ctx.adapter.lock:
                self.core = self.ctx.adapter.add(self._make)
        except Refused as refused:
            raise PyverbsRDMAError("Failed to create QP", refused.code, str(refused)) from refused
        self.core.on_event = lambda event: self.ctx.raise_event(event, self)
        for parent in {
            id(parent): parent
            for parent in (self.ctx, self.pd, self.scq, self.rcq, self.srq, self.xrcd, self.rdd)
            if parent
        }.values():
            parent.add_ref(self)
        if qp_attr is not None:
            self.to_rts(qp_attr) if self._kind in (_T.IBV_QPT_UD, _T.IBV_QPT_RD) else self.to_init(qp_attr)

    # -- creation -----------------------------------------------------------------------------------------------------

    def _check(self, init_attr: QPInitAttr | QPInitAttrEx) -> None:
        """Raise if the adapter cannot create the queue pair, before anything is allocated."""
        limits, target = self.ctx.query_device(), self._kind == _T.IBV_QPT_XRC_RECV
        reason = ""
        if target and self.xrcd is None:
            reason = "an XRC receive queue pair needs a domain: give xrcd, and IBV_QP_INIT_ATTR_XRCD in comp_mask"
        elif not target and self.pd is None:
            reason = "no protection domain: give pd, and IBV_QP_INIT_ATTR_PD in comp_mask"
        elif (self._kind == _T.IBV_QPT_RD) != (init_attr.rdd is not None):
            reason = "rdd must be given for a queue pair for reliable datagrams, and for no other"
        elif not target and init_attr.send_cq is None:
            reason = "no completion queue for sends: give scq"
        elif self._kind not in (_T.IBV_QPT_XRC_SEND, _T.IBV_QPT_XRC_RECV) and init_attr.recv_cq is None:
            reason = "no completion queue for receives: give rcq"
        elif max(init_attr.max_send_wr, init_attr.max_recv_wr) > limits.max_qp_wr:
            reason = f"max_send_wr or max_recv_wr is above {limits.max_qp_wr}"
        elif max(init_attr.max_send_sge, init_attr.max_recv_sge) > limits.max_sge:
            reason = f"max_send_sge or max_recv_sge is above {limits.max_sge}"
        elif init_attr.max_inline_data > INLINE_MAX_BYTES:
            reason = f"max_inline_data {init_attr.max_inline_data}: the limit is {INLINE_MAX_BYTES}"
        if reason:
            raise PyverbsRDMAError("Failed to create QP", errno.EINVAL, reason)
        flags = getattr(init_attr, "create_flags", 0)
        if flags:
            raise PyverbsRDMAError(
                "Failed to create QP", errno.EOPNOTSUPP, f"create_flags {flags:#x} are not supported"
            )

    def _make(self, number: int) -> QueuePair:
        init, nowhere = self._init_attr, CompletionQueue(0)
        if self.srq is not None:
            receives = self.srq.core
        else:
            xrc = SERVICES[self._kind] == Service.XRC
            capacity = 0 if xrc else init.max_recv_wr
            receives = ReceiveQueue(capacity, init.max_recv_sge, shared=xrc, memory=self.ctx.adapter.memory)
        return QueuePair(
            adapter=self.ctx.adapter,
            number=number,
            service=SERVICES[self._kind],
            pd=self.pd.key if self.pd is not None else None,
            send_cq=self.scq.core if self.scq is not None else nowhere,
            recv_cq=self.rcq.core if self.rcq is not None else nowhere,
            receives=receives,
            send_capacity=init.max_send_wr,
            send_places_max=init.max_send_sge,
            inline_max=init.max_inline_data,
            signal_all=bool(init.sq_sig_all),
            domain=domain.domain if (domain := self.xrcd or self.rdd) is not None else None,
        )

    def _release(self) -> None:
        core, adapter = self.core, self.ctx.adapter
        with adapter.lock:
            if any(core in members for members in adapter.groups.values()):
                raise PyverbsRDMAError(
                    "Failed to destroy QP", errno.EBUSY, "it is in a multicast group: leave it first"
                )
            core.enter(_S.IBV_QPS_RESET)  # requests on other references fail
            adapter.remove(core)
        self.pd = self.scq = self.rcq = self.srq = self.xrcd = self.rdd = None

    # -- states -------------------------------------------------------------------------------------------------------

    def _masks(self, before: ibv_qp_state, after: ibv_qp_state) -> tuple[int, int] | None:
        return TRANSITIONS.get((before, after), {}).get(self._kind)

    def modify_rate_limit(self, attr: QPRateLimitAttr) -> None:
        """Accept no limit only: the device has no packet pacing (packet_pacing_caps)."""
        action = "Failed to modify QP rate limit"
        if self.core.state != _S.IBV_QPS_RTS:
            raise PyverbsRDMAError(action, errno.EINVAL, f"the state is {qp_state_to_str(self.core.state)}, not RTS")
        if attr.rate_limit or attr.max_burst_sz or attr.typical_pkt_sz or attr.comp_mask:
            raise PyverbsRDMAError(action, errno.EOPNOTSUPP, f"{attr.rate_limit} kbit/s: the device has no rate limits")

    def query(self, attr_mask: int) -> tuple[QPAttr, QPInitAttr]:
        """Return all attributes, regardless of the mask. PSNs are those of the next packets."""
        core, settings, attr = self.core, self.core.settings, QPAttr()
        copy_attributes(self._attr, attr, ~0)
        attr.cap = self._cap
        attr.qp_state = attr.cur_qp_state = core.state
        attr.port_num = settings.port_num
        connected = core.service not in (Service.UD, Service.RD)
        started = core.state in (_S.IBV_QPS_RTS, _S.IBV_QPS_SQD, _S.IBV_QPS_SQE)
        if started:
            attr.sq_psn = core.record.next_psn
        if connected and (started or core.state == _S.IBV_QPS_RTR):
            attr.rq_psn = core.record.expected_psn
        attr.sq_draining = int(core.state == _S.IBV_QPS_SQD and any(work.psn >= 0 for work in core.sends))
        init = self._init_attr
        init_attr = QPInitAttr(self._kind, init.qp_context, self.scq, self.rcq, self.srq, self._cap, init.sq_sig_all)
        return attr, init_attr

    @property
    def qp_type(self) -> int:
        return self._kind

    @property
    def qp_state(self) -> int:
        return self.core.state

    @property
    def qp_num(self) -> int:
        return self.core.number

    # -- posting ------------------------------------------------------------------------------------------------------

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        if wr.next_wr is None and self.core.put_receive(wr.raw):
            return
        with self.core.adapter.lock:
            post_chain(lambda receive: self.core.post_receive(receive_work(receive)), wr, bad_wr, "Failed to post recv")

    def post_send(self, wr: SendWR, bad_wr: SendWR | None = None) -> None:
        """Post a list of requests; those before a refused one are posted."""
        core, rest = self.core, wr
        while (path := core.shm_path or self._find_shm_path(rest)) is not None and path.post(rest.raw):
            if rest.next_wr is None:
                return
            rest = rest.next_wr
        try:
            with core.adapter.lock:
                post_chain(self._post_one, rest, bad_wr, "Failed to post send")
        finally:
            self._go()

    def _find_shm_path(self, wr: SendWR) -> MemoryPath | None:
        core = self.core
        if core.adapter.lock.is_mine:
            return None
        return core.find_shm_path(total(wr.places))

    def _post_one(self, wr: SendWR) -> None:
        work = send_work(wr)
        if self._kind in (_T.IBV_QPT_UD, _T.IBV_QPT_RD):
            if self._kind == _T.IBV_QPT_UD and wr.ah is None:
                raise Refused(errno.EINVAL, "a datagram needs an address: call set_wr_ud")
            work.ah = wr.eec_num if wr.ah is None else self.ctx.hardware.address_vector(wr.ah.attr)
            work.remote_qp, work.q_key = wr.remote_qpn & PSN_MASK, wr.remote_qkey
        self._ready(work)
        self.core.post_send(work)

    def _ready(self, work: SendWork) -> None:
        prepare(work, self._kind, self.core.inline_max)

    def _go(self) -> None:
        adapter = self.core.adapter
        with adapter.lock:
            adapter.wake(self.core)
        adapter.progress()

    # -- windows ------------------------------------------------------------------------------------------------------

    def bind_mw(self, mw: MW, mw_bind: MWBind) -> None:
        """Bind a window of type 1; it gets a new key."""
        work = SendWork(
            wr_id=mw_bind.wr_id,
            opcode=ibv_wr_opcode.IBV_WR_BIND_MW,
            flags=mw_bind.send_flags,
            window=Binding(mw, mw_bind.info),
        )
        try:
            with self.core.adapter.lock:
                self._ready(work)
                self.core.post_send(work)
        except Refused as refused:
            raise PyverbsRDMAError("Failed to Bind MW", refused.code, str(refused)) from refused
        self._go()

    # -- options ------------------------------------------------------------------------------------------------------

    def set_ece(self, ece: ECE) -> None:
        if ece.vendor_id:
            raise PyverbsRDMAError("Failed to set ECE", errno.EOPNOTSUPP, "weft's adapter has no vendor options")

    def query_ece(self) -> ECE:
        raise PyverbsRDMAError("Failed to query ECE", errno.EOPNOTSUPP, "weft's adapter has no vendor options")

    def query_data_in_order(self, op: int, flags: int = 0) -> int:
        """Return 0: the bytes of a message are visible when it is complete, in no order before."""
        return 0

    def __str__(self) -> str:
        state = {
            "QP type": qp_type_to_str(self._kind),
            "  number": self.qp_num,
            "  state": qp_state_to_str(self.qp_state),
        }
        return table(**state)


def _kind(init_attr: QPInitAttr) -> ibv_qp_type:
    try:
        kind = _T(init_attr.qp_type)
    except ValueError as error:
        reason = f"unknown qp_type {init_attr.qp_type}"
        raise PyverbsRDMAError("Failed to create QP", errno.EINVAL, reason) from error
    if kind not in SERVICES:
        reason = f"weft's adapter has no queue pairs of type {qp_type_to_str(kind)}"
        raise PyverbsRDMAError("Failed to create QP", errno.EOPNOTSUPP, reason)
    return kind
