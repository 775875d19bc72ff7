"""Define reliable datagram domains, and EE contexts, the ends of the connections that carry reliable datagrams.

    rdd = RDD(ctx)
    eec = EEC(rdd); eec.to_rts(attr)                     attr: an EECAttr with dest_eec_num, ah_attr, timeout, ...
    qp = QP(pd, QPInitAttr(qp_type=IBV_QPT_RD, rdd=rdd, ...), qp_attr)      a Q_Key, access flags: no peer
    wr.set_wr_rd(eec, remote_qpn, remote_qkey); qp.post_send(wr)

libibverbs lacks reliable datagrams. The names are those of the standard (InfiniBand Architecture volume 1, "Software
transport interface": allocate reliable datagram domain; create, modify, query, destroy EE context) in the manner of
pyverbs.
"""

from __future__ import annotations

import errno
import operator

from weft.verbs.attributes.objects import PyverbsCM, table
from weft.verbs.attributes.text import qp_state_to_str
from weft.verbs.enums import ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.end_to_end import EEContext
from weft.verbs.hca.queue_pair import TRANSITIONS
from weft.verbs.hca.work import Refused
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.qp_attributes import QPAttr
from weft.verbs.pyverbs.qp_changes import Changeable, copy_attributes

__all__ = ["EEC", "RDD", "EECAttr"]

_S, _M = ibv_qp_state, ibv_qp_attr_mask
_OF_QUEUES = _M.IBV_QP_ACCESS_FLAGS | _M.IBV_QP_MIN_RNR_TIMER | _M.IBV_QP_EN_SQD_ASYNC_NOTIFY
# (before, after) -> required and optional attributes: those of an RC queue pair without the ones of its queues.
_STEPS = {
    step: (masks[ibv_qp_type.IBV_QPT_RC][0] & ~_OF_QUEUES, masks[ibv_qp_type.IBV_QPT_RC][1] & ~_OF_QUEUES)
    for step, masks in TRANSITIONS.items()
    if ibv_qp_type.IBV_QPT_RC in masks
}


class RDD(PyverbsCM):
    """A reliable datagram domain: the queue pairs and EE contexts that may be used together."""

    def __init__(self, context: Context) -> None:
        self.ctx: Context | None = context
        self.domain = object()  # compared by the adapter
        context.add_ref(self)

    def _release(self) -> None:
        self.ctx = None


def _also(name: str) -> property:
    """Return a property that is another name of an attribute."""
    return property(operator.attrgetter(name), lambda attr, val: setattr(attr, name, val))


class EECAttr(QPAttr):
    """The attributes of an EE context: those of a queue pair, with the number of the peer's EE context.

    `IBV_QP_DEST_QPN` in a mask means `dest_eec_num`, and `IBV_QP_STATE` `eec_state`.
    """

    dest_eec_num, eec_state = _also("dest_qp_num"), _also("qp_state")


class EEC(Changeable):
    """An EE context. `core` is its state in the adapter."""

    _name, _called = "EEC", "an EE context"
    core: EEContext

    def __init__(self, rdd: RDD, eec_attr: EECAttr | None = None) -> None:
        if rdd.ctx is None:
            raise PyverbsRDMAError("Failed to create EEC", errno.EINVAL, "the domain is closed")
        self.rdd, self.ctx = rdd, rdd.ctx
        try:
            with self.ctx.adapter.lock:
                self.core = self.ctx.adapter.add_ee_context(rdd.domain)
        except Refused as refused:
            raise PyverbsRDMAError("Failed to create EEC", refused.code, str(refused)) from refused
        self._attr = EECAttr()
        rdd.add_ref(self)
        if eec_attr is not None:
            self.to_init(eec_attr)

    def _release(self) -> None:
        adapter = self.ctx.adapter
        with adapter.lock:
            adapter.remove(self.core)
            self.core.clear()
        adapter.progress()

    # -- states -------------------------------------------------------------------------------------------------------

    def _masks(self, before: ibv_qp_state, after: ibv_qp_state) -> tuple[int, int] | None:
        return _STEPS.get((before, after))

    def query(self) -> EECAttr:
        """Return all attributes; the PSNs are those of the next packets."""
        core, attr = self.core, EECAttr()
        copy_attributes(self._attr, attr, ~0)
        attr.eec_state = attr.cur_qp_state = core.state
        attr.port_num = core.settings.port_num
        if core.state in (_S.IBV_QPS_RTR, _S.IBV_QPS_RTS, _S.IBV_QPS_SQD):
            attr.rq_psn = core.record.expected_psn
        if core.state in (_S.IBV_QPS_RTS, _S.IBV_QPS_SQD):
            attr.sq_psn = core.record.next_psn
        return attr

    @property
    def eec_num(self) -> int:
        return self.core.number

    @property
    def eec_state(self) -> int:
        return self.core.state

    def __str__(self) -> str:
        return table(EEC_number=self.eec_num, EEC_state=qp_state_to_str(self.eec_state))
