"""Put a fabric together: nodes in bulk, links in bulk, then one check of everything.

builder = FabricBuilder("two hosts")
leaf = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=8)
hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1)
builder.add_links(hosts, 1, leaf, [1, 2], "EDR")
fabric = builder.build()
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.errors import ConfigError
from weft.fabric.columns import LinkColumns, NodeColumns
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Speed, Technology, parse_label, speeds
from weft.ids import Guid

MAX_PORTS = 1024  # of an Ethernet switch: forwarding tables of more than 254 are 16 bits wide
MAX_INFINIBAND_PORTS = 254  # 255 is "no route" in a forwarding table

# GUIDs of nodes without one: Mellanox's old prefix, then a running number, then the port in the last byte.
_GUID_PREFIX = 0x0002_C903_0000_0000
_TAILS = re.compile(r"/.*")
_NAME = re.compile(r"[^\s/]+(/[^\s/]*[^\s/\d][^\s/]*)?")


def default_guids(nodes: int) -> NDArray[np.uint64]:
    """Return the GUIDs for nodes that have none."""
    return _GUID_PREFIX + (np.arange(nodes, dtype=np.uint64) + np.uint64(1) << np.uint64(8))


class FabricBuilder:
    """A collector of nodes and links; `build` checks them and returns the fabric."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self._names: list[str] = []
        self._descriptions: list[str] = []
        self._node_parts: list[dict[str, NDArray[Any]]] = []
        self._link_parts: list[dict[str, NDArray[Any]]] = []
        self._port_guids: dict[tuple[int, int], int] = {}
        self._models: dict[str, int] = {}
        self._servers: dict[str, int] = {}
        self._groups: dict[str, int] = {}

    @property
    def n_nodes(self) -> int:
        return len(self._names)

    def add_servers(self, names: Sequence[str]) -> NDArray[np.int32]:
        """Add servers, which contain nodes; return their indices."""
        return np.array([_intern(self._servers, name) for name in names], np.int32)

    def add_groups(self, names: Sequence[str]) -> NDArray[np.int32]:
        """Add pods, scalable units or dragonfly groups; return their indices."""
        return np.array([_intern(self._groups, name) for name in names], np.int32)

    def add_nodes(
        self,
        kind: NodeKind,
        names: Sequence[str],
        *,
        n_ports: ArrayLike,
        descriptions: Sequence[str] | None = None,
        model: str = "",
        vendor_id: ArrayLike = 0,
        device_id: ArrayLike = 0,
        server: ArrayLike = -1,
        group: ArrayLike = -1,
        guid: ArrayLike = 0,
        system_guid: ArrayLike = 0,
        enhanced_port_0: ArrayLike = True,
    ) -> NDArray[np.int32]:
        """Add nodes of one kind; return their indices. GUIDs of 0 are generated; a system GUID of 0 is the node's."""
        first, count = self.n_nodes, len(names)
        self._names += names
        self._descriptions += names if descriptions is None else descriptions
        values = {
            "kind": int(kind),
            "guid": guid,
            "system_guid": system_guid,
            "vendor_id": vendor_id,
            "device_id": device_id,
            "model": _intern(self._models, model) if model else -1,
            "server": server,
            "group": group,
            "n_ports": n_ports,
            "enhanced_port_0": enhanced_port_0,
        }
        self._node_parts.append(_columns(values, count, _NODE_DTYPES))
        return np.arange(first, first + count, dtype=np.int32)

    def add_links(
        self,
        a_node: ArrayLike,
        a_port: ArrayLike,
        b_node: ArrayLike,
        b_port: ArrayLike,
        speed: str | tuple[Speed, int],
        *,
        medium: Medium = Medium.UNKNOWN,
        length_m: ArrayLike = 0.0,
        bit_error_rate: ArrayLike = 0.0,
    ) -> None:
        """Add links between ports; nodes and ports are broadcast against each other."""
        line, width = parse_label(speed) if isinstance(speed, str) else speed
        ends = np.broadcast_arrays(a_node, a_port, b_node, b_port)
        values = {
            "a_node": ends[0],
            "a_port": ends[1],
            "b_node": ends[2],
            "b_port": ends[3],
            "speed": line.index,
            "width": width,
            "medium": int(medium),
            "length_m": length_m,
            "bit_error_rate": bit_error_rate,
            "good_end": 0,
        }
        self._link_parts.append(_columns(values, ends[0].size, _LINK_DTYPES))

    def set_port_guid(self, node: int, number: int, guid: int) -> None:
        """Set a port GUID that does not follow from its node's."""
        self._port_guids[node, number] = guid

    def build(self) -> Fabric:
        self._check_names()
        columns = _stack(self._node_parts, _NODE_DTYPES)
        columns["guid"] = np.where(columns["guid"] == 0, default_guids(self.n_nodes), columns["guid"])
        columns["system_guid"] = np.where(columns["system_guid"] == 0, columns["guid"], columns["system_guid"])
        self._check_nodes(columns)
        columns["n_ports"] = columns["n_ports"].astype(np.int16)
        nodes = NodeColumns(name=tuple(self._names), description=tuple(self._descriptions), **columns)
        slots = nodes.n_ports.astype(np.int64) + 1
        first_port = np.cumsum(slots) - slots
        return Fabric.assemble(
            self.spec,
            nodes,
            self._build_links(nodes, first_port),
            self._build_port_guids(nodes, first_port),
            tuple(self._models),
            tuple(self._servers),
            tuple(self._groups),
        )

    def _build_links(self, nodes: NodeColumns, first_port: NDArray[np.int64]) -> LinkColumns:
        columns = _stack(self._link_parts, _LINK_DTYPES)
        slots = []
        for end in ("a", "b"):
            node, port = columns.pop(f"{end}_node"), columns.pop(f"{end}_port")
            wrong = np.flatnonzero((port < 1) | (port > nodes.n_ports[node]))
            if len(wrong):
                name, last = nodes.name[node[wrong[0]]], nodes.n_ports[node[wrong[0]]]
                raise ConfigError(f"there is no port {name}/{port[wrong[0]]}: {name} has ports 1 to {last}")
            slots.append((first_port[node] + port).astype(np.int32))
            _check_infiniband(nodes, node, columns["speed"])
        self._check_cables(nodes, first_port, slots[0], slots[1])
        return LinkColumns(a=slots[0], b=slots[1], **columns)

    def _build_port_guids(self, nodes: NodeColumns, first_port: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the port GUIDs: one for all ports of a switch; by default, the node's plus n for port n."""
        slots = nodes.n_ports.astype(np.int64) + 1
        number = np.arange(int(slots.sum())) - np.repeat(first_port, slots)
        of_switch = np.repeat(nodes.kind == NodeKind.SWITCH, slots)
        guids = np.repeat(nodes.guid, slots) + np.where(of_switch, 0, number).astype(np.uint64)
        for (node, port), guid in self._port_guids.items():
            guids[first_port[node] + port] = guid
        return guids

    def _check_names(self) -> None:
        if len(set(self._names)) < len(self._names):
            known_names: set[str] = set()
            repeated = next(name for name in self._names if name in known_names or known_names.add(name))  # type: ignore[func-returns-value]
            raise ConfigError(f"two nodes are called {repeated!r}: names must be unique")
        text = "\n".join(self._names)
        no_blanks = text.split() == self._names
        begun = no_blanks and "/" not in {name[0] for name in self._names}
        if begun and all(_NAME.fullmatch(f"x{tail}") for tail in set(_TAILS.findall(text))):  # of servers the same
            return
        for name in self._names:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"invalid node name {name!r}: use no blanks and at most one '/', between a server and a device "
                    "that is not a bare number (leaf3/17 is a port)"
                )

    def _check_nodes(self, columns: dict[str, NDArray[Any]]) -> None:
        wrong = np.flatnonzero((columns["n_ports"] < 0) | (columns["n_ports"] > MAX_PORTS))
        if len(wrong):
            name, ports = self._names[wrong[0]], columns["n_ports"][wrong[0]]
            raise ConfigError(f"{name} cannot have {ports} ports: a node has at most {MAX_PORTS}")
        guids, first = np.unique(columns["guid"], return_index=True)
        if len(guids) < self.n_nodes:
            repeated = int(np.setdiff1d(np.arange(self.n_nodes), first)[0])
            other = int(np.flatnonzero(columns["guid"] == columns["guid"][repeated])[0])
            guid = Guid(int(columns["guid"][repeated]))
            raise ConfigError(f"{self._names[other]} and {self._names[repeated]} have the same GUID {guid}")

    def _check_cables(
        self, nodes: NodeColumns, first_port: NDArray[np.int64], a: NDArray[np.int32], b: NDArray[np.int32]
    ) -> None:
        ends = np.concatenate((a, b))
        used = np.zeros(int(ends.max(initial=-1)) + 1, np.bool_)
        used[ends] = True
        if np.count_nonzero(used) == len(ends):
            return

        def name(slot: int) -> str:
            node = int(np.searchsorted(first_port, slot, side="right")) - 1
            return f"{nodes.name[node]}/{slot - first_port[node]}"

        first = np.unique(ends, return_index=True)[1]
        slot = int(ends[np.setdiff1d(np.arange(len(ends)), first)[0]])
        peers = [int(b[i]) if a[i] == slot else int(a[i]) for i in np.flatnonzero((a == slot) | (b == slot))[:2]]
        if peers == [slot]:
            raise ConfigError(f"{name(slot)} is cabled to itself")
        raise ConfigError(f"{name(slot)} has two cables: to {name(peers[0])} and to {name(peers[1])}")


