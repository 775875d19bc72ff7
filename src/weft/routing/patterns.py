"""Traffic patterns: who sends to whom at the same time, as arrays of (sender, receiver).

Hosts are numbered as the fabric lists their ports: `host_ports`.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from weft.fabric.files.hostlist import natural
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric

Flows = NDArray[np.int32]  # [flow, 0 sender | 1 receiver] -> host


def host_ports(fabric: Fabric) -> NDArray[np.int32]:
    """[host] -> slot of an adapter's port with a LID that is plugged into a switch, in the order of the fabric."""
    ports, kind = fabric.ports, fabric.nodes.kind
    plugged = np.flatnonzero((ports.peer >= 0) & (fabric.tables.lid > 0))
    plugged = plugged[fabric.network_links[ports.link[plugged]]]
    sends = np.isin(kind[ports.node[plugged]], (NodeKind.HCA, NodeKind.ROUTER))
    on_switch = kind[ports.node[ports.peer[plugged]]] == NodeKind.SWITCH
    slots: NDArray[np.int32] = plugged[sends & on_switch].astype(np.int32)
    return slots


def shift(n_hosts: int, by: int) -> Flows:
    """Every host to the one `by` places on: the steps of an all-to-all by the book; by 1 the ring of a collective."""
    hosts = np.arange(n_hosts)
    return _flows(hosts, (hosts + by) % n_hosts)


def bisection(n_hosts: int, rng: np.random.Generator) -> Flows:
    """Two random halves; every host of one and its random partner in the other send to each other. An odd one rests."""
    one, other = rng.permutation(n_hosts)[: n_hosts // 2 * 2].reshape(2, -1)
    return _flows(np.concatenate((one, other)), np.concatenate((other, one)))


def rails(fabric: Fabric, hosts: NDArray[np.int32]) -> Flows:
    """Rail r of every server to rail r of the next server that has one: rings of AI training, one for each rail.

    Rails are the ports of a server by the name of their adapter, `mlx5_2` before `mlx5_10`. Servers with one port have
    no rails; empty if fewer than two are left.
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


def _flows(senders: NDArray[np.int_] | list[int], receivers: NDArray[np.int_] | list[int]) -> Flows:
    return np.column_stack((senders, receivers)).astype(np.int32).reshape(-1, 2)
