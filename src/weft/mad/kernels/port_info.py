"""Set(PortInfo) as a kernel: what `mad.port_settings` does, where it would refuse nothing and take no link down."""

from __future__ import annotations

import numpy as np

from weft.jit import handler, part
from weft.mad import settable
from weft.mad.kernels.tables import Array, Mark, two
from weft.mad.settable import byte
from weft.wire.fields import Bits
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import SwitchInfo


def _bytes(mask: int) -> Array:
    return np.frombuffer(mask.to_bytes(PortInfo.size, "big"), np.uint8)


_STORED, _ADDRESSED = (
    _bytes(settable.STORED),
    _bytes(settable.STORED_WITH_LID | settable.LID | settable.SM),
)
_REFUSED = _bytes(settable.M_KEY)  # a change of these is for Python
_COUNTED = _bytes(settable.VIOLATIONS)
_BYTES, _FIRST_MULTICAST = int(PortInfo.size), 0xC000
_LID, _MASTER, _LMC = byte(PortInfo.lid), byte(PortInfo.master_sm_lid), byte(PortInfo.lmc)
_STATE, _PHYSICAL = byte(PortInfo.port_state), byte(PortInfo.port_physical_state)
_MTU, _MTU_CAP = byte(PortInfo.neighbor_mtu), byte(PortInfo.mtu_cap)
_VLS, _VL_CAP = byte(PortInfo.operational_vls), byte(PortInfo.vl_cap)
_REREGISTER = byte(PortInfo.client_reregister)


def _place(field: Bits) -> tuple[int, int, int]:
    """Return byte, shift and mask of a field that lies within a byte."""
    return byte(field), 8 - field.bit % 8 - field.width, (1 << field.width) - 1


# Offset of each field, offset of the supported values, and the codes for all and for none.
_ENABLED = np.array(
    [(*_place(state), *_place(able), every, none or every) for state, able, every, none in settable.ENABLED], np.int64
)
_ENABLES = _bytes(settable.ENABLES)
_ENHANCED = SwitchInfo.enhanced_port_0.bit
_DOWN, _INIT, _ARMED, _ACTIVE = (
    int(state) for state in (PortState.DOWN, PortState.INITIALIZE, PortState.ARMED, PortState.ACTIVE)
)
_SLEEP, _POLLING = int(PortPhysicalState.SLEEP), int(PortPhysicalState.POLLING)
_LIDS_CHANGED = int(Mark.LIDS_CHANGED)


@part
def _is_base_port(s, node, slot):
    return slot == s.first[node] and not s.switch_info[node, _ENHANCED // 8] >> (7 - _ENHANCED % 8) & 1


@part
def _may_be_addressed(s, node, slot, b, at):
    """Return whether LID and SM LID are valid values for a Set."""
    lid, master = two(b, at + _LID), two(b, at + _MASTER)
    return (
        0 < lid < _FIRST_MULTICAST
        and 0 < master < _FIRST_MULTICAST
        and not (b[at + _LMC] & 7 and _is_base_port(s, node, slot))
    )


@part
def _is_plain(s, slot, b, at, mask):
    """Return whether stored fields, limits and enabled values would be accepted without an error."""
    info = s.port_info[slot]
    for i in range(_BYTES):
        changes = (info[i] ^ b[at + i]) & mask[i]
        if changes & _REFUSED[i] or info[i] & _COUNTED[i]:
            return False
    if b[at + _VLS] >> 4 > info[_VL_CAP] >> 4 or b[at + _MTU] >> 4 > info[_MTU_CAP] & 0x0F:
        return False
    for i in range(len(_ENABLED)):
        place, shift, field_mask, where, supported_shift, supported_mask, every, none = _ENABLED[i]
        requested, supported = (
            np.int64(b[at + place]) >> shift & field_mask,
            np.int64(info[where]) >> supported_shift & supported_mask,
        )
        if requested & ~supported and requested not in (every, none):
            return False
    return True


@part
def _enable(info, b, at):
    """Set enabled widths and speeds, which take effect when the link next comes up; skip the work if none differs."""
    differs = 0
    for i in range(_BYTES):
        differs |= (info[i] ^ b[at + i]) & _ENABLES[i]
    if not differs:
        return
    for i in range(len(_ENABLED)):
        place, shift, field_mask, where, supported_shift, supported_mask, every, none = _ENABLED[i]
        requested, supported = (
            np.int64(b[at + place]) >> shift & field_mask,
            np.int64(info[where]) >> supported_shift & supported_mask,
        )
        if requested == every:
            requested = supported
        elif requested == none:
            requested = 0
        elif requested == 0:
            requested = np.int64(info[place]) >> shift & field_mask
        info[place] = np.int64(info[place]) & ~(field_mask << shift) | requested << shift


@part
def _may_go_to(state, requested, physical, default):
    """Return whether the port may change to a state while the link stays up."""
    if default not in (0, _SLEEP, _POLLING) or physical or requested == _DOWN:
        return False
    if requested == _ARMED:
        return state in (_INIT, _ARMED)
    return requested == 0 or (requested == _ACTIVE and state in (_ARMED, _ACTIVE))


@part
def _store(s, slot, b, at, mask):
    info = s.port_info[slot]
    lid, lmc = two(info, _LID), info[_LMC] & 7
    for i in range(_BYTES):
        info[i] ^= (info[i] ^ b[at + i]) & mask[i]
    if lid != two(info, _LID) or lmc != info[_LMC] & 7:
        s.marks[_LIDS_CHANGED] = 1
    if b[at + _VLS] >> 4:
        info[_VLS] = info[_VLS] & 0x0F | b[at + _VLS] & 0xF0
    if b[at + _MTU] >> 4:
        info[_MTU] = info[_MTU] & 0x0F | b[at + _MTU] & 0xF0
    _enable(info, b, at)


@handler
def set_port_info(s, node, slot, b, at):
    """Apply what a Set carries at byte `at` of `b`; False, and nothing is changed, if it is for Python."""
    is_addressed = not s.is_switch[node] or slot == s.first[node]
    mask = _ADDRESSED if is_addressed else _STORED
    if b[at + _REREGISTER] & 0x80 or (is_addressed and not _may_be_addressed(s, node, slot, b, at)):
        return False  # the first is for programs to hear of
    info, base = s.port_info[slot], _is_base_port(s, node, slot)
    state, requested = np.int64(info[_STATE]) & 0x0F, np.int64(b[at + _STATE]) & 0x0F
    physical, default = np.int64(b[at + _PHYSICAL]) >> 4, np.int64(b[at + _PHYSICAL]) & 0x0F
    if base:
        requested = physical = 0
    if not _may_go_to(state, requested, physical, default) or not _is_plain(s, slot, b, at, mask):
        return False
    _store(s, slot, b, at, mask)
    if default:
        info[_PHYSICAL] = info[_PHYSICAL] & 0xF0 | default
    if requested:
        info[_STATE] = info[_STATE] & 0xF0 | requested
    return True