def _check_infiniband(nodes: NodeColumns, node: NDArray[np.int64], speed: NDArray[np.int8]) -> None:
    """Raise ConfigError for a link of InfiniBand at a node with more ports than its port numbers, which are bytes."""
    infiniband = np.array([line.technology is Technology.INFINIBAND for line in speeds()])
    for wide in node[(nodes.n_ports[node] > MAX_INFINIBAND_PORTS) & infiniband[speed]][:1].tolist():
        raise ConfigError(
            f"{nodes.name[wide]} cannot have {nodes.n_ports[wide]} ports of InfiniBand, whose port numbers are bytes: "
            f"at most {MAX_INFINIBAND_PORTS}"
        )


_NODE_DTYPES: dict[str, type] = {
    "kind": np.int8,
    "guid": np.uint64,
    "system_guid": np.uint64,
    "vendor_id": np.int32,
    "device_id": np.int32,
    "model": np.int16,
    "server": np.int32,
    "group": np.int32,
    "n_ports": np.int64,
    "enhanced_port_0": np.bool_,
}
_LINK_DTYPES: dict[str, type] = {
    "a_node": np.int64,
    "a_port": np.int64,
    "b_node": np.int64,
    "b_port": np.int64,
    "speed": np.int8,
    "width": np.int8,
    "medium": np.int8,
    "length_m": np.float32,
    "bit_error_rate": np.float64,
    "good_end": np.int8,
}


def _intern(index: dict[str, int], name: str) -> int:
    return index.setdefault(name, len(index))


def _columns(values: dict[str, Any], count: int, dtypes: dict[str, type]) -> dict[str, NDArray[Any]]:
    return {name: np.broadcast_to(np.ravel(values[name]).astype(dtype), (count,)) for name, dtype in dtypes.items()}


def _stack(parts: list[dict[str, NDArray[Any]]], dtypes: dict[str, type]) -> dict[str, NDArray[Any]]:
    """Return one array per column of all parts, with the right type even without parts."""
    return {name: np.concatenate([np.empty(0, dtype), *(p[name] for p in parts)]) for name, dtype in dtypes.items()}
