"""The interface of drivers: read the partitions of a fabric, and replace them.

    before = driver.read()
    driver.write(desired, over=before)        # returns when the fabric has applied it

`write` is atomic: if the fabric refuses a part, the previous state is restored. If the process is killed during a
`write`, the state is the old one, the new one, or between them, and `read` reports it; the same `write` again completes
the change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from weft.errors import SubnetError
from weft.fabric.kinds import NodeKind
from weft.sm.control_server import Checked as Checked
from weft.sm.inventory import Subnet
from weft.tenants.partitions import Allocation, EndPort, Inventory
from weft.wire.port_info import PortState


class FabricChangedError(SubnetError):
    """An error: another client has changed the fabric since it was read. Read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The current state of a fabric."""

    allocation: Allocation  # managed by weft
    foreign_p_keys: frozenset[int] = frozenset()  # P_Keys of partitions that weft does not manage
    revision: str = ""  # identifies this state; empty if the fabric has none


class Driver(Protocol):
    """A connection to the partitions of a fabric."""

    @property
    def title(self) -> str:
        """The name for messages: lab mine, UFM at https://ufm."""

    def inventory(self) -> Inventory: ...

    def read(self) -> Observed: ...

    def write(self, desired: Allocation, *, over: Observed) -> None:
        """Replace the partitions. Raise FabricChangedError if `over` is outdated, SubnetError if the fabric refuses."""

    def check(self, *, repair: bool) -> Checked:
        """Compare the ports with the configuration of their subnet manager.

        repair: write differing ports again before returning. Raise SubnetError if that fails.
        """


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
