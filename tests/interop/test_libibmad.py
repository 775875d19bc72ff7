"""rdma-core's libibmad, the library under ibstat, smpquery and perfquery, checks the position of every field of a MAD.

It has one table of all its fields, in an order that is part of its binary interface; libibmad_fields.txt has weft's
names in the same order. libibmad must write each field at the position that weft declares.
"""

from __future__ import annotations

import ctypes
import random
import re
from pathlib import Path

import pytest

from weft.wire import formats
from weft.wire.fields import Field, Numbers, Part

pytestmark = pytest.mark.interop
LAST = 665  # in rdma-core 44; later versions add fields of XDR
# Five fields were added to libibmad without its macro for the order of halves in a word: it swaps VL15Dropped with
# QP1Dropped, and so on. OpenSM's structures have the same positions as weft.
SWAPPED = {
    659: ("PortCounters", "qp1_dropped"),
    660: ("PortInfoExtended", "hdr_fec_mode_supported"),
    661: ("PortInfoExtended", "hdr_fec_mode_enabled"),
    663: ("PortInfoExtended", "ndr_fec_mode_supported"),
    664: ("PortInfoExtended", "ndr_fec_mode_enabled"),
}


def read_table() -> list[tuple[int, str, int, str]]:
    """Return index, format, base and field for each field of libibmad; `guid*2` becomes `guid*0` and `guid*1`."""
    text = re.sub(r"#.*", "", (Path(__file__).parent / "libibmad_fields.txt").read_text(encoding="ascii"))
    table = []
    for entry in re.split(r"\n(?=\d)", text.strip()):
        first, form, *names = entry.split()
        base = int(names.pop(0)) if names[0].startswith("+") else 0
        spelled = []
        for name in names:
            field, _, count = name.partition("*")
            spelled += [f"{field}*{i}" for i in range(int(count))] if count else [field]
        table += [(int(first) + i, form, base, name) for i, name in enumerate(spelled)]
    return table


TABLE = read_table()


def locate(form: str, name: str) -> tuple[int, int]:
    """Return the first bit and the width of a field, of a part's field, or of an entry of a table."""
    name, _, entry = name.partition("*")
    inside, bit = formats()[form], 0
    for step in name.split("."):
        field: Field = inside.fields[step]
        bit += field.bit
        inside = field.form if isinstance(field, Part) else inside
    return (bit + int(entry) * field.each, field.each) if isinstance(field, Numbers) else (bit, field.width)


@pytest.fixture(scope="module")
def libibmad(peer):
    peer("ibstat")
    library = ctypes.CDLL("libibmad.so.5")
    library.mad_field_name.restype = ctypes.c_char_p
    library.mad_set_field64.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint64]
    library.mad_set_field.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint32]
    return library


def set_by_libibmad(library, index: int, width: int, value: int) -> int:
    """Return, as one large number, a buffer of 512 zeros in which libibmad wrote a field."""
    buffer = ctypes.create_string_buffer(512)
    if width > 64:
        library.mad_set_array(buffer, 0, index, ctypes.create_string_buffer(value.to_bytes(width // 8, "big")))
    elif width == 64:
        library.mad_set_field64(buffer, 0, index, value)
    else:
        library.mad_set_field(buffer, 0, index, value)
    return int.from_bytes(buffer.raw, "big")


def test_the_table_has_every_field_of_libibmad(libibmad):
    assert [index for index, *_ in TABLE] == list(range(3, LAST + 1))
    assert libibmad.mad_field_name(LAST - 1) == b"NDRFECModeEnabled"
    named = {index for index in range(3, LAST + 1) if libibmad.mad_field_name(index)}
    assert {index for index, _, _, name in TABLE if name != "-"} < named


def test_every_field_lies_where_libibmad_has_it(libibmad):
    checked = [entry for entry in TABLE if entry[3] != "-"]
    assert len(checked) == 598
    for index, form, base, name in checked:
        bit, width = locate(form, name)
        for value in (1, (1 << width) - 1, random.Random(index).getrandbits(width)):
            theirs = set_by_libibmad(libibmad, index, width, value)
            assert theirs == value << 8 * (512 - base) - bit - width, f"{libibmad.mad_field_name(index)} {form}.{name}"


@pytest.mark.parametrize("index", SWAPPED)
def test_a_field_that_libibmad_swaps_lies_in_the_same_word(libibmad, index):
    bit, width = locate(*SWAPPED[index])
    theirs = 8 * 512 - set_by_libibmad(libibmad, index, width, (1 << width) - 1).bit_length()
    assert theirs in (bit, bit ^ 16)
