"""Slices in a subnet of weft's own manager, by its socket: it carries an order out whole or not at all."""

from __future__ import annotations

from typing import Any

from weft.ids import Guid
from weft.sm.allocation import read_qos, split_definitions
from weft.sm.control import ManagerSocket, OutOfDate
from weft.tenants.drivers.driver import Checked, Conflict, Observed
from weft.tenants.drivers.inventory import inventory_of
from weft.tenants.drivers.partition_files import as_read, check_index0, read_slices, write_slices
from weft.tenants.slices import Allocation, Inventory, Slice

_MASTER = "master"


class ManagerDriver:
    def __init__(self, manager: ManagerSocket) -> None:
        self.manager = manager
        self._seen: tuple[tuple[str, str], Inventory] | None = None  # of a revision of the subnet, and its master
        # By definition, of the last that was read, and of those written since: most stay, and need no look into them.
        self._read: dict[str, dict[int, Slice]] = {}

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
            slices=self._slices(said.partitions),
            default_is_full=bool(said.default_is_full),
            lanes=None if said.qos is None else read_qos(said.qos),
        )
        return Observed(allocation=allocation, taken=frozenset(said.taken), revision=said.revision)

    def _slices(self, text: str) -> dict[int, Slice]:
        place = str(self.manager.path)
        definitions = split_definitions(text).values()
        self._read = {one: self._read.get(one) or read_slices(f"{one};", place) for one in definitions}
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
        check_index0(wanted.slices.values())
        there, slices = over.allocation, as_read(wanted.slices)
        define = write_slices(one for p_key, one in slices.items() if there.slices.get(p_key) != one)
        self._read |= {text: {p_key: slices[p_key]} for p_key, text in split_definitions(define).items()}
        words: dict[str, Any] = {"define": define, "remove": sorted(there.slices.keys() - slices.keys())}
        if wanted.lanes != there.lanes:
            words["qos"] = wanted.lanes
        if wanted.default_is_full != there.default_is_full:
            words["default_is_full"] = wanted.default_is_full
        try:
            self.manager.allocate(over.revision, **words)
        except OutOfDate as error:
            raise Conflict(f"{self.title}: {error}") from None
