r"""Dragonfly and Dragonfly+: groups of switches, and a few long cables between every two groups.

    dragonfly (Kim, Dally, Scott, Abts 2008)             dragonfly+ (Shpiner et al. 2017)

     group1            group2                             group1                group2
    +---------+       +---------+                        +----------+          +----------+
    | s1---s2 |-------| s1---s2 |                        |  spines  |----------|  spines  |
    |  |\ /|  |       |  |\ /|  |                        |  | X |   |          |  | X |   |
    |  |/ \|  |       |  |/ \|  |                        |  leaves  |          |  leaves  |
    | s3---s4 |       | s3---s4 |                        |   :::    |          |   :::    |
    +---------+       +---------+                        +----------+          +----------+
    p hosts, a - 1 local and h global ports              p hosts and one port per spine on a leaf;
    on each of a switches                                one port per leaf and h global ports on a spine

The global ports of a group are counted switch by switch. They go round the other groups: the n-th leads n groups
ahead, and after the last it begins again; so every two groups have the same number of cables, or one more. On what is
left over in the last round, groups pair up with their neighbours; a port that no symmetric pairing can use stays empty.
"""

from __future__ import annotations

from typing import Annotated, Unpack

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.rates import Speed, parse_label
from weft.fabric.topologies.builder import HALL_M, ROW_M, Builder, ServerName, Switching, number
from weft.fabric.topologies.registry import topology

HostsPerLeaf = Annotated[int, "servers on each switch that has servers"]
GlobalLinks = Annotated[int, "global links of each switch that has them"]
Groups = Annotated[int | None, "groups; else as many as the global links of one can reach"]


