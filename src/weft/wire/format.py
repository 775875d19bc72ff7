"""A wire format is a class whose fields are declared in order; a record of it is its bytes.

    class AETH(Format, size=4):
        \"\"\"ACK Extended Transport Header.\"\"\"
        syndrome = bits(8)
        msn = bits(24)

    AETH(msn=1 << 24)          ConfigError: AETH.msn = 0x1000000 does not fit in 24 bits
    AETH(msn=5).raw            b"\\x00\\x00\\x00\\x05"
    AETH.unpack(packet, 20)    a record; its fields are read from the bytes when they are asked for
    AETH.msn.get(packet, 20)   one field, without a record

A declaration is checked when it is made: the fields must add up to the size, and what has no name is declared as
reserved, so there can be neither a hole nor an overlap. A record cannot change; `replace` makes another. What is
reserved stays as it came, so what was read is written again byte for byte.

A format can extend another: its fields follow. What it knows of the other's it says in the same line, as in
`class SaMad(RmppMad, size=256, mgmt_class=3)`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar, Self

from weft.errors import ConfigError, SimulationBug, SubnetError, UnknownName
from weft.wire.fields import Bits, Buffer, Field, Reserved, unfit


class Malformed(SubnetError):
    """Bytes that came from the wire and are not what they should be."""


class _Body(dict[str, Any]):
    """The body of a declaration: keeps every field in order, also the many that are called `_`."""

    def __init__(self) -> None:
        super().__init__()
        self.declared: list[tuple[str, Field[Any]]] = []

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Field):
            self.declared.append((name, value))
        super().__setitem__(name, value)


class _Declared(type):
    """Turns the body of a class into a checked layout; a format that extends another continues after its last field."""

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
        made = super().__new__(cls, name, bases, plain | {"__slots__": plain.get("__slots__", ())})
        inherited = [(field.name, field) for base in bases for field in getattr(base, "layout", ())]
        made._lay_out(size, inherited + body.declared, values)
        return made

    def __init__(cls, name: str, bases: tuple[type, ...], body: _Body, **options: Any) -> None:
        super().__init__(name, bases, body)

    def _lay_out(cls, size: int, declared: list[tuple[str, Field[Any]]], values: dict[str, int]) -> None:
        found = sum(field.width for _, field in declared)
        if found != 8 * size:
            raise SimulationBug(f"{cls.__name__} is declared with {size} bytes, its fields have {found} bits")
        cls.size, cls.fields, layout, bit = size, {}, [], 0
        for name, field in declared:
            if name in cls.fields:
                raise SimulationBug(f"{cls.__name__}.{name} is declared twice")
            layout.append(field.place(cls.__name__, name, bit, size))
            bit += field.width
            if not isinstance(field, Reserved):
                cls.fields[name] = layout[-1]
        cls.layout = tuple(layout)
        cls.plan = {field.name: _written_how(field, size) for field in cls.fields.values()}
        for field in cls.fields.values():
            setattr(cls, field.name, field)
        defaults = {field.name: field.default for field in cls.fields.values() if field.default}
        cls.blank = _written(cls, bytes(size), defaults | values)


def _written_how(field: Field[Any], size: int) -> tuple[int, int, int, Any]:
    """Width, shift from the end of the format, what to keep around it, and how to encode what is not a number."""
    shift = 8 * size - field.bit - field.width
    return field.width, shift, ~((1 << field.width) - 1 << shift), None if isinstance(field, Bits) else field.encode


def _written(form: _Declared, start: bytes, values: dict[str, Any]) -> bytes:
    """The bytes of a record with some fields changed, as one large number: faster than field by field in the bytes."""
    whole, plan = int.from_bytes(start, "big"), form.plan
    for name, value in values.items():
        try:
            width, shift, keep, encode = plan[name]
            if encode is not None:
                value = encode(value)
            elif value >> width:
                raise unfit(form.fields[name], value)
            whole = whole & keep | (value if type(value) is int else int(value)) << shift  # numpy's would overflow
        except KeyError:
            raise UnknownName(f"field of {form.__name__}", name, plan) from None
        except TypeError:
            raise ConfigError(f"{form.fields[name]} cannot hold {value!r}") from None
    return whole.to_bytes(form.size, "big")


class Format(metaclass=_Declared, size=0):
    """The root of all formats; see the module."""

    __slots__ = ("raw",)
    raw: bytes
    size: ClassVar[int]
    layout: ClassVar[tuple[Field[Any], ...]]  # with the reserved ones
    fields: ClassVar[dict[str, Field[Any]]]  # without
    blank: ClassVar[bytes]  # a record of defaults
    plan: ClassVar[dict[str, tuple[int, int, int, Any]]]  # for `_written`

    def __init__(self, **values: Any) -> None:
        _set_raw(self, _written(type(self), self.blank, values))

    @classmethod
    def pack(cls, **values: Any) -> bytes:
        """The bytes of a record, for those who need no record."""
        return _written(cls, cls.blank, values)

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Self:
        """The record at `offset` of a buffer; Malformed if the buffer ends before it does."""
        raw = buffer[offset : offset + cls.size]
        if len(raw) != cls.size or offset < 0:
            raise Malformed(f"{cls.__name__} at byte {offset} needs {cls.size} bytes, there are {len(raw)}")
        record = object.__new__(cls)
        _set_raw(record, raw if type(raw) is bytes else bytes(raw))
        return record

    def replace(self, **changes: Any) -> Self:
        """The same with other values in some fields."""
        return self.unpack(_written(type(self), self.raw, changes))

    def as_dict(self) -> dict[str, Any]:
        """Every field by name; reserved ones are left out."""
        return {name: field.get(self.raw) for name, field in self.fields.items()}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} cannot change: use replace({name}=...)")

    def __bytes__(self) -> bytes:
        return self.raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and type(self) is type(other) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash((type(self), self.raw))

    def __repr__(self) -> str:
        shown = (f"{name}={field.show(field.get(self.raw))}" for name, field in self.fields.items())
        return f"{type(self).__name__}({', '.join(shown)})"


_set_raw = Format.__dict__["raw"].__set__


class Numbered(IntEnum):
    """Numbers that say which format bytes have: ids of attributes, of traps."""

    form: type[Format]

    def __new__(cls, number: int, form: type[Format] = Format) -> Self:
        made = int.__new__(cls, number)
        made._value_, made.form = number, form
        return made

    @classmethod
    def forms(cls) -> dict[int, type[Format]]:
        return {number: number.form for number in cls if number.form is not Format}
