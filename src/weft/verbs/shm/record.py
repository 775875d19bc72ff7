"""Records that processes share: declared once, and read by the same names in Python, in kernels and in C.

    @record
    class Word(Record):
        value: u64

    Word.from_buffer(memory, offset).value      Python
    view(Word)                                  kernels: see `atomic`
    print(write_header(Word))                   C

A field is a word of 64 bits, so that whoever reads one reads it whole; `u32` says that only 32 of them are used.
"""

from __future__ import annotations

import ctypes
import struct
from typing import ClassVar, TypeAlias, TypeVar

u64: TypeAlias = int
u32: TypeAlias = int
_PACKED = {"u64": "Q", "u32": "I4x"}


class Record(ctypes.Structure):
    """A C structure. `form` packs all fields in order and checks that numbers fit; `size` is in bytes."""

    names: ClassVar[tuple[str, ...]]
    form: ClassVar[struct.Struct]
    size: ClassVar[int]

    @classmethod
    def offset(cls, name: str) -> int:
        """Return the offset of a field in bytes."""
        return int(getattr(cls, name).offset)

    @classmethod
    def bits(cls, name: str) -> int:
        """Return the number of used bits of a field."""
        return int(cls.__annotations__[name].removeprefix("u"))

    def clear(self) -> None:
        ctypes.memset(ctypes.addressof(self), 0, self.size)


R = TypeVar("R", bound=Record)


def record(declared: type[R]) -> type[R]:
    """Give it the fields that it declares."""
    fields = declared.__annotations__
    declared._fields_ = [(name, ctypes.c_uint64) for name in fields]
    declared.names, declared.size = tuple(fields), ctypes.sizeof(declared)
    declared.form = struct.Struct("<" + " ".join(_PACKED[kind] for kind in fields.values()))
    return declared


def write_header(*records: type[Record]) -> str:
    """Return the record as a C structure."""
    lines = ["#pragma once", "#include <stdint.h>"]
    for one in records:
        lines += ["", f"struct weft_{one.__name__} {{", *(f"    uint64_t {name};" for name in one.names), "};"]
    return "\n".join(lines) + "\n"
