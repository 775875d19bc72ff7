"""Filters of UFM's queries: `?sys_type=Computer&active=true`. Unknown filters are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from weft.errors import ConfigError, UnknownName
from weft.serve.ufm.shapes import NONE, Link, Picture, Port, System

_Item = TypeVar("_Item")
_Keep = Callable[[_Item], bool]
_MANY = 1_000_000_000
_PAGING = ("page_number", "rpp")
_DETAILS = (
    "cable_info",
    "monitoring_counters_info",
    "brief",
)  # they add details that a fabric in software does not have


def ports(picture: Picture, query: Mapping[str, str]) -> list[Port]:
    filters: dict[str, Callable[[str], _Keep[Port]]] = {
        "sys_type": lambda word: lambda port: port.description.lower() == f"{word.lower()} ib port",
        "system": lambda word: lambda port: word in (port.system_id, port.system_name),
        "active": lambda word: _if(word, lambda port: port.logical_state == "Active"),
        "show_disabled": lambda word: _if(word, lambda port: port.physical_state != "Disabled", when=False),
        "external": lambda word: _if(word, lambda port: port.number > 0),
        "high_ber_only": lambda word: _if(word, lambda port: port.high_ber_severity != NONE),
        "high_ber_severity": lambda word: lambda port: port.high_ber_severity.lower() == word.lower(),
    }
    if "system" in query:
        return _filtered(picture.of_system(query["system"]), query, filters)
    return _filtered(picture.of_kind(query["sys_type"]) if "sys_type" in query else picture.ports, query, filters)


def systems(picture: Picture, query: Mapping[str, str]) -> list[System]:
    peers = {port.system_id: port.peer_node_name for port in picture.ports} if "peer_name" in query else {}
    filters: dict[str, Callable[[str], _Keep[System]]] = {
        "type": lambda word: lambda system: system.type == word.lower(),
        "ip": lambda word: lambda system: system.ip == word,
        "model": lambda word: lambda system: system.model.lower() == word.lower(),
        "role": lambda word: lambda system: system.role == word.lower(),
        "peer_name": lambda word: lambda system: peers.get(system.guid) == word,
        "ports": lambda _: lambda _: True,  # systems always include their ports
        "chassis": lambda word: lambda _: not _is_true(word),  # there are no chassis
        "in_rack": lambda word: lambda _: not _is_true(word),  # racks are unknown
    }
    return _filtered(picture.systems, query, filters)


def links(picture: Picture, query: Mapping[str, str]) -> list[Link]:
    filters: dict[str, Callable[[str], _Keep[Link]]] = {
        "system": lambda word: lambda link: word in (link.source_guid, link.destination_guid),
    }
    return _filtered(picture.links, query, filters)


def page(items: Sequence[_Item], query: Mapping[str, str]) -> Sequence[_Item]:
    """Return the page that `page_number` and `rpp` select."""
    first, count = (_number(query, name, default) for name, default in zip(_PAGING, (1, _MANY), strict=True))
    return items[(first - 1) * count : first * count]


def is_paged(query: Mapping[str, str]) -> bool:
    return any(name in query for name in _PAGING)


def named(kind: str, names: str, find: Callable[[str], _Item | None]) -> list[_Item]:
    """Return the items of a comma-separated list. Raise UnknownName for the first unknown one."""
    items = []
    for name in names.split(","):
        item = find(name.strip())
        if item is None:
            raise UnknownName(kind, name.strip(), ())
        items.append(item)
    return items


def is_set(query: Mapping[str, str], name: str) -> bool:
    return name in query and _is_true(query[name])


def _filtered(
    items: Sequence[_Item], query: Mapping[str, str], available: Mapping[str, Callable[[str], _Keep[_Item]]]
) -> list[_Item]:
    for name in query:
        if name not in available and name not in _PAGING and name not in _DETAILS:
            raise ConfigError(f"unknown filter {name[:40]!r}; use {', '.join(available)}")
    filters = [make(query[name]) for name, make in available.items() if name in query]
    return [item for item in items if all(keep(item) for keep in filters)]


def _if(word: str, keep: _Keep[_Item], when: bool = True) -> _Keep[_Item]:
    return keep if _is_true(word) is when else lambda _: True


def _is_true(word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise ConfigError(f"expected true or false, got {word!r}")
    return word.lower() == "true"


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    word = query.get(name, str(default))
    number = int(word) if word.isascii() and word.isdecimal() and len(word) <= len(str(_MANY)) else 0
    if not 0 < number <= _MANY:
        raise ConfigError(f"{name} must be from 1 to {_MANY}, got {word[:20]}")
    return number
