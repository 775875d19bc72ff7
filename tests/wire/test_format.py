"""A format is checked when it is declared and when it is used."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import ConfigError, SimulationBug, UnknownName
from weft.wire import formats
from weft.wire.fields import bits, numbers, octets, part, parts, reserved
from weft.wire.format import Format, Malformed
from weft.wire.headers import AETH, BTH, Opcode


class Colour(Format, size=4):
    _ = reserved(4)
    red = bits(12)
    green = bits(5, default=3)
    _ = reserved(3)  # noqa: PIE794
    blue = bits(8)


class Wall(Colour, size=16, blue=9):
    bricks = numbers(8, 4)
    name = octets(8)


class House(Format, size=20):
    front = part(Colour)
    walls = parts(4, Colour)


def test_a_record_is_its_bytes():
    colour = Colour(red=0xABC, blue=0x12)
    assert colour.raw == bytes.fromhex("0abc1812")
    assert (colour.red, colour.green, colour.blue) == (0xABC, 3, 0x12)
    assert Colour.unpack(b"\xff" + colour.raw, 1) == colour
    assert Colour.pack(red=0xABC, blue=0x12) == bytes(colour)
    assert colour.as_dict() == {"red": 0xABC, "green": 3, "blue": 0x12}


def test_a_field_reads_and_writes_itself_in_a_buffer():
    buffer = bytearray(b"\xff" * 8)
    Colour.green.set(buffer, 0, 4)
    assert buffer.hex() == "ffffffff" + "ffff07ff"
    assert Colour.green.get(buffer, 4) == 0
    assert Colour.green.get(buffer) == 31


def test_reserved_bits_keep_their_received_values():
    came = Colour.unpack(b"\xff" * 4)
    assert came.raw == b"\xff" * 4
    assert came.replace(red=0).raw == bytes.fromhex("f000ffff")
    assert came != Colour(**came.as_dict())


def test_a_format_that_extends_another_continues_it():
    wall = Wall(bricks=(1, 2, 15), name=b"north", red=1)
    assert wall.raw == Colour(red=1, blue=9).raw + bytes.fromhex("12f00000") + b"north\0\0\0"
    assert wall.bricks == (1, 2, 15, 0, 0, 0, 0, 0)
    assert wall.name == b"north\0\0\0"
    assert Colour().blue == 0


def test_parts_are_records_themselves():
    house = House(front=Colour(red=1), walls=[Colour(blue=2), Colour(blue=3)])
    assert house.front.red == 1
    assert [wall.blue for wall in house.walls] == [2, 3, 0, 0]
    assert house.walls[2].green == 0  # filled up with zeros, not with blank ones


def test_a_record_cannot_change():
    with pytest.raises(AttributeError, match="replace"):
        Colour().red = 1
    assert len({Colour(red=1), Colour(red=1), Colour(red=2)}) == 2


def test_a_record_prints_names_without_reserved_fields():
    assert repr(AETH(syndrome=0x61, msn=12)) == "AETH(syndrome=NAK_INVALID_REQUEST, msn=0xc)"
    assert "opcode=0x1e" in repr(BTH(opcode=0x1E))


@pytest.mark.parametrize("value", [1 << 24, -1, np.int64(1 << 24)])
def test_a_number_that_does_not_fit_is_refused_by_name(value):
    with pytest.raises(ConfigError, match=r"BTH\.psn = -?0x\d+ does not fit in 24 bits"):
        BTH(psn=value)
    with pytest.raises(ConfigError, match=r"BTH\.psn = "):
        BTH.psn.set(bytearray(12), value)


def test_numbers_of_numpy_and_enums_are_numbers():
    assert BTH(psn=np.uint32(7), opcode=Opcode.RC_ACKNOWLEDGE) == BTH(psn=7, opcode=0x11)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bricks": [16]}, r"Wall\.bricks = 0x10 does not fit in 4 bits"),
        ({"bricks": [0] * 9}, r"Wall\.bricks has 8 entries, 9 do not fit"),
        ({"name": b"much too long"}, r"Wall\.name has 8 bytes, 13 do not fit"),
        ({"name": "north"}, r"Wall\.name cannot hold 'north'"),
        ({"red": "1"}, r"Wall\.red cannot hold '1'"),
        ({"red": 1.5}, r"Wall\.red cannot hold 1.5"),
    ],
)
def test_values_that_do_not_fit_are_refused_by_field_name(values, message):
    with pytest.raises(ConfigError, match=message):
        Wall(**values)


def test_a_part_of_another_format_is_refused():
    with pytest.raises(ConfigError, match=r"House\.front takes a Colour, not AETH"):
        House(front=AETH())


def test_a_field_that_is_not_there_suggests_a_near_one():
    with pytest.raises(UnknownName, match="no field of BTH 'dst_qp'; did you mean dest_qp"):
        BTH(dst_qp=1)


@pytest.mark.parametrize("buffer", [b"", b"123", bytearray(3), memoryview(b"12345")[2:]])
def test_too_few_bytes_are_malformed(buffer):
    with pytest.raises(Malformed, match="Colour at byte 0 needs 4 bytes"):
        Colour.unpack(buffer)


def test_fields_that_do_not_add_up_are_refused_when_declared():
    with pytest.raises(SimulationBug, match="Short is declared with 4 bytes, its fields have 24 bits"):

        class Short(Format, size=4):
            only = bits(24)


def test_a_name_that_comes_twice_is_refused_when_declared():
    with pytest.raises(SimulationBug, match=r"Twice\.red is declared twice"):

        class Twice(Colour, size=5):
            red = bits(8)


def test_bytes_between_bytes_are_refused_when_declared():
    with pytest.raises(SimulationBug, match=r"Crooked\.name has 8 bits and starts at bit 4"):

        class Crooked(Format, size=2):
            _ = reserved(4)
            name = octets(1)
            rest = bits(4)


def test_a_number_that_no_word_holds_is_refused_when_declared():
    with pytest.raises(SimulationBug, match=r"Wide\.middle has 63 bits and starts at bit 4"):

        class Wide(Format, size=16):
            _ = reserved(4)
            middle = bits(63)
            rest = bits(61)


def test_all_formats_are_found_by_name():
    result = formats()
    assert len(result) >= 120
    assert result["BTH"] is BTH
    assert "Colour" not in result
