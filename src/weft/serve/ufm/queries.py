"""Filters of UFM's queries: `?sys_type=Computer&active=true`. A filter that is not known is refused, not ignored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from weft.errors import ConfigError, UnknownName
from weft.serve.ufm.shapes import NONE, Link, Picture, Port, System

_Thing = TypeVar("_Thing")
_Keep = Callable[[_Thing], bool]
_MANY = 1_000_000_000
_PAGING = ("page_number", "rpp")
_DETAILS = ("cable_info", "monitoring_counters_info", "brief")  # what they add is not known of a fabric in software


def ports(picture: Picture, query: Mapping[str, str]) -> list[Port]:
    known: dict[str, Callable[[str], _Keep[Port]]] = {
        "sys_type": lambda word: lambda port: port.description.lower() == f"{word.lower()} ib port",
        "system": lambda word: lambda port: word in (port.system_id, port.system_name),
        "active": lambda word: _if(word, lambda port: port.logical_state == "Active"),
        "show_disabled": lambda word: _if(word, lambda port: port.physical_state != "Disabled", when=False),
        "external": lambda word: _if(word, lambda port: port.number > 0),
        "high_ber_only": lambda word: _if(word, lambda port: port.high_ber_severity != NONE),
        "high_ber_severity": lambda word: lambda port: port.high_ber_severity.lower() == word.lower(),
    }
    if "system" in query:
        return _kept(picture.of_system(query["system"]), query, known)
    return _kept(picture.of_kind(query["sys_type"]) if "sys_type" in query else picture.ports, query, known)


def systems(picture: Picture, query: Mapping[str, str]) -> list[System]:
    peers = {port.system_id: port.peer_node_name for port in picture.ports} if "peer_name" in query else {}
    known: dict[str, Callable[[str], _Keep[System]]] = {
        "type": lambda word: lambda one: one.type == word.lower(),
        "ip": lambda word: lambda one: one.ip == word,
        "model": lambda word: lambda one: one.model.lower() == word.lower(),
        "role": lambda word: lambda one: one.role == word.lower(),
        "peer_name": lambda word: lambda one: peers.get(one.guid) == word,
        "ports": lambda _: lambda _: True,  # true: with their ports, which they always have
        "chassis": lambda word: lambda _: not _is_true(word),  # there are none
        "in_rack": lambda word: lambda _: not _is_true(word),  # nobody has told
    }
    return _kept(picture.systems, query, known)


def links(picture: Picture, query: Mapping[str, str]) -> list[Link]:
    known: dict[str, Callable[[str], _Keep[Link]]] = {
        "system": lambda word: lambda link: word in (link.source_guid, link.destination_guid),
    }
    return _kept(picture.links, query, known)


def page(things: Sequence[_Thing], query: Mapping[str, str]) -> Sequence[_Thing]:
    """The part that `page_number` and `rpp` ask for."""
    first, count = (_number(query, name, default) for name, default in zip(_PAGING, (1, _MANY), strict=True))
    return things[(first - 1) * count : first * count]


def is_paged(query: Mapping[str, str]) -> bool:
    return any(name in query for name in _PAGING)


def named(what: str, names: str, find: Callable[[str], _Thing | None]) -> list[_Thing]:
    """Those of a list with commas; UnknownName for the first that is not there."""
    found = []
    for name in names.split(","):
        one = find(name.strip())
        if one is None:
            raise UnknownName(what, name.strip(), ())
        found.append(one)
    return found


def is_asked(query: Mapping[str, str], name: str) -> bool:
    return name in query and _is_true(query[name])


def _kept(
    things: Sequence[_Thing], query: Mapping[str, str], known: Mapping[str, Callable[[str], _Keep[_Thing]]]
) -> list[_Thing]:
    for name in query:
        if name not in known and name not in _PAGING and name not in _DETAILS:
            raise ConfigError(f"the filter {name[:40]!r} is refused: there are {', '.join(known)}")
    filters = [make(query[name]) for name, make in known.items() if name in query]
    return [one for one in things if all(keep(one) for keep in filters)]


def _if(word: str, keep: _Keep[_Thing], when: bool = True) -> _Keep[_Thing]:
    return keep if _is_true(word) is when else lambda _: True


def _is_true(word: str) -> bool:
    if word.lower() not in ("true", "false"):
        raise ConfigError(f"{word!r} is refused: write true or false")
    return word.lower() == "true"


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    word = query.get(name, str(default))
    number = int(word) if word.isascii() and word.isdecimal() and len(word) <= len(str(_MANY)) else 0
    if not 0 < number <= _MANY:
        raise ConfigError(f"{name}={word[:20]} is refused: write a number from 1 to {_MANY}")
    return number
