"""The same servers in the same topology with other links, switches, adapters and rules.

superpod:su=1 + hdr  ->  superpod:su=2,server=dgx-h100+ConnectX-6,servers=32,switch=QM8700

A switch with other ports makes another number of switches and cables: that is part of the comparison. A server's slots
stay what they are, so a card that is faster than its slot gets what the slot gives.
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
    spec: str, wires: Sequence[Interconnect], servers: str = "", *, fabric: Fabric | None = None
) -> list[Fabric]:
    """Return a fabric for each: a topology is built anew, a file is only what it is.

    servers  those of the job
    fabric   what the spec gives, if it is loaded already
    """
    fabric = fabric or load(spec)
    template = template_of(fabric, pick_servers(fabric, servers))
    if not is_topology(spec):
        for wire in wires:
            _refuse_other(fabric, wire)
        return [fabric for _ in wires]
    return [build(respec(spec, wire, template, len(compute_servers(fabric))), wire) for wire in wires]


def natural(spec: str, usual: Sequence[str], *, fabric: Fabric | None = None) -> list[Interconnect]:
    """Return the fabrics to compare when none are named: the usual ones, or for a file those that its links can be."""
    if is_topology(spec):
        return [catalog.interconnect(name) for name in usual]
    fabric = fabric or load(spec)
    own = _speeds(fabric)
    found = [wire for wire in catalog.interconnects() if wire.speed in own and not wire.transport]
    if not found:
        raise ConfigError(
            f"{fabric.spec} has links of {', '.join(sorted(own)) or 'no network'}: no fabric of the catalog has those. "
            f"{_WAY_OUT}"
        )
    return found


_WAY_OUT = "Give a topology spec, superpod:su=1 or fat-tree:hosts=16,server=dgx-h100: its cables can be changed"


def _refuse_other(fabric: Fabric, wire: Interconnect) -> None:
    own = _speeds(fabric)
    if wire.speed not in own:
        raise ConfigError(
            f"{fabric.spec} is a file with links of {', '.join(sorted(own))}, and {wire.name} has {wire.speed}: "
            f"a file is what it is. {_WAY_OUT}"
        )


def _speeds(fabric: Fabric) -> set[str]:
    return {speeds()[index].name for index in set(fabric.links.speed[fabric.network_links].tolist())}
