"""Build a fabric from a discovery tool's output: a record for each node, and for each port the peer that it reports.

Tools report a cable from both ends, hand-written files often from one. Claims are joined into links; contradicting
claims are refused with both line numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, FileError
from weft.fabric import catalog
from weft.fabric.build import MAX_INFINIBAND_PORTS, FabricBuilder
from weft.fabric.files.naming import name_nodes, node_id, system_type
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Speed, Technology, parse_label
from weft.ids import Lid

DEFAULT_RATE = "4xSDR"  # for a cable without a rate; ibsim's default too


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    line: int
    kind: NodeKind
    n_ports: int
    guid: int
    description: str
    vendor_id: int = 0
    device_id: int = 0
    system_guid: int = 0
    enhanced_port_0: bool = True


class PortRecord(NamedTuple):
    """A port with its own LID in a file: any port of an adapter, port 0 of a switch."""

    node: int
    port: int
    guid: int  # 0 if missing
    lid: int
    lmc: int
    line: int


# The peer that a port reports: node, port, peer, peer's port, rate (`4xHDR`, or empty), line.
Claim = tuple[int, int, int, int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The contents of a file; `build` checks them and builds the fabric."""

    path: Path
    lines: Sequence[str]
    nodes: Sequence[NodeRecord]
    ports: Sequence[PortRecord]
    claims: Sequence[Claim]

    def refuse(self, line: int, expected: str) -> NoReturn:
        raise FileError(self.path, line, self.lines[line - 1].strip(), expected)

    def build(self) -> Fabric:
        self._check_nodes()
        self._check_lids()
        links = self._join_claims()
        builder = FabricBuilder(str(self.path))
        self._add_nodes(builder, links)
        for port in self.ports:
            if port.guid:
                self._set_guid(builder, port)
        for rate, rows in groupby(np.argsort(links.rate, kind="stable").tolist(), key=links.rate.__getitem__):
            node, port, peer, peer_port = links.ends[list(rows)].T
            builder.add_links(node, port, peer, peer_port, links.rates[rate])
        fabric = builder.build()
        for port in self.ports:
            slot = fabric.first_port[port.node] + port.port
            fabric.tables.lid[slot] = port.lid % Lid.PERMISSIVE
            fabric.tables.set_lmc(slot, port.lmc)
        return fabric

    def _set_guid(self, builder: FabricBuilder, port: PortRecord) -> None:
        """Set a port GUID; a switch has one for all its ports."""
        node = self.nodes[port.node]
        is_switch = node.kind == NodeKind.SWITCH
        if port.guid != (node.guid if is_switch else node.guid + port.port):
            for number in range(node.n_ports + 1) if is_switch else (port.port,):
                builder.set_port_guid(port.node, number, port.guid)

    # -- nodes --------------------------------------------------------------------------------------------------

    def _check_nodes(self) -> None:
        line_of: dict[int, int] = {}
        for node in self.nodes:
            if node.n_ports > MAX_INFINIBAND_PORTS:
                self.refuse(node.line, f"a node of at most {MAX_INFINIBAND_PORTS} ports")
            if node.guid in line_of:
                self.refuse(node.line, f"another GUID: the node of line {line_of[node.guid]} has this one")
            line_of[node.guid] = node.line

    def _check_lids(self) -> None:
        for port in self.ports:
            # 65535, the permissive LID: no subnet manager has reached the port
            if port.lid >= Lid.FIRST_MULTICAST and port.lid != Lid.PERMISSIVE:
                self.refuse(port.line, f"a unicast LID, below {int(Lid.FIRST_MULTICAST)}")
            if port.lmc > 7:
                self.refuse(port.line, "an LMC from 0 to 7")

    def _add_nodes(self, builder: FabricBuilder, links: _Links) -> None:
        kinds = [node.kind for node in self.nodes]
        ids = [node_id(node.kind, node.guid) for node in self.nodes]
        descriptions = [node.description for node in self.nodes]
        names, servers = name_nodes(kinds, descriptions, ids, self._homes(links))
        hardware = [(node.vendor_id, node.device_id, system_type(node.description)) for node in self.nodes]
        models = {ids: entry.name if (entry := catalog.by_device_id(*ids)) else "" for ids in set(hardware)}
        server = np.full(len(names), -1, np.int32)
        inside = [i for i, name in enumerate(servers) if name]
        server[inside] = builder.add_servers([servers[i] for i in inside])

        def kind_and_model(i: int) -> tuple[NodeKind, str]:
            return kinds[i], models[hardware[i]]

        for (kind, model), group in groupby(range(len(names)), key=kind_and_model):  # in the order of the file
            rows = list(group)
            some = [self.nodes[i] for i in rows]
            builder.add_nodes(
                kind,
                [names[i] for i in rows],
                n_ports=[node.n_ports for node in some],
                descriptions=[node.description for node in some],
                model=model,
                vendor_id=[node.vendor_id for node in some],
                device_id=[node.device_id for node in some],
                server=server[rows],
                guid=np.array([node.guid for node in some], np.uint64),
                system_guid=np.array([node.system_guid for node in some], np.uint64),
                enhanced_port_0=[node.enhanced_port_0 for node in some],
            )

    def _homes(self, links: _Links) -> list[int]:
        """Return the switch that contains each aggregation node, -1 for none."""
        homes = [-1] * len(self.nodes)
        for a, _, b, _ in links.ends.tolist():
            for inner, outer in ((a, b), (b, a)):
                if self.nodes[inner].kind == NodeKind.AGGREGATION and self.nodes[outer].kind == NodeKind.SWITCH:
                    homes[inner] = outer
        return homes

    # -- links --------------------------------------------------------------------------------------------------

    def _join_claims(self) -> _Links:
        claimed = np.array([claim[:4] for claim in self.claims], np.int64).reshape(-1, 4)
        n_ports = np.array([node.n_ports for node in self.nodes], np.int64)
        for node, port in (claimed[:, :2].T, claimed[:, 2:].T):
            for wrong in np.flatnonzero((port < 1) | (port > n_ports[node]))[:1].tolist():
                self.refuse(self.claims[wrong][-1], f"a port from 1 to {n_ports[node[wrong]]}, not {port[wrong]}")
        first_port = np.cumsum(n_ports + 1) - (n_ports + 1)
        slots = first_port[claimed[:, [0, 2]]] + claimed[:, [1, 3]]
        for wrong in np.flatnonzero(slots[:, 0] == slots[:, 1])[:1].tolist():
            self.refuse(self.claims[wrong][-1], "a cable with another port at its end")
        cables = np.sort(slots, axis=1)
        _, example, link = np.unique(cables[:, 0] << 32 | cables[:, 1], return_index=True, return_inverse=True)
        self._check_contradictions(cables, cables[example])
        rate, rates = self._agree_on_rates(link, len(example))
        return _Links(ends=claimed[example], rate=rate, rates=rates)

    def _check_contradictions(self, claimed: NDArray[np.int64], cables: NDArray[np.int64]) -> None:
        """Refuse a port with two cables."""
        slots, uses = np.unique(cables, return_counts=True)
        for slot in slots[uses > 1][:1].tolist():
            about = np.flatnonzero((claimed == slot).any(axis=1))
            other = about[(claimed[about] != claimed[about[0]]).any(axis=1)][0]
            self._contradict(int(about[0]), int(other))

    def _agree_on_rates(
        self, link: NDArray[np.intp], n_links: int
    ) -> tuple[NDArray[np.int64], list[tuple[Speed, int]]]:
        """Return the index of each link's rate, and the rates. A claim without a rate agrees with any other."""
        index = {"": 0}
        claimed = np.array([index.setdefault(rate, len(index)) for *_, rate, _ in self.claims], np.int64)
        line_of = {rate: line for *_, rate, line in reversed(self.claims)}
        rates = [parse_label(DEFAULT_RATE)] + [self._parse_rate(label, line_of[label]) for label in list(index)[1:]]
        rate = np.zeros(n_links, np.int64)
        np.maximum.at(rate, link, claimed)
        for wrong in np.flatnonzero((claimed > 0) & (claimed != rate[link]))[:1].tolist():
            differs = (link == link[wrong]) & (claimed > 0) & (claimed != claimed[wrong])
            self._contradict(wrong, int(np.flatnonzero(differs)[0]))
        return rate, rates

    def _parse_rate(self, label: str, line: int) -> tuple[Speed, int]:
        try:
            speed, width = parse_label(label)
        except ConfigError:
            speed = None
        if speed is None or speed.technology is not Technology.INFINIBAND:
            self.refuse(line, f"an InfiniBand rate, such as 4xHDR, in place of {label}")
        return speed, width

    def _contradict(self, a: int, b: int) -> NoReturn:
        first, second = sorted((self.claims[a][-1], self.claims[b][-1]))
        self.refuse(second, f"the same cable as on line {first}: {self.lines[first - 1].strip()!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Links:
    ends: NDArray[np.int64]  # [link, (node, port, peer, peer port)]
    rate: NDArray[np.int64]  # [link] -> index into rates
    rates: list[tuple[Speed, int]]
