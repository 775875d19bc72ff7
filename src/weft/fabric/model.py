"""The fabric model: nodes, ports and links as arrays, with small objects as views.

    fabric["leaf3"]           a node         fabric.nodes.guid     uint64[node]
    fabric["leaf3/17"]        a port         fabric.ports.peer     int32[port], -1 if not cabled
    fabric["leaf3/17"].peer   its other end  fabric.links.speed    int8[link], index into rates.speeds()
    fabric["dgx1"]            a server

The cabling is read-only: `without`, `subset` and `faults` return a new fabric. The subnet manager's configuration
(`tables`) and the traffic counters (`counters`) are writable arrays.

Port slots are laid out node by node, with a slot 0 for every node: the management port of a switch, unused on other
nodes. So the slot of port n of node i is `nodes.first_port[i] + n`, everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, UnknownName
from weft.fabric.columns import FabricColumns, LinkColumns, NodeColumns, PortColumns
from weft.fabric.counters import new_counters
from weft.fabric.kinds import NodeKind
from weft.fabric.notebook import render_with
from weft.fabric.rates import Technology, speeds
from weft.fabric.tables import Tables
from weft.fabric.views import Link, Node, Port, Server

_INSIDE = (NodeKind.GPU, NodeKind.NVSWITCH, NodeKind.PCIE_SWITCH, NodeKind.CPU)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fabric(FabricColumns):
    """A cabled fabric. Build one with `weft.load(spec)` or a `FabricBuilder`."""

    counters: NDArray[np.int64]  # [port, Counter]
    changes: tuple[str, ...] = ()  # a log of changes, with the seed of random ones

    @classmethod
    def assemble(
        cls,
        spec: str,
        nodes: NodeColumns,
        links: LinkColumns,
        port_guid: NDArray[np.uint64],
        models: tuple[str, ...],
        servers: tuple[str, ...],
        groups: tuple[str, ...],
    ) -> Fabric:
        """Lay out the port slots of these nodes and plug the links in. The caller has checked both."""
        slots = nodes.n_ports.astype(np.int64) + 1
        total = int(slots.sum())
        node = np.repeat(np.arange(len(nodes), dtype=np.int32), slots)
        number = (np.arange(total) - np.repeat(np.cumsum(slots) - slots, slots)).astype(np.int16)
        peer, link = _plugged(links, total)
        ports = PortColumns(node=node, number=number, guid=port_guid, peer=peer, link=link)
        return cls(
            spec=spec,
            nodes=nodes.freeze(),
            ports=ports.freeze(),
            links=links.freeze(),
            models=models,
            servers=servers,
            groups=groups,
            tables=Tables(nodes.n_ports, np.flatnonzero(nodes.kind == NodeKind.SWITCH).astype(np.int32)),
            counters=new_counters(total),
        )

    # -- by name ------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Node | Port | Server:
        """Return a node, a port or a server by its name: `leaf3`, `leaf3/17`, `dgx1`."""
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is no name; use one of `fabric.nodes.name`, or a port, as in fabric['leaf1/3']")
        match = self._find(name)
        if match is None:
            raise UnknownName("node, port or server", name, self._names_like(name), f"In {self.spec}.")
        return match

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def find_node(self, name: str) -> Node:
        """Return the node with this name."""
        index = self.node_index.get(name)
        if index is None:
            raise UnknownName("node", name, self.node_index, f"In {self.spec}.")
        return Node(self, index)

    def find_server(self, name: str) -> Server:
        """Return the server with this name."""
        if name not in self.server_index:
            raise UnknownName("server", name, self.servers, f"In {self.spec}.")
        return Server(self, self.server_index[name])

    def find_port(self, name: str) -> Port:
        """Return the port with this name."""
        match = self._find(name)
        if not isinstance(match, Port):
            raise UnknownName("port", name, self._names_like(name), "A port is a node and a number: leaf3/17.")
        return match

    def _find(self, name: str) -> Node | Port | Server | None:
        if name in self.node_index:
            return Node(self, self.node_index[name])
        if name in self.server_index:
            return Server(self, self.server_index[name])
        owner, _, number = name.rpartition("/")
        if owner in self.node_index and number.isascii() and number.isdecimal():
            node = self.node_index[owner]
            if int(number) <= self.nodes.n_ports[node]:
                return Port(self, int(self.first_port[node]) + int(number))
        return None

    def nodes_of(self, name: str) -> list[int]:
        """Return the nodes of a name: one node, those of a server, or those of a tray of a rack, `nvl1/tray3`."""
        rack, _, tray = name.rpartition("/tray")
        if rack in self.server_index and tray.isdecimal():
            return tray_nodes(self.find_server(rack), int(tray))
        element = self[name]
        if isinstance(element, Port):
            raise ConfigError(f"{name} is a port; give a node or a server")
        return [node.index for node in element.nodes] if isinstance(element, Server) else [element.index]

    def _names_like(self, name: str) -> list[str]:
        owner = name if name in self.node_index else name.rpartition("/")[0]
        if owner in self.node_index:
            last = int(self.nodes.n_ports[self.node_index[owner]])
            return [f"{owner}/{n}" for n in ([1] if last == 1 else [1, last])]
        return list(dict.fromkeys((*self.node_index, *self.server_index)))

    @cached_property
    def node_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.nodes.name)}

    @cached_property
    def server_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.servers)}

    # -- by index -----------------------------------------------------------------------------------------------

    def node(self, index: int) -> Node:
        return Node(self, index)

    def port(self, slot: int) -> Port:
        return Port(self, slot)

    def link(self, index: int) -> Link:
        return Link(self, index)

    def all_links(self) -> Iterator[Link]:
        return (Link(self, index) for index in range(len(self.links)))

    def of_kind(self, *kinds: NodeKind) -> NDArray[np.int32]:
        """Return the indices of the nodes of these kinds."""
        return np.flatnonzero(np.isin(self.nodes.kind, kinds)).astype(np.int32)

    @property
    def cables(self) -> list[Link]:
        """The cables of the network: between switches, and from adapters to switches."""
        return [Link(self, index) for index in np.flatnonzero(self.network_links).tolist()]

    @property
    def switches(self) -> list[Node]:
        return [Node(self, i) for i in self.of_kind(NodeKind.SWITCH).tolist()]

    @property
    def hcas(self) -> list[Node]:
        return [Node(self, i) for i in self.of_kind(NodeKind.HCA).tolist()]

    # -- columns that follow from others --------------------------------------------------------------------------

    @cached_property
    def link_nodes(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The nodes at the two ends, int32[link] each."""
        return self.ports.node[self.links.a], self.ports.node[self.links.b]

    def links_of(self, *technologies: Technology) -> NDArray[np.bool_]:
        """Return a mask of the links of these technologies."""
        return np.array([s.technology in technologies for s in speeds()])[self.links.speed]

    @cached_property
    def network_links(self) -> NDArray[np.bool_]:
        """A mask of the links that leave the server: InfiniBand, Ethernet or Omni-Path."""
        return self.links_of(Technology.INFINIBAND, Technology.ETHERNET, Technology.OMNI_PATH)

    @cached_property
    def network_ports(self) -> NDArray[np.int16]:
        """The number of network ports of each node: the first ports, before those of NVLink and PCIe."""
        inside = self.links_of(Technology.NVLINK, Technology.PCIE)
        ends = np.concatenate((self.links.a[inside], self.links.b[inside]))
        n_inside = np.bincount(self.ports.node[ends], minlength=len(self.nodes))
        off_network = np.isin(self.nodes.kind, _INSIDE)  # even without links
        return np.where(off_network, 0, self.nodes.n_ports - n_inside).astype(np.int16)

    # -- another fabric -------------------------------------------------------------------------------------------

    def without(self, *parts: str | Link | Port | Node | Server) -> Fabric:
        """Return a new fabric without these parts; this one does not change.

        The new fabric keeps its names, GUIDs and LIDs, and has no routes: `weft.route`, or any function that needs
        them, computes new ones.

        Parameters
        ----------
        parts
            Names or objects: a cable by a port at either end (`leaf1/33`, `dgx1/mlx5_0/1`), a switch or another node
            (`spine1`), a server (`dgx1`), or a tray of a rack (`nvl1/tray3`).

        Returns
        -------
        Fabric
            Its `changes` name the removed parts.

        Examples
        --------
        >>> fabric = weft.load("superpod:su=1,servers=2")
        >>> broken = fabric.without("leaf1/33", "dgx1/mlx5_0/1")
        >>> len(fabric.cables) - len(broken.cables)
        2
        """
        fabric = self
        for part in parts:
            fabric = fabric.removing(str(part.a if isinstance(part, Link) else part))
        return fabric.configured(fabric.tables.unrouted())

    def removing(self, name: str) -> Fabric:
        """Return a new fabric without the cable in a port, or without a node, a server or a tray and their cables.

        Its tables still lead to the removed part, as they do until a subnet manager sweeps. With several planes, the
        name is that of a plane, `plane2`, of a part of one, `p2-leaf3/17`, or of a server.
        """
        if self.planes > 1:
            planes: Any = import_module("weft.fabric.planes")  # which builds fabrics
            if (number := planes.plane_number(name)) is not None:
                without_plane: Fabric = planes.remove_plane(self, number)
                return without_plane
            whole: Fabric = planes.holding(self, name)
            if whole is not self:
                return whole.removing(name)
        match = self._find(name)
        if isinstance(match, Port):
            if match.link is None:
                raise ConfigError(f"{name} has no cable")
            keep = np.ones(len(self.links), bool)
            keep[match.link.index] = False
            return self.subset(keep_links=keep).changed(f"removed the cable of {name}")
        removed = np.zeros(len(self.nodes), bool)
        removed[self.nodes_of(name)] = True
        # An aggregation node sits inside the switch that it is linked to.
        for near, far in (self.link_nodes, self.link_nodes[::-1]):
            removed[near[(self.nodes.kind[near] == NodeKind.AGGREGATION) & removed[far]]] = True
        return self.subset(keep_nodes=~removed).changed(f"killed {name}")

    def subset(
        self, keep_nodes: NDArray[np.bool_] | None = None, keep_links: NDArray[np.bool_] | None = None
    ) -> Fabric:
        """Return a new fabric with only these nodes and links; a link is removed with either of its nodes.

        The remaining nodes keep their names, GUIDs, LIDs, tables and counters.
        """
        nodes = np.ones(len(self.nodes), bool) if keep_nodes is None else keep_nodes
        links = np.ones(len(self.links), bool) if keep_links is None else keep_links
        a, b = self.link_nodes
        links = links & nodes[a] & nodes[b]
        slots = nodes[self.ports.node]
        new_slot = np.cumsum(slots, dtype=np.int32) - 1
        remaining = self.links.take(links)
        remaining = replace(remaining, a=new_slot[remaining.a], b=new_slot[remaining.b])
        return self._with(self.nodes.take(nodes), remaining, np.flatnonzero(nodes), np.flatnonzero(slots))

    def with_links(self, links: LinkColumns) -> Fabric:
        """Return the same nodes with these links instead; tables and counters are copied."""
        return self._with(self.nodes, links, np.arange(len(self.nodes)), np.arange(len(self.ports)))

    def sharing_tables_with(self, links: LinkColumns) -> Fabric:
        """Return the same nodes with these links instead, on the same tables and counters."""
        peer, link = _plugged(links, len(self.ports))
        return replace(self, links=links.freeze(), ports=replace(self.ports, peer=peer, link=link).freeze())

    def _with(
        self, nodes: NodeColumns, links: LinkColumns, old_nodes: NDArray[np.intp], old_slots: NDArray[np.intp]
    ) -> Fabric:
        server, servers = _compact(nodes.server, self.servers)
        nodes = replace(nodes, server=server)
        fabric = Fabric.assemble(self.spec, nodes, links, self.ports.guid[old_slots], self.models, servers, self.groups)
        tables = self.tables.subset(old_nodes, old_slots)
        return replace(
            fabric,
            tables=tables,
            counters=self.counters[old_slots].copy(),
            changes=self.changes,
            planes=self.planes,
            expanded=self.expanded,
        )

    def configured(self, tables: Tables) -> Fabric:
        """Return the same cabling with other tables."""
        return replace(self, tables=tables)

    def changed(self, description: str) -> Fabric:
        """Return the same fabric with one more entry in its log of changes."""
        return replace(self, changes=(*self.changes, description))

    def __repr__(self) -> str:
        counts = f"switches {len(self.of_kind(NodeKind.SWITCH)):,}, HCAs {len(self.of_kind(NodeKind.HCA)):,}"
        return f"<Fabric {self.spec}: {counts}, links {len(self.links):,}>"

    def _repr_html_(self) -> str:
        """Return a picture, or a summary of a large fabric, for notebooks."""
        return render_with("weft.draw.notebook:show_fabric", self)


