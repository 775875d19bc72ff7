"""Records that processes share: declared once, and read by the same names in Python, in kernels and in C.

    class Word(Record):
        value: u64

    Word.from_buffer(memory, offset).value      Python
    view(Word)                                  kernels: see `atomic`
    print(write_header(Word))                   C

A field is a word of 64 bits, so that a read is never torn; `u32` says that only 32 of them are used.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from _ctypes import _PyCStructType as StructType
else:
    StructType = type(ctypes.Structure)

u64: TypeAlias = int
u32: TypeAlias = int
_PACKED = {"u64": "Q", "u32": "I4x"}


class _Declared(StructType):
    """The metaclass of records: the fields of a structure are its annotations."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _Declared:
        fields = namespace.get("__annotations__", {}) if bases != (ctypes.Structure,) else {}
        form = struct.Struct("<" + " ".join(_PACKED[kind] for kind in fields.values()))
        namespace |= {"names": tuple(fields), "form": form, "size": form.size}
        return super().__new__(cls, name, bases, namespace | {"_fields_": [(each, ctypes.c_uint64) for each in fields]})


class Record(ctypes.Structure, metaclass=_Declared):
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


def write_header(*records: type[Record]) -> str:
    """Return the record as a C structure."""
    lines = ["#pragma once", "#include <stdint.h>"]
    for one in records:
        lines += ["", f"struct weft_{one.__name__} {{", *(f"    uint64_t {name};" for name in one.names), "};"]
    return "\n".join(lines) + "\n"
