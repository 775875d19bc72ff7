"""What is wanted of a fabric: tenants, services that they share, classes of traffic. A TOML file, or the same as JSON.

p_keys = "0x0100-0x7ffe"            P_Keys that weft gives; what has others is left alone

[class.mpi]                         a class of traffic: its service level and lane are given by weft
share = 50                          percent of a link that is contended for
priority = "high"                   goes first, up to its share; else "low"

[tenant.acme]                       a partition, whose members reach each other
hosts = ["h[1-4]"]                  every port of them; or ports = ["h9/1"], guids = ["0x0002c90300001231"]
absent = ["0x0002c90300001299"]     ports that are not there yet
class = "mpi"
p_key = "0x0101"                    else one is given, and kept
ipoib = true
index0 = true                       the tenant's key at index 0, for programs that look nowhere else; as exclusive
membership = "full"                 or "limited": members reach nobody but full members, of which there are none
exclusive = true                    no other tenant has these ports
quota = { ports = 16, share = 50, hosts = ["h[1-8]"] }

[service.storage]                   a partition in which tenants reach the service, and not each other
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
from weft.fabric.files.lab.document import Document, Place
from weft.tenants.partitions import FIRST_P_KEY, LAST_P_KEY

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,30}")  # OpenSM reads 31 characters of a partition's name
_RANGE = re.compile(r"\s*(0[xX][0-9a-fA-F]+)\s*-\s*(0[xX][0-9a-fA-F]+)\s*")


Who = tuple[str, str]  # "tenant" or "service", and its name


class IntentError(ConfigError):
    """What is wanted cannot be had. `place` is where it is wanted: ("tenant", "acme", "hosts")."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"{' '.join(map(str, place[:2]))}: {message}" if place else message)
        self.place = place


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    pass


class Class(_Struct, frozen=True):
    """Of traffic."""

    share: float  # percent of a link that is contended for
    priority: Literal["high", "low"] = "low"


class Quota(_Struct, frozen=True):
    """What a tenant may have at most."""

    ports: int | None = None
    share: float | None = None
    hosts: tuple[str, ...] = ()  # hostlists: what the tenant may claim by itself, through `weft serve`


class Members(_Struct, frozen=True):
    """Ports, in whichever words, and the partition that they get."""

    hosts: tuple[str, ...] = ()  # hostlists
    ports: tuple[str, ...] = ()
    guids: tuple[str, ...] = ()  # of ports
    absent: tuple[str, ...] = ()  # GUIDs of ports that are not there yet
    class_: str | None = msgspec.field(name="class", default=None)
    p_key: int | str | None = None
    ipoib: bool = False


class Tenant(Members, frozen=True):
    index0: bool | None = None  # None: as `exclusive`
    membership: Literal["full", "limited"] = "full"
    exclusive: bool = True
    quota: Quota = Quota()

    @property
    def has_index0(self) -> bool:
        """A port has one index 0, so that who shares it must say whose that is."""
        return self.exclusive if self.index0 is None else self.index0


class Service(Members, frozen=True):
    tenants: Literal["all"] | tuple[str, ...] = "all"


class Intent(_Struct, frozen=True):
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
            raise IntentError(("service", name), "a tenant has this name too, and both would be one partition")

    @property
    def pool(self) -> range:
        """The P_Keys that weft gives."""
        match = _RANGE.fullmatch(self.p_keys)
        first, last = (int(match[1], 16), int(match[2], 16)) if match else (0, 0)
        if not FIRST_P_KEY <= first <= last <= LAST_P_KEY:
            raise IntentError(
                ("p_keys",),
                f"{self.p_keys!r} is refused: write a range within {FIRST_P_KEY:#06x}-{LAST_P_KEY:#06x}, as "
                '"0x0100-0x7ffe"',
            )
        return range(first, last + 1)

    @property
    def partitions(self) -> Mapping[Who, Tenant | Service]:
        """By kind and name, in the order of the file."""
        tenants: dict[Who, Tenant | Service] = {("tenant", name): one for name, one in self.tenants.items()}
        return tenants | {("service", name): one for name, one in self.services.items()}


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name) or name.lower() == "default":
        raise IntentError(
            (kind, name),
            "a name is a letter and up to 30 letters, digits, - _ or . after it, and Default is the fabric's",
        )


# -- reading -----------------------------------------------------------------------------------------------------------

_TABLES: Mapping[str, type[Any]] = {"class": Class, "tenant": Tenant, "service": Service}


def read_intent(path: Path) -> Intent:
    return intent_of(Document.load(path, otherwise=".toml"))


def parse_intent(data: Mapping[str, Any], title: str = "intent") -> Intent:
    """Of what JSON or TOML have become already."""
    return intent_of(Document(path=Path(title), data=data, text=""))


def intent_of(document: Document) -> Intent:
    """FileError, with its line, where it is none."""
    data = document.data if isinstance(document.data, dict) else {}
    known = ("p_keys", *_TABLES)
    for key in data:
        if key not in known:
            document.refuse_key((key,), known)
    if not isinstance(data.get("p_keys", ""), str):
        document.refuse(("p_keys",), 'a range as "0x0100-0x7ffe"')
    told: dict[str, Any] = {}
    for table, type_ in _TABLES.items():
        if not isinstance(data.get(table, {}), dict):
            document.refuse((table,), f"tables with names, as [{table}.acme]")
        told[table] = {name: document.convert((table, name), type_, strict=True) for name in data.get(table, {})}
    words = {"p_keys": data["p_keys"]} if "p_keys" in data else {}
    with lines_of(document):
        return Intent(**words, classes=told["class"], tenants=told["tenant"], services=told["service"])


@contextmanager
def lines_of(document: Document) -> Iterator[None]:
    """Errors of what a file wants get the line where it wants it."""
    try:
        yield
    except IntentError as error:
        line = document.line(error.place)
        if line is None:
            raise
        raise ConfigError(f"{document.path}:{line}: {error}") from error


def document_of(intent: Intent) -> dict[str, Any]:
    """As JSON and TOML have it; what is as usual is left out."""
    told: dict[str, Any] = msgspec.to_builtins(intent)
    return told
