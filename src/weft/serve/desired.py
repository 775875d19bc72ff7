"""The desired state that the ledger stores, and the draft that an edit changes.

    Desired      partitions by P_Key, each with its owner; documents by kind and name: the intent, tokens, users, and
                 the documents of the UFM interface
    Draft        a mutable copy; if an edit raises, the copy is discarded

The intent owns the partitions that are compiled from it; only a change of the intent changes them. All others have the
owner "direct".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import lru_cache

import msgspec

from weft.errors import ConfigError
from weft.ids import Guid
from weft.sm.conf.qos_options import QosOptions
from weft.tenants.compile import Compiled, compile_intent
from weft.tenants.drivers.partition_files import check_name
from weft.tenants.intent import Intent, parse_intent
from weft.tenants.partitions import Allocation, Inventory, Partition

DIRECT, INTENT = "direct", "intent"  # owners
_INTENT = ("intent", "")  # its document


class ConflictError(ConfigError):
    """What is asked contradicts what is there."""


class NotFoundError(ConfigError):
    """What is asked for is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Never changed: a change makes another."""

    revision: int = 0  # counts changes
    fabric: str = ""  # whose it is, as drivers call it; empty: tokens were made before there was one
    partitions: Mapping[int, Partition] = field(default_factory=dict)  # by P_Key
    owners: Mapping[int, str] = field(default_factory=dict)  # by P_Key
    default_is_full: bool = True
    lanes: QosOptions | None = None
    documents: Mapping[tuple[str, str], str] = field(default_factory=dict)  # by kind and name; JSON

    def allocation(self) -> Allocation:
        return Allocation(partitions=self.partitions, default_is_full=self.default_is_full, lanes=self.lanes)

    def intent(self) -> Intent:
        return _read_intent(self.documents.get(_INTENT, "{}"))

    def named(self, kind: str) -> dict[str, str]:
        """The documents of a kind, by name."""
        return {name: body for (one, name), body in self.documents.items() if one == kind}


class Draft:
    """What is in `partitions`, `documents` and so on when an edit returns is what shall be."""

    def __init__(self, before: Desired, see: Callable[[], Inventory], taken: frozenset[int]) -> None:
        self.before, self._see, self.taken = before, see, taken
        self.partitions, self.owners = dict(before.partitions), dict(before.owners)
        self.default_is_full, self.lanes = before.default_is_full, before.lanes
        self.documents = dict(before.documents)
        self.forgotten = set[int]()  # ports

    @property
    def inventory(self) -> Inventory:
        """Asked for by edits that need it: tokens can be revoked while the fabric is silent."""
        return self._see()

    def put(self, wanted: Partition, owner: str = DIRECT) -> None:
        """Make a slice, or change it. With the first one Default becomes limited: else nobody would be isolated."""
        check_name(wanted.name)
        self._own(wanted.p_key, owner)
        if wanted.p_key in self.taken:
            raise ConflictError(f"the P_Key {wanted.p_key:#06x} is taken: the subnet manager's own files define it")
        for other in self.partitions.values():
            if other.name == wanted.name and other.p_key != wanted.p_key:
                raise ConflictError(f"the name {wanted.name} is taken: partition {other.p_key:#06x} has it")
        if owner == DIRECT:
            there = self.partitions.get(wanted.p_key)
            self._leave_exclusive(wanted.members.keys() - (there.members.keys() if there else set()))
        if not self.partitions:
            self.default_is_full = False
        self.partitions[wanted.p_key], self.owners[wanted.p_key] = wanted, owner

    def remove(self, p_key: int, owner: str = DIRECT) -> None:
        """NotFoundError if it is not there."""
        if p_key not in self.partitions:
            raise NotFoundError(f"there is no partition {p_key:#06x}")
        self._own(p_key, owner)
        del self.partitions[p_key], self.owners[p_key]

    def forget(self, guid: int) -> None:
        """A port that was seen, and does not come back. NotFoundError if nobody knows it."""
        port = self.inventory.by_guid().get(guid)
        if port is None:
            raise NotFoundError(f"there is no port {Guid(guid)}")
        if port.is_there:
            raise ConflictError(f"port {port.name} is there: a port can be forgotten when it is gone")
        for one in self.partitions.values():
            if guid in one.members:
                raise ConflictError(f"port {port.name} is a member of {one.label}: take it out there first")
        self.forgotten.add(guid)

    def _own(self, p_key: int, owner: str) -> None:
        its = self.owners.get(p_key, owner)
        if its != owner:
            way = "change the intent" if its == INTENT else "take it out of the intent, or remove the partition"
            raise ConflictError(f"partition {self.partitions[p_key].label} is {its}'s, not {owner}'s to change: {way}")

    def _leave_exclusive(self, guids: Set[int]) -> None:
        """An exclusive tenant shares its ports with services of the intent alone."""
        tenants = self.intent().tenants
        for p_key, owner in self.owners.items():
            one = self.partitions[p_key]
            if owner == INTENT and one.name in tenants and tenants[one.name].exclusive:
                for guid in guids & one.members.keys():
                    raise ConflictError(
                        f"port {Guid(guid)} is tenant {one.name}'s alone: take it out there, or let {one.name} have "
                        "exclusive = false"
                    )

    def intent(self) -> Intent:
        return _read_intent(self.documents.get(_INTENT, "{}"))

    def set_intent(self, wanted: Intent) -> Compiled:
        """All partitions that it owns, and nothing else; IntentError or ConflictError if that cannot be."""
        direct = {p_key for p_key, owner in self.owners.items() if owner == DIRECT}
        before = Allocation(partitions=self.partitions, default_is_full=self.default_is_full, lanes=self.lanes)
        compiled = compile_intent(wanted, self.inventory, self.taken | direct, before)
        names = {name for _, name in wanted.partitions}
        partitions = {p_key: one for p_key, one in compiled.allocation.partitions.items() if one.name in names}
        for p_key in [one for one, owner in self.owners.items() if owner == INTENT and one not in partitions]:
            self.remove(p_key, INTENT)
        for p_key, one in partitions.items():
            if self.partitions.get(p_key) != one:
                self.put(one, INTENT)
        self.default_is_full, self.lanes = compiled.allocation.default_is_full, compiled.allocation.lanes
        self.documents[_INTENT] = msgspec.json.encode(wanted).decode()
        for p_key in direct:
            self._leave_exclusive(self.partitions[p_key].members.keys())
        return compiled

    def sealed(self) -> Desired:
        """The next revision; the same one if nothing is changed."""
        before = self.before
        made = replace(
            before,
            partitions=self.partitions,
            owners=self.owners,
            default_is_full=self.default_is_full,
            lanes=self.lanes,
            documents=before.documents if self.documents == before.documents else self.documents,
        )
        return before if made == before else replace(made, revision=made.revision + 1)


@lru_cache(maxsize=4)
def _read_intent(document: str) -> Intent:
    return parse_intent(msgspec.json.decode(document))
