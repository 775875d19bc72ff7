"""Check forwarding tables: every pair arrives, no path loops, and no packets can wait for each other forever.

verdict = check(fabric)          tables of weft, OpenSM or any other source, even incomplete or invalid ones
verdict.ok                       all pairs arrive and there is no credit loop
print(verdict.explain())         a description with the names of ports

A pair is a port with a LID and a LID of another port. In a running fabric, ports must also be Active and have the VL in
use. The tables are free of deadlock if the channel dependency graph has no cycle (see `walk`). This holds for the paths
that the tables describe: with `hosts_only` those between adapters, as in ibdmchk; otherwise also those from and to the
switches.

A reply uses the service level of its request (rdma_cm and MAD agents do so). If both directions have the same service
level, as with all engines of weft where lanes permit, the reply is a path of the tables and the proof covers it. Other
pairs are counted in `one_way`: the SA does not report their paths as reversible, and `reply_loop` contains the credit
loop that replies there would form, if any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.planes import split_planes
from weft.routing.detours import Detour, find_detours, part_lanes
from weft.routing.graph import switch_graph
from weft.routing.kernels import walk
from weft.routing.kernels.detours import add_parts, find_starts
from weft.routing.lanes import by_lid, service_levels
from weft.routing.lids import ports_with_lids
from weft.wire.port_info import PortInfo, PortState

_FAILURES = {
    walk.NO_ENTRY: "no entry",
    walk.ASTRAY: "astray",
    walk.DROPPED: "dropped: no VL, or a port that is not Active",
    walk.LOOP: "forwarding loop",
}
_VLS = 16
_AT_ONCE = 1024  # LIDs compared with all others per step


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCheck:
    """The result of `check`."""

    spec: str
    hosts_only: bool
    pairs: int  # from a port with a LID to a LID of another port
    arrived: int
    failures: dict[str, int]  # reason -> number of missing pairs
    first_failure: str  # one of them, hop by hop; empty if there is none
    hops: dict[int, int]  # number of links between switches -> pairs that arrive
    no_lid: tuple[str, ...]  # ports on the network without a LID: unreachable
    vls: int  # virtual lanes in use
    credit_loop: tuple[str, ...]  # output ports, each waiting for the next and the last for the first; empty if none
    credit_loop_vls: tuple[int, ...]  # the VL of each
    credit_loop_paths: tuple[str, ...]  # for each, a path that holds it and waits for the next
    one_way: int  # pairs of LIDs with a different service level back
    reply_loop: tuple[str, ...]  # as credit_loop, with VLs, for replies on the service level of their requests
    lanes_known: bool  # False: the tables came without service levels, and all paths are assumed to share a lane

    @property
    def ok(self) -> bool:
        return self.pairs > 0 and not (self.missing or self.no_lid or self.credit_loop)

    @property
    def missing(self) -> int:
        return self.pairs - self.arrived

    def explain(self) -> str:
        """Describe the result; the first line is a summary."""
        if not self.pairs:
            return f"{self.spec} has fewer than two ports with LIDs\n  Route it first."
        lines = [self._summary()]
        if self.no_lid:
            more = f" and {len(self.no_lid) - 3:,} more" if len(self.no_lid) > 3 else ""
            lines.append(f"without a LID: {', '.join(self.no_lid[:3])}{more}")
        if self.missing:
            causes = ", ".join(f"{count:,} {why}" for why, count in self.failures.items())
            lines.append(f"{self.missing:,} pairs are missing ({causes}); the first:")
            lines.append(f"  {self.first_failure}")
        if self.one_way:
            lines.append(self._replies())
        if self.credit_loop:
            lines.append(self._loop())
            lines += [f"  {path}" for path in self.credit_loop_paths]
        if self.credit_loop and not self.lanes_known:
            lines.append("  Give a folder that has opensm.psl and opensm.slvl too: they contain the lane of each path.")
        elif not self.ok:
            lines.append('  Route with engine="auto": its tables are complete and cannot deadlock.')
        return "\n".join(lines)

    def _summary(self) -> str:
        scope = "host to host" if self.hosts_only else "hosts and switches"
        longest = f", at most {max(self.hops)} hops between switches" if self.hops else ""
        vls = f"{self.vls} {'lane' if self.vls == 1 else 'lanes'}"
        deadlock = "it can deadlock" if self.credit_loop else "no credit loop"
        if not self.lanes_known:
            vls = "lanes unknown"
            deadlock = f"{'a credit loop' if self.credit_loop else 'no credit loop even'} if all share one"
        return f"{self.spec}: {self.arrived:,} of {self.pairs:,} pairs arrive ({scope}){longest}, {vls}, {deadlock}"

    def _replies(self) -> str:
        replies = "close no credit loop"
        if self.reply_loop:
            replies = f"would close a credit loop: {' -> '.join([*self.reply_loop, self.reply_loop[0]])}"
        elif self.credit_loop:
            replies = "make no difference"
        return (
            f"{self.one_way:,} pairs of LIDs have a different service level back: their paths are not reversible; "
            f"replies on the service level of the request {replies}"
        )

    def _loop(self) -> str:
        names = list(self.credit_loop)
        if self.vls > 1:
            names = [f"{name} VL{vl}" for name, vl in zip(names, self.credit_loop_vls, strict=True)]
        return f"credit loop of {len(names)} buffers: {' -> '.join([*names, names[0]])}"


def check(
    fabric: Fabric, *, hosts_only: bool = False, lanes_known: bool = True, detour: Detour = Detour.NONE
) -> TableCheck:
    """Walk all paths of the fabric's tables.

    hosts_only   only between adapters, including aggregation nodes
    lanes_known  False if the tables come from files without service levels
    detour       also paths through intermediate switches: `weft.routing.detours`
    """
    if detour:
        find_detours(fabric)  # or raise an error
        if hosts_only:
            raise ConfigError("--hosts-only excludes paths to switches, which --paths uses: leave out one of them")
    if fabric.expanded:
        return _worst_plane([check(part, hosts_only=hosts_only, detour=detour) for _, part in split_planes(fabric)])
    return TableWalker(fabric, hosts_only).verdict(lanes_known, detour)


def _worst_plane(planes: Sequence[TableCheck]) -> TableCheck:
    """Return the result for all planes: counts of pairs of all, and the findings of the worst."""
    failures, hops = Counter[str](), Counter[int]()
    for plane in planes:
        failures.update(plane.failures)
        hops.update(plane.hops)
    return replace(
        min(planes, key=lambda plane: (plane.ok, -plane.missing)),
        pairs=sum(plane.pairs for plane in planes),
        arrived=sum(plane.arrived for plane in planes),
        failures=dict(failures),
        hops=dict(sorted(hops.items())),
        vls=max(plane.vls for plane in planes),
        one_way=sum(plane.one_way for plane in planes),
    )


class TableWalker:
    """A fabric and its tables as arrays for the kernels, and names for their results."""

    def __init__(self, fabric: Fabric, hosts_only: bool) -> None:
        self.fabric, self.hosts_only = fabric, hosts_only
        tables = fabric.tables
        self.graph = graph = switch_graph(fabric, tables.lid, tables.lmc)
        self.ports = fabric.nodes.n_ports[graph.switches].astype(np.int64) + 1
        # Adapters first: they are better examples than switches.
        destinations = np.concatenate(
            (np.flatnonzero(graph.out > 0), np.flatnonzero((graph.out == 0) & (not hosts_only)))
        )
        self.lid, self.at, self.out = graph.lid[destinations], graph.at[destinations], graph.out[destinations]
        self.edge_at = np.full((graph.n_switches, int(self.ports.max(initial=1))), -1, np.int32)
        self.edge_at[graph.near, graph.port] = np.arange(len(graph.port), dtype=np.int32)
        self.first_pair = tables.first_pair[graph.switches]
        top_lid = int(self.lid.max(initial=0))
        self.routes = by_lid(tables.lft, top_lid, tables.no_route)
        self.path_sl, self.sl2vl, self.n_vls = service_levels(fabric, graph, self.ports, top_lid)
        self._choose_sources()

    def _choose_sources(self) -> None:
        """Merge ports of a switch whose packets take the same lanes into one source.

        With one lane those are all ports.
        """
        wide = int(self.ports.max(initial=1))
        ports, port_of = np.unique(self.at * wide + self.out, return_inverse=True)
        switch, number = ports // wide, ports % wide
        seen_rows: dict[bytes, int] = {}
        ways = np.zeros(len(ports), np.int64)
        if len(self.sl2vl):
            begin = self.first_pair[switch] + number * self.ports[switch]
            for index, row in enumerate(map(slice, begin.tolist(), (begin + self.ports[switch]).tolist())):
                ways[index] = seen_rows.setdefault(self.sl2vl[row].tobytes(), len(seen_rows))
        _, first_of, source_of = np.unique(switch * (len(seen_rows) + 1) + ways, return_index=True, return_inverse=True)
        self.source, self.source_port = switch[first_of].astype(np.int32), number[first_of].astype(np.int32)
        self.weight = np.bincount(source_of, minlength=len(first_of)).astype(np.int64)
        self.own = source_of[port_of].astype(np.int32)  # [destination] -> the source that contains its port

    def verdict(self, lanes_known: bool, detour: Detour) -> TableCheck:
        graph, n_vls = self.graph, self.n_vls
        bits = self.edge_at.shape[1] * n_vls
        depends = np.zeros((len(graph.far) * n_vls, (bits + 7) // 8), np.uint8)
        no_cycle, waiting = np.empty(0, np.int32), np.empty((0, 2), np.int32)
        counts = ends, hops, used = self._counts()
        failed = self._walk(depends, counts, no_cycle, waiting)
        cycle = walk.find_cycle(depends, self.edge_at, graph.far, n_vls)
        one_way = self._count_one_way()
        replies = no_cycle
        if len(cycle):
            cycle = walk.shortest_cycle(depends, self.edge_at, graph.far, n_vls, cycle)
            waiting = np.full((len(cycle), 2), -1, np.int32)
            self._walk(depends, self._counts(), cycle, waiting)
        elif one_way:
            self._walk(depends, self._counts(), no_cycle, waiting, self._reply_sls())
            replies = walk.find_cycle(depends, self.edge_at, graph.far, n_vls)
            replies = walk.shortest_cycle(depends, self.edge_at, graph.far, n_vls, replies)
        if detour and not len(cycle):
            self._walk(tables_only := np.zeros_like(depends), self._counts(), no_cycle, waiting)
            depends, n_vls = self._add_parts(tables_only, detour), n_vls * detour.parts
            cycle = walk.find_cycle(depends, self.edge_at, graph.far, n_vls)
            cycle = walk.shortest_cycle(depends, self.edge_at, graph.far, n_vls, cycle)
        loop = cycle.tolist()
        return TableCheck(
            spec=self.fabric.spec,
            hosts_only=self.hosts_only,
            pairs=int(ends.sum()),
            arrived=int(ends[walk.ARRIVED]),
            failures={why: int(ends[end]) for end, why in _FAILURES.items() if ends[end]},
            first_failure=self._failure(*failed) if failed[0] >= 0 else "",
            hops={count: int(hops[count]) for count in np.flatnonzero(hops).tolist()},
            no_lid=self._without_lid(),
            vls=int(used.sum()) * detour.parts,
            credit_loop=tuple(self._port_name(channel // n_vls) for channel in loop),
            credit_loop_vls=tuple(channel % n_vls for channel in loop),
            credit_loop_paths=tuple(self._wait(loop, place, *pair) for place, pair in enumerate(waiting.tolist())),
            one_way=one_way,
            reply_loop=tuple(self.name_channel(channel) for channel in replies.tolist()),
            lanes_known=lanes_known,
        )

    def _add_parts(self, depends: NDArray[np.uint8], detour: Detour) -> NDArray[np.uint8]:
        """Return the dependencies of all paths through intermediate switches, from those of the tables."""
        tables = (self.routes, self.path_sl, self.sl2vl, self.first_pair, self.lid)
        starts = find_starts(*tables, self.edge_at, self.n_vls)
        lanes = np.array(part_lanes(detour, self.n_vls)[-detour.parts :], np.int64)
        parts: NDArray[np.uint8] = add_parts(
            depends, starts, self.edge_at, self.graph.far, self.n_vls, lanes, self.n_vls * detour.parts
        )
        return parts

    def add_dependencies(
        self, depends: NDArray[np.uint8], sources: NDArray[np.intp], destinations: NDArray[np.intp]
    ) -> None:
        """Add the channel dependencies of the paths from some sources to some destinations."""
        place = np.full(len(self.source), -1, np.int32)
        place[sources] = np.arange(len(sources), dtype=np.int32)
        walk.walk_all(
            *(self.edge_at, self.graph.far, self._far_port, self.ports),
            *(self.source[sources], self.source_port[sources], self.weight[sources]),
            *(self.lid[destinations], self.at[destinations], self.out[destinations], place[self.own[destinations]]),
            *(self.routes, self.path_sl, np.empty((0, 0), np.uint16), self.sl2vl, self.first_pair, self.n_vls),
            *(depends, *self._counts(), np.empty(0, np.int32), np.empty((0, 2), np.int32)),
        )

    def _counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Return zeros to count in: pairs by how they end, pairs by hops, and lanes in use."""
        ends, hops = np.zeros(len(_FAILURES) + 1, np.int64), np.zeros(self.graph.n_switches + 1, np.int64)
        return ends, hops, np.zeros(_VLS, np.uint8)

    def _walk(
        self,
        depends: NDArray[np.uint8],
        counts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]],
        cycle: NDArray[np.int32],
        waiting: NDArray[np.int32],
        reply_sls: NDArray[np.uint16] | None = None,
    ) -> tuple[int, int, int]:
        """Call the kernel; return source, destination and end of the first walk that failed."""
        failed: tuple[int, int, int] = walk.walk_all(
            *(self.edge_at, self.graph.far, self._far_port, self.ports, self.source, self.source_port, self.weight),
            *(self.lid, self.at, self.out, self.own, self.routes, self.path_sl),
            np.empty((0, 0), np.uint16) if reply_sls is None else reply_sls,
            *(self.sl2vl, self.first_pair, self.n_vls, depends, *counts, cycle, waiting),
        )
        return failed

    def _count_one_way(self) -> int:
        """Return the number of pairs of LIDs with a different service level back."""
        count = 0
        if len(self.path_sl):
            levels = self.path_sl[self.lid]  # [destination, switch]
            for begin in range(0, len(levels), _AT_ONCE):
                some = slice(begin, begin + _AT_ONCE)
                count += int((levels[some][:, self.at] != levels[:, self.at[some]].T).sum())
        return count

    def _reply_sls(self) -> NDArray[np.uint16]:
        """Return uint16[switch, source] -> mask of the service levels of requests from there to this source."""
        masks = np.zeros((len(self.source), self.graph.n_switches), np.uint16)
        np.bitwise_or.at(masks, self.own, np.uint16(1) << self.path_sl[self.lid].astype(np.uint16))
        return np.ascontiguousarray(masks.T)

    @property
    def _far_port(self) -> NDArray[np.int32]:
        return self.graph.port[self.graph.back]

    # -- names ------------------------------------------------------------------------------------------------------

    def _switch_name(self, switch: int) -> str:
        return self.fabric.nodes.name[int(self.graph.switches[switch])]

    def _port_name(self, edge: int) -> str:
        return f"{self._switch_name(int(self.graph.near[edge]))}/{self.graph.port[edge]}"

    def _end_name(self, switch: int, port: int) -> str:
        """Return the name of the peer of a switch port; for port 0, of the switch."""
        if port == 0:
            return self._switch_name(switch)
        slot = int(self.fabric.first_port[self.graph.switches[switch]]) + port
        return self.fabric.port(int(self.fabric.ports.peer[slot])).name

    def _source_name(self, source: int, destination: int) -> str:
        """Return the name of a port of a source; a destination does not send to itself."""
        mine = self.own == source
        if source == self.own[destination]:
            mine &= self.out != self.out[destination]
        return self._end_name(int(self.source[source]), int(self.out[np.argmax(mine)]))

    def _pair_name(self, source: int, destination: int) -> str:
        to = self._end_name(int(self.at[destination]), int(self.out[destination]))
        return f"{self._source_name(source, destination)} to {to} (LID {self.lid[destination]})"

    def name_channel(self, channel: int) -> str:
        edge, vl = divmod(channel, self.n_vls)
        return self._port_name(edge) + (f" VL{vl}" if self.n_vls > 1 else "")

    def _wait(self, cycle: list[int], place: int, source: int, destination: int) -> str:
        holds, waits = self.name_channel(cycle[place]), self.name_channel(cycle[(place + 1) % len(cycle)])
        return f"{self._pair_name(source, destination)} holds {holds} and waits for {waits}"

    def _without_lid(self) -> tuple[str, ...]:
        hosts, switches = ports_with_lids(self.fabric)
        due = hosts if self.hosts_only else np.concatenate((hosts, switches))
        return tuple(self.fabric.port(slot).name for slot in due[self.fabric.tables.lid[due] == 0].tolist())

    def _failure(self, source: int, destination: int, end: int) -> str:
        """Describe the path up to the point of failure, and the reason."""
        lid, switch, in_port = int(self.lid[destination]), int(self.source[source]), int(self.source_port[source])
        sl = int(self.path_sl[lid, switch]) if len(self.path_sl) else 0
        hops: list[str] = []
        visited: set[int] = set()
        while True:
            port = int(self.routes[lid, switch])
            edge = int(self.edge_at[switch, port]) if port < self.ports[switch] else -1
            if (
                edge < 0
                or switch in visited
                or (end == walk.DROPPED and self.find_vl(switch, in_port, port, sl) == walk.DROP)
            ):
                break
            visited.add(switch)
            hops.append(self._port_name(edge))
            switch, in_port = int(self.graph.far[edge]), int(self._far_port[edge])
        path = " -> ".join([*hops, self._switch_name(switch)])
        if end == walk.LOOP:
            why = "closes a forwarding loop"
        elif end == walk.NO_ENTRY:
            why = f"has no entry for LID {lid}"
        elif end == walk.DROPPED:
            why = f"drops it: {self._why_dropped(switch, in_port, port, sl)}"
        else:
            why = self._astray(switch, port)
        return f"{self._pair_name(source, destination)}: {path} {why}"

    def _why_dropped(self, switch: int, in_port: int, port: int, sl: int) -> str:
        slot = int(self.fabric.first_port[self.graph.switches[switch]]) + port
        state = PortState(PortInfo.port_state.get(self.fabric.tables.port_info[slot]))
        if self.fabric.tables.runs and state != PortState.ACTIVE:
            return f"port {port} is {state.name.capitalize()}, not Active"
        return f"SL {sl} from port {in_port} to port {port} has no VL"

    def find_vl(self, switch: int, in_port: int, out_port: int, sl: int) -> int:
        return int(self.sl2vl[self.first_pair[switch] + in_port * self.ports[switch] + out_port, sl])

    def _astray(self, switch: int, port: int) -> str:
        if port >= self.ports[switch]:
            return f"sends it to port {port}; it has ports 1 to {self.ports[switch] - 1}"
        if port == 0:
            return "keeps it: the entry is port 0"
        slot = int(self.fabric.first_port[self.graph.switches[switch]]) + port
        peer = self.fabric.port(slot).peer
        return f"sends it to port {port}, where {f'{peer} is' if peer else 'nothing is plugged in'}"