def _plugged(links: LinkColumns, slots: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the slot at the other end and the link of each port."""
    peer, link = np.full(slots, -1, np.int32), np.full(slots, -1, np.int32)
    peer[links.a], peer[links.b] = links.b, links.a
    link[links.a] = link[links.b] = np.arange(len(links), dtype=np.int32)
    return peer, link


def _compact(index: NDArray[np.int32], names: tuple[str, ...]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Drop names that no row uses."""
    used = np.unique(index[index >= 0])
    new = np.full(len(names) + 1, -1, np.int32)  # the last entry serves index -1
    new[used] = np.arange(len(used), dtype=np.int32)
    return new[index], tuple(names[i] for i in used.tolist())


def tray_nodes(rack: Server, number: int) -> list[int]:
    """Return the nodes of a tray, without the NVSwitches, which have their own trays."""
    from weft.fabric import catalog  # a subnet manager has no use for it

    cpu = next((node for node in rack.nodes if node.kind == NodeKind.CPU), None)
    whole = catalog.server(catalog.server(cpu.model).box) if cpu else None
    if whole is None or not number < whole.trays > 1:
        has = f"tray0 to tray{whole.trays - 1}" if whole and whole.trays > 1 else "no trays"
        raise ConfigError(f"there is no {rack.name}/tray{number}: {rack.name} has {has}")
    counts = {"gpu": whole.gpus, "cpu": whole.cpus, "pcie": whole.pcie_switches}
    numbered = [tuple(f"{stem}{n}" for n in range(count)) for stem, count in counts.items()]
    inside = set[str]()
    for names in (*numbered, whole.compute, whole.storage):
        each = len(names) // whole.trays
        inside.update(f"{rack.name}/{name}" for name in names[number * each : (number + 1) * each])
    return [node.index for node in rack.nodes if node.name in inside]
