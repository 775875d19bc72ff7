"""Entries of data files: unknown fields are errors, and entries of catalogues do not change."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from weft.fabric import catalog, files, prices, rates, timing


def structs_below(base: type) -> set[type]:
    return {base, *(deep for sub in base.__subclasses__() for deep in structs_below(sub))} - {msgspec.Struct}


def structs_of(*modules) -> list[type]:
    names = tuple(module.__name__ for module in modules)
    structs = [struct for struct in structs_below(msgspec.Struct) if struct.__module__.startswith(names)]
    return sorted(structs, key=lambda struct: f"{struct.__module__}.{struct.__qualname__}")


@pytest.mark.parametrize(
    "struct", structs_of(catalog, files, prices, rates, timing), ids=lambda struct: struct.__qualname__
)
def test_unknown_fields_are_refused(struct):
    assert struct.__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize("struct", structs_of(catalog, rates, timing), ids=lambda struct: struct.__qualname__)
def test_entries_of_catalogues_are_frozen_and_made_by_keywords(struct):
    assert struct.__struct_config__.frozen
    assert {field.kind for field in inspect.signature(struct).parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
