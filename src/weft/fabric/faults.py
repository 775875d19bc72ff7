"""Faults: each is a function from a fabric to a new one; the old one does not change.

    broken = faults.remove_link(fabric, "leaf3/17")
    broken = faults.kill(broken, "spine1")
    broken = faults.kill(broken, "nvl1/tray3")     one machine of a rack that is one NVLink domain
    broken = faults.kill(broken, "plane2")         one of the planes, of a fabric that has several

The rest of the fabric keeps its names, GUIDs, LIDs, tables and counters: tables still point at the fault, as they do
until a subnet manager sweeps. `fabric.changes` lists the changes.
"""

from __future__ import annotations

from dataclasses import replace

from weft.errors import ConfigError
from weft.fabric.columns import LinkColumns
from weft.fabric.model import Fabric
from weft.fabric.planes import holding
from weft.fabric.rates import parse_label
from weft.fabric.views import Link, Port


def remove_link(fabric: Fabric, port_name: str) -> Fabric:
    """Remove the cable from a port."""
    return fabric.removing(holding(fabric, port_name).find_port(port_name).name)


def degrade(fabric: Fabric, port_name: str, bit_error_rate: float, *, one_way: bool = False) -> Fabric:
    """Set the bit error rate of the cable in a port, after error correction; `one_way`: only of received data."""
    fabric = holding(fabric, port_name)
    changed = fabric.with_links(erring(fabric, port_name, bit_error_rate, one_way=one_way))
    only = "the receiver of " if one_way else ""
    return changed.changed(f"degraded {only}{port_name} to a bit error rate of {bit_error_rate:g}")


def erring(fabric: Fabric, port_name: str, bit_error_rate: float, *, one_way: bool = False) -> LinkColumns:
    """Return the links of a fabric with the cable in a port degraded."""
    if not 0 <= bit_error_rate < 1:
        raise ConfigError(
            f"bit error rate of {port_name} must be in [0, 1), got {bit_error_rate}; "
            "a good cable has 1e-15, a bad one 1e-8"
        )
    rates, good_end = fabric.links.bit_error_rate.copy(), fabric.links.good_end.copy()
    link = _link_at(fabric, port_name).index
    rates[link] = bit_error_rate
    good_end[link] = (2 if fabric.links.a[link] == fabric.find_port(port_name).slot else 1) if one_way else 0
    return replace(fabric.links, bit_error_rate=rates, good_end=good_end)


def slow(fabric: Fabric, port_name: str, label: str) -> Fabric:
    """Let the cable in a port come up narrower or slower: `1xEDR`, `4xSDR`."""
    fabric = holding(fabric, port_name)
    link = _link_at(fabric, port_name)
    line, width = parse_label(label)
    if line.technology is not link.technology or line.rate_gbit_s(width) > link.rate_gbit_s:
        raise ConfigError(f"{port_name} cannot fall back to {label}: it runs at {link.label}, give a slower speed")
    speed, widths = fabric.links.speed.copy(), fabric.links.width.copy()
    speed[link.index], widths[link.index] = line.index, width
    changed = fabric.with_links(replace(fabric.links, speed=speed, width=widths))
    return changed.changed(f"slowed {port_name} from {link.label} to {line.label(width)}")


def kill(fabric: Fabric, name: str) -> Fabric:
    """Remove a node, a server with all its devices, or a tray of a rack, and its cables."""
    if name in fabric and isinstance(fabric[name], Port):
        raise ConfigError(f"{name} is a port: kill takes a node or a server; remove_link removes a port's cable")
    return fabric.removing(name)


def _link_at(fabric: Fabric, port_name: str) -> Link:
    link = fabric.find_port(port_name).link
    if link is None:
        raise ConfigError(f"{port_name} has no cable")
    return link
