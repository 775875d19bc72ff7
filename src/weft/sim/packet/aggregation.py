"""The aggregation trees of reductions in switches, built before the run from the forwarding tables.

Each leaf switch of a member sends its sum along the path of the tables to the LID of the root, so that the paths of all
leaves are one tree; the result takes the same cables back. The root is a switch with the shortest way to the farthest
leaf; of several, the queue-pair number of the messages chooses, so that reductions can use different ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.kernels.forwarding import MOST_HOPS
from weft.sim.layout.posting import Posting
from weft.sim.layout.records import NONE, Records, records
from weft.sim.layout.wiring import Wiring
from weft.sim.packet.state import BRANCH, REDUCTION, VERTEX
from weft.sim.traffic import Traffic

_MOST_SUMS = 1 << 28
_FAR = 1 << 20  # hops to a switch that cannot be reached


@dataclass(frozen=True, kw_only=True, eq=False)
class Aggregation:
    """The reductions of a run, as in the fields of the state of these names."""

    reductions: Records
    vertex_of_switch: NDArray[np.int32]
    vertices: Records
    sums: NDArray[np.int32]
    members: NDArray[np.int32]
    branches: Records

    @property
    def widest(self) -> int:
        """The largest number of copies that a result becomes at one switch."""
        return int((self.branches.end - self.branches.first).max(initial=0))


def build_aggregation(wiring: Wiring, posting: Posting, traffic: Traffic, n_vls: int) -> Aggregation:
    """Build the tree of each reduction, and store the reduction of each message in its record."""
    rows = np.flatnonzero(traffic.reduction > 0)
    rows = rows[np.argsort(traffic.reduction[rows], kind="stable")]
    _, firsts = np.unique(traffic.reduction[rows], return_index=True)
    builder = _TreeBuilder(wiring, n_vls)
    reductions = records(max(len(firsts), 1), REDUCTION)
    trees: dict[Any, int] = {}
    n_sums = 0
    messages = posting.messages
    for number, own in enumerate(np.split(rows, firsts[1:]) if len(rows) else []):
        _check(wiring, traffic, own)
        source = messages.src[own]
        order = np.argsort(source)
        own, source = own[order], source[order]
        key = (source.tobytes(), int(traffic.qp[own[0]]), int(messages.sl[own[0]]))
        if key not in trees:
            trees[key] = builder.add(source.tolist(), key[1], key[2])
        rows[firsts[number] : firsts[number] + len(own)] = own
        n_packets = int(messages.packets[own[0]])
        reductions[number] = (trees[key], firsts[number], n_packets, n_sums)
        n_sums += n_packets * builder.sizes[trees[key]]
        messages.branch[own] = -2 - number
    if n_sums > _MOST_SUMS:
        raise ConfigError(f"the reductions have {n_sums:,} sums in switches (limit {_MOST_SUMS:,}): send less")
    messages.dlid[rows] = 0  # has no route in forwarding tables, so that a switch looks for its tree
    return Aggregation(
        reductions=reductions,
        vertex_of_switch=np.stack(builder.vertex_of_switch or [np.full(1, NONE, np.int32)]),
        vertices=builder.as_records(builder.vertices, VERTEX),
        sums=np.zeros(max(n_sums, 1), np.int32),
        members=rows.astype(np.int32) if len(rows) else np.zeros(1, np.int32),
        branches=builder.as_records(builder.branches, BRANCH)[: len(builder.branches)],
    )


def _check(wiring: Wiring, traffic: Traffic, own: NDArray[np.int64]) -> None:
    number = int(traffic.reduction[own[0]])
    if len(np.unique(traffic.src[own])) < max(len(own), 2):
        raise ConfigError(f"reduction {number} needs two messages or more, each of another host")
    if (traffic.size_bytes[own] != traffic.size_bytes[own[0]]).any():
        raise ConfigError(f"the messages of reduction {number} have different sizes: give all the same")
    if (wiring.ports.owner[wiring.ports.peer[wiring.port_of_slot[traffic.src[own]]]] < 0).any():
        raise ConfigError(f"reduction {number} has a host that is not at a switch: switches add")


class _TreeBuilder:
    """A builder of trees: rows of VERTEX and BRANCH, and the vertex of each switch in each tree."""

    def __init__(self, wiring: Wiring, n_vls: int) -> None:
        self._wiring, self._n_vls = wiring, n_vls
        self.vertices: list[tuple[int, ...]] = []
        self.branches: list[tuple[int, ...]] = []
        self.vertex_of_switch: list[NDArray[np.int32]] = []
        self.sizes: list[int] = []  # vertices of each tree

    @staticmethod
    def as_records(rows: list[tuple[int, ...]], kind: np.dtype[Any]) -> Records:
        made = records(max(len(rows), 1), kind)
        for at, row in enumerate(rows):
            made[at] = row
        return made

    def add(self, hosts: list[int], choice: int, sl: int) -> int:
        """Add the tree of hosts with these ports, and return its number."""
        peer, owner = self._wiring.ports.peer, self._wiring.ports.owner
        leaf_of = {host: int(owner[peer[host]]) for host in hosts}
        leaves = np.unique(list(leaf_of.values()))
        root = self._root(leaves, choice)
        up = self._ways_up(leaves, root)
        below: dict[int, list[tuple[int, int, int]]] = {}  # switch -> output port, switch below or NONE, member
        for member, host in enumerate(hosts):
            below.setdefault(leaf_of[host], []).append((int(peer[host]), NONE, member))
        for switch, port in up.items():
            below.setdefault(int(owner[peer[port]]), []).append((int(peer[port]), switch, NONE))
        rows = np.full(len(self._wiring.switch_nodes), NONE, np.int32)
        self.branches.append((NONE, 0, 0, NONE, 0, 0))
        waiting = [(root, len(self.branches) - 1)]
        for number, (switch, branch) in enumerate(waiting):  # grows
            children = below[switch]
            first = len(self.branches)
            self.branches[branch] = (self.branches[branch][0], first, first + len(children), *self.branches[branch][3:])
            for port, lower, member in children:
                if lower != NONE:
                    waiting.append((lower, len(self.branches)))
                self.branches.append((self._queue(switch, port, sl), 0, 0, member, 0, 0))
            rows[switch] = len(self.vertices)
            queue = NONE if switch == root else self._queue(switch, up[switch], sl)
            self.vertices.append((number, len(children), queue, branch))
        self.vertex_of_switch.append(rows)
        self.sizes.append(len(waiting))
        return len(self.sizes) - 1

    def _root(self, leaves: NDArray[np.int64], choice: int) -> int:
        """Return a switch with the fewest hops to the farthest leaf."""
        n = len(self._wiring.switch_nodes)
        at = np.repeat(leaves[:, None], n, axis=1)
        hops = np.zeros(at.shape, np.int64)
        for _ in range(MOST_HOPS):
            going = at != np.arange(n)
            if not going.any():
                break
            hops += going
            at = np.where(going, self._next(at, np.arange(n)[None, :]), at)
        hops[at != np.arange(n)] = _FAR
        farthest = hops.max(axis=0)
        best = np.flatnonzero(farthest == farthest.min())
        if farthest.min() >= _FAR:
            raise ConfigError(f"no switch of {self._wiring.fabric.spec} is reached from all leaves of a reduction")
        return int(best[choice % len(best)])

    def _ports_to(self, at: Any, switch: Any) -> Any:
        """Return the port of each switch on the way to another one; NONE without a route."""
        wiring, tables = self._wiring, self._wiring.fabric.tables
        slot = wiring.fabric.first_port[wiring.switch_nodes]
        number = tables.lft[at, tables.lid[slot][switch]].astype(np.int64)
        return np.where(number == tables.no_route, NONE, wiring.port_of_slot[slot][at] + number)

    def _next(self, at: Any, switch: Any) -> Any:
        port = self._ports_to(at, switch)
        far = np.where(port >= 0, self._wiring.ports.peer[np.maximum(port, 0)], NONE)
        return np.where(far >= 0, np.maximum(self._wiring.ports.owner[np.maximum(far, 0)], 0), at)

    def _ways_up(self, leaves: NDArray[np.int64], root: int) -> dict[int, int]:
        """Return the port towards the root of each switch of the tree."""
        up: dict[int, int] = {}
        for leaf in leaves.tolist():
            at = leaf
            while at != root and at not in up:
                up[at] = int(self._ports_to(at, root))
                at = int(self._wiring.ports.owner[self._wiring.ports.peer[up[at]]])
        return up

    def _queue(self, switch: int, port: int, sl: int) -> int:
        """Return the output queue of a port for packets of the switch itself."""
        if self._n_vls == 1:
            return port
        tables = self._wiring.fabric.tables
        row = tables.first_pair[self._wiring.switch_nodes[switch]] + port - self._wiring.first[port]
        return port * self._n_vls + min(int(tables.sl2vl[row, sl]), self._n_vls - 1)
