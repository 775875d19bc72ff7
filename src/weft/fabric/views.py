"""Nodes, ports, links and servers as small objects over a fabric's arrays.

A view holds its fabric and an index, nothing else: it is created on access.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import UnknownName
from weft.fabric.columns import FabricColumns
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.rates import Speed, Technology, speeds
from weft.ids import Guid, Lid


@dataclass(frozen=True, slots=True)
class Node:
    fabric: FabricColumns
    index: int

    @property
    def name(self) -> str:
        return self.fabric.nodes.name[self.index]

    @property
    def description(self) -> str:
        return self.fabric.nodes.description[self.index]

    @property
    def kind(self) -> NodeKind:
        return NodeKind(self.fabric.nodes.kind[self.index])

    @property
    def guid(self) -> Guid:
        return Guid(int(self.fabric.nodes.guid[self.index]))

    @property
    def lid(self) -> int:
        """The LID of a switch, at port 0, or of an adapter's first port."""
        return self.port(0 if self.kind == NodeKind.SWITCH else 1).lid

    @property
    def model(self) -> str:
        """The name in the catalog, empty if unknown."""
        index = int(self.fabric.nodes.model[self.index])
        return self.fabric.models[index] if index >= 0 else ""

    @property
    def server(self) -> Server | None:
        index = int(self.fabric.nodes.server[self.index])
        return Server(self.fabric, index) if index >= 0 else None

    @property
    def group(self) -> str:
        """The pod, scalable unit or dragonfly group; empty if none."""
        index = int(self.fabric.nodes.group[self.index])
        return self.fabric.groups[index] if index >= 0 else ""

    def port(self, number: int) -> Port:
        last = int(self.fabric.nodes.n_ports[self.index])
        if not 0 <= number <= last:
            nearest = [f"{self.name}/{n}" for n in sorted({1, last})]
            raise UnknownName("port", f"{self.name}/{number}", nearest, "A port is a node and a number: leaf3/17.")
        return Port(self.fabric, int(self.fabric.first_port[self.index]) + number)

    @property
    def ports(self) -> list[Port]:
        """The ports but port 0, cabled or not."""
        first = int(self.fabric.first_port[self.index])
        return [Port(self.fabric, first + n) for n in range(1, int(self.fabric.nodes.n_ports[self.index]) + 1)]

    @property
    def peers(self) -> list[Node]:
        """The nodes at the other ends, one for each link."""
        return [port.peer.node for port in self.ports if port.peer is not None]

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{self.kind.name.lower()} {self.name}>"


@dataclass(frozen=True, slots=True)
class Port:
    fabric: FabricColumns
    slot: int

    @property
    def node(self) -> Node:
        return Node(self.fabric, int(self.fabric.ports.node[self.slot]))

    @property
    def number(self) -> int:
        return int(self.fabric.ports.number[self.slot])

    @property
    def name(self) -> str:
        return f"{self.node.name}/{self.number}"

    @property
    def guid(self) -> Guid:
        return Guid(int(self.fabric.ports.guid[self.slot]))

    @property
    def lid(self) -> int:
        """A Lid; on an Ethernet fabric with more ports than a subnet has LIDs, an address."""
        tables = self.fabric.tables
        return int(tables.lid[self.slot]) if "addresses" in vars(tables) else Lid(int(tables.lid[self.slot]))

    @property
    def lmc(self) -> int:
        return int(self.fabric.tables.lmc[self.slot])

    @property
    def peer(self) -> Port | None:
        slot = int(self.fabric.ports.peer[self.slot])
        return Port(self.fabric, slot) if slot >= 0 else None

    @property
    def link(self) -> Link | None:
        index = int(self.fabric.ports.link[self.slot])
        return Link(self.fabric, index) if index >= 0 else None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<port {self.name} -> {self.peer or 'nothing'}>"


@dataclass(frozen=True, slots=True)
class Link:
    fabric: FabricColumns
    index: int

    @property
    def a(self) -> Port:
        return Port(self.fabric, int(self.fabric.links.a[self.index]))

    @property
    def b(self) -> Port:
        return Port(self.fabric, int(self.fabric.links.b[self.index]))

    @property
    def speed(self) -> Speed:
        return speeds()[int(self.fabric.links.speed[self.index])]

    @property
    def width(self) -> int:
        return int(self.fabric.links.width[self.index])

    @property
    def technology(self) -> Technology:
        return self.speed.technology

    @property
    def rate_gbit_s(self) -> float:
        return float(self.fabric.link_rate_gbit_s[self.index])

    @property
    def label(self) -> str:
        """The label of the link: `4xNDR`, `400GbE`."""
        return self.speed.label(self.width)

    @property
    def medium(self) -> Medium:
        return Medium(self.fabric.links.medium[self.index])

    @property
    def length_m(self) -> float:
        return float(self.fabric.links.length_m[self.index])

    @property
    def bit_error_rate(self) -> float:
        return float(self.fabric.links.bit_error_rate[self.index])

    def __str__(self) -> str:
        return f"{self.a} - {self.b}"

    def __repr__(self) -> str:
        return f"<link {self} {self.label}>"


@dataclass(frozen=True, slots=True)
class Server:
    """A server: adapters, GPUs and the links between them."""

    fabric: FabricColumns
    index: int

    @property
    def name(self) -> str:
        return self.fabric.servers[self.index]

    @property
    def nodes(self) -> list[Node]:
        order, first = self.fabric.nodes_by_server
        return [Node(self.fabric, i) for i in order[first[self.index] : first[self.index + 1]].tolist()]

    def of_kind(self, kind: NodeKind) -> list[Node]:
        return [node for node in self.nodes if node.kind == kind]

    @property
    def hcas(self) -> list[Node]:
        return self.of_kind(NodeKind.HCA)

    @property
    def gpus(self) -> list[Node]:
        return self.of_kind(NodeKind.GPU)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<server {self.name}>"
