"""Slices in a subnet of weft's own manager, by its socket: it carries an order out whole or not at all."""

from __future__ import annotations

from typing import Any

from weft.ids import Guid
from weft.sm.allocation import read_qos, split_definitions
from weft.sm.control import ManagerSocket, OutOfDate
from weft.tenants.drivers.driver import Checked, FabricChangedError, Observed
from weft.tenants.drivers.inventory import inventory_of
from weft.tenants.drivers.partition_files import as_read, check_index0, read_definitions, write_definitions
from weft.tenants.partitions import Allocation, Inventory, Partition

_MASTER = "master"


class ManagerDriver:
    def __init__(self, manager: ManagerSocket) -> None:
        self.manager = manager
        self._seen: tuple[tuple[str, str], Inventory] | None = None  # of a revision of the subnet, and its master
        # By definition, of the last that was read, and of those written since: most stay, and need no look into them.
        self._read: dict[str, dict[int, Partition]] = {}

    @property
    def title(self) -> str:
        return self.manager.status().subnet or f"the subnet manager at {self.manager.path}"

    def inventory(self) -> Inventory:
        """Asked for again when the subnet has changed: of tens of thousands of ports it is megabytes."""
        status = self.manager.status()
        if self._seen is None or self._seen[0] != (status.subnet_revision, status.master):
            subnet = self.manager.subnet()
            self._seen = (subnet.revision, status.master), inventory_of(subnet, Guid.parse(status.master))
        return self._seen[1]

    def read(self) -> Observed:
        said = self.manager.allocation()
        allocation = Allocation(
            partitions=self._partitions(said.partitions),
            default_is_full=bool(said.default_is_full),
            lanes=None if said.qos is None else read_qos(said.qos),
        )
        return Observed(allocation=allocation, taken=frozenset(said.taken), revision=said.revision)

    def _partitions(self, text: str) -> dict[int, Partition]:
        place = str(self.manager.path)
        definitions = split_definitions(text).values()
        self._read = {one: self._read.get(one) or read_definitions(f"{one};", place) for one in definitions}
        return {p_key: one for found in self._read.values() for p_key, one in found.items()}

    def check(self, *, repair: bool) -> Checked:
        """A manager that is not the master cannot repair anything: that is the difference then."""
        status = self.manager.status()
        if status.sm_state != _MASTER:
            why = f"the subnet manager is {status.sm_state}: the one with GUID {status.master} manages the subnet"
            return Checked(differences=(why,), repaired=())
        return self.manager.check(repair=repair)

    def write(self, wanted: Allocation, *, over: Observed) -> None:
        """Tells what differs: the manager looks at nothing else."""
        check_index0(wanted.partitions.values())
        there, partitions = over.allocation, as_read(wanted.partitions)
        define = write_definitions(one for p_key, one in partitions.items() if there.partitions.get(p_key) != one)
        self._read |= {text: {p_key: partitions[p_key]} for p_key, text in split_definitions(define).items()}
        words: dict[str, Any] = {"define": define, "remove": sorted(there.partitions.keys() - partitions.keys())}
        if wanted.lanes != there.lanes:
            words["qos"] = wanted.lanes
        if wanted.default_is_full != there.default_is_full:
            words["default_is_full"] = wanted.default_is_full
        try:
            self.manager.allocate(over.revision, **words)
        except OutOfDate as error:
            raise FabricChangedError(f"{self.title}: {error}") from None
