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
    """Return the spec of today's topology with the same parts for a larger number of servers."""
    if not is_topology(today.spec):
        raise ConfigError(f"{today.spec} is a file, not a topology of weft; give the larger fabric with --to")
    if servers <= (now := _count(today)):
        raise ConfigError(f"{today.spec} already has {now:,} servers; give more than that, not {servers:,}")
    name, options = parse(today.spec)
    if name == "fat-tree":
        return rewrite(today.spec, hosts=servers, levels=None, pods=None)
    if name == "superpod":
        return rewrite(today.spec, **_units(today, options, servers))
    if name == "star":
        return rewrite(today.spec, hosts=servers)
    raise ConfigError(f"{name} cannot be grown automatically; give the larger fabric with --to")


def servers_of(today: Fabric, gpus: int) -> int:
    """Return the number of today's servers that have so many GPUs."""
    each = len(today.of_kind(NodeKind.GPU)) // max(_count(today), 1)
    if not each:
        raise ConfigError(f"{today.spec} has no GPUs; give --servers")
    return -(-gpus // each)


def _count(today: Fabric) -> int:
    return sum(not is_ufm(name) for name in today.servers)


def _units(today: Fabric, options: dict[str, object], servers: int) -> dict[str, int | None]:
    """Return the scalable units for a number of servers; leaves per unit stay as today, so that no host moves."""
    template = catalog.server(str(options.get("server", "dgx-h100")))
    rails, trays = template.rails, template.trays
    radix = int(today.nodes.n_ports[today.of_kind(NodeKind.SWITCH)].max())
    leaves = int(str(options.get("leaves", rails // trays)))
    ufm = int(str(options["ufm"])) if options.get("ufm") else None
    return fit_superpod(servers, rails=rails, trays=trays, radix=radix, leaves=leaves, ufm=ufm)
