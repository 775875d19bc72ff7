"""Define shared receive queues: receive requests for many queue pairs."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import InitVar, dataclass

from weft.verbs import enums as e
from weft.verbs.attributes.objects import PyverbsCM, PyverbsObject, Rare, Unsigned
from weft.verbs.enums import ibv_event_type, ibv_srq_type
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.receiving import ReceiveQueue
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.cq import CQ, CQEX
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.posting import post_chain, receive_work
from weft.verbs.pyverbs.wr import SGE, RecvWR
from weft.verbs.pyverbs.xrcd import XRCD

_FOR_XRC = e.IBV_SRQ_INIT_ATTR_PD | e.IBV_SRQ_INIT_ATTR_XRCD | e.IBV_SRQ_INIT_ATTR_CQ


@dataclass(eq=False)
class SrqAttr(PyverbsObject):
    max_wr: Unsigned = Unsigned(32, 100)
    max_sge: Unsigned = Unsigned(32, 1)
    srq_limit: Unsigned = Unsigned(32)


class SrqInitAttr(SrqAttr):
    def __init__(self, attr: SrqAttr | None = None) -> None:
        super().__init__(attr.max_wr, attr.max_sge, attr.srq_limit) if attr else super().__init__(0, 0, 0)


class SrqInitAttrEx(SrqAttr):
    """The attributes of a new extended shared receive queue; `comp_mask` selects those beyond SrqAttr that are set."""

    comp_mask = Rare(32)
    srq_type = Rare(32)  # 0 is IBV_SRQT_BASIC
    max_num_tags = Rare(32)
    max_ops = Rare(32)
    pd: PD | None = None
    xrcd: XRCD | None = None
    cq: CQ | CQEX | None = None


@dataclass(eq=False)
class OpsWr(PyverbsCM):
    """A tag-matching request. weft's adapter has no tag matching, so it cannot be posted."""

    wr_id: Unsigned = Unsigned(64)
    opcode: Unsigned = Unsigned(32, e.IBV_WR_TAG_ADD)
    flags: Unsigned = Unsigned(32, e.IBV_OPS_SIGNALED)
    next_wr: OpsWr | None = None
    unexpected_cnt: Unsigned = Unsigned(32)
    recv_wr_id: Unsigned = Unsigned(64)
    num_sge: InitVar[int | None] = None
    tag: Unsigned = Unsigned(64)
    mask: Unsigned = Unsigned(64)
    sg_list: Sequence[SGE] | None = None
    handle = Rare(32)

    def __post_init__(self, num_sge: int | None) -> None:
        self.sg_list = list(self.sg_list or ())[:num_sge]


