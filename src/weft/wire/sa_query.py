"""Queries to the SA: component masks, and tables of records.

    mask = component_mask(PathRecord, "sgid", "dgid", "numb_path")
    component_names(PathRecord, mask)        ["dgid", "sgid", "numb_path"]
    matches(record, query, mask)             whether a record matches a query

A component is a field in the standard's list: reserved ones count, parts are expanded (`node_info.node_guid`), and so
are tables (`guid_info.guid[3]`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import NamedTuple, TypeVar

from weft.errors import find_named
from weft.wire.fields import Buffer, Numbers, Part, Reserved
from weft.wire.format import Format, Malformed

F = TypeVar("F", bound=Format)


class Component(NamedTuple):
    """A component of the mask; reserved ones have no name."""

    name: str
    bit: int
    width: int


@cache
def components(form: type[Format]) -> tuple[Component, ...]:
    """Return the first 64 components of a record: the n-th is bit n of the mask."""
    return tuple(_expand(form, "", 0))[:64]


def _expand(form: type[Format], prefix: str, base: int) -> Iterator[Component]:
    for field in form.layout:
        bit = base + field.bit
        if isinstance(field, Part):
            yield from _expand(field.form, f"{prefix}{field.name}.", bit)
        elif isinstance(field, Numbers):
            for i in range(field.count):
                yield Component(f"{prefix}{field.name}[{i}]", bit + i * field.each, field.each)
        elif field.component:
            yield Component("" if isinstance(field, Reserved) else prefix + field.name, bit, field.width)


def component_mask(form: type[Format], *names: str) -> int:
    """Return the mask for some components of a record."""
    numbers = {component.name: n for n, component in enumerate(components(form)) if component.name}
    mask = 0
    for name in names:
        mask |= 1 << find_named(f"component of {form.__name__}", name, numbers)
    return mask


def component_names(form: type[Format], mask: int) -> list[str]:
    """Return the components of a mask, without reserved ones."""
    return [component.name for n, component in enumerate(components(form)) if mask >> n & 1 and component.name]


@lru_cache(maxsize=1000)  # bounded: clients choose the masks
def covered_bits(form: type[Format], mask: int) -> int:
    """Return the bits of a record that a mask covers, as a number."""
    covered = 0
    for n, component in enumerate(components(form)):
        if mask >> n & 1 and component.name:
            covered |= (1 << component.width) - 1 << 8 * form.size - component.bit - component.width
    return covered


def matches(record: F, query: F, mask: int) -> bool:
    """Return whether a record equals a query in all components of the mask. Selectors are left to the SA."""
    differ = int.from_bytes(record.raw, "big") ^ int.from_bytes(query.raw, "big")
    return not differ & covered_bits(type(record), mask)


def pack_records(records: Iterable[Format]) -> bytes:
    """Return a table as RMPP carries it: records of 8 n bytes, one after the other."""
    return b"".join(record.raw.ljust(-(-record.size // 8) * 8, b"\0") for record in records)


def unpack_records(form: type[F], data: Buffer, attribute_offset: int) -> list[F]:
    """Return the records of a table, whose offset counts 8 bytes; the padding of the last one may be missing."""
    step, whole = 8 * attribute_offset, bytes(data)
    if whole and step < form.size:
        raise Malformed(f"attribute offset {attribute_offset} is too small for a {form.__name__} of {form.size} bytes")
    starts = range(0, len(whole) - (form.size - 8), step) if whole else ()
    return [form.unpack(whole[at : at + form.size].ljust(form.size, b"\0")) for at in starts]
