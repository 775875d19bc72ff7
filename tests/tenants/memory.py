"""A driver whose fabric is a variable."""

from __future__ import annotations

from collections.abc import Set

from weft.errors import SubnetError
from weft.tenants.drivers.driver import Checked, Driver, FabricChangedError, Observed
from weft.tenants.partitions import Allocation, Inventory


class MemoryDriver:
    title = "memory"

    def __init__(self, inventory: Inventory, foreign_p_keys: Set[int] = frozenset()) -> None:
        self.ports, self.foreign_p_keys = inventory, frozenset(foreign_p_keys)
        self.allocation, self.revision, self.writes = Allocation(), 0, 0
        self.refuses = self.forgets = False
        self.drift: list[str] = []

    def inventory(self) -> Inventory:
        return self.ports

    def read(self) -> Observed:
        return Observed(allocation=self.allocation, foreign_p_keys=self.foreign_p_keys, revision=str(self.revision))

    def check(self, *, repair: bool) -> Checked:
        result = tuple(self.drift)
        if repair:
            self.drift.clear()
        return Checked(differences=result, repaired=())

    def write(self, wanted: Allocation, *, over: Observed) -> None:
        if over.revision != str(self.revision):
            raise FabricChangedError(f"memory is at {self.revision}, not at {over.revision} any more: read again")
        if self.refuses:
            raise SubnetError("h1/1 refuses its P_Key table")
        self.writes += 1
        self.revision += 1
        if not self.forgets:
            self.allocation = wanted


_: type[Driver] = MemoryDriver
