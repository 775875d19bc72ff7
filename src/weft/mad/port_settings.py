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
# What happens to a port that is told a state, by the state that it is in; anything else is refused.
_ALLOWED = {
    (PortState.INITIALIZE, PortState.ARMED),
    (PortState.ARMED, PortState.ARMED),
    (PortState.ARMED, PortState.ACTIVE),
    (PortState.ACTIVE, PortState.ACTIVE),
}


def set_port_info(devices: Devices, slot: int, mad: bytearray, at: int) -> int:
    """Apply what a Set carries at byte `at`; returns the status."""
    info, wanted = devices.info(slot), mad[at : at + 64]
    old = int.from_bytes(info, "big")
    differs = old ^ int.from_bytes(wanted, "big")
    status, mask = 0, STORED
    node = devices.node_of[slot]
    addressed = not devices.is_switch[node] or slot == devices.first[node]
    if addressed:
        more, status = _address(devices, slot, wanted)
        mask = STORED_WITH_LID | more
    changes = differs & mask
    if changes:
        info[:] = (old ^ changes).to_bytes(64, "big")
        if changes & LID:
            devices.forget_lid_paths()
        if changes & M_KEY:
            m_key.note(devices, slot)
    if addressed and wanted[_REREGISTER] & 0x80:
        devices.reregister.add(slot)
    if old & VIOLATIONS:
        _clear_counts(info, wanted)
    if differs & LIMITS:
        status |= _limits(info, wanted)
    if differs & ENABLES:
        status |= _enable(info, wanted)
    return status | _states(devices, slot, info, wanted)


def _address(devices: Devices, slot: int, wanted: bytearray) -> tuple[int, int]:
    """Which of LID and SM may be set, as a mask; the status."""
    lid, master = wanted[16] << 8 | wanted[17], wanted[18] << 8 | wanted[19]
    mask, status = 0, 0
    if 0 < lid < _FIRST_MULTICAST and not (wanted[_LMC] & 7 and _is_base_port(devices, slot)):
        mask |= LID
    else:
        status = _INVALID
    if 0 < master < _FIRST_MULTICAST:
        mask |= SM
    else:
        status = _INVALID
    return mask, status


def _clear_counts(info: Writable, wanted: bytearray) -> None:
    """Violations that the Set says are 0 start again; other values change nothing."""
    for name in COUNTS:
        field = PortInfo.fields[name]
        if field.get(wanted) == 0:
            field.set(info, 0)


def _limits(info: Writable, wanted: bytearray) -> int:
    """Operational VLs and MTU: 0 changes nothing, too much is refused."""
    status = 0
    vls, mtu = wanted[_VLS] >> 4, wanted[_MTU] >> 4
    if vls > info[_VL_CAP] >> 4:
        status = _INVALID
    elif vls:
        info[_VLS] = info[_VLS] & 0x0F | vls << 4
    if mtu > info[_MTU_CAP] & 0x0F:
        status = _INVALID
    elif mtu:
        info[_MTU] = info[_MTU] & 0x0F | mtu << 4
    return status


def _enable(info: Writable, wanted: bytearray) -> int:
    """Widths and speeds: in force when the link next comes up."""
    status = 0
    for enabled, supported, every, none in ENABLED:
        asked, able = enabled.get(wanted), supported.get(info)
        if asked == every:
            enabled.set(info, able)
        elif asked == none:
            enabled.set(info, 0)
        elif asked & ~able:
            status = _INVALID
        elif asked:
            enabled.set(info, asked)
    return status


def _states(devices: Devices, slot: int, info: Writable, wanted: bytearray) -> int:
    status, default = 0, wanted[_PHYSICAL] & 0x0F
    if default in (PortPhysicalState.SLEEP, PortPhysicalState.POLLING):
        info[_PHYSICAL] = info[_PHYSICAL] & 0xF0 | default
    elif default:
        status = _INVALID
    asked, physical = wanted[_STATES] & 0x0F, wanted[_PHYSICAL] >> 4
    if not (asked or physical) or _is_base_port(devices, slot):
        return status
    if physical and asked not in (PortState.NO_CHANGE, PortState.DOWN):
        return _INVALID  # a physical state can be told to a link that is down, or goes down
    if physical or asked == PortState.DOWN:
        return status | _physical_state(devices, slot, info, physical)
    now = info[_STATES] & 0x0F
    if (now, asked) not in _ALLOWED:
        return _INVALID
    info[_STATES] = info[_STATES] & 0xF0 | asked
    return status


def _is_base_port(devices: Devices, slot: int) -> bool:
    """Port 0 of a switch, if it is not enhanced: it has no LMC, and is always Active."""
    node = devices.node_of[slot]
    return slot == devices.first[node] and not SwitchInfo.enhanced_port_0.get(devices.switch_info[node])


def _physical_state(devices: Devices, slot: int, info: Writable, physical: int) -> int:
    """Down, by what is to become of the link: 0 and Polling train again, Sleep and Disabled do not by themselves."""
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
