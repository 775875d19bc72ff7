"""Implement the state machine of ports at both ends of a cable.

    pulled, disabled, told Down           told Armed          told Active
Init -----------> Down         Init ---------> Armed ---------> Active        only in this order
  ^                 |
  +-----------------+  the cable is in, and neither end is disabled: both come up at the best that both can do

What is the best: the widest width, then the fastest speed, that both ends have enabled and the cable can do.
"""

from __future__ import annotations

from weft.fabric.counters import Counter
from weft.mad.devices import NONE, Devices
from weft.wire.port_info import LANES, WIDTHS, LinkSpeed, PortInfo, PortPhysicalState, PortState, join_speeds
from weft.wire.smp import SwitchInfo

_state, _physical = PortInfo.port_state, PortInfo.port_physical_state
_STAYS_DOWN = (PortPhysicalState.DISABLED, PortPhysicalState.SLEEP)


def take_down(devices: Devices, slot: int) -> None:
    """Take down a link that is up; both ends count it, and switches send a trap."""
    far = devices.peer(slot)
    if far == NONE:
        return
    devices.forget_paths()
    for end in (slot, far):
        info = devices.info(end)
        _state.set(info, PortState.DOWN)
        if _physical.get(info) not in _STAYS_DOWN:
            _physical.set(info, PortInfo.link_down_default_state.get(info))
        devices.fabric.counters[end, Counter.LINK_DOWNED] += 1
    for end in (slot, far):
        _changed(devices, end)


def bring_up(devices: Devices, slot: int) -> None:
    """Train a connected cable between ports that are not disabled; do nothing otherwise."""
    far = devices.cable[slot]
    if far == NONE or devices.peer(slot) != NONE or devices.broken & {slot, far}:
        return
    if devices.dead & {devices.node_of[slot], devices.node_of[far]}:
        return
    states = {_physical.get(devices.info(end)) for end in (slot, far)}
    if PortPhysicalState.DISABLED in states or states == {PortPhysicalState.SLEEP} or not _train(devices, slot, far):
        return
    devices.forget_paths()
    for end in (slot, far):
        info = devices.info(end)
        _state.set(info, PortState.INITIALIZE)
        _physical.set(info, PortPhysicalState.LINK_UP)
    for end in (slot, far):
        _changed(devices, end)


def retrain(devices: Devices, slot: int) -> None:
    """Take a link down and up, so that new speeds and widths take effect."""
    take_down(devices, slot)
    bring_up(devices, slot)


def _train(devices: Devices, slot: int, far: int) -> bool:
    """Set both ends to the widest and fastest mode that both and the cable support; return False if there is none."""
    limit = devices.limits.get(devices.link[slot], (-1, -1))
    both = zip(_enabled(devices, slot), _enabled(devices, far), limit, strict=True)
    widths, speeds = (mine & theirs & cable for mine, theirs, cable in both)
    if not widths or not speeds:
        return False
    lanes, best = max(LANES[width] for width in LANES if width & widths), LinkSpeed.highest(speeds)
    for end in (slot, far):
        info = devices.info(end)
        PortInfo.link_width_active.set(info, int(WIDTHS[lanes]))
        for name, value in best.active_fields.items():
            PortInfo.fields[name].set(info, value)
        devices.tables.fdr10[end, 2] = best is LinkSpeed.FDR10
    return True


def _enabled(devices: Devices, slot: int) -> tuple[int, int]:
    """Return the enabled widths and speeds."""
    info = devices.info(slot)
    fields = PortInfo.link_speed_enabled, PortInfo.link_speed_ext_enabled, PortInfo.link_speed_ext_enabled_2
    slow, ext, ext2 = (field.get(info) for field in fields)
    fdr10 = devices.tables.fdr10.item(slot, 1) if slow & LinkSpeed.QDR else 0  # which is QDR with another encoding
    return PortInfo.link_width_enabled.get(info), join_speeds(slow, ext, ext2, fdr10)


def _changed(devices: Devices, slot: int) -> None:
    """Set a switch's PortStateChange bit and send trap 128."""
    node = devices.node_of[slot]
    if devices.is_switch[node] and node not in devices.dead:
        SwitchInfo.port_state_change.set(devices.switch_info[node], 1)
        devices.traps.link_changed(devices, slot)
