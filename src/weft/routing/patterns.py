"""Traffic patterns: pairs that communicate at the same time, as arrays of (sender, receiver).

Hosts are numbered as the fabric lists their ports: `host_ports`.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.files.hostlist import natural
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.subnets import subnets_of
from weft.routing.dragonfly import find_groups
from weft.routing.engine import CannotRoute, Subnet
from weft.routing.product import NotAProduct, factorise, find_neighbours

Flows = NDArray[np.int32]  # [flow, 0 sender | 1 receiver] -> host
_STORES = 8  # one host in this many is a storage server


def host_ports(fabric: Fabric) -> NDArray[np.int32]:
    """Return the slots of adapter ports with a LID that are connected to a switch, in the order of the fabric.

    Where planes are written out, port 1 stands for those of all planes. Routers between subnets send
    nothing of their own.
    """
    ports, kind = fabric.ports, fabric.nodes.kind
    plugged = np.flatnonzero((ports.peer >= 0) & (fabric.tables.lid > 0))
    plugged = plugged[fabric.network_links[ports.link[plugged]]]
    senders = (NodeKind.HCA,) if len(subnets_of(fabric)) > 1 else (NodeKind.HCA, NodeKind.ROUTER)
    sends = np.isin(kind[ports.node[plugged]], senders)
    on_switch = kind[ports.node[ports.peer[plugged]]] == NodeKind.SWITCH
    slots: NDArray[np.int32] = plugged[sends & on_switch].astype(np.int32)
    if fabric.expanded:
        return (fabric.first_port[np.unique(ports.node[slots])] + 1).astype(np.int32)
    return slots


def shift(n_hosts: int, by: int) -> Flows:
    """Return the pairs from every host to the one `by` places further: the steps of an all-to-all; with 1, a ring."""
    hosts = np.arange(n_hosts)
    return _flows(hosts, (hosts + by) % n_hosts)


def rail_rings(fabric: Fabric, hosts: NDArray[np.int64]) -> Flows:
    """Return the pairs of rings in which each port sends to the next of its rail, in the order of `hosts`.

    A rail is the ports of the same adapter and number in different servers, `mlx5_4/1`: NCCL's rings stay on one.
    Ports that are alone on their rail, as all those of a single server, form one ring together.
    """
    rings: dict[tuple[str, int], list[int]] = defaultdict(list)
    for host, slot in enumerate(hosts.tolist()):
        node, number = int(fabric.ports.node[slot]), int(fabric.ports.number[slot])
        name, server = fabric.nodes.name[node], int(fabric.nodes.server[node])
        rings[name.removeprefix(fabric.servers[server]) if server >= 0 else name, number].append(host)
    alone = [ring[0] for ring in rings.values() if len(ring) == 1]
    closed = [np.array(ring) for ring in (*rings.values(), alone) if len(ring) > 1]
    return np.concatenate([_flows(ring, np.roll(ring, -1)) for ring in closed]) if closed else _flows([], [])


def incast(n: int) -> Flows:
    """Return the pairs of an incast: all hosts send to the first."""
    return _flows(np.arange(1, n), np.zeros(n - 1, np.int_))


def random_ring(n: int, rng: np.random.Generator) -> Flows:
    """Return the pairs of a random ring, in which no host sends to itself."""
    order = rng.permutation(n)
    return _flows(order, np.roll(order, -1))


def storage(n: int) -> Flows:
    """Return the pairs of storage traffic: each host but the first ones, the servers, reads and writes."""
    stores = max(1, n // _STORES)
    clients = np.arange(stores, n)
    servers = (clients - stores) % stores
    return np.concatenate((_flows(clients, servers), _flows(servers, clients)))


def bisection(n_hosts: int, rng: np.random.Generator) -> Flows:
    """Return the pairs of two random halves, each host with a random partner, in both directions. An odd host rests."""
    first, second = rng.permutation(n_hosts)[: n_hosts // 2 * 2].reshape(2, -1)
    return _flows(np.concatenate((first, second)), np.concatenate((second, first)))


def rails(fabric: Fabric, hosts: NDArray[np.int32]) -> Flows:
    """Return the pairs from rail r of every server to rail r of the next server: rings of AI training, one per rail.

    Rails are the ports of a server by the name of their adapter, `mlx5_2` before `mlx5_10`. Servers with one port have
    no rails; empty if fewer than two servers remain.
    """
    server = fabric.nodes.server[fabric.ports.node[hosts]]
    members = defaultdict(list)
    for host, owner in enumerate(server.tolist()):
        if owner >= 0:
            members[owner].append(host)
    rings: dict[int, list[int]] = defaultdict(list)
    for _, mine in sorted(members.items()):
        if len(mine) > 1:
            for rail, host in enumerate(sorted(mine, key=lambda host: natural(fabric.port(int(hosts[host])).name))):
                rings[rail].append(host)
    closed = [np.array(ring) for ring in rings.values() if len(ring) > 1]
    return np.concatenate([_flows(ring, np.roll(ring, -1)) for ring in closed]) if closed else _flows([], [])


def groups(fabric: Fabric, hosts: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the group of each host of a dragonfly ([host])."""
    try:
        group = find_groups(_subnet(fabric))
    except CannotRoute as reason:
        raise ConfigError(
            f"adversarial traffic goes from group to group of a dragonfly, and {fabric.spec} is none. Use --traffic "
            "tornado on a torus, or permutation"
        ) from reason
    return group[_leaves(fabric, hosts)]


def tornado(fabric: Fabric, hosts: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the receiver of each host ([host]): nearly half way round in each dimension of a torus or a HyperX."""
    subnet = _subnet(fabric)
    try:
        dimensions = factorise(find_neighbours(subnet.graph)).dimensions
    except NotAProduct as reason:
        raise ConfigError(
            f"tornado traffic needs a torus, a mesh or a HyperX, and {fabric.spec} is none: {reason}"
        ) from None
    number = target = np.zeros(subnet.graph.n_switches, np.int64)
    for dimension in dimensions:
        number = number * dimension.size + dimension.place
        target = target * dimension.size + (dimension.place + (dimension.size - 1) // 2) % dimension.size
    if (number == target).all():
        raise ConfigError(f"tornado traffic needs a dimension of 3 switches or more, and {fabric.spec} has none")
    at = number[_leaves(fabric, hosts)]
    to = target[_leaves(fabric, hosts)]
    order = np.argsort(at, kind="stable")
    size = np.bincount(at, minlength=len(number))
    first = np.cumsum(size) - size
    place = np.empty(len(hosts), np.int64)  # among the hosts of its switch
    place[order] = np.arange(len(hosts)) - first[at[order]]
    if (size[to] == 0).any():
        raise ConfigError(f"tornado traffic needs hosts on every switch, and {fabric.spec} has some without")
    receiver: NDArray[np.int64] = order[first[to] + place % size[to]]
    return receiver


def _leaves(fabric: Fabric, hosts: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the row of each host's switch."""
    return fabric.tables.switch_row[fabric.ports.node[fabric.ports.peer[hosts]]]


def _subnet(fabric: Fabric) -> Subnet:
    return Subnet(fabric=fabric, lid=fabric.tables.lid.astype(np.int32), lmc=fabric.tables.lmc)


def _flows(senders: NDArray[np.int_] | list[int], receivers: NDArray[np.int_] | list[int]) -> Flows:
    return np.column_stack((senders, receivers)).astype(np.int32)
