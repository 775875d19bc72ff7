"""The messages of connections lie as Linux has them: no dissector knows them all, and tshark misreads some of a REQ."""

from __future__ import annotations

from pathlib import Path

from weft.wire import cm
from weft.wire.fields import Part


def read_linux() -> dict[tuple[str, str], tuple[int, int]]:
    """Return first bit and width by message and field."""
    lines = (Path(__file__).parent / "linux_cm.txt").read_text(encoding="ascii").splitlines()
    entries = [line.split() for line in lines if line and not line.startswith("#")]
    return {(form, name): (8 * int(at) + int(bit), int(width)) for form, name, at, bit, width in entries}


def test_every_field_lies_where_linux_has_it():
    result = {}
    for form in (form for number, form in cm.ATTRIBUTES.items() if number != cm.CmAttribute.CLASS_PORT_INFO):
        for field in form.fields.values():
            inner = field.form.fields.values() if isinstance(field, Part) else ()
            result |= {
                (form.__name__, f"{field.name}.{item.name}"): (field.bit + item.bit, item.width) for item in inner
            }
            result |= {} if inner else {(form.__name__, field.name): (field.bit, field.width)}
    assert result == read_linux()


def test_private_data_fills_the_rest_of_a_message():
    req = cm.Req(private_data=b"hello", primary=cm.ReqPath(sl=3))
    assert req.private_data == b"hello".ljust(92, b"\0")
    assert cm.CmMad(data=req.raw).raw[24:] == req.raw
    assert req.primary.sl == 3
