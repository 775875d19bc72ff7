"""The ports that can be members, from a subnet manager's inventory."""

from __future__ import annotations

from weft.fabric.kinds import NodeKind
from weft.sm.inventory import Subnet
from weft.tenants.partitions import EndPort, Inventory
from weft.wire.port_info import PortState


def inventory_of(subnet: Subnet, manager_guid: int) -> Inventory:
    """Return the ports of adapters. `manager_guid`: the port of the master subnet manager."""
    nodes, ports = subnet.nodes, subnet.ports
    end_ports = []
    for at, node in enumerate(ports.node):
        if nodes.kind[node] == NodeKind.HCA.label and ports.guid[at]:
            peer = ports.peer[at]
            name = nodes.name[node]
            end_ports.append(
                EndPort(
                    guid=ports.guid[at],
                    name=f"{name}/{ports.number[at]}",
                    host=name.partition("/")[0],  # dgx1 of dgx1/mlx5_0
                    node_guid=nodes.guid[node],
                    number=ports.number[at],
                    lid=ports.lid[at],
                    is_active=ports.state[at] == PortState.ACTIVE.name.title(),
                    data_vls=min(ports.data_vls[at], ports.data_vls[peer]) if peer >= 0 else ports.data_vls[at],
                    p_keys=nodes.partition_cap[node],
                )
            )
    return Inventory(tuple(end_ports), routing_sls=subnet.routing_sls, manager_guid=manager_guid)
