"""Wire formats: a class whose fields are declared in order; a record is its bytes.

    class AETH(Format, size=4):
        \"\"\"The ACK Extended Transport Header.\"\"\"
        syndrome = bits(8)
        msn = bits(24)

    AETH(msn=1 << 24)          ConfigError: AETH.msn = 0x1000000 does not fit in 24 bits
    AETH(msn=5).raw            b"\\x00\\x00\\x00\\x05"
    AETH.unpack(packet, 20)    a record; its fields are read from the bytes on access
    AETH.msn.get(packet, 20)   one field, without a record

A declaration is checked: the fields must add up to the size, and unnamed bits are declared as reserved, so there can be
neither a hole nor an overlap. A record is immutable; `replace` makes another. Reserved bits keep their received values,
so a record that was read is written again byte for byte.

A format can extend another: its fields follow. Values for inherited fields are in the class line, as in
`class SaMad(RmppMad, size=256, mgmt_class=3)`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Self

from weft.errors import ConfigError, SimulationBug, SubnetError, UnknownName
from weft.wire.fields import Bits, Buffer, Field, Reserved, unfit


class Malformed(SubnetError):
    """An error for malformed bytes from the wire."""


class _Body(dict[str, Any]):
    """The body of a declaration: it keeps every field in order, including the many that are named `_`."""

    def __init__(self) -> None:
        super().__init__()
        self.declared: list[tuple[str, Field[Any]]] = []

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Field):
            self.declared.append((name, value))
        super().__setitem__(name, value)


class _Declared(type):
    """A metaclass that turns the body of a class into a checked layout; a derived format continues after its base."""

    size: int
    layout: tuple[Field[Any], ...]
    fields: dict[str, Field[Any]]
    blank: bytes
    plan: dict[str, tuple[int, int, int, Any]]

    @classmethod
    def __prepare__(cls, name: str, bases: tuple[type, ...], /, **options: Any) -> _Body:
        return _Body()

    def __new__(cls, name: str, bases: tuple[type, ...], body: _Body, *, size: int, **values: int) -> _Declared:
        plain = {key: value for key, value in body.items() if not isinstance(value, Field)}
        new_class = super().__new__(cls, name, bases, plain | {"__slots__": plain.get("__slots__", ())})
        inherited = [(field.name, field) for base in bases for field in getattr(base, "layout", ())]
        new_class._lay_out(size, inherited + body.declared, values)
        return new_class

    def __init__(cls, name: str, bases: tuple[type, ...], body: _Body, **options: Any) -> None:
        super().__init__(name, bases, body)

    def _lay_out(cls, size: int, declared: list[tuple[str, Field[Any]]], values: dict[str, int]) -> None:
        n_bits = sum(field.width for _, field in declared)
        if n_bits != 8 * size:
            raise SimulationBug(f"{cls.__name__} is declared with {size} bytes, its fields have {n_bits} bits")
        cls.size, cls.fields, layout, bit = size, {}, [], 0
        for name, field in declared:
            if name in cls.fields:
                raise SimulationBug(f"{cls.__name__}.{name} is declared twice")
            layout.append(field.place(cls.__name__, name, bit, size))
            bit += field.width
            if not isinstance(field, Reserved):
                cls.fields[name] = layout[-1]
        cls.layout = tuple(layout)
        cls.plan = {field.name: _write_plan(field, size) for field in cls.fields.values()}
        for field in cls.fields.values():
            setattr(cls, field.name, field)
        defaults = {field.name: field.default for field in cls.fields.values() if field.default}
        cls.blank = _write(cls, bytes(size), defaults | values)


def _write_plan(field: Field[Any], size: int) -> tuple[int, int, int, Any]:
    """Return width, shift from the end of the format, the mask of other bits, and the encoder of values not numeric."""
    shift = 8 * size - field.bit - field.width
    return field.width, shift, ~((1 << field.width) - 1 << shift), None if isinstance(field, Bits) else field.encode


def _write(form: _Declared, start: bytes, values: dict[str, Any]) -> bytes:
    """Return the bytes of a record with some fields changed, by arithmetic on one large number, which is fastest."""
    whole, plan = int.from_bytes(start, "big"), form.plan
    for name, value in values.items():
        try:
            width, shift, keep, encode = plan[name]
            if encode is not None:
                value = encode(value)
            elif value >> width:
                raise unfit(form.fields[name], value)
            # numpy integers would overflow
            whole = whole & keep | (value if type(value) is int else int(value)) << shift
        except KeyError:
            raise UnknownName(f"field of {form.__name__}", name, plan) from None
        except TypeError:
            raise ConfigError(f"{form.fields[name]} cannot hold {value!r}") from None
    return whole.to_bytes(form.size, "big")


class Format(metaclass=_Declared, size=0):
    """The base of all formats; see the module."""

    __slots__ = ("raw",)
    raw: bytes
    size: ClassVar[int]
    layout: ClassVar[tuple[Field[Any], ...]]  # with reserved fields
    fields: ClassVar[dict[str, Field[Any]]]  # without
    blank: ClassVar[bytes]  # a record of defaults
    plan: ClassVar[dict[str, tuple[int, int, int, Any]]]  # for `_write`

    def __init__(self, **values: Any) -> None:
        _set_raw(self, _write(type(self), self.blank, values))

    @classmethod
    def pack(cls, **values: Any) -> bytes:
        """Return the bytes of a record, without creating one."""
        return _write(cls, cls.blank, values)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        """Return the record at `offset` of a buffer; raise Malformed if the buffer is too short."""
        raw = buffer[offset : offset + cls.size]
        if len(raw) != cls.size or offset < 0:
            raise Malformed(f"{cls.__name__} at byte {offset} needs {cls.size} bytes, there are {len(raw)}")
        record = object.__new__(cls)
        _set_raw(record, raw if type(raw) is bytes else bytes(raw))
        return record

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values in some fields."""
        return self.unpack(_write(type(self), self.raw, changes))

    def as_dict(self) -> dict[str, Any]:
        """Return every field by name, without reserved ones."""
        return {name: field.get(self.raw) for name, field in self.fields.items()}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: use replace({name}=...)")

    def __bytes__(self) -> bytes:
        return self.raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and type(self) is type(other) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash((type(self), self.raw))

    def __repr__(self) -> str:
        values = (f"{name}={field.show(field.get(self.raw))}" for name, field in self.fields.items())
        return f"{type(self).__name__}({', '.join(values)})"


_set_raw = Format.__dict__["raw"].__set__


class Numbered(IntEnum):
    """A number that identifies a format: an attribute id or a trap number."""

    form: type[Format]

    def __new__(cls, number: int, form: type[Format] = Format) -> Self:
        member = int.__new__(cls, number)
        member._value_, member.form = number, form
        return member

    @classmethod
    def forms(cls) -> dict[int, type[Format]]:
        return {number: number.form for number in cls if number.form is not Format}
