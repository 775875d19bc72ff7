"""Break and repair cables, lanes and nodes of a running subnet.

    pull_cable(devices, slot)         plug_cable(devices, slot)      down, and up again
    degrade(devices, slot, 1e-5)      degrade(devices, slot, 0.0)    bits flip: MADs are lost, errors are counted
    slow(devices, slot, "1xSDR")      mend(devices, slot)            the cable comes up with less
    flap(devices, slot)                                              down and up again, by itself
    kill(devices, node)               revive(devices, node)          no power; then as new, without LID and tables

`fabric.faults` does the same to a fabric that is not running. `fabric_now` is the fabric as it runs at this moment.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.faults import erring
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, lanes_by_code, parse_label, speed_by_bits, speeds
from weft.mad import links, power_up
from weft.mad.devices import NONE, Devices
from weft.wire.port_info import LANES, LinkSpeed, PortInfo, PortState, join_speeds


def pull_cable(devices: Devices, slot: int) -> None:
    """Pull a cable at one end; both ends are equivalent."""
    if slot not in devices.ethernet:
        _far_end(devices, slot)
        links.take_down(devices, slot)
    devices.broken.add(slot)
    devices.ethernet.forget_paths()


def plug_cable(devices: Devices, slot: int) -> None:
    """Put a cable back that was pulled, at either end; it comes up if it can."""
    if slot in devices.ethernet:
        devices.broken -= {slot, devices.ethernet.far[slot]}
        devices.ethernet.forget_paths()
        return
    devices.broken -= {slot, _far_end(devices, slot)}
    links.bring_up(devices, slot)


def degrade(devices: Devices, slot: int, bit_error_rate: float, *, one_way: bool = False) -> None:
    """Let a cable err from now on, in both directions or in what comes in at this slot; 0 makes it good again."""
    _far_end(devices, slot)
    worse = erring(devices.fabric, devices.name(slot), bit_error_rate, one_way=one_way)
    devices.run_on(devices.fabric.sharing_tables_with(worse))


def slow(devices: Devices, slot: int, label: str) -> None:
    """Let a cable do no more than this from now on, `1xEDR` or `4xSDR`, and train again."""
    devices.limits[devices.link[slot]] = limit(devices, slot, label)
    links.retrain(devices, slot)


def limit(devices: Devices, slot: int, label: str) -> tuple[int, int]:
    """Return the widths and speeds of a cable limited to `label`; raise ConfigError if it is faster than the cable."""
    _far_end(devices, slot)
    fastest, lanes = parse_label(label)
    if fastest.technology is not Technology.INFINIBAND:
        raise ConfigError(
            f"{devices.name(slot)} cannot fall back to {label}: its cable is InfiniBand, give 1xEDR or so"
        )
    cable = devices.fabric.link(devices.link[slot])
    if fastest.rate_gbit_s(lanes) > cable.rate_gbit_s:
        raise ConfigError(
            f"{devices.name(slot)} cannot fall back to {label}: it runs at {cable.label}, give a slower one"
        )
    return sum(int(width) for width in LANES if LANES[width] <= lanes), LinkSpeed.called(fastest.name).up_to


def flap(devices: Devices, slot: int, times: int = 1) -> None:
    """Take the link down and up again, after the ports failed to recover it.

    Of several flaps at once a subnet manager sees the last.
    """
    ends = [slot, _far_end(devices, slot)]
    if times and devices.peer(slot) != NONE:
        devices.fabric.counters[ends, Counter.LINK_ERROR_RECOVERY] += times
        devices.fabric.counters[ends, Counter.LINK_DOWNED] += times - 1  # the last is counted by who takes it down
        links.retrain(devices, slot)


def mend(devices: Devices, slot: int) -> None:
    """Replace the cable by a flawless one, and let the host at its end accept data at full rate."""
    if slot in devices.ethernet:
        return
    for end in (slot, _far_end(devices, slot)):
        devices.takes.pop(end, None)
    devices.flaps.pop(devices.link[slot], None)
    if slot in devices.erring or devices.cable[slot] in devices.erring:
        degrade(devices, slot, 0.0)
    if devices.limits.pop(devices.link[slot], None) is not None:
        links.retrain(devices, slot)


def kill(devices: Devices, node: int) -> None:
    """Switch a node off: its links go down, and it answers nothing."""
    devices.dead.add(node)
    for slot in devices.ports_of(node):
        links.take_down(devices, slot)
    devices.ethernet.forget_paths()
    devices.traps.forget(devices.ports_of(node))


def revive(devices: Devices, node: int) -> None:
    """Switch it on again; it comes up as it left the factory."""
    if node not in devices.dead:
        raise ConfigError(f"{devices.fabric.nodes.name[node]} was not switched off: there is nothing to revive")
    power_up.restart(devices, node)
    devices.dead.discard(node)
    devices.ethernet.forget_paths()
    for slot in devices.ports_of(node):
        links.bring_up(devices, slot)


def fabric_now(devices: Devices) -> Fabric:
    """Return the fabric with the cables that are up, at their current speed; tables and counters are shared.

    Nodes without power stay, without cables: slots are those of `devices.fabric`. What PortInfo cannot name runs as it
    was cabled.
    """
    devices.count_mads()
    fabric, tables, links = devices.fabric, devices.tables, devices.fabric.links
    managed = fabric.links_of(Technology.INFINIBAND)
    up = ~managed | (tables.of_ports(PortInfo.port_state)[links.a] > PortState.DOWN)
    unplugged = [slot for slot in devices.ethernet.far if not devices.ethernet.is_up(slot)]
    up &= managed | ~np.isin(links.a, unplugged)
    width = np.where(managed, lanes_by_code()[tables.of_ports(PortInfo.link_width_active)[links.a]], links.width)
    fields = PortInfo.link_speed_active, PortInfo.link_speed_ext_active, PortInfo.link_speed_ext_active_2
    slow, ext, ext2 = (tables.of_ports(field)[links.a].astype(np.int64) for field in fields)
    runs = speed_by_bits()[join_speeds(slow, ext, ext2, tables.fdr10[links.a, 2].astype(np.int64))]
    as_cabled = speed_by_bits()[[LinkSpeed.called(speed.name) for speed in speeds()]][links.speed]
    pace = np.where(managed & (runs != as_cabled), runs, links.speed)
    if up.all() and np.array_equal(width, links.width) and np.array_equal(pace, links.speed):
        return fabric
    return fabric.sharing_tables_with(replace(links, width=width, speed=pace).take(up))


def _far_end(devices: Devices, slot: int) -> int:
    far = devices.cable[slot]
    if far == NONE:
        raise ConfigError(f"{devices.name(slot)} has no InfiniBand cable")
    return far
