"""Partitions of weft's subnet manager, over its socket. The manager applies an order completely or not at all."""

from __future__ import annotations

from typing import Any

from weft.ids import Guid
from weft.sm.allocation import read_qos, split_definitions
from weft.sm.control import ManagerSocket, OutOfDate
from weft.tenants.drivers.driver import Checked, FabricChangedError, Observed, inventory_of
from weft.tenants.drivers.partition_files import as_read, check_index0, read_definitions, write_definitions
from weft.tenants.partitions import Allocation, Inventory, Partition

_MASTER = "master"


class ManagerDriver:
    """A driver for weft's subnet manager."""

    def __init__(self, manager: ManagerSocket) -> None:
        self.manager = manager
        self._inventory: tuple[tuple[str, str], Inventory] | None = None  # by subnet revision and master
        # Parsed definitions by their text: most stay the same and need no parsing.
        self._parsed: dict[str, dict[int, Partition]] = {}

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
            partitions=self._partitions(current.partitions),
            default_is_full=bool(current.default_is_full),
            lanes=None if current.qos is None else read_qos(current.qos),
        )
        return Observed(allocation=allocation, foreign_p_keys=frozenset(current.taken), revision=current.revision)

    def _partitions(self, text: str) -> dict[int, Partition]:
        place = str(self.manager.path)
        definitions = split_definitions(text).values()
        self._parsed = {text: self._parsed.get(text) or read_definitions(f"{text};", place) for text in definitions}
        return {p_key: partition for parsed in self._parsed.values() for p_key, partition in parsed.items()}

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
        define = write_definitions(
            partition for p_key, partition in partitions.items() if current.partitions.get(p_key) != partition
        )
        self._parsed |= {text: {p_key: partitions[p_key]} for p_key, text in split_definitions(define).items()}
        order: dict[str, Any] = {"define": define, "remove": sorted(current.partitions.keys() - partitions.keys())}
        if desired.lanes != current.lanes:
            order["qos"] = desired.lanes
        if desired.default_is_full != current.default_is_full:
            order["default_is_full"] = desired.default_is_full
        try:
            self.manager.allocate(over.revision, **order)
        except OutOfDate as error:
            raise FabricChangedError(f"{self.title}: {error}") from None
