"""Properties of every declared format."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft.wire
from weft.wire import formats
from weft.wire.fields import Numbers, Octets, Part, Parts, Reserved
from weft.wire.format import Format

FORMATS = formats()
every_format = pytest.mark.parametrize("name", FORMATS)
a_few = settings(max_examples=10)


def records(form: type[Format]) -> st.SearchStrategy[Format]:
    return st.builds(form, **{name: field_values(field) for name, field in form.fields.items()})


def field_values(field) -> st.SearchStrategy:
    if isinstance(field, Part):
        return records(field.form)
    if isinstance(field, Parts):  # from bytes: 64 records of their own would take hypothesis seconds
        return random_bytes(field.form.size).map(lambda raw: (field.form.unpack(raw),) * field.count)
    if isinstance(field, Numbers):
        numbers = st.integers(0, (1 << field.each) - 1)
        return st.tuples(*[numbers] * field.count)
    return random_bytes(field.width // 8) if isinstance(field, Octets) else st.integers(0, (1 << field.width) - 1)


def random_bytes(size: int) -> st.SearchStrategy[bytes]:
    return st.integers(0, (1 << 8 * size) - 1).map(lambda number: number.to_bytes(size, "big"))


@every_format
@a_few
@given(data=st.data())
def test_a_record_is_read_as_it_was_written(name, data):
    form = FORMATS[name]
    values = {field.name: data.draw(field_values(field)) for field in form.fields.values()}
    record = form(**values)
    assert form.unpack(record.raw).as_dict() == values
    assert [getattr(record, field) for field in values] == list(values.values())
    assert repr(record).startswith(f"{name}(")


@every_format
@a_few
@given(data=st.data())
def test_random_bytes_are_read_and_written_as_they_are(name, data):
    """The record may begin anywhere in a buffer; only reserved bits are lost where it is built from its fields."""
    form = FORMATS[name]
    before, raw = data.draw(st.binary(max_size=9)), data.draw(random_bytes(form.size))
    record = form.unpack(before + raw, len(before))
    assert record.raw == raw
    assert record.replace(**record.as_dict()) == record
    reserved = sum(_bits_of(form, field) for field in form.layout if isinstance(field, Reserved))
    assert int.from_bytes(form(**record.as_dict()).raw, "big") == int.from_bytes(raw, "big") & ~reserved


@every_format
def test_no_field_touches_another(name):
    """All ones in one field are ones in its bits and nowhere else, however it is written."""
    form = FORMATS[name]
    for field in form.fields.values():
        items, zeros = field.get(b"\xff" * form.size), field.get(bytes(form.size))
        buffer, filled = bytearray(form.size + 3), bytearray(b"\xff" * form.size)
        field.set(buffer, items, 3)
        field.set(filled, zeros)
        assert int.from_bytes(buffer, "big") == _bits_of(form, field)
        assert int.from_bytes(filled, "big") == _bits_of(form, field) ^ (1 << 8 * form.size) - 1
        assert form.unpack(bytes(form.size)).replace(**{field.name: items}).raw == bytes(buffer[3:])


def _bits_of(form: type[Format], field) -> int:
    return (1 << field.width) - 1 << 8 * form.size - field.bit - field.width


def test_formats_knows_all_modules_that_declare_some():
    modules = Path(weft.wire.__file__).parent.glob("*.py")
    declaring = {path.stem for path in modules if "(Format, size=" in path.read_text(encoding="utf-8")}
    assert declaring - {"format"} <= set(weft.wire._DECLARE)
