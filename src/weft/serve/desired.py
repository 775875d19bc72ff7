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
    """An error: the request conflicts with the current state."""


class NotFoundError(ConfigError):
    """An error: the requested object does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """The desired state. It is immutable: a change creates a new revision."""

    revision: int = 0  # counts changes
    fabric: str = ""  # title of the fabric's driver; empty: no fabric was connected yet
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
        """Return the documents of a kind, by name."""
        return {name: body for (document_kind, name), body in self.documents.items() if document_kind == kind}


class Draft:
    """A mutable copy of the desired state. Its contents after an edit become the next revision."""

    def __init__(
        self, before: Desired, read_inventory: Callable[[], Inventory], foreign_p_keys: frozenset[int]
    ) -> None:
        self.before, self._read_inventory, self.foreign_p_keys = before, read_inventory, foreign_p_keys
        self.partitions, self.owners = dict(before.partitions), dict(before.owners)
        self.default_is_full, self.lanes = before.default_is_full, before.lanes
        self.documents = dict(before.documents)
        self.forgotten = set[int]()  # ports

    @property
    def inventory(self) -> Inventory:
        """The ports of the fabric, read on demand: tokens can be revoked while the fabric does not answer."""
        return self._read_inventory()

    def put(self, partition: Partition, owner: str = DIRECT) -> None:
        """Create or replace a partition. The first one makes ports limited members of Default, for isolation."""
        check_name(partition.name)
        self._check_owner(partition.p_key, owner)
        if partition.p_key in self.foreign_p_keys:
            raise ConflictError(f"the P_Key {partition.p_key:#06x} is taken: the subnet manager's own files define it")
        for other in self.partitions.values():
            if other.name == partition.name and other.p_key != partition.p_key:
                raise ConflictError(f"the name {partition.name} is taken: partition {other.p_key:#06x} has it")
        if owner == DIRECT:
            current = self.partitions.get(partition.p_key)
            self._check_exclusive(partition.members.keys() - (current.members.keys() if current else set()))
        if not self.partitions:
            self.default_is_full = False
        self.partitions[partition.p_key], self.owners[partition.p_key] = partition, owner

    def remove(self, p_key: int, owner: str = DIRECT) -> None:
        """Remove a partition. Raise NotFoundError if it does not exist."""
        if p_key not in self.partitions:
            raise NotFoundError(f"there is no partition {p_key:#06x}")
        self._check_owner(p_key, owner)
        del self.partitions[p_key], self.owners[p_key]

    def forget(self, guid: int) -> None:
        """Forget a port that is down. Raise NotFoundError if it is unknown."""
        port = self.inventory.by_guid().get(guid)
        if port is None:
            raise NotFoundError(f"there is no port {Guid(guid)}")
        if port.is_there:
            raise ConflictError(f"port {port.name} is connected: only ports that are down can be forgotten")
        for partition in self.partitions.values():
            if guid in partition.members:
                raise ConflictError(f"port {port.name} is a member of {partition.label}: remove it there first")
        self.forgotten.add(guid)

    def _check_owner(self, p_key: int, owner: str) -> None:
        current = self.owners.get(p_key, owner)
        if current != owner:
            hint = "change the intent" if current == INTENT else "remove it from the intent, or delete the partition"
            raise ConflictError(
                f"partition {self.partitions[p_key].label} belongs to {current}, not to {owner}: {hint}"
            )

    def _check_exclusive(self, guids: Set[int]) -> None:
        """Check that ports of exclusive tenants are shared only with services of the intent."""
        tenants = self.intent().tenants
        for p_key, owner in self.owners.items():
            partition = self.partitions[p_key]
            if owner == INTENT and partition.name in tenants and tenants[partition.name].exclusive:
                for guid in guids & partition.members.keys():
                    raise ConflictError(
                        f"port {Guid(guid)} belongs to the exclusive tenant {partition.name}: remove it there, or set "
                        "exclusive = false"
                    )

    def intent(self) -> Intent:
        return _read_intent(self.documents.get(_INTENT, "{}"))

    def set_intent(self, intent: Intent) -> Compiled:
        """Replace the partitions of the intent. Raise IntentError or ConflictError if that is not possible."""
        direct = {p_key for p_key, owner in self.owners.items() if owner == DIRECT}
        before = Allocation(partitions=self.partitions, default_is_full=self.default_is_full, lanes=self.lanes)
        compiled = compile_intent(intent, self.inventory, self.foreign_p_keys | direct, before)
        names = {name for _, name in intent.partitions}
        partitions = {
            p_key: partition for p_key, partition in compiled.allocation.partitions.items() if partition.name in names
        }
        for p_key in [
            partition for partition, owner in self.owners.items() if owner == INTENT and partition not in partitions
        ]:
            self.remove(p_key, INTENT)
        for p_key, partition in partitions.items():
            if self.partitions.get(p_key) != partition:
                self.put(partition, INTENT)
        self.default_is_full, self.lanes = compiled.allocation.default_is_full, compiled.allocation.lanes
        self.documents[_INTENT] = msgspec.json.encode(intent).decode()
        for p_key in direct:
            self._check_exclusive(self.partitions[p_key].members.keys())
        return compiled

    def sealed(self) -> Desired:
        """Return the next revision, or the same one if nothing changed."""
        before = self.before
        changed = replace(
            before,
            partitions=self.partitions,
            owners=self.owners,
            default_is_full=self.default_is_full,
            lanes=self.lanes,
            documents=before.documents if self.documents == before.documents else self.documents,
        )
        return before if changed == before else replace(changed, revision=changed.revision + 1)


@lru_cache(maxsize=4)
def _read_intent(document: str) -> Intent:
    return parse_intent(msgspec.json.decode(document))
