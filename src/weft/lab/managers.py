"""The hosts on which the managers of a lab start: one in each subnet, and in each plane of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.subnets import SubnetPart, subnets_of
from weft.lab.places import Places
from weft.lab.planes import plane_hosts
from weft.mad.power_up import switch_on
from weft.sm.conf.options import Options
from weft.sm.flids import check_ranges


def managers_of(fabric: Fabric, options: Options, at: str = "") -> list[tuple[str, Options]]:
    """Return the host of each subnet's manager, with its options: prefixes of subnets that routers join differ.

    With `at` it is the manager of that host's subnet or plane alone; others are started by hand.
    """
    parts, home = subnets_of(fabric), _node_of(fabric, at) if at else -1
    if fabric.planes > 1 and at == fabric.nodes.name[home]:
        raise ConfigError(
            f"--at {at} is in {fabric.planes} planes, which need a manager each: leave out --at, or give its port in "
            f"one of them, {plane_hosts(fabric, at)[0]}"
        )

    def hosts(part: SubnetPart) -> list[str]:
        first = first_host(fabric, part.nodes)
        return [at] if at else plane_hosts(fabric, first) if fabric.planes > 1 else [first]

    if len(parts) == 1:
        return [(host, options) for host in hosts(parts[0])]
    if options.subnet_prefix != Options().subnet_prefix:
        raise ConfigError(
            f"subnet_prefix {options.subnet_prefix:#x} would be that of {len(parts)} subnets: subnets that routers "
            "join need different prefixes; leave it out, and each gets its own"
        )
    ranges = _flid_ranges(options, len(parts))
    chosen = [part for part in parts if not at or home in part.nodes]
    own = [
        replace(options, subnet_prefix=part.prefix, local_flid_start=first, local_flid_end=last)
        for part, (first, last) in zip(parts, ranges, strict=True)
    ]
    return [(host, own[part.number - 1]) for part in chosen for host in hosts(part)]


def _node_of(fabric: Fabric, host: str) -> int:
    """Return the adapter of a host of the lab."""
    devices = switch_on(fabric)
    return devices.node_of[Places(devices).find(host)]


def _flid_ranges(options: Options, parts: int) -> list[tuple[int, int]]:
    """Return the range of floating LIDs of each subnet: equal parts of the global range."""
    first, last, own, _ = options.flids
    if not own:
        check_ranges(options)
    if own:
        raise ConfigError(
            f"local_flid_start {own} would be that of {parts} subnets: leave it out, and each gets a part of the range "
            "from global_flid_start to global_flid_end"
        )
    if not first:
        return [(0, 0)] * parts
    size = (last - first + 1) // parts
    if not size:
        raise ConfigError(f"global_flid_start {first} to global_flid_end {last} has fewer than {parts} LIDs")
    starts = range(first, first + parts * size, size)
    return [(start, start + size - 1) for start in starts]


def adjacent_prefixes(fabric: Fabric) -> dict[int, set[int]]:
    """Return the prefixes of the subnets that share a router with each subnet, by its prefix."""
    routers = {part.prefix: set(fabric.ports.node[part.router_ports].tolist()) for part in subnets_of(fabric)}
    return {own: {far for far in routers if far != own and routers[own] & routers[far]} for own in routers}


def first_host(fabric: Fabric, nodes: Iterable[int] | None = None) -> str:
    """Return the first adapter of a fabric, or of some of its nodes; the first switch if there is none."""
    chosen = [fabric.node(index) for index in (range(len(fabric.nodes)) if nodes is None else nodes)]
    by_kind = {node.kind: node.name for node in reversed(chosen)}
    return by_kind.get(NodeKind.HCA) or by_kind[NodeKind.SWITCH]
