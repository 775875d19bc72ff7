"""A fabric in memory with a driver's interface, for tests of the layers above drivers."""

from __future__ import annotations

import threading
from dataclasses import replace

from weft.errors import SubnetError
from weft.tenants.drivers.driver import Checked, FabricChangedError, Observed
from weft.tenants.partitions import Allocation, EndPort, Inventory


def ports(hosts: int) -> tuple[EndPort, ...]:
    return tuple(
        EndPort(guid=0x10_0000 + n, name=f"h{n}/1", host=f"h{n}", node_guid=0x20_0000 + n, number=1, lid=n)
        for n in range(1, hosts + 1)
    )


class MemoryFabric:
    title = "memory"

    def __init__(self, hosts: int = 8, allocation: Allocation | None = None) -> None:
        self.observed = Observed(allocation=allocation or Allocation(), revision="0")
        self.ports = ports(hosts)
        self.writes = 0
        self.refuses: set[int] = set()  # P_Keys that it does not take
        self.is_dead = False
        self.drift: list[str] = []  # ports that differ
        self.gate = threading.Event()  # a write waits for it
        self.gate.set()
        self.answers = threading.Event()  # requests wait for it
        self.answers.set()
        self.entered = threading.Event()  # a write has begun

    def inventory(self) -> Inventory:
        self._live()
        return Inventory(self.ports)

    def read(self) -> Observed:
        self._live()
        return self.observed

    def check(self, *, repair: bool) -> Checked:
        result = tuple(self.drift)
        if repair:
            self.drift.clear()
        return Checked(differences=result, repaired=())

    def write(self, wanted: Allocation, *, over: Observed) -> None:
        self._live()
        self.entered.set()
        self.gate.wait()
        if over.revision != self.observed.revision:
            raise FabricChangedError("memory has changed")
        for p_key in self.refuses & wanted.partitions.keys():
            raise SubnetError(f"port h1/1 does not take {p_key:#06x}")
        self.writes += 1
        self.observed = replace(self.observed, allocation=wanted, revision=str(self.writes))

    def _live(self) -> None:
        self.answers.wait()
        if self.is_dead:
            raise SubnetError("the subnet manager does not answer")
