r"""Fat tree: a folded Clos of two or three levels (Leiserson 1985; Al-Fares, Loukissas, Vahdat 2008).

    core       group 1       group 2        spine j of every pod plugs into all cores of group j
                |    \       /    |
                |      \   /      |
                |      /   \      |
    spine       1    2       1    2         every leaf of a pod plugs into all its spines
                | \/ |       | \/ |
                | /\ |       | /\ |
    leaf        o    o       o    o         ports 1 to d look down, then u uplinks; d / u is the oversubscription
                :    :       :    :
    hosts        pod 1        pod 2         h1 in leaf1/1, h2 in leaf1/2, ...: leaves fill up in order

Two levels are one pod without cores. Each tier has the fewest switches that can take all cables when every switch
below spreads its uplinks evenly; where that is fewer than its uplinks, cables run in parallel, in adjacent ports.
Leaves are shared out evenly over the pods. The ports of a server's rails are adjacent too, so that a server may end
on the next leaf.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.topologies.builder import HALL_M, ROW_M, Builder, ServerName, Switching, number
from weft.fabric.topologies.registry import topology


@topology("fat-tree", example="fat-tree:hosts=1024,switch=QM9700")
def fat_tree(
    hosts: Annotated[int, "servers"],
    *,
    server: ServerName = "host",
    levels: Annotated[int | None, "1 (a star), 2 or 3; else as few as possible"] = None,
    pods: Annotated[int | None, "pods of a tree of three levels; else as few as possible"] = None,
    oversubscription: Annotated[float, "down ports of a leaf for each uplink"] = 1.0,
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect any number of hosts by leaves, spines and, for larger fabrics, pods and cores."""
    builder = Builder("fat-tree", server=server, **switching)
    down, up = split_ports(builder.radix, oversubscription)
    levels = _choose_levels(builder, hosts, levels, pods, oversubscription)
    if levels == 1:
        down = builder.radix
    n_leaves = -(-hosts * builder.rails // down)
    n_pods = _choose_pods(builder, n_leaves, pods) if levels == 3 else 1
    builder.check_size(n_leaves, hosts)

    groups = builder.add_groups(number("pod", n_pods)) if levels == 3 else np.array([-1])
    leaf_of_port, port = np.divmod(np.arange(hosts * builder.rails), down)
    pod_of_leaf = np.repeat(groups, [len(part) for part in np.array_split(np.arange(n_leaves), n_pods)])
    adapters = builder.add_hosts(hosts, group=pod_of_leaf[leaf_of_port[:: builder.rails]])
    leaves = builder.add_switches(number("leaf", n_leaves), group=pod_of_leaf)
    builder.plug_hosts(adapters.ravel(), leaves[leaf_of_port], port + 1)
    if levels == 2:
        add_spines(builder, leaves, down + 1, up)
    elif levels == 3:
        add_spines_and_cores(builder, np.array_split(leaves, n_pods), down + 1, up, group=groups)
    return builder.build()


def add_spines(builder: Builder, leaves: NDArray[np.int32], first_up: int, up: int) -> None:
    """Join leaves by spines: `up` uplinks each, from port `first_up`."""
    spines = builder.add_switches(number("spine", fewest_above(len(leaves), up, builder.radix)))
    join(builder, leaves, first_up, up, spines, ROW_M)


def add_spines_and_cores(
    builder: Builder,
    pods: Sequence[NDArray[np.int32]],
    first_up: int,
    up: int,
    *,
    group: ArrayLike = -1,
    mixed: bool = False,
) -> None:
    """Join the leaves of each pod by spines, half of whose ports lead down; join spine j of all pods by core group j.

    A spine has at least as many uplinks as downlinks, and of those numbers the one that needs the fewest cores. If
    groups may be mixed, a group has several spines of each pod if that needs fewer still: 28 cores in two groups for
    seven units of 20 DGX A100, not 30 in ten.
    """
    half = builder.radix // 2
    most = max(len(leaves) for leaves in pods)
    n_spines, n_groups, n_cores, spine_up = choose_above(len(pods), most, up, builder.radix, mixed=mixed)
    shape = (len(pods), n_spines)
    spine_group = np.broadcast_to(np.reshape(group, (-1, 1)), shape).ravel()
    spines = builder.add_switches(number("spine", len(pods) * n_spines), group=spine_group).reshape(shape)
    cores = builder.add_switches(number("core", n_groups * n_cores)).reshape(n_groups, n_cores)
    for leaves, own_spines in zip(pods, spines, strict=True):
        join(builder, leaves, first_up, up, own_spines, ROW_M)
    for n, own_cores in enumerate(cores):
        join(builder, spines[:, n::n_groups].ravel(), half + 1, spine_up, own_cores, HALL_M)


def choose_above(n_pods: int, leaves: int, up: int, radix: int, *, mixed: bool) -> tuple[int, int, int, int]:
    """Return spines of a pod, groups of spines, cores of a group and uplinks of a spine, for pods of so many leaves."""
    n_spines = fewest_above(leaves, up, radix // 2)
    groups = [n for n in range(1, n_spines + 1) if n_spines % n == 0] if mixed else [n_spines]
    return (n_spines, *_choose_cores(n_pods, n_spines, groups, leaves * up // n_spines, radix))


def _choose_cores(n_pods: int, n_spines: int, groups: Sequence[int], down: int, radix: int) -> tuple[int, int, int]:
    """Return groups of spines, cores per group, uplinks per spine: fewest cores, then cables, then spines per group."""
    candidates = []
    for n_groups in groups:
        n_below = n_pods * (n_spines // n_groups)
        for spine_up in range(down, radix // 2 + 1) if n_below <= radix else ():
            n_cores = fewest_above(n_below, spine_up, radix)
            candidates.append((n_groups * n_cores, spine_up, -n_groups, n_cores))
    _, spine_up, n_groups, n_cores = min(candidates)
    return -n_groups, n_cores, spine_up


def join(
    builder: Builder, below: NDArray[np.int32], first_up: int, up: int, above: NDArray[np.int32], length_m: float
) -> None:
    """Connect every switch below to every switch above, with the `up` uplinks spread evenly.

    Uplinks are in the order of `above` from port `first_up`, downlinks in the order of `below` from port 1.
    """
    parallel = up // len(above)
    low, high, cable = np.ogrid[: len(below), : len(above), :parallel]
    low_port, high_port = first_up + high * parallel + cable, 1 + low * parallel + cable
    builder.connect(below[low], low_port, above[high], high_port, length_m)


def fewest_above(below: int, up: int, reach: int) -> int:
    """Return the fewest switches, with `reach` ports each, over which `below` switches spread `up` uplinks evenly."""
    return next(n for n in range(1, up + 1) if up % n == 0 and below * up // n <= reach)


def split_ports(radix: int, oversubscription: float) -> tuple[int, int]:
    """Return the down ports and uplinks of a leaf: at most `oversubscription` down ports per uplink."""
    ratio = Fraction(oversubscription).limit_denominator(1000)  # 1.4 is 7/5: no port is lost to rounding
    up = int(radix / (ratio + 1))
    if up == 0:
        raise ConfigError(
            f"fat-tree: oversubscription={oversubscription:g} leaves no uplink on a leaf of {radix} ports: "
            f"at most {radix - 1}"
        )
    return int(up * ratio), up


def _most_ports(radix: int, oversubscription: float) -> dict[int, int]:
    """Return the maximum of host ports with one, two and three levels."""
    down, _ = split_ports(radix, oversubscription)
    return {1: radix, 2: radix * down, 3: radix * (radix // 2) * down}


def most_in_fat_tree(*, rails: int, radix: int, oversubscription: float = 1.0) -> int:
    """Return the maximum of servers in three levels."""
    return _most_ports(radix, oversubscription)[3] // rails


def _choose_levels(builder: Builder, hosts: int, levels: int | None, pods: int | None, oversubscription: float) -> int:
    if pods is not None:
        if levels not in (None, 3):
            raise ConfigError(f"fat-tree: pods={pods} needs three levels: leave out levels={levels}")
        levels = 3
    most = _most_ports(builder.radix, oversubscription)
    if levels is not None and levels not in most:
        raise ConfigError(f"fat-tree: levels={levels} is not possible: give 1, 2 or 3")
    for level in most if levels is None else [levels]:
        if hosts * builder.rails <= most[level]:
            return level
    top = levels or 3
    raise ConfigError(
        f"fat-tree: hosts={hosts} do not fit: levels={top} of {builder.radix}-port switches hold at most "
        f"{most[top] // builder.rails:,}\n  {_way_out(builder, hosts, levels, oversubscription)}"
    )


def _way_out(builder: Builder, hosts: int, levels: int | None, oversubscription: float) -> str:
    needed = hosts * builder.rails
    if levels in (1, 2) and needed <= _most_ports(builder.radix, oversubscription)[3]:
        return "Leave out levels=."
    for radix in range(builder.radix + 1, builder.most_ports + 1):
        if needed <= _most_ports(radix, oversubscription)[levels or 3]:
            return f"Use a switch with {radix} ports or more (switch=NAME or radix={radix}), or fewer hosts."
    return "Use fewer hosts."


def _choose_pods(builder: Builder, n_leaves: int, pods: int | None) -> int:
    """Return the fewest pods that hold the leaves, or the requested number."""
    fewest = -(-n_leaves // (builder.radix // 2))
    if pods is None:
        return fewest
    most = min(n_leaves, builder.radix)
    if not fewest <= pods <= most:
        raise ConfigError(
            f"fat-tree: pods={pods} cannot be built: these hosts fill {n_leaves:,} leaves, and with "
            f"{builder.radix}-port switches that is {fewest} to {most} pods"
        )
    return pods
