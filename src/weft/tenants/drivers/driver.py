"""What every driver does: read what a fabric has, and make it have something else.

    before = driver.read()
    driver.write(wanted, over=before)        # returns when the fabric has it

`write` is all or nothing: if the fabric does not take it, what was there before is there again. Whoever is killed in
the middle of it leaves what was there, what was wanted, or something between, which `read` shows: the same `write`
again ends where it would have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from weft.errors import SubnetError
from weft.sm.control_server import Checked as Checked
from weft.tenants.partitions import Allocation, Inventory


class FabricChangedError(SubnetError):
    """Somebody else has changed the fabric since it was read. Read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What a fabric has."""

    allocation: Allocation  # what is ours
    taken: frozenset[int] = frozenset()  # P_Keys that others have: left alone
    revision: str = ""  # of this state, if the fabric counts them


class Driver(Protocol):
    @property
    def title(self) -> str:
        """As people know it: lab mine, UFM at https://ufm."""

    def inventory(self) -> Inventory: ...

    def read(self) -> Observed: ...

    def write(self, wanted: Allocation, *, over: Observed) -> None:
        """FabricChangedError if it is no longer as it was read; SubnetError if the fabric does not take it."""

    def check(self, *, repair: bool) -> Checked:
        """Compare the ports with what their subnet manager was told.

        `repair`: they are written again before it returns; SubnetError if that fails.
        """
