"""ClassPortInfo: what this administrator can do."""

from __future__ import annotations

import math

from weft.sm.sa.context import Context, Handler, Reply
from weft.wire.mad import QP1_Q_KEY, ClassPortInfo, Method
from weft.wire.sa import SaAttribute, SaMad

# CapabilityMask
_UD_MULTICAST, _MULTI_PATH, _CAPABILITY_MATCH = 1 << 9, 1 << 10, 1 << 13
# CapabilityMask2
_QOS, _MULTICAST_TOP, _FULL_PORT_INFO, _EXTENDED_SPEEDS, _CAPABILITY2_MATCH = 1 << 1, 1 << 3, 1 << 6, 1 << 7, 1 << 10
_SEND_ONLY_FULL_MEMBER, _WIDTH_2X, _SPEED_HDR, _SPEED_NDR = 1 << 12, 1 << 13, 1 << 15, 1 << 17
_UNIT_MS = 0.004096


def answer_class_port_info(sa: Context, request: SaMad, source_slot: int) -> Reply:
    """Return ClassPortInfo, without OpenSM's bits for notices and alias GUIDs, which are not served here."""
    state = sa.state
    capability2 = _MULTICAST_TOP | _FULL_PORT_INFO | _EXTENDED_SPEEDS | _CAPABILITY2_MATCH
    capability2 |= _SEND_ONLY_FULL_MEMBER | _WIDTH_2X | _SPEED_HDR | _SPEED_NDR
    info = ClassPortInfo(
        class_version=2,
        capability_mask=_UD_MULTICAST | _MULTI_PATH | _CAPABILITY_MATCH,
        capability_mask2=capability2 | (_QOS if state.qos is not None else 0),
        resp_time_value=min(31, math.ceil(math.log2(state.options.transaction_timeout_ms / _UNIT_MS))),
        redirect_qp=1,
        redirect_q_key=QP1_Q_KEY,
        trap_q_key=QP1_Q_KEY,
    )
    return Reply(records=info.raw)


HANDLERS: dict[tuple[int, int], Handler] = {(SaAttribute.CLASS_PORT_INFO, Method.GET): answer_class_port_info}