@topology("dragonfly", example="dragonfly:p=4,a=8,h=4")
def dragonfly(
    p: HostsPerLeaf,
    *,
    a: Annotated[int, "switches in a group"],
    h: GlobalLinks,
    g: Groups = None,
    server: ServerName = "host",
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect groups of switches (`g2s3`), all-to-all inside, with a few links between every two groups."""
    builder = Builder("dragonfly", server=server, **switching)
    ports = p * builder.rails
    builder.check_ports(ports + a - 1 + h, f"{ports} for hosts, {a - 1} local, {h} global")
    g = _choose_groups("dragonfly", g, a * h)
    builder.check_size(g * a, g * a * p)

    group = np.repeat(builder.add_groups(number("group", g)), a)
    switches = builder.add_leaves(_names("s", g, a), p, group=group).reshape(g, a)
    builder.connect_all(switches, ports + 1, ROW_M)
    _connect_groups(builder, switches, ports + a, h)
    return builder.build()


@topology("dragonfly+", example="dragonfly+:p=8,leaves=8,spines=8,h=8,g=9")
def dragonfly_plus(
    p: HostsPerLeaf,
    *,
    leaves: Annotated[int, "switches with hosts in a group"],
    spines: Annotated[int, "switches with global links in a group"],
    h: GlobalLinks,
    g: Groups = None,
    cables: Annotated[int, "cables from each leaf to each spine of its group"] = 1,
    uplink: Annotated[str | None, "line speed of cables between switches, 4xNDR; else that of the servers"] = None,
    servers: Annotated[int | None, "servers in all, spread evenly, if leaves are not full"] = None,
    server: ServerName = "host",
    **switching: Unpack[Switching],
) -> Fabric:
    """Connect groups of leaves (`g2leaf3`) and spines (`g2spine3`), with the global links on the spines."""
    builder = Builder("dragonfly+", server=server, **switching)
    ports = p * builder.rails
    line = parse_label(uplink) if uplink else None
    wide = _ports_of_uplink(builder, uplink) if uplink else 1
    up, down = spines * cables, leaves * cables
    of_uplinks = f", {wide} for each" if wide > 1 else ""
    builder.check_ports(ports + up * wide, f"a leaf: {ports} for hosts, {up} to spines{of_uplinks}")
    builder.check_ports((down + h) * wide, f"a spine: {down} to leaves, {h} global{of_uplinks}")
    g = _choose_groups("dragonfly+", g, spines * h)
    builder.check_size(g * (leaves + spines), g * leaves * p)
    servers = _check_servers(g * leaves * p, servers)

    groups = builder.add_groups(number("group", g))
    lower = _add_spread(builder, servers, _names("leaf", g, leaves), np.repeat(groups, leaves)).reshape(g, leaves)
    upper = builder.add_switches(_names("spine", g, spines), group=np.repeat(groups, spines)).reshape(g, spines)
    leaf, spine, n = np.ogrid[:leaves, :spines, :cables]
    ends = (lower[:, :, None, None], upper[:, None, :, None])
    leaf_port, spine_port = ports + 1 + wide * (spine * cables + n), 1 + wide * (leaf * cables + n)
    builder.connect(ends[0], leaf_port, ends[1], spine_port, ROW_M, line)
    _connect_groups(builder, upper, wide * down + 1, h, line, wide)
    return builder.build()


def fit_dragonfly_plus(servers: int, *, rails: int, radix: int) -> dict[str, int | None]:
    """Return the balanced dragonfly+ with the fewest switches: a group has as many global links as host ports.

    No leaf is oversubscribed, and a spine has as many ports to leaves as to other groups.
    """
    half = radix // 2
    candidates = []
    for p in range(1, half // rails + 1):
        g = max(2, -(-servers // (p * half)))
        leaves, spines = -(-servers // (g * p)), p * rails
        if g - 1 <= spines * leaves:
            bare = g * leaves > servers  # a dragonfly's routing needs servers on every leaf
            candidates.append((bare, g * (leaves + spines), g, p, leaves, spines))
    if rails > half:
        raise ConfigError(
            f"dragonfly+: a server has {rails} rails, all on one leaf, which has {half} ports for hosts: use a "
            f"superpod or a fat tree, or at most {half} rails"
        )
    if not candidates or servers < 2:
        most = half // rails * half * (half // rails * rails * half + 1)
        raise ConfigError(
            f"dragonfly+: {servers:,} servers with {rails} rails on switches of {radix} ports: give 2 to {most:,}"
        )
    _, _, g, p, leaves, spines = min(candidates)
    full = servers == g * leaves * p
    return {"p": p, "leaves": leaves, "spines": spines, "h": leaves, "g": g, "servers": None if full else servers}


def _ports_of_uplink(builder: Builder, uplink: str) -> int:
    """Return the ports, split as the servers need them, that a cable between switches takes."""
    whole = builder.switch.ports_at(uplink)
    if uplink not in (*builder.switch.speeds, builder.switch.label) or builder.radix % whole:
        raise ConfigError(
            f"dragonfly+: uplink={uplink} is no speed of {builder.switch.name} beside {builder.radix} ports: "
            f"it has {builder.switch.summary}"
        )
    return builder.radix // whole


def _check_servers(most: int, servers: int | None) -> int:
    if servers is not None and servers > most:
        raise ConfigError(f"dragonfly+: servers={servers} do not fit: all leaves together hold {most:,}")
    return servers or most


def _add_spread(builder: Builder, servers: int, names: list[str], group: NDArray[np.int32]) -> NDArray[np.int32]:
    """Add leaves with equal numbers of servers, or one fewer, cabled from port 1 up; return the leaves."""
    leaf = np.arange(servers) * len(names) // servers
    place = np.arange(servers) - np.searchsorted(leaf, leaf)
    adapters = builder.add_hosts(servers, group=group[leaf])
    switches = builder.add_switches(names, group=group)
    builder.plug_hosts(adapters, switches[leaf][:, None], place[:, None] * builder.rails + np.arange(builder.rails) + 1)
    return switches


def _choose_groups(name: str, g: int | None, global_ports: int) -> int:
    most = global_ports + 1
    if g is None:
        return most
    if g > most:
        raise ConfigError(f"{name}: g={g} groups are too many: with {global_ports} global links each, at most {most}")
    return g


def _names(prefix: str, groups: int, each: int) -> list[str]:
    return [f"g{group}{name}" for group in range(1, groups + 1) for name in number(prefix, each)]


def _connect_groups(
    builder: Builder,
    switches: NDArray[np.int32],
    first_port: int,
    h: int,
    line: tuple[Speed, int] | None = None,
    wide: int = 1,
) -> None:
    """Add the global cables of switches [group, switch], in ports `first_port` and up of each, `wide` for a cable."""
    n_groups, per_group = switches.shape
    ahead, back = global_ports(n_groups, per_group * h)
    group = np.arange(n_groups)[:, None]
    peer = (group + ahead) % n_groups
    group, port = np.nonzero(group < peer)  # each cable once, though both of its ends list it
    peer, back = peer[group, port], back[port]
    builder.connect(
        switches[group, port // h],
        first_port + wide * (port % h),
        switches[peer, back // h],
        first_port + wide * (back % h),
        HALL_M,
        line,
    )


def global_ports(n_groups: int, n_ports: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return, for each global port of a group, the number of groups ahead that it leads to, and the port there.

    A port that leads n groups ahead is met by a port that leads `n_groups - n` ahead, so a round is its own mirror.
    """
    n_others = n_groups - 1
    if not n_others:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    rounds, left = divmod(n_ports, n_others)
    port = np.arange(rounds * n_others)
    step = port % n_others + 1
    back = port - port % n_others + n_others - step
    near = np.arange(1, left // 2 + 1)
    halfway = np.full(left % 2 if n_groups % 2 == 0 else 0, n_groups // 2)
    last = np.concatenate((near, halfway, n_groups - near[::-1]))
    return np.concatenate((step, last)), np.concatenate((back, len(port) + np.arange(len(last))[::-1]))
