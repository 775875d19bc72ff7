"""The same topology for more servers."""

from __future__ import annotations

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.spec import is_topology, parse, rewrite
from weft.fabric.topologies.superpod import fit_superpod
from weft.plan.size import is_ufm


def larger(today: Fabric, servers: int) -> str:
    """The spec of today's topology, with the same parts and rules, for so many servers."""
    if not is_topology(today.spec):
        raise ConfigError(f"{today.spec} is a file, of no topology that weft knows: say what it grows to, with --to")
    if servers <= (now := _count(today)):
        raise ConfigError(f"{today.spec} has {now:,} servers: {servers:,} is no growth")
    name, given = parse(today.spec)
    if name == "fat-tree":
        return rewrite(today.spec, hosts=servers, levels=None, pods=None)
    if name == "superpod":
        return rewrite(today.spec, **_units(today, given, servers))
    if name == "star":
        return rewrite(today.spec, hosts=servers)
    raise ConfigError(f"weft does not know how {name} grows: say what to, with --to")


def servers_of(today: Fabric, gpus: int) -> int:
    """So many GPUs are in how many of today's servers?"""
    each = len(today.of_kind(NodeKind.GPU)) // max(_count(today), 1)
    if not each:
        raise ConfigError(f"{today.spec} has no GPUs: give --servers")
    return -(-gpus // each)


def _count(today: Fabric) -> int:
    return sum(not is_ufm(name) for name in today.servers)


def _units(today: Fabric, given: dict[str, object], servers: int) -> dict[str, int | None]:
    """Rails share leaves as they do today: else hosts would have to move."""
    template = catalog.server(str(given.get("server", "dgx-h100")))
    rails, trays = template.rails, template.trays
    radix = int(today.nodes.n_ports[today.of_kind(NodeKind.SWITCH)].max())
    leaves = int(str(given.get("leaves", rails // trays)))
    ufm = int(str(given["ufm"])) if given.get("ufm") else None
    return fit_superpod(servers, rails=rails, trays=trays, radix=radix, leaves=leaves, ufm=ufm)