class SRQ(PyverbsCM):
    """A shared receive queue. `core` is the queue; an event reports when fewer requests than the limit are left."""

    def __init__(self, creator: PD | Context, attr: SrqInitAttr | SrqInitAttrEx) -> None:
        self.cq: CQ | CQEX | None = None
        self.xrcd: XRCD | None = None
        if isinstance(creator, PD):
            self.pd, self.ctx = creator, creator.ctx
        elif isinstance(creator, Context):
            self._take_extended(creator, attr)
        else:
            raise PyverbsRDMAError("Srq needs either Context or PD for creation")
        limits = self.ctx.query_device()
        if not 1 <= attr.max_wr <= limits.max_srq_wr or attr.max_sge > limits.max_srq_sge:
            most = f"{limits.max_srq_wr} requests of {limits.max_srq_sge} elements"
            raise _refused(f"{attr.max_wr} requests of {attr.max_sge} elements are not from 1 to {most}")
        self.core = ReceiveQueue(attr.max_wr, attr.max_sge, shared=True, memory=self.ctx.adapter.memory)
        self.core.pd, self.core.record.limit = self.pd.key, attr.srq_limit
        self.core.on_limit = lambda: self.ctx.raise_event(ibv_event_type.IBV_EVENT_SRQ_LIMIT_REACHED, self)
        if self.xrcd is not None and self.cq is not None:
            self.core.domain, self.core.cq = self.xrcd.domain, self.cq.core
            self.ctx.adapter.add_shared(self.core)
        for parent in (self.pd, self.cq, self.xrcd):
            if parent is not None:
                parent.add_ref(self)

    def _take_extended(self, ctx: Context, attr: SrqInitAttr | SrqInitAttrEx) -> None:
        assert isinstance(attr, SrqInitAttrEx)
        kind = attr.srq_type if attr.comp_mask & e.IBV_SRQ_INIT_ATTR_TYPE else e.IBV_SRQT_BASIC
        if kind not in (e.IBV_SRQT_BASIC, e.IBV_SRQT_XRC):
            reason = f"weft's adapter has no {ibv_srq_type(kind).name}"
            raise PyverbsRDMAError("Failed to create SRQ", errno.EOPNOTSUPP, reason)
        needed = _FOR_XRC if kind == e.IBV_SRQT_XRC else e.IBV_SRQ_INIT_ATTR_PD
        if attr.comp_mask & needed != needed or attr.pd is None:
            raise _refused("comp_mask lacks IBV_SRQ_INIT_ATTR_PD, or for XRC the bits of XRCD and CQ")
        self.ctx, self.pd = ctx, attr.pd
        if kind == e.IBV_SRQT_XRC:
            if attr.xrcd is None or attr.cq is None:
                raise _refused("XRC needs a domain and a completion queue: give xrcd and cq")
            self.xrcd, self.cq = attr.xrcd, attr.cq

    def _release(self) -> None:
        self.ctx.adapter.shared.pop(self.core.number, None)

    def get_srq_num(self) -> int:
        if not self.core.number:
            raise PyverbsRDMAError(
                "Failed to retrieve SRQ number", errno.EOPNOTSUPP, "only an SRQ for XRC has a number"
            )
        return self.core.number

    def modify(self, attr: SrqAttr, comp_mask: int) -> None:
        """Change the capacity and the limit. The capacity cannot fall below the number of queued requests."""
        core, most = self.core, self.ctx.query_device().max_srq_wr
        capacity = attr.max_wr if comp_mask & e.IBV_SRQ_MAX_WR else core.capacity
        limit = attr.srq_limit if comp_mask & e.IBV_SRQ_LIMIT else core.record.limit
        reason = ""
        if comp_mask & ~(e.IBV_SRQ_MAX_WR | e.IBV_SRQ_LIMIT):
            reason = f"comp_mask {comp_mask:#x} has bits other than IBV_SRQ_MAX_WR and IBV_SRQ_LIMIT"
        elif not max(1, len(core)) <= capacity <= most:
            reason = f"max_wr {capacity} is not from {max(1, len(core))} (requests in the queue) to {most}"
        elif limit > capacity:
            reason = f"srq_limit {limit} is above the capacity of {capacity}"
        if reason:
            raise PyverbsRDMAError("Failed to modify SRQ", errno.EINVAL, reason)
        adapter = self.ctx.adapter
        with adapter.lock:
            core.resize(capacity)
            core.record.limit = limit
            adapter.show()

    def query(self) -> SrqAttr:
        return SrqAttr(self.core.capacity, self.core.places_max, self.core.record.limit)

    def post_srq_ops(self, wr: OpsWr, bad_wr: OpsWr | None = None) -> None:
        raise PyverbsRDMAError("post SRQ ops failed.", errno.EOPNOTSUPP, "weft's adapter has no tag matching")

    def post_recv(self, wr: RecvWR, bad_wr: RecvWR | None = None) -> None:
        """Post a list of requests; those before a refused one are posted."""
        lock = self.ctx.adapter.lock
        with lock.threads:
            if wr.next_wr is None and self.core.put(wr.raw):
                return
        with lock:
            post_chain(
                lambda receive: self.core.post(receive_work(receive)), wr, bad_wr, "Failed to post receive to SRQ."
            )


def _refused(reason: str) -> PyverbsRDMAError:
    return PyverbsRDMAError("Failed to create SRQ", errno.EINVAL, reason)
