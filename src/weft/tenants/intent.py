"""The intent: tenants, services that they share, and traffic classes, from a TOML file or the same as JSON.

p_keys = "0x0100-0x7ffe"            P_Keys that weft assigns; other partitions are not changed

[class.mpi]                         a traffic class; weft assigns its service level and lane
share = 50                          percent of a congested link
priority = "high"                   sent first, up to its share; else "low"

[tenant.acme]                       a partition whose members reach each other
hosts = ["h[1-4]"]                  all their ports; or ports = ["h9/1"], guids = ["0x0002c90300001231"]
absent = ["0x0002c90300001299"]     GUIDs of ports that are not connected yet
class = "mpi"
p_key = "0x0101"                    default: a free one, which stays the same
ipoib = true
index0 = true                       P_Key at index 0, for programs that use only this index; default: as exclusive
membership = "full"                 or "limited": limited members reach full members only, of which there are none
exclusive = true                    no other tenant has these ports
quota = { ports = 16, share = 50, hosts = ["h[1-8]"] }

[service.storage]                   a partition in which tenants reach the service, but not each other
hosts = ["nas1"]
tenants = "all"                     or ["acme"]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from weft.errors import ConfigError
from weft.fabric.files.lab.document import Document
from weft.schemas import Place
from weft.tenants.partitions import FIRST_P_KEY, LAST_P_KEY

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,30}")  # OpenSM reads 31 characters of a partition's name
_RANGE = re.compile(r"\s*(0[xX][0-9a-fA-F]+)\s*-\s*(0[xX][0-9a-fA-F]+)\s*")


PartitionId = tuple[str, str]  # ("tenant" or "service", name)


class IntentError(ConfigError):
    """An error in an intent. `place` is its position: ("tenant", "acme", "hosts")."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"{' '.join(map(str, place[:2]))}: {message}" if place else message)
        self.place = place


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


class Class(_Struct, frozen=True):
    """A traffic class."""

    share: float  # percent of a congested link
    priority: Literal["high", "low"] = "low"


class Quota(_Struct, frozen=True):
    """The limits of a tenant."""

    ports: int | None = None
    share: float | None = None
    hosts: tuple[str, ...] = ()  # hostlists that the tenant may claim itself through `weft serve`


class Members(_Struct, frozen=True):
    """The ports of a partition, by hosts, names or GUIDs, and the options of the partition."""

    hosts: tuple[str, ...] = ()  # hostlists
    ports: tuple[str, ...] = ()
    guids: tuple[str, ...] = ()  # port GUIDs
    absent: tuple[str, ...] = ()  # GUIDs of ports that are not connected yet
    class_: str | None = msgspec.field(name="class", default=None)
    p_key: int | str | None = None
    ipoib: bool = False


class Tenant(Members, frozen=True):
    """A tenant: a partition whose members reach each other."""

    index0: bool | None = None  # None: as `exclusive`
    membership: Literal["full", "limited"] = "full"
    exclusive: bool = True
    quota: Quota = Quota()

    @property
    def has_index0(self) -> bool:
        """Return whether the P_Key goes to index 0 of its ports' tables; tenants that share ports must set it."""
        return self.exclusive if self.index0 is None else self.index0


class Service(Members, frozen=True):
    """A service that tenants reach, in a partition with limited members."""

    tenants: Literal["all"] | tuple[str, ...] = "all"


class Intent(_Struct, frozen=True):
    """The declared partitions of a fabric."""

    p_keys: str = f"{FIRST_P_KEY:#06x}-{LAST_P_KEY:#06x}"
    classes: dict[str, Class] = msgspec.field(name="class", default_factory=dict)
    tenants: dict[str, Tenant] = msgspec.field(name="tenant", default_factory=dict)
    services: dict[str, Service] = msgspec.field(name="service", default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.pool
        for kind, names in (("class", self.classes), ("tenant", self.tenants), ("service", self.services)):
            for name in names:
                _check_name(kind, name)
        for name in self.services.keys() & self.tenants.keys():
            raise IntentError(("service", name), "a tenant has the same name; rename one of them")

    @property
    def pool(self) -> range:
        """The P_Keys that weft assigns."""
        match = _RANGE.fullmatch(self.p_keys)
        first, last = (int(match[1], 16), int(match[2], 16)) if match else (0, 0)
        if not FIRST_P_KEY <= first <= last <= LAST_P_KEY:
            raise IntentError(
                ("p_keys",),
                f"must be a range within {FIRST_P_KEY:#06x}-{LAST_P_KEY:#06x}, such as "
                f'"0x0100-0x7ffe", got {self.p_keys!r}',
            )
        return range(first, last + 1)

    @property
    def partitions(self) -> Mapping[PartitionId, Tenant | Service]:
        """The tenants and services by kind and name, in the order of the file."""
        tenants: dict[PartitionId, Tenant | Service] = {
            ("tenant", name): tenant for name, tenant in self.tenants.items()
        }
        return tenants | {("service", name): service for name, service in self.services.items()}


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name) or name.lower() == "default":
        raise IntentError(
            (kind, name),
            "a name must be a letter and up to 30 letters, digits, - _ or . and not Default",
        )


# -- reading -----------------------------------------------------------------------------------------------------------

_TABLES: Mapping[str, type[Any]] = {"class": Class, "tenant": Tenant, "service": Service}


def parse_intent(data: Mapping[str, Any], title: str = "intent") -> Intent:
    """Return the intent in parsed JSON or TOML."""
    return intent_of(Document(path=Path(title), data=data, text=""))


def intent_of(document: Document) -> Intent:
    """Return the intent in a document. Raise FileError, with the line, if it is invalid."""
    data = document.data if isinstance(document.data, dict) else {}
    keys = ("p_keys", *_TABLES)
    for key in data:
        if key not in keys:
            document.refuse_key((key,), keys)
    if not isinstance(data.get("p_keys", ""), str):
        document.refuse(("p_keys",), 'a range as "0x0100-0x7ffe"')
    tables: dict[str, Any] = {}
    for table, type_ in _TABLES.items():
        if not isinstance(data.get(table, {}), dict):
            document.refuse((table,), f"tables with names, as [{table}.acme]")
        tables[table] = {name: document.convert((table, name), type_, strict=True) for name in data.get(table, {})}
    p_keys = {"p_keys": data["p_keys"]} if "p_keys" in data else {}
    with lines_of(document):
        return Intent(**p_keys, classes=tables["class"], tenants=tables["tenant"], services=tables["service"])


@contextmanager
def lines_of(document: Document) -> Iterator[None]:
    """Add the line of the document to errors of the intent."""
    try:
        yield
    except IntentError as error:
        line = document.line(error.place)
        if line is None:
            raise
        raise ConfigError(f"{document.path}:{line}: {error}") from error
