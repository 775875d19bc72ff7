"""How a queue pair or an EE context is modified: which values the adapter takes, and what they are in its own words."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.attributes.text import mtu_to_str, qp_state_to_str
from weft.verbs.enums import ibv_qp_attr_mask, ibv_qp_state
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.queue_pair import Settings, wrong_step
from weft.verbs.hca.segment import PSN_MASK
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.qp_attributes import QPAttr

_S, _M = ibv_qp_state, ibv_qp_attr_mask
_STATES = {int(state) for state in _S if state != _S.IBV_QPS_UNKNOWN}
_CONTROLLED_QKEY = 1 << 31
_CAP_NET_RAW = 1 << 13
_CODE_MAX, _RETRIES_MAX = 31, 7  # 5 and 3 bits
_SETTINGS = (  # mask, name of the adapter, name of pyverbs
    (_M.IBV_QP_PKEY_INDEX, "pkey_index", "pkey_index"),
    (_M.IBV_QP_PORT, "port_num", "port_num"),
    (_M.IBV_QP_ACCESS_FLAGS, "access", "qp_access_flags"),
    (_M.IBV_QP_QKEY, "q_key", "qkey"),
    (_M.IBV_QP_DEST_QPN, "dest_qp", "dest_qp_num"),
    (_M.IBV_QP_RQ_PSN, "rq_psn", "rq_psn"),
    (_M.IBV_QP_SQ_PSN, "sq_psn", "sq_psn"),
    (_M.IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", "max_dest_rd_atomic"),
    (_M.IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", "max_rd_atomic"),
    (_M.IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", "min_rnr_timer"),
    (_M.IBV_QP_TIMEOUT, "timeout", "timeout"),
    (_M.IBV_QP_RETRY_CNT, "retry_cnt", "retry_cnt"),
    (_M.IBV_QP_RNR_RETRY, "rnr_retry", "rnr_retry"),
)
ATTRIBUTES: dict[ibv_qp_attr_mask, tuple[str, ...]] = {
    bit: (name_in_pyverbs,) for bit, _, name_in_pyverbs in _SETTINGS
} | {
    _M.IBV_QP_PATH_MTU: ("path_mtu",),
    _M.IBV_QP_AV: ("ah_attr",),
    _M.IBV_QP_ALT_PATH: ("alt_ah_attr", "alt_pkey_index", "alt_port_num", "alt_timeout"),
    _M.IBV_QP_PATH_MIG_STATE: ("path_mig_state",),
    _M.IBV_QP_EN_SQD_ASYNC_NOTIFY: ("en_sqd_async_notify",),
}


def copy_attributes(source: QPAttr, target: QPAttr, mask: int) -> None:
    for bit, names in ATTRIBUTES.items():
        for name in names if mask & bit else ():
            setattr(target, name, getattr(source, name))


def _wrong_value(ctx: Context, attr: QPAttr, mask: int) -> str:
    """Return the reason why a value is invalid; empty if all are valid."""
    if mask & _M.IBV_QP_AV and (reason := ctx.hardware.wrong_address(attr.ah_attr)):
        return reason
    for bit, name, least, most in _ranges(ctx):
        value = getattr(attr, name)
        if mask & bit and not least <= value <= most:
            return f"{name} {value} is not from {least} to {most}"
    if mask & _M.IBV_QP_PATH_MTU and not 0 < mtu_to_str(attr.path_mtu) <= ctx.adapter.mtu_bytes:
        return f"path_mtu {attr.path_mtu} is not a code for 256 to {ctx.adapter.mtu_bytes} bytes"
    return ""


def _ranges(ctx: Context) -> Iterator[tuple[ibv_qp_attr_mask, str, int, int]]:
    limits = ctx.query_device()
    yield _M.IBV_QP_PORT, "port_num", 1, limits.phys_port_cnt
    yield _M.IBV_QP_PKEY_INDEX, "pkey_index", 0, len(ctx.adapter.p_keys) - 1
    yield _M.IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", 0, limits.max_qp_init_rd_atom
    yield _M.IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", 0, limits.max_qp_rd_atom
    yield _M.IBV_QP_TIMEOUT, "timeout", 0, _CODE_MAX
    yield _M.IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", 0, _CODE_MAX
    yield _M.IBV_QP_RETRY_CNT, "retry_cnt", 0, _RETRIES_MAX
    yield _M.IBV_QP_RNR_RETRY, "rnr_retry", 0, _RETRIES_MAX


def _new_settings(ctx: Context, before: Settings, attr: QPAttr, mask: int) -> Settings:
    """Return the adapter's settings with the attributes of the mask."""
    new: dict[str, Any] = {
        name: getattr(attr, name_in_pyverbs) for bit, name, name_in_pyverbs in _SETTINGS if mask & bit
    }
    for name in {"dest_qp", "rq_psn", "sq_psn"} & new.keys():
        new[name] &= PSN_MASK
    if mask & _M.IBV_QP_PATH_MTU:
        new["mtu_bytes"] = mtu_to_str(attr.path_mtu)
    if mask & _M.IBV_QP_AV:
        new["destination"] = new["source"] = ctx.hardware.address_vector(attr.ah_attr)
    return replace(before, **new)


