"""The kinds of fields that a wire format is made of.

Every field has its position once its format is declared, and reads or writes itself in any buffer:

    BTH.psn.get(packet, 8)          one field of the BTH that starts at byte 8; only its bytes are read
    BTH.psn.set(packet, 7, 8)       write it, in a bytearray; the value is checked
    BTH.unpack(packet, 8).psn       the same through a record

All fields are big-endian, as in the standard. A field of up to 64 bits is extracted from one machine word. `get` and
`set` are closures made when a field is placed: they take half the time of methods.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from copy import copy
from enum import IntEnum
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar, overload

from weft.errors import ConfigError, SimulationBug

Buffer = bytes | bytearray | memoryview
Writable = bytearray | memoryview
V = TypeVar("V")


class Record(Protocol):
    """A record that fields read: a `Format`."""

    size: ClassVar[int]
    raw: bytes

    @classmethod
    def unpack(cls, buffer: Buffer, base: int = 0) -> Self: ...


F = TypeVar("F", bound=Record)

_WORDS = [struct.Struct(letter) for letter in (">B", ">H", ">I", ">Q")]
_LETTERS = {8: "B", 16: "H", 32: "I", 64: "Q"}


class Field(Generic[V]):
    """A named range of bits of a format."""

    __slots__ = ("bit", "component", "default", "get", "name", "of", "owner", "set", "width")
    get: Callable[..., V]  # (buffer, base=0): the value in a buffer whose format starts at byte `base`
    set: Callable[..., None]  # (buffer, value, base=0): write it; refuse a value that does not fit

    def __init__(self, width: int, default: V, of: type[IntEnum] | None = None, component: bool = True) -> None:
        self.width, self.default, self.of, self.component = width, default, of, component
        self.owner, self.name, self.bit = "", "", 0

    def place(self, owner: str, name: str, bit: int, format_bytes: int) -> Self:
        """Return a copy of this field at a position in a format. A derived format places inherited fields again."""
        placed = copy(self)
        placed.owner, placed.name, placed.bit = owner, name, bit
        placed.get, placed.set = placed._functions(format_bytes)
        return placed

    def _functions(self, format_bytes: int) -> tuple[Callable[..., V], Callable[..., None]]:
        """Return `get` and `set` of a field of whole bytes."""
        if self.bit % 8 or self.width % 8:
            raise SimulationBug(f"{self} has {self.width} bits and starts at bit {self.bit}: it must be whole bytes")
        at, size, encode = self.bit // 8, self.width // 8, self.encode
        end = at + size

        def set_(buffer: Writable, value: V, base: int = 0) -> None:
            buffer[base + at : base + end] = encode(value).to_bytes(size, "big")

        return self._reader(at, end), set_

    def _reader(self, at: int, end: int) -> Callable[..., V]:
        """Return a function (buffer, base=0) for a field in bytes `at` to `end`."""
        raise NotImplementedError

    def encode(self, value: V) -> int:
        """Return the bits as a number; raise ConfigError if the value does not fit."""
        raise NotImplementedError

    @overload
    def __get__(self, record: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, record: Record, owner: type[Any]) -> V: ...
    def __get__(self, record: Record | None, owner: type[Any]) -> Self | V:
        return self if record is None else self.get(record.raw)

    def show(self, value: V) -> str:
        """Return the value as a record prints it."""
        return repr(value)

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"

    def __repr__(self) -> str:
        return f"<{self}: {self.width} bits at bit {self.bit}>"


class Bits(Field[int]):
    """An unsigned number of up to 64 bits, at any bit."""

    __slots__ = ()

    def _functions(self, format_bytes: int) -> tuple[Callable[..., int], Callable[..., None]]:
        end = self.bit + self.width
        for word in _WORDS:
            start = min(self.bit // 8, format_bytes - word.size)
            if start >= 0 and end <= 8 * (start + word.size):
                return _cutters(self, word, start, 8 * (start + word.size) - end)
        raise SimulationBug(f"{self} has {self.width} bits and starts at bit {self.bit}: no word of 64 bits holds it")

    def encode(self, value: int) -> int:
        if value >> self.width:
            raise unfit(self, value)
        return int(value)

    def show(self, value: int) -> str:
        if self.of is not None and value in self.of._value2member_map_:
            return self.of(value).name
        return hex(value) if value > 9 else str(value)


def _cutters(field: Field[int], word: struct.Struct, start: int, shift: int) -> tuple[Any, Any]:
    """Return functions that read and write a part of the word at byte `start`."""
    load, store, width, mask = word.unpack_from, word.pack_into, field.width, (1 << field.width) - 1
    keep = ~(mask << shift) & (1 << 8 * word.size) - 1

    def get(buffer: Buffer, base: int = 0) -> Any:
        return load(buffer, base + start)[0] >> shift & mask

    def get_whole(buffer: Buffer, base: int = 0) -> Any:
        return load(buffer, base + start)[0]

    def set_(buffer: Writable, value: int, base: int = 0) -> None:
        if value >> width:
            raise unfit(field, value)
        store(buffer, base + start, load(buffer, base + start)[0] & keep | value << shift)

    def set_whole(buffer: Writable, value: int, base: int = 0) -> None:
        if value >> width:
            raise unfit(field, value)
        store(buffer, base + start, value)

    return (get, set_) if keep else (get_whole, set_whole)


class Wide(Bits):
    """A number of more than 64 bits: a GID."""

    __slots__ = ()
    _functions = Field._functions

    def _reader(self, at: int, end: int) -> Callable[..., int]:
        return lambda buffer, base=0: int.from_bytes(buffer[base + at : base + end], "big")


class Octets(Field[bytes]):
    """A byte string: a payload, a name. Shorter values are padded with zeros."""

    __slots__ = ()

    def _reader(self, at: int, end: int) -> Callable[..., bytes]:
        return lambda buffer, base=0: bytes(buffer[base + at : base + end])

    def encode(self, value: bytes) -> int:
        if 8 * len(value) > self.width:
            raise ConfigError(f"{self} has {self.width // 8} bytes, {len(value)} do not fit")
        return int.from_bytes(value, "big") << self.width - 8 * len(value)

    def show(self, value: bytes) -> str:
        return repr(value.rstrip(b"\0"))


class Numbers(Field[tuple[int, ...]]):
    """A table of numbers of the same width. Shorter tables are padded with zeros."""

    __slots__ = ("count", "each")

    def __init__(self, count: int, each: int) -> None:
        super().__init__(count * each, ())
        self.count, self.each = count, each

    def _reader(self, at: int, end: int) -> Callable[..., tuple[int, ...]]:
        if self.each in _LETTERS:
            table = struct.Struct(f">{self.count}{_LETTERS[self.each]}").unpack_from
            return lambda buffer, base=0: table(buffer, base + at)
        mask, shifts = (1 << self.each) - 1, range(self.width - self.each, -1, -self.each)

        def get(buffer: Buffer, base: int = 0) -> tuple[int, ...]:
            whole = int.from_bytes(buffer[base + at : base + end], "big")
            return tuple(whole >> shift & mask for shift in shifts)

        return get

    def encode(self, value: Sequence[int]) -> int:
        whole = 0
        for number in value:
            if number >> self.each:
                raise unfit(self, number, self.each)
            whole = whole << self.each | int(number)
        return _padded(self, whole, len(value), self.count)


class Part(Field[F]):
    """A nested format."""

    __slots__ = ("form",)

    def __init__(self, form: type[F]) -> None:
        super().__init__(8 * form.size, form())
        self.form = form

    def _reader(self, at: int, end: int) -> Callable[..., F]:
        form = self.form
        return lambda buffer, base=0: form.unpack(buffer, base + at)

    def encode(self, value: F) -> int:
        return int.from_bytes(_bytes_of(self, self.form, value), "big")


class Parts(Field[tuple[F, ...]]):
    """A table of nested formats. Shorter tables are padded with zeros."""

    __slots__ = ("count", "form")

    def __init__(self, count: int, form: type[F]) -> None:
        super().__init__(8 * form.size * count, ())
        self.count, self.form = count, form

    def _reader(self, at: int, end: int) -> Callable[..., tuple[F, ...]]:
        form, starts = self.form, range(at, end, self.form.size)
        return lambda buffer, base=0: tuple(form.unpack(buffer, base + start) for start in starts)

    def encode(self, value: Sequence[F]) -> int:
        whole = int.from_bytes(b"".join(_bytes_of(self, self.form, record) for record in value), "big")
        return _padded(self, whole, len(value), self.count)


class Reserved(Field[int]):
    """A range of reserved bits: sent as zero, kept when received, and not printed."""

    __slots__ = ()

    def _functions(self, format_bytes: int) -> tuple[Any, Any]:
        return None, None


def unfit(field: Field[Any], value: int, width: int = 0) -> ConfigError:
    """Return the error for a number that is negative or too large."""
    return ConfigError(f"{field} = {int(value):#x} does not fit in {width or field.width} bits")


def _bytes_of(field: Field[Any], form: type[F], value: F) -> bytes:
    if not isinstance(value, form):
        raise ConfigError(f"{field} takes a {form.__name__}, not {value!r}")
    return value.raw


def _padded(table: Field[Any], whole: int, entries: int, count: int) -> int:
    if entries > count:
        raise ConfigError(f"{table} has {count} entries, {entries} do not fit")
    return whole << (count - entries) * (table.width // count)


def bits(width: int, *, default: int = 0, of: type[IntEnum] | None = None, component: bool = True) -> Bits:
    """Declare a number of `width` bits; `of` names its values for printing.

    `component=False`: the SA's component masks do not count it, because the standard added it later.
    """
    return (Bits if width <= 64 else Wide)(width, default, of, component)


def octets(size: int) -> Octets:
    """Declare a string of `size` bytes."""
    return Octets(8 * size, b"")


numbers, part, parts = Numbers, Part, Parts


def reserved(width: int) -> Reserved:
    """Declare `width` reserved bits: written `_ = reserved(3)`."""
    return Reserved(width, 0)
