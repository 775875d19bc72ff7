"""The subnet that a subnet manager would see of a fabric: InfiniBand nodes, their ports, and the cables between them.

A server shows only its HCAs, each with its network ports; GPUs, NVLink and PCIe are invisible. Columns are plain lists,
since writers of text access elements one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, speeds

_VISIBLE = (NodeKind.SWITCH, NodeKind.HCA, NodeKind.AGGREGATION, NodeKind.ROUTER)
_ORDER = {NodeKind.SWITCH: 0, NodeKind.HCA: 1, NodeKind.AGGREGATION: 1, NodeKind.ROUTER: 2}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def printable(text: str) -> str:
    """Replace each control character by a blank, as the tools of infiniband-diags do."""
    return _CONTROL.sub(" ", text)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Subnet:
    nodes: list[int]  # visible nodes: switches, then adapters, then routers
    # [node]
    kind: list[NodeKind]
    guid: list[int]
    system_guid: list[int]
    vendor_id: list[int]
    device_id: list[int]
    description: list[str]
    n_ports: list[int]
    first_port: list[int]
    enhanced_port_0: list[bool]
    # [port slot]
    node: list[int]
    number: list[int]
    port_guid: list[int]
    lid: list[int]
    lmc: list[int]
    peer: list[int]  # -1 without an InfiniBand cable
    rate: list[str]  # `4xHDR`, empty without an InfiniBand cable

    @classmethod
    def of(cls, fabric: Fabric) -> Self:
        """Return the cabled part of a fabric. Nodes without a cable are invisible, unless no node has one."""
        nodes, ports, links = fabric.nodes, fabric.ports, fabric.links
        is_visible = np.isin(nodes.kind, _VISIBLE)
        a, b = fabric.link_nodes
        in_subnet = fabric.links_of(Technology.INFINIBAND) & is_visible[a] & is_visible[b]
        has_cable = np.zeros(len(nodes), bool)
        has_cable[a[in_subnet]] = has_cable[b[in_subnet]] = True
        if fabric.network_links.any() and not in_subnet.any():
            raise ConfigError(f"{fabric.spec} has no InfiniBand link: a subnet manager would see nothing")
        visible = np.flatnonzero(has_cable if in_subnet.any() else is_visible).tolist()
        kind = [NodeKind(k) for k in nodes.kind.tolist()]
        plugged = np.append(in_subnet, False)[ports.link]  # the last entry serves link -1
        lines = list(zip(links.speed.tolist(), links.width.tolist(), strict=True))
        label = {(speed, width): speeds()[speed].label(width) for speed, width in set(lines)}
        return cls(
            nodes=sorted(visible, key=lambda node: _ORDER[kind[node]]),
            kind=kind,
            guid=nodes.guid.tolist(),
            system_guid=nodes.system_guid.tolist(),
            vendor_id=nodes.vendor_id.tolist(),
            device_id=nodes.device_id.tolist(),
            description=[printable(text) for text in nodes.description],
            n_ports=fabric.network_ports.tolist(),
            first_port=fabric.first_port.tolist(),
            enhanced_port_0=nodes.enhanced_port_0.tolist(),
            node=ports.node.tolist(),
            number=ports.number.tolist(),
            port_guid=ports.guid.tolist(),
            lid=fabric.tables.lid.tolist(),
            lmc=fabric.tables.lmc.tolist(),
            peer=np.where(plugged, ports.peer, -1).tolist(),
            rate=[label[lines[i]] if i >= 0 else "" for i in np.where(plugged, ports.link, -1).tolist()],
        )

    def cables(self, node: int) -> Iterator[tuple[int, int]]:
        """Yield the slots of a node's cabled ports, and of the ports at the other ends."""
        first = self.first_port[node]
        for slot in range(first + 1, first + self.n_ports[node] + 1):
            if self.peer[slot] >= 0:
                yield slot, self.peer[slot]

    def lid_slot(self, slot: int) -> int:
        """Return the slot that holds the LID of a port: port 0 for a switch."""
        node = self.node[slot]
        return self.first_port[node] if self.kind[node] == NodeKind.SWITCH else slot

    def own_port_guid(self, node: int) -> int:
        """Return PortGUID of NodeInfo, as queried through the first port."""
        has_ports_of_its_own = self.kind[node] != NodeKind.SWITCH and self.n_ports[node] > 0
        return self.port_guid[self.first_port[node] + has_ports_of_its_own]
