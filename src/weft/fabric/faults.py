"""What breaks: each fault is a function from a fabric to a new one; the old one stays as it was.

    broken = faults.remove_link(fabric, "leaf3/17")
    broken = faults.kill(broken, "spine1")
    broken = faults.kill(broken, "nvl1/tray3")     of a rack that is one NVLink domain, one of its machines

Names, GUIDs, LIDs, tables and counters of what is left are kept: tables still point to where the fault is now, as
they do until a subnet manager sweeps. `fabric.changes` lists what was done.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.columns import LinkColumns
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import parse_label
from weft.fabric.views import Link, Port, Server


def remove_link(fabric: Fabric, port_name: str) -> Fabric:
    """Pull the cable out of a port."""
    keep = np.ones(len(fabric.links), bool)
    keep[_link_at(fabric, port_name).index] = False
    return fabric.subset(keep_links=keep).changed(f"removed the cable of {port_name}")


def degrade(fabric: Fabric, port_name: str, bit_error_rate: float, *, one_way: bool = False) -> Fabric:
    """Make the cable in a port err: after error correction, this part of its bits; `one_way`: of what it receives."""
    changed = fabric.with_links(erring(fabric, port_name, bit_error_rate, one_way=one_way))
    only = "what comes in at " if one_way else ""
    return changed.changed(f"degraded {only}{port_name} to a bit error rate of {bit_error_rate:g}")


def erring(fabric: Fabric, port_name: str, bit_error_rate: float, *, one_way: bool = False) -> LinkColumns:
    """The links of a fabric, with that in a port as `degrade` makes it."""
    if not 0 <= bit_error_rate < 1:
        raise ConfigError(
            f"bit error rate {bit_error_rate} of {port_name} is not from 0 to 1: a good cable has 1e-15, a bad one 1e-8"
        )
    rates, good_end = fabric.links.bit_error_rate.copy(), fabric.links.good_end.copy()
    link = _link_at(fabric, port_name).index
    rates[link] = bit_error_rate
    good_end[link] = (2 if fabric.links.a[link] == fabric.find_port(port_name).slot else 1) if one_way else 0
    return replace(fabric.links, bit_error_rate=rates, good_end=good_end)


def slow(fabric: Fabric, port_name: str, label: str) -> Fabric:
    """Let the cable in a port come up narrower or slower: `1xEDR`, `4xSDR`."""
    link = _link_at(fabric, port_name)
    line, width = parse_label(label)
    if line.technology is not link.technology or line.rate_gbit_s(width) > link.rate_gbit_s:
        raise ConfigError(f"{port_name} cannot fall back to {label}: it runs at {link.label}, give a slower one")
    speed, widths = fabric.links.speed.copy(), fabric.links.width.copy()
    speed[link.index], widths[link.index] = line.index, width
    changed = fabric.with_links(replace(fabric.links, speed=speed, width=widths))
    return changed.changed(f"slowed {port_name} from {link.label} to {line.label(width)}")


def kill(fabric: Fabric, name: str) -> Fabric:
    """Take away a node, a server with all that is in it, or a tray of a rack, and its cables."""
    dead = np.zeros(len(fabric.nodes), bool)
    dead[nodes_of(fabric, name)] = True
    # An aggregation node sits inside the switch that it is linked to.
    for near, far in (fabric.link_nodes, fabric.link_nodes[::-1]):
        dead[near[(fabric.nodes.kind[near] == NodeKind.AGGREGATION) & dead[far]]] = True
    return fabric.subset(keep_nodes=~dead).changed(f"killed {name}")


def nodes_of(fabric: Fabric, name: str) -> list[int]:
    """What a name means: one node, all of a server, or those of a tray of a rack, `nvl1/tray3`."""
    rack, _, tray = name.rpartition("/tray")
    if rack in fabric.server_index and tray.isdecimal():
        return _tray(fabric.find_server(rack), int(tray))
    thing = fabric[name]
    if isinstance(thing, Port):
        raise ConfigError(f"{name} is a port: kill takes a node or a server, remove_link pulls the cable of a port")
    return [node.index for node in thing.nodes] if isinstance(thing, Server) else [thing.index]


def _tray(rack: Server, number: int) -> list[int]:
    """All but NVSwitches, which are on trays of their own."""
    cpu = next((node for node in rack.nodes if node.kind == NodeKind.CPU), None)
    whole = catalog.server(catalog.server(cpu.model).box) if cpu else None
    if whole is None or not number < whole.trays > 1:
        has = f"tray0 to tray{whole.trays - 1}" if whole and whole.trays > 1 else "no trays"
        raise ConfigError(f"there is no {rack.name}/tray{number}: {rack.name} has {has}")
    counts = {"gpu": whole.gpus, "cpu": whole.cpus, "pcie": whole.pcie_switches}
    numbered = [tuple(f"{stem}{n}" for n in range(count)) for stem, count in counts.items()]
    dead = set[str]()
    for names in (*numbered, whole.compute, whole.storage):
        each = len(names) // whole.trays
        dead.update(f"{rack.name}/{name}" for name in names[number * each : (number + 1) * each])
    return [node.index for node in rack.nodes if node.name in dead]


def _link_at(fabric: Fabric, port_name: str) -> Link:
    link = fabric.find_port(port_name).link
    if link is None:
        raise ConfigError(f"{port_name} has nothing plugged in")
    return link
