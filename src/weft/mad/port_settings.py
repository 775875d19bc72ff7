"""Set(PortInfo): which fields a subnet manager may write, and what each of them does.

A field that is out of range is refused with an invalid field; the others are set all the same, as hardware does.
Most fields are merely stored: those are copied at once, by a mask (`settable`) over the 64 bytes as one large number.
(InfiniBand Architecture volume 1, "PortInfo"; Linux's drivers for adapters that have their agent in software.)
"""

from __future__ import annotations

from weft.mad import links, m_key
from weft.mad.devices import Devices
from weft.mad.settable import (
    COUNTS,
    ENABLED,
    ENABLES,
    LID,
    LIMITS,
    M_KEY,
    SM,
    STORED,
    STORED_WITH_LID,
    VIOLATIONS,
    byte,
)
from weft.wire.fields import Writable
from weft.wire.mad import Status
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import SwitchInfo

_INVALID = int(Status.INVALID_FIELD)
_FIRST_MULTICAST = 0xC000
_STATES, _PHYSICAL = byte(PortInfo.port_state), byte(PortInfo.port_physical_state)
_MTU, _VLS = byte(PortInfo.neighbor_mtu), byte(PortInfo.operational_vls)
_VL_CAP, _MTU_CAP = byte(PortInfo.vl_cap), byte(PortInfo.mtu_cap)
_LMC, _REREGISTER = byte(PortInfo.lmc), byte(PortInfo.client_reregister)
# Permitted transitions: (current state, requested state); all others are refused.
_ALLOWED = {
    (PortState.INITIALIZE, PortState.ARMED),
    (PortState.ARMED, PortState.ARMED),
    (PortState.ARMED, PortState.ACTIVE),
    (PortState.ACTIVE, PortState.ACTIVE),
}


def set_port_info(devices: Devices, slot: int, mad: bytearray, at: int) -> int:
    """Apply what a Set carries at byte `at`; returns the status."""
    info, new_info = devices.info(slot), mad[at : at + 64]
    old = int.from_bytes(info, "big")
    differs = old ^ int.from_bytes(new_info, "big")
    status, mask = 0, STORED
    node = devices.node_of[slot]
    addressed = not devices.is_switch[node] or slot == devices.first[node]
    if addressed:
        more, status = _address(devices, slot, new_info)
        mask = STORED_WITH_LID | more
    changes = differs & mask
    if changes:
        info[:] = (old ^ changes).to_bytes(64, "big")
        if changes & LID:
            devices.forget_lid_paths()
        if changes & M_KEY:
            m_key.note(devices, slot)
    if addressed and new_info[_REREGISTER] & 0x80:
        devices.reregister.add(slot)
    if old & VIOLATIONS:
        _clear_counts(info, new_info)
    if differs & LIMITS:
        status |= _limits(info, new_info)
    if differs & ENABLES:
        status |= _enable(info, new_info)
    return status | _states(devices, slot, info, new_info)


def _address(devices: Devices, slot: int, new_info: bytearray) -> tuple[int, int]:
    """Return a mask of those of LID and SM LID that may be set, and the status."""
    lid, master = new_info[16] << 8 | new_info[17], new_info[18] << 8 | new_info[19]
    mask, status = 0, 0
    if 0 < lid < _FIRST_MULTICAST and not (new_info[_LMC] & 7 and _is_base_port(devices, slot)):
        mask |= LID
    else:
        status = _INVALID
    if 0 < master < _FIRST_MULTICAST:
        mask |= SM
    else:
        status = _INVALID
    return mask, status


def _clear_counts(info: Writable, new_info: bytearray) -> None:
    """Clear violation counters that the Set has as 0; other values change nothing."""
    for name in COUNTS:
        field = PortInfo.fields[name]
        if field.get(new_info) == 0:
            field.set(info, 0)


def _limits(info: Writable, new_info: bytearray) -> int:
    """Set operational VLs and MTU: 0 changes nothing, values above the capability are refused."""
    status = 0
    vls, mtu = new_info[_VLS] >> 4, new_info[_MTU] >> 4
    if vls > info[_VL_CAP] >> 4:
        status = _INVALID
    elif vls:
        info[_VLS] = info[_VLS] & 0x0F | vls << 4
    if mtu > info[_MTU_CAP] & 0x0F:
        status = _INVALID
    elif mtu:
        info[_MTU] = info[_MTU] & 0x0F | mtu << 4
    return status


def _enable(info: Writable, new_info: bytearray) -> int:
    """Set enabled widths and speeds, which take effect when the link next comes up."""
    status = 0
    for enabled, supported, every, none in ENABLED:
        requested, able = enabled.get(new_info), supported.get(info)
        if requested == every:
            enabled.set(info, able)
        elif requested == none:
            enabled.set(info, 0)
        elif requested & ~able:
            status = _INVALID
        elif requested:
            enabled.set(info, requested)
    return status


def _states(devices: Devices, slot: int, info: Writable, new_info: bytearray) -> int:
    status, default = 0, new_info[_PHYSICAL] & 0x0F
    if default in (PortPhysicalState.SLEEP, PortPhysicalState.POLLING):
        info[_PHYSICAL] = info[_PHYSICAL] & 0xF0 | default
    elif default:
        status = _INVALID
    requested, physical = new_info[_STATES] & 0x0F, new_info[_PHYSICAL] >> 4
    if not (requested or physical) or _is_base_port(devices, slot):
        return status
    if physical and requested not in (PortState.NO_CHANGE, PortState.DOWN):
        return _INVALID  # a physical state can be set only if the link is down, or goes down
    if physical or requested == PortState.DOWN:
        return status | _physical_state(devices, slot, info, physical)
    now = info[_STATES] & 0x0F
    if (now, requested) not in _ALLOWED:
        return _INVALID
    info[_STATES] = info[_STATES] & 0xF0 | requested
    return status


def _is_base_port(devices: Devices, slot: int) -> bool:
    """Return whether this is the base port 0 of a switch: it has no LMC, and is always Active."""
    node = devices.node_of[slot]
    return slot == devices.first[node] and not SwitchInfo.enhanced_port_0.get(devices.switch_info[node])


def _physical_state(devices: Devices, slot: int, info: Writable, physical: int) -> int:
    """Take the link down: with 0 and Polling it trains again, with Sleep and Disabled it stays down."""
    if physical not in (0, PortPhysicalState.SLEEP, PortPhysicalState.POLLING, PortPhysicalState.DISABLED):
        return _INVALID
    if slot == devices.first[devices.node_of[slot]]:
        info[_STATES] = info[_STATES] & 0xF0 | PortState.INITIALIZE
        return 0
    if physical in (PortPhysicalState.SLEEP, PortPhysicalState.DISABLED):
        info[_PHYSICAL] = info[_PHYSICAL] & 0x0F | physical << 4
        links.take_down(devices, slot)
        return 0
    links.take_down(devices, slot)
    if physical or info[_PHYSICAL] >> 4 != PortPhysicalState.DISABLED:
        info[_PHYSICAL] = info[_PHYSICAL] & 0x0F | (physical or PortPhysicalState.POLLING) << 4
    links.bring_up(devices, slot)
    return 0
