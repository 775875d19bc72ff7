"""Reliable datagrams: their domains, and EE contexts, which are the ends of the paths that they take.

    rdd = RDD(ctx)
    eec = EEC(rdd); eec.to_rts(attr)                     attr: an EECAttr with dest_eec_num, ah_attr, timeout, ...
    qp = QP(pd, QPInitAttr(qp_type=IBV_QPT_RD, rdd=rdd, ...), qp_attr)      a Q_Key, access flags: no peer
    wr.set_wr_rd(eec, remote_qpn, remote_qkey); qp.post_send(wr)

libibverbs has none of this; the names are those of the standard (InfiniBand Architecture volume 1, "Software transport
interface": allocate reliable datagram domain; create, modify, query, destroy EE context) in the manner of pyverbs.
"""

from __future__ import annotations

import errno

from weft.verbs.device import Context
from weft.verbs.enums import ibv_qp_attr_mask, ibv_qp_state, ibv_qp_type
from weft.verbs.objects import PyverbsCM, table
from weft.verbs.pyverbs_error import PyverbsRDMAError
from weft.verbs.qp_attributes import QPAttr
from weft.verbs.qp_changes import copy_attributes, new_settings, wrong_value
from weft.verbs.text import qp_state_to_str
from weft.verbs.transport.queue_pair import TRANSITIONS, wrong_step
from weft.verbs.transport.work import Refused

__all__ = ["EEC", "RDD", "EECAttr"]

_S, _M = ibv_qp_state, ibv_qp_attr_mask
_OF_QUEUES = _M.IBV_QP_ACCESS_FLAGS | _M.IBV_QP_MIN_RNR_TIMER | _M.IBV_QP_EN_SQD_ASYNC_NOTIFY
# (before, after) -> needed, allowed besides: those of a connected queue pair without what is its queues'.
_STEPS = {
    step: (masks[ibv_qp_type.IBV_QPT_RC][0] & ~_OF_QUEUES, masks[ibv_qp_type.IBV_QPT_RC][1] & ~_OF_QUEUES)
    for step, masks in TRANSITIONS.items()
    if ibv_qp_type.IBV_QPT_RC in masks
}


class RDD(PyverbsCM):
    """A reliable datagram domain: its queue pairs may use its EE contexts, and may be reached by them."""

    def __init__(self, context: Context) -> None:
        self.ctx: Context | None = context
        self.domain = object()  # what the adapter compares
        context.add_ref(self)

    def _release(self) -> None:
        self.ctx = None


class EECAttr(QPAttr):
    """What an EE context has of a queue pair's attributes, with the other end's number.

    `IBV_QP_DEST_QPN` in a mask means `dest_eec_num`, and `IBV_QP_STATE` `eec_state`.
    """

    @property
    def dest_eec_num(self) -> int:
        return self.dest_qp_num

    @dest_eec_num.setter
    def dest_eec_num(self, val: int) -> None:
        self.dest_qp_num = val

    @property
    def eec_state(self) -> int:
        return self.qp_state

    @eec_state.setter
    def eec_state(self, val: int) -> None:
        self.qp_state = val


class EEC(PyverbsCM):
    """An EE context. `core` is the adapter's side of it."""

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

    def to_init(self, eec_attr: EECAttr) -> None:
        self._step(eec_attr, _S.IBV_QPS_INIT)

    def to_rtr(self, eec_attr: EECAttr) -> None:
        """By way of INIT, if it is not there."""
        if self.core.state != _S.IBV_QPS_INIT:
            self.to_init(eec_attr)
        self._step(eec_attr, _S.IBV_QPS_RTR)

    def to_rts(self, eec_attr: EECAttr) -> None:
        """By way of RTR, if it is not there."""
        if self.core.state != _S.IBV_QPS_RTR:
            self.to_rtr(eec_attr)
        self._step(eec_attr, _S.IBV_QPS_RTS)

    def _step(self, attr: EECAttr, target: ibv_qp_state) -> None:
        attr.eec_state = target
        needed, _ = _STEPS[_S(target - 1), target]
        self._modify(attr, needed | _M.IBV_QP_STATE, f"Failed to modify EEC state to {qp_state_to_str(target)}")

    def modify(self, eec_attr: EECAttr, comp_mask: int) -> None:
        self._modify(eec_attr, comp_mask, "Failed to modify EEC")

    def _modify(self, attr: EECAttr, mask: int, what: str) -> None:
        """All of it or nothing."""
        core = self.core
        with core.adapter.lock:
            target = attr.eec_state if mask & _M.IBV_QP_STATE else core.state
            reason = self._wrong_state(attr, mask, target) or wrong_value(self.ctx, core.settings.port_num, attr, mask)
            if reason:
                raise PyverbsRDMAError(what, errno.EINVAL, reason)
            core.settings = new_settings(self.ctx, core.settings, attr, mask)
            copy_attributes(attr, self._attr, mask)
            if mask & _M.IBV_QP_STATE:
                core.enter(_S(target))
            if target == _S.IBV_QPS_RESET:
                self._attr = EECAttr()
        core.adapter.progress()

    def _wrong_state(self, attr: EECAttr, mask: int, target: int) -> str:
        state = self.core.state
        if mask & _M.IBV_QP_CUR_STATE and attr.cur_qp_state != state:
            return f"it is in state {qp_state_to_str(state)}, not {qp_state_to_str(attr.cur_qp_state)}"
        if target not in list(_S):
            return f"there is no state {target}"
        return wrong_step("an EE context", _STEPS.get((state, _S(target))), state, _S(target), mask)

    def query(self) -> EECAttr:
        """All attributes; PSNs are those of the next packets."""
        core, attr = self.core, EECAttr()
        copy_attributes(self._attr, attr, ~0)
        attr.eec_state = attr.cur_qp_state = core.state
        attr.port_num = core.settings.port_num
        if core.state in (_S.IBV_QPS_RTR, _S.IBV_QPS_RTS, _S.IBV_QPS_SQD):
            attr.rq_psn = core.responder.expected
        if core.state in (_S.IBV_QPS_RTS, _S.IBV_QPS_SQD):
            attr.sq_psn = core.requester.next_psn
        return attr

    @property
    def eec_num(self) -> int:
        return self.core.number

    @property
    def eec_state(self) -> int:
        return self.core.state

    def __str__(self) -> str:
        return table(EEC_number=self.eec_num, EEC_state=qp_state_to_str(self.eec_state))
