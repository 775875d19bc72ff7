"""Set(PortInfo): which fields a subnet manager may write, and what each of them does.

A field that is out of range is refused with an invalid field; the others are set all the same, as hardware does.
Most fields are merely stored: those are copied all at once, by a mask over the 64 bytes as one large number.
(InfiniBand Architecture volume 1, "PortInfo"; Linux's drivers for adapters that have their agent in software.)
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.mad import links, m_key
from weft.mad.devices import Devices
from weft.wire.fields import Bits
from weft.wire.mad import Status
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState
from weft.wire.smp import SwitchInfo

_INVALID = int(Status.INVALID_FIELD)
_FIRST_MULTICAST = 0xC000


def _mask(names: Iterable[str]) -> int:
    """Ones where these fields are."""
    fields = [PortInfo.fields[name] for name in names]
    return sum((1 << field.width) - 1 << 8 * PortInfo.size - field.bit - field.width for field in fields)


def _byte(field: Bits) -> int:
    return field.bit // 8


# Of every port; then those of a port with a LID: adapters, and port 0 of a switch; then those of its address.
_STORED = _mask(
    (
        "vl_high_limit",
        "vl_stall_count",
        "hoq_life",
        "partition_enforcement_inbound",
        "partition_enforcement_outbound",
        "filter_raw_inbound",
        "filter_raw_outbound",
        "local_phy_errors",
        "overrun_errors",
    )
)
_STORED_WITH_LID = _STORED | _mask(
    (
        "m_key",
        "gid_prefix",
        "m_key_lease_period",
        "m_key_protect_bits",
        "init_type",
        "subnet_time_out",
        "mcast_p_key_trap_suppression_enabled",
    )
)
_LID = _mask(("lid", "lmc"))
_SM = _mask(("master_sm_lid", "master_sm_sl"))
_M_KEY, _HIGH_LIMIT = _mask(["m_key"]), _mask(["vl_high_limit"])
_COUNTS = ("m_key_violations", "p_key_violations", "q_key_violations")
_VIOLATIONS = _mask(_COUNTS)
_LIMITS = _mask(("neighbor_mtu", "operational_vls"))
# What is enabled of what is supported; the code that changes nothing is 0.
_ENABLED = (
    (PortInfo.link_width_enabled, PortInfo.link_width_supported, 0xFF, None),
    (PortInfo.link_speed_enabled, PortInfo.link_speed_supported, 0xF, None),
    (PortInfo.link_speed_ext_enabled, PortInfo.link_speed_ext_supported, 0x1F, 0x1E),
    (PortInfo.link_speed_ext_enabled_2, PortInfo.link_speed_ext_supported_2, 0x7, 0x6),
)
_ENABLES = _mask(field.name for field, *_ in _ENABLED)
_STATES, _PHYSICAL = _byte(PortInfo.port_state), _byte(PortInfo.port_physical_state)
_MTU, _VLS = _byte(PortInfo.neighbor_mtu), _byte(PortInfo.operational_vls)
_VL_CAP, _MTU_CAP = _byte(PortInfo.vl_cap), _byte(PortInfo.mtu_cap)
_LMC, _REREGISTER = _byte(PortInfo.lmc), _byte(PortInfo.client_reregister)
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
    status, mask = 0, _STORED
    node = devices.node_of[slot]
    addressed = not devices.is_switch[node] or slot == devices.first[node]
    if addressed:
        more, status = _address(devices, slot, wanted)
        mask = _STORED_WITH_LID | more
    changes = differs & mask
    if changes:
        info[:] = (old ^ changes).to_bytes(64, "big")
        _took_effect(devices, slot, info, changes)
    if addressed and wanted[_REREGISTER] & 0x80:
        devices.reregister.add(slot)
    if old & _VIOLATIONS:
        _clear_counts(info, wanted)
    if differs & _LIMITS:
        status |= _limits(info, wanted)
    if differs & _ENABLES:
        status |= _enable(info, wanted)
    return status | _states(devices, slot, info, wanted)


def _address(devices: Devices, slot: int, wanted: bytearray) -> tuple[int, int]:
    """Which of LID and SM may be set, as a mask; the status."""
    lid, master = wanted[16] << 8 | wanted[17], wanted[18] << 8 | wanted[19]
    mask, status = 0, 0
    if 0 < lid < _FIRST_MULTICAST and not (wanted[_LMC] & 7 and _is_base_port(devices, slot)):
        mask |= _LID
    else:
        status = _INVALID
    if 0 < master < _FIRST_MULTICAST:
        mask |= _SM
    else:
        status = _INVALID
    return mask, status


def _took_effect(devices: Devices, slot: int, info: bytearray, changes: int) -> None:
    """What others keep of what was stored."""
    if changes & _LID:
        devices.tables.lid[slot], devices.tables.lmc[slot] = info[16] << 8 | info[17], info[_LMC] & 7
        devices.forget_lid_ways()
    if changes & _M_KEY:
        m_key.note(devices, slot)
    if changes & _HIGH_LIMIT:
        devices.tables.vl_high_limit[slot] = PortInfo.vl_high_limit.get(info)


def _clear_counts(info: bytearray, wanted: bytearray) -> None:
    """Violations that the Set says are 0 start again; other values change nothing."""
    for name in _COUNTS:
        field = PortInfo.fields[name]
        if field.get(wanted) == 0:
            field.set(info, 0)


def _limits(info: bytearray, wanted: bytearray) -> int:
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


def _enable(info: bytearray, wanted: bytearray) -> int:
    """Widths and speeds: in force when the link next comes up."""
    status = 0
    for enabled, supported, every, none in _ENABLED:
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


def _states(devices: Devices, slot: int, info: bytearray, wanted: bytearray) -> int:
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


def _physical_state(devices: Devices, slot: int, info: bytearray, physical: int) -> int:
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
