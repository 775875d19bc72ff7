"""What breaks while a subnet runs, and what mends it: cables, lanes, nodes.

    pull_cable(devices, slot)         plug_cable(devices, slot)      down, and up again
    degrade(devices, slot, 1e-5)      degrade(devices, slot, 0.0)    bits flip: MADs are lost, errors are counted
    slow(devices, slot, "1xSDR")      mend(devices, slot)            the cable comes up with less
    kill(devices, node)               revive(devices, node)          no power; then as new, without LID and tables

`fabric.faults` does the same to a fabric that is not running. `fabric_now` is the fabric as it runs at this moment.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, parse_label, speed, speeds
from weft.mad import links, power_up
from weft.mad.devices import NONE, Devices
from weft.wire.port_info import LANES, LinkSpeed, PortInfo


def pull_cable(devices: Devices, slot: int) -> None:
    """Out of one end; which, makes no difference."""
    _far_end(devices, slot)
    links.take_down(devices, slot)
    devices.broken.add(slot)


def plug_cable(devices: Devices, slot: int) -> None:
    """Put a cable back that was pulled, at either end; it comes up if it can."""
    devices.broken -= {slot, _far_end(devices, slot)}
    links.bring_up(devices, slot)


def degrade(devices: Devices, slot: int, bit_error_rate: float) -> None:
    """Let a cable err in both directions, from now on; 0 makes it good again."""
    if not 0 <= bit_error_rate < 1:
        raise ConfigError(
            f"bit error rate {bit_error_rate} of {devices.name(slot)} is not from 0 to 1: a good cable has 1e-15, "
            "a bad one 1e-8"
        )
    for end in (slot, _far_end(devices, slot)):
        devices.bit_error_rate.pop(end, None)
        if bit_error_rate:
            devices.bit_error_rate[end] = bit_error_rate


def slow(devices: Devices, slot: int, label: str) -> None:
    """Let a cable do no more than this from now on, `1xEDR` or `4xSDR`, and train again."""
    far = _far_end(devices, slot)
    fastest, lanes = parse_label(label)
    if fastest.technology is not Technology.INFINIBAND:
        raise ConfigError(
            f"{devices.name(slot)} cannot fall back to {label}: its cable is InfiniBand, give 1xEDR or so"
        )
    widths = sum(int(width) for width in LANES if LANES[width] <= lanes)
    devices.limits[slot] = devices.limits[far] = widths, LinkSpeed.called(fastest.name).up_to
    links.retrain(devices, slot)


def mend(devices: Devices, slot: int) -> None:
    """A new cable: neither slow nor erring."""
    degrade(devices, slot, 0.0)
    for end in (slot, devices.cable[slot]):
        devices.limits.pop(end, None)
    links.retrain(devices, slot)


def kill(devices: Devices, node: int) -> None:
    """Switch a node off: its links go down, and it answers nothing."""
    devices.dead.add(node)
    for slot in devices.ports_of(node):
        links.take_down(devices, slot)
    devices.traps.forget(devices.ports_of(node))


def revive(devices: Devices, node: int) -> None:
    """Switch it on again; it comes up as it left the factory."""
    if node not in devices.dead:
        raise ConfigError(f"{devices.fabric.nodes.name[node]} was not switched off: there is nothing to revive")
    power_up.restart(devices, node)
    for slot in devices.ports_of(node):
        if devices.cable[slot] != NONE:
            power_up.unplugged(devices, slot)
    devices.dead.discard(node)
    for slot in devices.ports_of(node):
        links.bring_up(devices, slot)


def fabric_now(devices: Devices) -> Fabric:
    """The fabric with the cables that are up, as fast as they run; tables and counters are the same arrays.

    Nodes without power stay, without cables: slots are those of `devices.fabric`.
    """
    devices.count_mads()
    fabric = devices.fabric
    managed = [index for index in range(len(fabric.links)) if devices.link[int(fabric.links.a[index])] == index]
    up = np.ones(len(fabric.links), bool)
    width, pace = fabric.links.width.copy(), fabric.links.speed.copy()
    errors = fabric.links.bit_error_rate.copy()
    for index in managed:
        slot = int(fabric.links.a[index])
        up[index] = devices.peer[slot] != NONE
        errors[index] = devices.bit_error_rate.get(slot, 0.0)
        if up[index]:
            width[index], pace[index] = _runs_at(devices, slot, int(pace[index]))
    changed = replace(fabric.links, width=width, speed=pace, bit_error_rate=errors).take(up)
    made = Fabric.assemble(
        fabric.spec, fabric.nodes, changed, fabric.ports.guid, fabric.models, fabric.servers, fabric.groups
    )
    return replace(made, tables=fabric.tables, counters=fabric.counters, changes=fabric.changes)


def _runs_at(devices: Devices, slot: int, pace: int) -> tuple[int, int]:
    """Width and index of speed of a link that is up. What PortInfo cannot name, it runs at as it was cabled."""
    info = devices.info(slot)
    lanes, runs = LANES[PortInfo.link_width_active.get(info)], LinkSpeed.active(info, devices.fdr10_active[slot])
    return lanes, pace if runs is LinkSpeed.called(speeds()[pace].name) else speed(str(runs.name)).index


def _far_end(devices: Devices, slot: int) -> int:
    far = devices.cable[slot]
    if far == NONE:
        raise ConfigError(f"{devices.name(slot)} has no InfiniBand cable")
    return far
