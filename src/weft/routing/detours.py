"""Non-minimal paths: by the forwarding tables to an intermediate switch, and from there to the destination.

    Valiant   every packet goes through a random intermediate switch (Valiant, "A scheme for fast parallel
              communication", 1982)
    UGAL      the first switch compares the queues of the two paths, weighted by their lengths (Singh, "Load-balanced
              routing in interconnection networks", 2005; Kim, Dally, Scott and Abts 2008: UGAL-L)
    PAR       later switches on the minimal path compare again, in a dragonfly those of the first group (Jiang, Kim and
              Dally, "Indirect adaptive routing on large scale interconnection networks", 2009)

In a dragonfly a detour ends as soon as it enters the group of its intermediate switch; in a Dragonfly+ at a leaf.

Each part of such a path is a path of the forwarding tables, and uses lanes of its own:

    Valiant, UGAL   to the intermediate switch: lanes 0 to k-1; to the destination: k to 2k-1
    PAR             undecided: 0 to k-1; to the intermediate switch: k to 2k-1; to the destination: 2k to 3k-1

where k lanes are enough for the tables alone. Lanes only rise from part to part, and the tables form no cycle within a
part, so there is no deadlock; `add_parts` builds the channel dependencies of all these paths for the check.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.routing.dragonfly import find_groups
from weft.routing.engine import CannotRoute, Subnet
from weft.routing.product import NotAProduct, factorise, find_neighbours


class Detour(enum.IntEnum):
    """The rule by which a switch chooses between the minimal path and a detour."""

    NONE = 0
    VALIANT = 1
    UGAL = 2
    PAR = 3

    @property
    def parts(self) -> int:
        """The number of parts with lanes of their own."""
        return 1 if self is Detour.NONE else 3 if self is Detour.PAR else 2


# The parts of a path. Valiant and UGAL decide at the first switch, before the packet uses a lane of the network.
UNDECIDED, TO_INTERMEDIATE, TO_DESTINATION = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Detours:
    """The intermediate switches of a fabric."""

    group: NDArray[np.int32]  # [switch]; without groups each switch is one
    lid: NDArray[np.int32]  # LIDs of the intermediate switches
    ends_in_group: bool  # a detour ends at the first switch of the group
    in_first_group: bool  # PAR: only switches of the first group divert packets


def find_detours(fabric: Fabric) -> Detours:
    """Return the intermediate switches; raise ConfigError if the topology has none to choose from."""
    tables = fabric.tables
    subnet = Subnet(fabric=fabric, lid=tables.lid.astype(np.int32), lmc=tables.lmc)
    graph = subnet.graph
    leaf = graph.hosts > 0
    rule = "--paths valiant, ugal and par need a dragonfly, Dragonfly+, torus, mesh, HyperX or another direct network"
    group = np.arange(graph.n_switches, dtype=np.int32)
    has_groups = False
    try:
        if not leaf.all() or not _is_grid(subnet):
            group, has_groups = find_groups(subnet), True
    except CannotRoute as reason:
        if not leaf.all():
            raise ConfigError(
                f"{rule}; {fabric.spec} has switches without hosts and is no Dragonfly+. Use --paths adaptive"
            ) from reason
    if len(np.unique(group[leaf])) < 3:
        kind = "groups" if has_groups else "switches"
        raise ConfigError(f"{rule} of 3 {kind} or more, so that there is an intermediate one; use --paths table")
    lid = graph.lid[(graph.out == 0) & leaf[graph.at]]
    if not len(lid):
        raise ConfigError(f"{rule} whose switches have LIDs; {fabric.spec} has none: route it first")
    return Detours(group=group, lid=lid, ends_in_group=has_groups and bool(leaf.all()), in_first_group=has_groups)


def _is_grid(subnet: Subnet) -> bool:
    try:
        factorise(find_neighbours(subnet.graph))
    except NotAProduct:
        return False
    return True


def part_lanes(detour: Detour, vls: int) -> tuple[int, int, int]:
    """Return the first lane of each part, where the tables alone need this many lanes."""
    if detour is Detour.NONE:
        return (0, 0, 0)
    return (0, vls, 2 * vls) if detour is Detour.PAR else (0, 0, vls)
