"""Rails as subnets: a fabric with more ports than a subnet has LIDs, routed rail by rail.

    parts = rail_subnets(weft.load("superpod:su=228,server=dgx-b300,servers=16384"))     131,072 adapters, 8 rails

A SuperPOD gives each rail leaves and spines of its own, and collectives send along rails. So each rail, with the
switches above its adapters, is a subnet; cores are in all of them. Rails with equal cables have equal tables, and
one of them is routed, verified and run for all (`RailSubnet.rails`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.subnets import subnets_of
from weft.ids import Lid
from weft.routing.engine import CannotRoute, Options
from weft.routing.lids import ports_with_lids
from weft.routing.route import route


@dataclass(frozen=True, kw_only=True, eq=False)
class RailSubnet:
    """The adapters of a rail and the switches above them."""

    rails: tuple[str, ...]  # the rails that are cabled like this one, which is the first
    keep: NDArray[np.bool_]  # [node of the whole fabric]
    whole: Fabric

    @cached_property
    def fabric(self) -> Fabric:
        """The rail as a fabric without routes."""
        part = self.whole.subset(self.keep)
        return replace(part, spec=f"rail {self.rails[0]} of {part.spec}")

    @cached_property
    def routed(self) -> Fabric:
        """The rail with routes and port groups for adaptive routing; trees are not verified again."""
        try:
            return route(self.fabric, Options(engine="fat-tree", adaptive=True)).fabric
        except CannotRoute:
            return route(self.fabric, Options(adaptive=True)).fabric

    def slots(self, slots: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the ports of the rail for those of the whole fabric."""
        ports, node = self.whole.ports, np.cumsum(self.keep) - 1
        moved: NDArray[np.int32] = self.fabric.first_port[node[ports.node[slots]]] + ports.number[slots]
        return moved.astype(np.int32)


_KNOWN: WeakKeyDictionary[Fabric, tuple[RailSubnet, ...]] = WeakKeyDictionary()  # the cabling of a fabric is fixed


def needs_subnets(fabric: Fabric) -> bool:
    """Return whether a fabric of one subnet, without routes, has more ports than LIDs, and rails to divide it by."""
    if "lft" in vars(fabric.tables) or len(fabric.nodes) < Lid.FIRST_MULTICAST or len(subnets_of(fabric)) > 1:
        return False
    hosts, switches = ports_with_lids(fabric)
    return len(hosts) + len(switches) >= Lid.FIRST_MULTICAST and len(set(_rail_names(fabric, hosts))) > 1


def rail_subnets(fabric: Fabric) -> tuple[RailSubnet, ...]:
    """Return the rails of a fabric; those that are cabled alike are one entry."""
    if fabric not in _KNOWN:
        _KNOWN[fabric] = tuple(_find_rails(fabric))
    return _KNOWN[fabric]


def _rail_names(fabric: Fabric, slots: NDArray[np.intp]) -> list[str]:
    """Return the name of the adapter in its server for each port: `mlx5_4`; empty for a host that is one adapter."""
    names = fabric.nodes.name
    return [names[node].partition("/")[2] for node in fabric.ports.node[slots].tolist()]


def _find_rails(fabric: Fabric) -> list[RailSubnet]:
    hosts, _ = ports_with_lids(fabric)
    on_server = fabric.nodes.server[fabric.ports.node[hosts]] >= 0
    if not on_server.all():
        raise ConfigError(f"{fabric.spec} has adapters outside servers: it cannot be divided by rails")
    names = np.array(_rail_names(fabric, hosts))
    links, level, (a, b) = fabric.network_links, levels(fabric), fabric.link_nodes
    a, b = a[links], b[links]
    speed, width = fabric.links.speed[links], fabric.links.width[links]
    parts: dict[bytes, RailSubnet] = {}
    for rail in sorted(set(names.tolist()), key=lambda name: (len(name), name)):
        keep = np.zeros(len(fabric.nodes), bool)
        keep[fabric.ports.node[hosts[names == rail]]] = True
        for height in range(int(level.max())):  # upwards only: down again are other rails
            for low, high in ((a, b), (b, a)):
                keep[high[keep[low] & (level[low] == height) & (level[high] == height + 1)]] = True
        inside = keep[a] & keep[b]
        node = np.cumsum(keep) - 1
        servers = fabric.nodes.server[keep & (fabric.nodes.kind == NodeKind.HCA)]
        columns = (node[a[inside]], node[b[inside]], speed[inside], width[inside], servers)
        shape = b"".join(column.tobytes() for column in columns)
        if shape in parts:
            parts[shape] = replace(parts[shape], rails=(*parts[shape].rails, rail))
        else:
            parts[shape] = RailSubnet(rails=(rail,), keep=keep, whole=fabric)
    return list(parts.values())
