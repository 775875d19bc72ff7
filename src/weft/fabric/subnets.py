r"""The subnets of a fabric, and specs of several subnets that routers join.

    subnets:2,routers=1,of=star:hosts=4        s1-h1 ... s1-h4 on s1-leaf1, s2-h1 ... s2-h4 on s2-leaf1, router1

      s1-leaf1        s2-leaf1          Each router has a port in every subnet: port n is cabled to subnet n, to a
       / | \ \        / / | \           free port of a switch of the highest level that has one. `of` is the spec of
             router1                    each subnet; it comes last and takes the rest of the line.

No column of a fabric names a subnet: subnets are the parts that stay connected without routers, and a port of a router
is in the subnet that it is cabled to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.build import default_guids
from weft.fabric.columns import LinkColumns, NodeColumns
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.levels import components, levels
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.ids import Gid

KEYWORD = "subnets"
USAGE = "subnets:N[,routers=1],of=SPEC"
ROUTER_PORTS = 6  # the subnets that one router joins: SWIDs of NVIDIA's router switches (UFM-SDN appliance, 4.18)
_VENDOR_ID = 0x2C9
_CABLE_M = 30.0
_NAMES = ("name", "description", "guid", "system_guid", "group")  # differ between equal subnets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SubnetPart:
    """A subnet of a fabric. `prefix` is the GID prefix that `weft up --sm` gives it."""

    number: int  # from 1, in the order of the first nodes
    prefix: int
    nodes: NDArray[np.int32]  # without routers
    router_ports: NDArray[np.intp]  # slots


def subnets_of(fabric: Fabric) -> tuple[SubnetPart, ...]:
    """Return the subnets of a fabric. Without routers it is one, even if it is not connected."""
    is_router = fabric.nodes.kind == NodeKind.ROUTER
    cabled = fabric.links_of(Technology.INFINIBAND)
    a, b = fabric.links.a[cabled], fabric.links.b[cabled]
    joined = is_router[fabric.ports.node[np.concatenate((a, b))]]
    if not joined.any():
        nodes = np.flatnonzero(~is_router).astype(np.int32)
        none = np.zeros(0, np.intp)
        return (SubnetPart(number=1, prefix=Gid.LINK_LOCAL_PREFIX, nodes=nodes, router_ports=none),)
    # Each port of a router is a vertex of its own, numbered behind the nodes.
    vertex = np.where(is_router[fabric.ports.node], len(is_router) + np.arange(len(fabric.ports)), fabric.ports.node)
    label = components(len(is_router) + len(fabric.ports), vertex[a], vertex[b])
    plugged = np.unique(np.concatenate((vertex[a], vertex[b])))
    parts = []
    for number, name in enumerate(np.unique(label[plugged]).tolist(), 1):
        mine = plugged[label[plugged] == name]
        prefix = Gid.SITE_LOCAL_PREFIX | number
        nodes, ports = mine[mine < len(is_router)].astype(np.int32), mine[mine >= len(is_router)] - len(is_router)
        parts.append(SubnetPart(number=number, prefix=prefix, nodes=nodes, router_ports=ports))
    return tuple(parts)


def take_subnet(fabric: Fabric, part: SubnetPart) -> tuple[NDArray[np.bool_], Fabric]:
    """Return one subnet as a mask of nodes and a fabric: with its routers, whose other ports have no cables."""
    keep = np.zeros(len(fabric.nodes), bool)
    keep[part.nodes] = keep[fabric.ports.node[part.router_ports]] = True
    inside = np.isin(fabric.ports.node, part.nodes)
    inside[part.router_ports] = True
    links = inside[fabric.links.a]  # both ends are, or none
    own = fabric.subset(keep, links)
    return keep, replace(own, spec=f"subnet {part.number}")


def plugged_router_ports(own: Fabric) -> NDArray[np.intp]:
    """Return the slots of the router ports with a cable in the fabric of one subnet."""
    is_router = own.nodes.kind == NodeKind.ROUTER
    return np.flatnonzero(is_router[own.ports.node] & (own.ports.peer >= 0))


def fingerprint(own: Fabric) -> bytes:
    """Return a digest of a subnet's cabling and tables without names, GUIDs and the numbers of router ports.

    Subnets with the same fingerprint have the same routes and the same proof, but for names.
    """
    routers = plugged_router_ports(own)
    label = np.arange(len(own.ports))
    label[routers] = len(label) + np.arange(len(routers))
    nodes, links, digest = own.nodes, own.links, blake2b()
    columns = [getattr(nodes, field.name) for field in fields(nodes) if field.name not in _NAMES]
    columns += [getattr(links, field.name) for field in fields(links) if field.name not in ("a", "b")]
    columns += [own.ports.node[routers], label[links.a], label[links.b], np.unique(nodes.group, return_inverse=True)[1]]
    for name, table in sorted(vars(own.tables).items()):
        if isinstance(table, np.ndarray) and name not in ("first_pair", "switch_row"):
            digest.update(name.encode())
            columns.append(table[np.argsort(label, kind="stable")] if len(table) == len(label) else table)
    for column in columns:
        digest.update(f"{column.dtype}{column.shape}".encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.digest()


def by_subnet(fabric: Fabric) -> dict[str, Fabric]:
    """Return each of several subnets by the name of its folder, `subnet1`; one subnet by an empty name."""
    parts = subnets_of(fabric)
    return {f"subnet{part.number}": take_subnet(fabric, part)[1] for part in parts} if len(parts) > 1 else {"": fabric}


def choose_router(interface_id: int, count: int) -> int:
    """Return which of several routers leads to a port, by the second half of its GID."""
    return crc32(interface_id.to_bytes(8, "big")) % count


def require_one_subnet(fabric: Fabric, purpose: str) -> None:
    """Raise ConfigError for a fabric of several subnets or written-out planes; `purpose` is the subject."""
    if fabric.expanded:
        raise ConfigError(
            f"{purpose} works on one subnet, and {fabric.spec} has {fabric.planes} planes, each of which is one: leave "
            "out planes=, or predict with `weft sim` and `weft nccl`"
        )
    count = len(subnets_of(fabric))
    if count > 1:
        raise ConfigError(
            f"{purpose} works on one subnet; {fabric.spec} has {count}, joined by routers: give the spec of one, or "
            "prove all of them with `weft check`"
        )


# -- specs ------------------------------------------------------------------------------------------------------------


def build_subnets(text: str, load: Callable[[str], Fabric]) -> Fabric:
    """Return the fabric of a spec behind `subnets:`; `load` reads the spec of a subnet."""
    count, routers, spec = _parse(text)
    if not 2 <= count <= ROUTER_PORTS:
        raise ConfigError(
            f"{KEYWORD}:{count}: a router joins 2 to {ROUTER_PORTS} subnets, one with each of its ports\n  {USAGE}"
        )
    if routers < 1:
        raise ConfigError(f"{KEYWORD}: routers={routers}: give at least one router\n  {USAGE}")
    part = load(spec)
    if not part.links_of(Technology.INFINIBAND)[part.network_links].all():
        raise ConfigError(f"{KEYWORD}: of={spec} is not InfiniBand: routers join InfiniBand subnets")
    if len(part.of_kind(NodeKind.ROUTER)):
        raise ConfigError(f"{KEYWORD}: of={spec} has routers already: give a spec of one subnet")
    parts = [_renamed(part, number) for number in range(1, count + 1)]
    return _join(parts, routers, f"{KEYWORD}:{count}{f',routers={routers}' if routers > 1 else ''},of={part.spec}")


def _parse(text: str) -> tuple[int, int, str]:
    """Return the number of subnets, that of routers, and the spec of each subnet."""
    head, separator, spec = f",{text}".partition(",of=")
    arguments = {"subnets": "", "routers": "1"}
    for place, item in enumerate(part.strip() for part in head.split(",")[1:]):
        key, equals, value = item.partition("=")
        if not equals and place == 0:
            key, value = "subnets", key
        if key not in arguments or not value.isdecimal():
            raise ConfigError(f"{KEYWORD}: {item!r} is not a parameter and its value\n  {USAGE}")
        arguments[key] = value
    if not separator or not spec.strip() or not arguments["subnets"]:
        raise ConfigError(f"{KEYWORD} needs a number of subnets and of=SPEC, the spec of each\n  {USAGE}")
    return int(arguments["subnets"]), int(arguments["routers"]), spec.strip()


def _renamed(part: Fabric, number: int) -> Fabric:
    """Return the same subnet with `s1-` before its names, and GUIDs that no other subnet has."""
    before, nodes = f"s{number}-", part.nodes
    shift = np.uint64(len(nodes) * (number - 1) << 8)
    renamed = replace(
        nodes,
        name=tuple(before + name for name in nodes.name),
        description=tuple(before + text for text in nodes.description),
        guid=nodes.guid + shift,
        system_guid=nodes.system_guid + shift,
    )
    servers, groups = (tuple(before + name for name in names) for names in (part.servers, part.groups))
    own = Fabric.assemble(part.spec, renamed, part.links, part.ports.guid + shift, part.models, servers, groups)
    return replace(own, planes=part.planes)


def _join(parts: list[Fabric], routers: int, spec: str) -> Fabric:
    """Return one fabric of these subnets and routers."""
    nodes, links, guids = parts[0].nodes, parts[0].links, parts[0].ports.guid
    servers, groups = parts[0].servers, parts[0].groups
    for part in parts[1:]:
        more = replace(
            part.nodes,
            server=np.where(part.nodes.server < 0, -1, part.nodes.server + len(servers)).astype(np.int32),
            group=np.where(part.nodes.group < 0, -1, part.nodes.group + len(groups)).astype(np.int32),
        )
        first = np.int32(len(guids))
        links = links.stacked(replace(part.links, a=part.links.a + first, b=part.links.b + first))
        nodes, guids = nodes.stacked(more), np.concatenate((guids, part.ports.guid))
        servers, groups = servers + part.servers, groups + part.groups
    new = _router_columns(routers, len(parts), len(nodes))
    numbers = np.tile(np.arange(len(parts) + 1, dtype=np.uint64), routers)
    first_router_slot = len(guids)
    guids = np.concatenate((guids, np.repeat(new.guid, len(parts) + 1) + numbers))
    begin = 0
    for number, part in enumerate(parts, 1):
        router_slots = first_router_slot + np.arange(routers) * (len(parts) + 1) + number
        links = links.stacked(_router_links(part, begin, router_slots))
        begin += len(part.ports)
    whole = Fabric.assemble(spec, nodes.stacked(new), links, guids, parts[0].models, servers, groups)
    return replace(whole, planes=parts[0].planes)  # every plane has routers of its own


def _router_columns(routers: int, ports: int, before: int) -> NodeColumns:
    """Return the rows of routers behind `before` other nodes."""
    names = tuple(f"router{number}" for number in range(1, routers + 1))
    guid = default_guids(before + routers)[before:]

    def column(value: int, dtype: type) -> NDArray[Any]:
        return np.full(routers, value, dtype)

    return NodeColumns(
        name=names,
        description=names,
        kind=column(NodeKind.ROUTER, np.int8),
        guid=guid,
        system_guid=guid,
        vendor_id=column(_VENDOR_ID, np.int32),
        device_id=column(0, np.int32),
        model=column(-1, np.int16),
        server=column(-1, np.int32),
        group=column(-1, np.int32),
        n_ports=column(ports, np.int16),
        enhanced_port_0=column(0, np.bool_),
    )


def _router_links(part: Fabric, begin: int, router_slots: NDArray[np.int64]) -> LinkColumns:
    """Return the cables from routers to free ports of a subnet whose slots begin at `begin`."""
    free = _free_ports(part, len(router_slots))
    cabled = np.flatnonzero(part.network_links)
    fastest = cabled[np.argmax(part.link_rate_gbit_s[cabled])]
    count = len(free)
    return LinkColumns(
        a=(begin + free).astype(np.int32),
        b=router_slots.astype(np.int32),
        speed=np.full(count, part.links.speed[fastest]),
        width=np.full(count, part.links.width[fastest]),
        medium=np.full(count, int(Medium.AOC), np.int8),
        length_m=np.full(count, _CABLE_M, np.float32),
        bit_error_rate=np.zeros(count),
        good_end=np.zeros(count, np.int8),
    )


def _free_ports(part: Fabric, count: int) -> NDArray[np.intp]:
    """Return free switch ports: of the highest level that has some, on as many switches as possible."""
    ports = part.ports
    is_free = (part.nodes.kind[ports.node] == NodeKind.SWITCH) & (ports.number > 0) & (ports.peer < 0)
    free = np.flatnonzero(is_free)
    if len(free) < count:
        raise ConfigError(
            f"{KEYWORD}: of={part.spec} has {len(free)} free switch ports, {count} routers need {count}: "
            "use fewer hosts, a larger radix or fewer routers"
        )
    node = ports.node[free]
    order = np.lexsort((node, _rank_in(node), -levels(part)[node]))
    return free[order[:count]]


def _rank_in(node: NDArray[np.int32]) -> NDArray[np.intp]:
    """Return the rank of each entry among those of the same node; nodes are sorted."""
    return np.arange(len(node)) - np.searchsorted(node, node)
