from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.units import (
    format_count,
    format_gbit_s,
    format_items,
    format_size_bytes,
    gbyte_s,
    parse_count,
    parse_share,
    parse_size_bytes,
    transfer_ps,
)


def test_a_4_kib_packet_takes_81920_ps_at_400_gbit_s():
    assert transfer_ps(4096, 400) == 81_920


def test_ndr_carries_50_gbyte_s():
    assert gbyte_s(400) == 50


@pytest.mark.parametrize(("text", "size"), [("8", 8), ("4K", 4096), ("1m", 1 << 20), ("8G", 8 << 30), ("2KiB", 2048)])
def test_sizes_are_powers_of_1024_as_in_nccl_tests(text, size):
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1024, "1K"),
        (1536, "1536"),
        (3 << 20, "3M"),
        (8 << 30, "8G"),
        (1 << 40, "1T"),
    ],
)
def test_a_size_is_written_in_the_largest_unit_that_divides_it(size, text):
    assert format_size_bytes(size) == text


@given(st.integers(min_value=1, max_value=1 << 45))
def test_a_size_that_is_written_reads_as_itself(size):
    assert parse_size_bytes(format_size_bytes(size)) == size


@given(st.text(max_size=8))
def test_no_text_makes_the_size_parser_fail_otherwise(text):
    try:
        assert parse_size_bytes(text) >= 0
    except ConfigError as error:
        assert repr(text) in str(error)  # noqa: PT017


def test_rates_print_as_short_as_they_are_true():
    assert [format_gbit_s(r) for r in (400, 13.636363, 2.5, 1600)] == ["400", "13.64", "2.5", "1,600"]


def test_counts_are_powers_of_a_thousand():
    assert [parse_count("tokens", text) for text in ("7", "500M", "300b", "1.5T")] == [7, 500e6, 300e9, 1.5e12]
    assert [format_count(count) for count in (7, 500e6, 300e9, 1.5e12)] == ["7", "500M", "300B", "1.5T"]
    for wrong in ("", "T", "-1B", "0", "nan", "inf", "15X"):
        with pytest.raises(ConfigError, match="write 500M, 300B or 15T"):
            parse_count("tokens", wrong)


def test_one_item_is_singular():
    assert format_items(1, "switch") == "1 switch"
    assert [format_items(count, noun) for count, noun in ((0, "MAD"), (1024, "switch"))] == ["0 MADs", "1,024 switches"]


def test_shares_are_read_as_percent_or_as_fraction():
    assert [parse_share(text) for text in ("80%", "0.8", "1", "100%", "0")] == [0.8, 0.8, 1, 1, 0]
    for wrong in ("", "%", "80", "-1%", "101%", "nan"):
        with pytest.raises(ConfigError, match=r"write 80% or 0\.8"):
            parse_share(wrong)