def may_use_controlled_qkeys() -> bool:
    """Return whether this process has CAP_NET_RAW, as the kernel requires."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            line = next(line for line in lines if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    return bool(int(line.split()[1], 16) & _CAP_NET_RAW)


class Changeable(PyverbsCM):
    """An object with the states of a queue pair. `core` is its state in the adapter."""

    ctx: Context
    core: Any
    _name: str  # of the class, in errors
    _called: str  # the same with its article
    _attr: QPAttr  # last values, for attributes that the adapter does not use

    def _masks(self, before: ibv_qp_state, after: ibv_qp_state) -> tuple[int, int] | None:
        """Return the required and the optional attributes of a transition; None if it is not allowed."""
        raise NotImplementedError

    def to_init(self, qp_attr: QPAttr) -> None:
        self._step(qp_attr, _S.IBV_QPS_INIT)

    def to_rtr(self, qp_attr: QPAttr) -> None:
        """Go to RTR, through INIT if needed."""
        if self.core.state != _S.IBV_QPS_INIT:
            self.to_init(qp_attr)
        self._step(qp_attr, _S.IBV_QPS_RTR)

    def to_rts(self, qp_attr: QPAttr) -> None:
        """Go to RTS, through RTR if needed."""
        if self.core.state != _S.IBV_QPS_RTR:
            self.to_rtr(qp_attr)
        self._step(qp_attr, _S.IBV_QPS_RTS)

    def _step(self, attr: QPAttr, target: ibv_qp_state) -> None:
        attr.qp_state = target
        masks = self._masks(_S(target - 1), target)
        assert masks is not None
        name = "init" if target == _S.IBV_QPS_INIT else qp_state_to_str(target)
        self._modify(attr, masks[0] | _M.IBV_QP_STATE, f"Failed to modify {self._name} state to {name}")

    def modify(self, qp_attr: QPAttr, comp_mask: int) -> None:
        self._modify(qp_attr, comp_mask, f"Failed to modify {self._name}")

    def _modify(self, attr: QPAttr, mask: int, action: str) -> None:
        """Check and apply attributes: all of them or none."""
        core = self.core
        with core.adapter.lock:
            target = attr.qp_state if mask & _M.IBV_QP_STATE else core.state
            reason = self._wrong_state(attr, mask, target) or _wrong_value(self.ctx, attr, mask)
            if reason:
                raise PyverbsRDMAError(action, errno.EINVAL, reason)
            if mask & _M.IBV_QP_QKEY and attr.qkey & _CONTROLLED_QKEY and not may_use_controlled_qkeys():
                raise PyverbsRDMAError(action, errno.EPERM, "a Q_Key with the highest bit set needs CAP_NET_RAW")
            core.settings = _new_settings(self.ctx, core.settings, attr, mask)
            core.show()
            copy_attributes(attr, self._attr, mask)
            if target == _S.IBV_QPS_SQD and mask & _M.IBV_QP_EN_SQD_ASYNC_NOTIFY:
                core.wants_drained = bool(attr.en_sqd_async_notify)
            if mask & _M.IBV_QP_STATE:
                core.enter(_S(target))
            if target == _S.IBV_QPS_RESET:
                self._attr = type(self._attr)()
        core.adapter.progress()

    def _wrong_state(self, attr: QPAttr, mask: int, target: int) -> str:
        state = self.core.state
        if mask & _M.IBV_QP_CUR_STATE and attr.cur_qp_state != state:
            return f"the state is {qp_state_to_str(state)}, not {qp_state_to_str(attr.cur_qp_state)}"
        if target not in _STATES:
            return f"unknown state {target}"
        return wrong_step(self._called, self._masks(state, _S(target)), state, _S(target), mask)
