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
from weft.sm.control_server import Checked as Checked
from weft.tenants.partitions import Allocation, Inventory


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
