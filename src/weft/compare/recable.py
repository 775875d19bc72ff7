"""Cable the same servers in the same topology with other links, switches, adapters and rules.

superpod:su=1 + hdr  ->  superpod:su=2,server=dgx-h100+ConnectX-6,servers=32,switch=QM8700

A switch with a different number of ports changes the number of switches and cables: that is part of the comparison. A
server's
slots stay the same, so a card that is faster than its slot gets the rate of the slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.collectives.interconnect import build, respec, template_of
from weft.collectives.ranks import compute_servers, pick_servers
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.fabric.spec import is_topology, load


def recable(
    spec: str, interconnects: Sequence[Interconnect], servers: str = "", *, fabric: Fabric | None = None
) -> list[Fabric]:
    """Return a fabric for each interconnect: a topology is built again, a file stays as it is.

    servers  those of the job
    fabric   the fabric of the spec, if it is loaded already
    """
    fabric = fabric or load(spec)
    template = template_of(fabric, pick_servers(fabric, servers))
    if not is_topology(spec):
        for interconnect in interconnects:
            _refuse_other(fabric, interconnect)
        return [fabric for _ in interconnects]
    return [
        build(respec(spec, interconnect, template, len(compute_servers(fabric))), interconnect)
        for interconnect in interconnects
    ]


def default_interconnects(spec: str, defaults: Sequence[str], *, fabric: Fabric | None = None) -> list[Interconnect]:
    """Return the interconnects to compare if none are named: the defaults, or for a file those that its links allow."""
    if is_topology(spec):
        return [catalog.interconnect(name) for name in defaults]
    fabric = fabric or load(spec)
    own = _speeds(fabric)
    matching = [each for each in catalog.interconnects() if each.speed in own and not each.transport]
    if not matching:
        raise ConfigError(
            f"{fabric.spec} has links of {', '.join(sorted(own)) or 'no network'}, and no fabric of the catalog has "
            f"those. {_WAY_OUT}"
        )
    return matching


_WAY_OUT = "Give a topology spec, superpod:su=1 or fat-tree:hosts=16,server=dgx-h100, whose cables can be changed"


def _refuse_other(fabric: Fabric, interconnect: Interconnect) -> None:
    own = _speeds(fabric)
    if interconnect.speed not in own:
        raise ConfigError(
            f"{fabric.spec} is a file with links of {', '.join(sorted(own))}, and {interconnect.name} has "
            f"{interconnect.speed}: the cables of a file cannot be changed. {_WAY_OUT}"
        )


def _speeds(fabric: Fabric) -> set[str]:
    return {speeds()[index].name for index in set(fabric.links.speed[fabric.network_links].tolist())}
