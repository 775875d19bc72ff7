"""The errors of msgspec in the words of a person who writes a file: the place, and what belongs there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

Place = tuple[str | int, ...]  # keys and indices from the top: ("links", 3, "speed")

_WORDS = {"int": "a whole number", "float": "a number", "str": "a text", "array": "a list", "object": "a mapping"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """A value that the type of a file does not allow."""

    place: Place
    expected: str
    is_key: bool = False  # the key is wrong, not its value


def explain(error: msgspec.ValidationError, type_: Any) -> Misfit:
    """Return the value that a type does not allow, and what the type expects there."""
    message, _, where = str(error).partition(" - at `")
    place = _place_of(where.rstrip("`"))
    info = _type_at(inspect.type_info(type_), place)
    if unknown := re.search(r"unknown field `(.*)`", message, re.DOTALL):
        keys = [field.encode_name for field in getattr(info, "fields", ())]
        return Misfit(place=(*place, unknown[1]), expected=keys_like(unknown[1], keys), is_key=True)
    if missing := re.search(r"missing required field `(.*)`", message):
        return Misfit(place=place, expected=f"a mapping with {missing[1]}")
    if message.startswith("Invalid enum value"):
        values = [str(value) for part in _parts(info) for value in getattr(part, "values", ())]
        return Misfit(place=place, expected=" or ".join([", ".join(values[:-1]), *values[-1:]]) or "another value")
    if message.startswith("Invalid RFC3339 encoded date"):
        return Misfit(place=place, expected="a date: 2026-11-02")
    message = message.removeprefix("Expected ").partition(", got ")[0]
    return Misfit(place=place, expected=re.sub(r"`([^`]*)`", lambda match: _in_words(match[1]), message))


def keys_like(key: str, allowed: Iterable[str]) -> str:
    """Return the keys that are allowed instead of one, the nearest first."""
    allowed = list(allowed)
    near = difflib.get_close_matches(key, allowed, n=1)
    return f"{f'{near[0]}, or another' if near else 'one'} of the keys {', '.join(allowed)}"


def _either(values: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(values[:-1]), *values[-1:])))


def _place_of(where: str) -> Place:
    """Return the keys and indices of msgspec's `$.ends[0]`; `[...]` is a key that it does not name."""
    place: list[str | int] = []
    for key, index in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", where):
        if index == "...":
            break
        place.append(key or int(index))
    return tuple(place)


def _type_at(info: inspect.Type, place: Place) -> inspect.Type | None:
    for step in place:
        inner = [part for each in _parts(info) if (part := _inside(each, step)) is not None]
        if not inner:
            return None
        info = inner[0]
    return info


def _parts(info: inspect.Type | None) -> tuple[inspect.Type | None, ...]:
    return info.types if isinstance(info, inspect.UnionType) else (info,)


def _inside(info: inspect.Type | None, step: str | int) -> inspect.Type | None:
    match info:
        case inspect.StructType() | inspect.DataclassType():
            return next((field.type for field in info.fields if field.encode_name == step), None)
        case inspect.DictType():
            return info.value_type
        case inspect.ListType() | inspect.VarTupleType():
            return info.item_type
    return None


def _in_words(types: str) -> str:
    return " or ".join(_WORDS.get(name, name) for name in types.split(" | ") if name != "null")
