"""Configure ports of VPI adapters and switches for Ethernet: a cable is InfiniBand or Ethernet at both ends.

    as_ethernet(weft.load("star:hosts=4,server=host-fdr,switch=SX6036"), ["h3", "h4"])

A port can be Ethernet if its model has both link layers: an adapter with an Ethernet entry of the same card in the
catalog, a switch with a `vpi` speed. Devices of unknown models can be either, at the rate of their cable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.model import Fabric
from weft.fabric.rates import Speed, Technology, speed, speeds
from weft.fabric.views import Link, Node, Port, Server


def as_ethernet(fabric: Fabric, names: Iterable[str]) -> Fabric:
    """Return the fabric with these cables Ethernet: of a port, or all cables of a node or a server."""
    names = list(names)
    chosen = sorted({link.index for name in names for link in _cables(fabric, name)})
    if not chosen:
        return fabric
    if fabric.planes > 1:
        raise ConfigError(f"{fabric.spec} has {fabric.planes} planes: Ethernet ports need a fabric of one plane")
    line, width = fabric.links.speed.copy(), fabric.links.width.copy()
    for index in chosen:
        ethernet = _ethernet_speed(fabric.link(index))
        line[index], width[index] = ethernet.index, ethernet.default_width
    changed = fabric.sharing_tables_with(replace(fabric.links, speed=line, width=width))
    return changed.changed(f"configured {', '.join(names)} for Ethernet")


def _cables(fabric: Fabric, name: str) -> list[Link]:
    """Return the InfiniBand cables of a name."""
    part: Node | Port | Server = fabric[name]
    nodes = {node.index for node in part.nodes} if isinstance(part, Server) else set()
    if isinstance(part, Node):
        nodes = {part.index}
    links = [
        link
        for link in ([part.link] if isinstance(part, Port) else fabric.all_links())
        if link is not None
        and link.technology is Technology.INFINIBAND
        and (isinstance(part, Port) or nodes & {link.a.node.index, link.b.node.index})
    ]
    if not links:
        raise ConfigError(f"{name} has no InfiniBand cable; name a port, a host or a switch that has one")
    return links


def _ethernet_speed(link: Link) -> Speed:
    """Return the speed of a cable whose two ports are Ethernet: that of the slower one."""
    known = [found for end in (link.a, link.b) if (found := _of_port(end)) is not None]
    if known:
        return min(known, key=lambda each: each.rate_gbit_s())
    ethernet = [each for each in speeds() if each.technology is Technology.ETHERNET]
    usable = [each for each in ethernet if each.rate_gbit_s() <= link.rate_gbit_s]
    if not usable:
        raise ConfigError(f"{link.a.name} runs at {link.label}: no Ethernet is as slow; give a faster cable")
    return max(usable, key=lambda each: each.rate_gbit_s())


def _of_port(port: Port) -> Speed | None:
    """Return the Ethernet speed of a port by its model; None if the model is unknown. Raise ConfigError without one."""
    entries: tuple[catalog.Adapter | catalog.Switch, ...] = (*catalog.adapters(), *catalog.switches())
    entry = next((each for each in entries if each.name == port.node.model), None)
    if entry is None:
        return None
    if isinstance(entry, catalog.Adapter):
        return _of_adapter(port, entry)
    if not entry.vpi:
        vpi = ", ".join(each.name for each in catalog.switches() if each.vpi)
        raise ConfigError(
            f"{port.name} cannot be Ethernet: all ports of a {entry.name} have one link layer; "
            f"a VPI switch has both (in the catalog: {vpi})"
        )
    return speed(entry.vpi)


def _of_adapter(port: Port, entry: catalog.Adapter) -> Speed:
    """Return the Ethernet speed of an adapter: that of the other entry of its card."""
    same = [each for each in catalog.adapters() if entry.device_id and each.device_id == entry.device_id]
    lines = [each.line[0] for each in same if each.technology is Technology.ETHERNET]
    if not lines:
        raise ConfigError(f"{port.name} cannot be Ethernet: the catalog has no Ethernet entry of a {entry.name}")
    return max(lines, key=lambda each: each.rate_gbit_s())


def link_layers(entry: catalog.Adapter) -> list[str]:
    """Return the link layers that ports of a card can have, by all entries of the card."""
    same = [
        each for each in catalog.adapters() if each is entry or (entry.device_id and each.device_id == entry.device_id)
    ]
    names = {Technology.INFINIBAND: "InfiniBand", Technology.ETHERNET: "Ethernet"}
    return [name for technology, name in names.items() if any(each.technology is technology for each in same)]


def ethernet_slots(fabric: Fabric) -> dict[int, int]:
    """Return the port slots of Ethernet cables, each with the slot at the far end."""
    is_ethernet = fabric.links_of(Technology.ETHERNET)
    a, b = fabric.links.a[is_ethernet], fabric.links.b[is_ethernet]
    return dict(zip(np.concatenate((a, b)).tolist(), np.concatenate((b, a)).tolist(), strict=True))
