"""Prove the tables of a fabric of several subnets: each subnet by itself, and waits across routers.

verdict = check_subnets(fabric)         a fabric with tables, as a lab has; without tables each subnet is routed first
print(verdict.explain())

Within a subnet a router port is an end, and `check` proves the subnet as any other. Across subnets, a packet that
enters a router by port q waits there for another port r of the router. A cycle of such waits must pass from a router
port p, by channels of p's subnet, to another router port q: so p reaches q if a packet from p can wait, over the
channel dependencies of the subnet, for a channel that leads into q. If the ports of routers have no cycle of such
steps, and no subnet has one of its own, nothing can deadlock. Packets from router to router are left out: only adjacent
subnets are reached, so there are none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.planes import split_planes
from weft.fabric.subnets import fingerprint, plugged_router_ports, subnets_of, take_subnet
from weft.routing.check import TableCheck, TableWalker, check
from weft.routing.engine import Options
from weft.routing.kernels import walk
from weft.routing.route import route

_NONE = -1
Steps = dict[str, set[str]]  # router port -> router ports of the same subnet whose channels its packets may wait for


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetsCheck:
    """The result of `check_subnets`."""

    spec: str
    subnets: tuple[TableCheck, ...]
    routers: int
    router_loop: tuple[str, ...]  # router ports, in and out by turns, of a cycle of waits across subnets; empty if none

    @property
    def ok(self) -> bool:
        return all(verdict.ok for verdict in self.subnets) and not self.router_loop

    @property
    def missing(self) -> int:
        return sum(verdict.missing for verdict in self.subnets)

    @property
    def arrived(self) -> int:
        return sum(verdict.arrived for verdict in self.subnets)

    @property
    def vls(self) -> int:
        return max(verdict.vls for verdict in self.subnets)

    @property
    def credit_loop(self) -> tuple[str, ...]:
        """The channels of a cycle in a subnet, or else the router ports of a cycle across subnets."""
        return next((tuple(each.credit_loop) for each in self.subnets if each.credit_loop), self.router_loop)

    @property
    def hops(self) -> dict[int, int]:
        """The pairs that arrive in all subnets, by the number of links between switches."""
        counts: dict[int, int] = {}
        for verdict in self.subnets:
            for hops, pairs in verdict.hops.items():
                counts[hops] = counts.get(hops, 0) + pairs
        return dict(sorted(counts.items()))

    def explain(self) -> str:
        """Describe the result; the first line is a summary."""
        proved = sum(verdict.ok for verdict in self.subnets)
        routers = f"{self.routers} router{'s' * (self.routers > 1)}"
        across = "no credit loop across them"
        if self.router_loop:
            across = "packets may wait for each other across them"
        elif proved < len(self.subnets):
            across = "waits across them add no credit loop"
        lines = [f"{self.spec}: {proved} of {len(self.subnets)} subnets proved, joined by {routers}: {across}"]
        lines += [line for verdict in self.subnets for line in verdict.explain().splitlines()]
        if self.router_loop:
            lines.append(f"cycle of router ports: {' -> '.join([*self.router_loop, self.router_loop[0]])}")
            lines.append("  Use one router, or cable all routers of a subnet to the same switch.")
        return "\n".join(lines)


def check_all(fabric: Fabric) -> TableCheck | SubnetsCheck:
    """Check a routed fabric of one subnet or of several."""
    return check_subnets(fabric) if len(subnets_of(fabric)) > 1 else check(fabric)


def check_subnets(fabric: Fabric, *, hosts_only: bool = False) -> SubnetsCheck:
    """Check each subnet, and the waits across routers; see the module. Planes share no router."""
    if fabric.expanded:
        planes = [check_subnets(part, hosts_only=hosts_only) for _, part in split_planes(fabric)]
        return SubnetsCheck(
            spec=fabric.spec,
            subnets=tuple(verdict for plane in planes for verdict in plane.subnets),
            routers=sum(plane.routers for plane in planes),
            router_loop=next((plane.router_loop for plane in planes if plane.router_loop), ()),
        )
    verdicts, steps = [], Steps()
    proved: dict[bytes, tuple[Fabric, TableCheck, Steps]] = {}  # the first of equal subnets, if no port is named
    for part in subnets_of(fabric):
        _, own = take_subnet(fabric, part)
        key = fingerprint(own)
        if key in proved:
            like, verdict, its_steps = proved[key]
            verdicts.append(replace(verdict, spec=own.spec))
            name = dict(zip(_router_names(like), _router_names(own), strict=True))
            steps |= {name[port]: {name[other] for other in others} for port, others in its_steps.items()}
            continue
        if not (own.tables.lft != own.tables.no_route).any():
            own = route(own, Options()).fabric
        verdicts.append(check(own, hosts_only=hosts_only))
        steps |= (its_steps := _router_steps(own))
        if verdicts[-1].ok and not verdicts[-1].reply_loop:
            proved[key] = own, verdicts[-1], its_steps
    return SubnetsCheck(
        spec=fabric.spec,
        subnets=tuple(verdicts),
        routers=len(fabric.of_kind(NodeKind.ROUTER)),
        router_loop=_find_loop(steps),
    )


# -- waits in a subnet ------------------------------------------------------------------------------------------------


def _router_steps(fabric: Fabric) -> Steps:
    """Return the steps between the router ports of one subnet."""
    walker = TableWalker(fabric, hosts_only=True)
    graph, n_vls = walker.graph, walker.n_vls
    first = fabric.first_port[graph.switches]
    slots = fabric.ports.peer[first[walker.at] + walker.out]  # [destination] -> port
    to_router = fabric.nodes.kind[fabric.ports.node[slots]] == NodeKind.ROUTER
    depends = np.zeros((len(graph.far) * n_vls, (walker.edge_at.shape[1] * n_vls + 7) // 8), np.uint8)
    from_hosts, from_routers = (np.unique(walker.own[mask]) for mask in (~to_router, to_router))
    walker.add_dependencies(depends, from_hosts, np.arange(len(slots)))
    walker.add_dependencies(depends, from_routers, np.flatnonzero(~to_router))
    names = {slot: fabric.port(slot).name for slot in np.unique(slots[to_router]).tolist()}
    entrances = {slot: _channels_to(walker, from_hosts, np.flatnonzero(slots == slot)) for slot in names}
    steps: Steps = {}
    for slot, name in names.items():
        some = int(np.flatnonzero(slots == slot)[0])
        begin = _channels_from(walker, int(walker.at[some]), int(walker.out[some]), np.flatnonzero(~to_router))
        waited_for = walk.find_reached(depends, walker.edge_at, graph.far, n_vls, begin)
        steps[name] = {names[other] for other, channels in entrances.items() if waited_for[channels].any()}
    return steps


def _router_names(fabric: Fabric) -> list[str]:
    return [fabric.port(slot).name for slot in plugged_router_ports(fabric).tolist()]


def _channels_from(walker: TableWalker, switch: int, port: int, destinations: NDArray[np.intp]) -> NDArray[np.int32]:
    """Return the first channels of packets that enter a switch by a port."""
    lids = walker.lid[destinations[walker.at[destinations] != switch]].tolist()
    channels = {_next_channel(walker, switch, port, lid, _service_level(walker, lid, switch)) for lid in lids}
    return np.array(sorted(channels - {_NONE}), np.int32)


def _channels_to(walker: TableWalker, sources: NDArray[np.intp], destinations: NDArray[np.intp]) -> NDArray[np.int32]:
    """Return the last channels of packets from some sources to the LIDs of one port."""
    graph, channels = walker.graph, set()
    for lid in walker.lid[destinations].tolist():
        for source in sources.tolist():
            switch, port, last = int(walker.source[source]), int(walker.source_port[source]), _NONE
            sl = _service_level(walker, lid, switch)
            for _ in range(graph.n_switches):  # tables may loop
                channel = _next_channel(walker, switch, port, lid, sl)
                if channel == _NONE:
                    break
                last, edge = channel, channel // walker.n_vls
                switch, port = int(graph.far[edge]), int(graph.port[graph.back[edge]])
            if switch == walker.at[destinations[0]]:
                channels.add(last)
    return np.array(sorted(channels - {_NONE}), np.int32)


def _next_channel(walker: TableWalker, switch: int, port: int, lid: int, sl: int) -> int:
    """Return the channel to the next switch of a packet that entered a switch by a port; _NONE if there is none."""
    out = int(walker.routes[lid, switch])
    edge = int(walker.edge_at[switch, out]) if out < walker.ports[switch] else _NONE
    vl = walker.find_vl(switch, port, out, sl) if len(walker.sl2vl) and edge != _NONE else 0
    return edge * walker.n_vls + vl if edge != _NONE and vl < walker.n_vls else _NONE


def _service_level(walker: TableWalker, lid: int, switch: int) -> int:
    return int(walker.path_sl[lid, switch]) if len(walker.path_sl) else 0


# -- cycles of routers ------------------------------------------------------------------------------------------------


def _find_loop(steps: Steps) -> tuple[str, ...]:
    """Return a cycle of router ports: from one to another of its subnet, then to another of that router."""
    by_router: dict[str, list[str]] = {}
    for port in steps:
        by_router.setdefault(port.rpartition("/")[0], []).append(port)
    done: set[str] = set()

    def search(port: str, trail: list[tuple[str, str]]) -> tuple[str, ...]:
        for begin, (visited, _) in enumerate(trail):
            if visited == port:
                return tuple(name for pair in trail[begin:] for name in pair)
        if port in done:
            return ()
        for entered in sorted(steps[port]):
            for left in by_router[entered.rpartition("/")[0]]:
                if left != entered and (loop := search(left, [*trail, (port, entered)])):
                    return loop
        done.add(port)
        return ()

    return next((loop for port in steps if (loop := search(port, []))), ())
