"""Partitions of weft's subnet manager, over its socket. The manager applies an order completely or not at all."""

from __future__ import annotations

from typing import Any

from weft.ids import Guid
from weft.sm.allocation import read_qos
from weft.sm.control import ManagerSocket, OutOfDate
from weft.tenants.drivers.driver import Checked, FabricChangedError, Observed, inventory_of
from weft.tenants.drivers.partition_files import as_read, check_index0, definition_of, read_partition
from weft.tenants.partitions import Allocation, Inventory

_MASTER = "master"


class ManagerDriver:
    """A driver for weft's subnet manager."""

    def __init__(self, manager: ManagerSocket) -> None:
        self.manager = manager
        self._inventory: tuple[tuple[str, str], Inventory] | None = None  # by subnet revision and master

    @property
    def title(self) -> str:
        return self.manager.status().subnet or f"the subnet manager at {self.manager.path}"

    def inventory(self) -> Inventory:
        """Return the ports. They are read again only after a change of the subnet: there may be tens of thousands."""
        status = self.manager.status()
        if self._inventory is None or self._inventory[0] != (status.subnet_revision, status.master):
            subnet = self.manager.subnet()
            self._inventory = (subnet.revision, status.master), inventory_of(subnet, Guid.parse(status.master))
        return self._inventory[1]

    def read(self) -> Observed:
        current = self.manager.allocation()
        allocation = Allocation(
            partitions={item.p_key: read_partition(item.partition()) for item in current.partitions},
            default_is_full=bool(current.default_is_full),
            lanes=None if current.qos is None else read_qos(current.qos),
        )
        return Observed(allocation=allocation, foreign_p_keys=frozenset(current.taken), revision=current.revision)

    def check(self, *, repair: bool) -> Checked:
        """Compare and repair the ports; a manager that is not the master cannot, and reports this as the difference."""
        status = self.manager.status()
        if status.sm_state != _MASTER:
            difference = f"this subnet manager is {status.sm_state}; {status.master} is the master"
            return Checked(differences=(difference,), repaired=())
        return self.manager.check(repair=repair)

    def write(self, desired: Allocation, *, over: Observed) -> None:
        """Send the differences to the manager, which applies only these."""
        check_index0(desired.partitions.values())
        current, partitions = over.allocation, as_read(desired.partitions)
        order: dict[str, Any] = {
            "define": [
                definition_of(partition)
                for p_key, partition in partitions.items()
                if current.partitions.get(p_key) != partition
            ],
            "remove": sorted(current.partitions.keys() - partitions.keys()),
        }
        if desired.lanes != current.lanes:
            order["qos"] = desired.lanes
        if desired.default_is_full != current.default_is_full:
            order["default_is_full"] = desired.default_is_full
        try:
            self.manager.allocate(over.revision, **order)
        except OutOfDate as error:
            raise FabricChangedError(f"{self.title}: {error}") from None
