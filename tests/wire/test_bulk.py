"""Arrays of records have the bytes of single ones."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import ConfigError, UnknownName
from weft.wire import formats, kernels
from weft.wire.bulk import column, fill, pack_rows
from weft.wire.fields import Bits, Wide
from weft.wire.headers import BTH, GRH, Opcode
from weft.wire.perf import PortCounters
from weft.wire.smp import LinearForwardingTable

FORMATS = formats()


def number_fields(name: str) -> list[Bits]:
    return [field for field in FORMATS[name].fields.values() if isinstance(field, Bits) and not isinstance(field, Wide)]


def random_columns(name: str, count: int) -> dict[str, np.ndarray]:
    source = np.random.default_rng(len(name))
    return {
        field.name: source.integers(0, (1 << field.width) - 1, count, dtype=np.uint64, endpoint=True)
        for field in number_fields(name)
    }


@pytest.mark.parametrize("name", [name for name in FORMATS if number_fields(name)])
def test_rows_are_the_bytes_of_records(name):
    columns = random_columns(name, 5)
    rows = pack_rows(FORMATS[name], 5, **columns)
    for i, row in enumerate(rows):
        assert row.tobytes() == FORMATS[name].pack(**{field: int(values[i]) for field, values in columns.items()})
    for field, values in columns.items():
        assert np.array_equal(column(rows, FORMATS[name].fields[field]), values)


def test_a_single_value_is_for_all_rows():
    rows = pack_rows(BTH, 3, opcode=Opcode.RC_SEND_ONLY, psn=[7, 8, 9])
    assert rows.tobytes() == b"".join(BTH.pack(opcode=Opcode.RC_SEND_ONLY, psn=psn) for psn in (7, 8, 9))


def test_defaults_are_those_of_the_format():
    assert pack_rows(GRH, 2).tobytes() == 2 * GRH.blank


def test_a_format_may_start_anywhere_in_a_row():
    rows = np.full((4, 20), 0xFF, np.uint8)
    fill(rows, PortCounters.port_select, np.arange(4), base=7)
    assert rows[:, 8].tolist() == [0, 1, 2, 3]
    assert np.array_equal(column(rows, PortCounters.port_select, base=7), np.arange(4, dtype=np.uint64))
    assert (np.delete(rows, 8, axis=1) == 0xFF).all()


@pytest.mark.parametrize("wrong", [1 << 24, -1])
def test_a_value_that_does_not_fit_is_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=r"BTH\.psn = -?0x\w+ does not fit in 24 bits"):
        pack_rows(BTH, 3, psn=[1, wrong, 2])


def test_fields_that_are_no_numbers_are_refused():
    with pytest.raises(ConfigError, match=r"BTH\.psn takes one whole number or 3, not 2 of int64"):
        pack_rows(BTH, 3, psn=np.array([1, 2]))
    with pytest.raises(ConfigError, match=r"BTH\.psn takes one whole number or 3, not 1 of float64"):
        pack_rows(BTH, 3, psn=1.5)
    with pytest.raises(ConfigError, match=r"LinearForwardingTable\.port is not a number of up to 64 bits"):
        pack_rows(LinearForwardingTable, 1, port=1)
    with pytest.raises(UnknownName, match="no field of BTH 'dqpn'"):
        pack_rows(BTH, 1, dqpn=1)


@pytest.mark.parametrize("width", [1, 7, 8, 13, 24, 57, 64])
def test_the_kernels_interpreted_write_the_same_bits(width):
    """Other kernels use `put` and `take`; the test covers all positions in a byte."""
    for bit in range(3, 12):
        value = 0x5A3C_96E1_7B2D_48F0 >> 64 - width if width < 64 else -0x5A3C_96E1_7B2D_4810
        rows = np.full((1, 12), 0xFF, np.uint8)
        kernels.write_column(rows, bit, width, np.array([value]))
        whole = int.from_bytes(rows.tobytes(), "big")
        mask = (1 << width) - 1
        shift = 96 - bit - width
        assert whole >> shift & mask == value & mask
        assert whole | mask << shift == (1 << 96) - 1
        interpreted = np.full(12, 0xFF, np.uint8)
        kernels.put.py_func(interpreted, bit, width, np.int64(value))
        assert interpreted.tobytes() == rows.tobytes()
        assert kernels.take.py_func(interpreted, bit, width) == value
