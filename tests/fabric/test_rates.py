"""Line speeds against the closed form (lanes × signal × code) and against what their names promise."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError, UnknownName
from weft.fabric.rates import Technology, parse_label, speed, speeds


@pytest.mark.parametrize(
    ("label", "rate_gbit_s"),
    [
        ("1xSDR", 2.5 * 8 / 10),
        ("12xSDR", 24),
        ("4xDDR", 16),
        ("4xQDR", 32),
        ("4xFDR10", 40),
        ("4xFDR", 4 * 14.0625 * 64 / 66),  # 54.55: sold as 56
        ("4xEDR", 100),
        ("2xHDR", 100),  # sold as HDR100
        ("4xHDR", 200),
        ("4xNDR", 400),
        ("4xXDR", 800),
        ("4xGDR", 1600),
        ("OPA-100", 100),
        ("OPA-400", 400),
        ("NVLink3", 25 * 8),  # 25 GB/s each way
        ("NVLink4", 25 * 8),
        ("NVLink5", 50 * 8),
        ("16xPCIe3", 16 * 8 * 128 / 130),
        ("16xPCIe4", 16 * 16 * 128 / 130),
        ("8xPCIe5", 8 * 32 * 128 / 130),
        ("16xPCIe6", 16 * 64 * 236 / 256),
    ],
)
def test_data_rate_is_lanes_times_signal_times_code(label: str, rate_gbit_s: float) -> None:
    line, width = parse_label(label)
    assert line.rate_gbit_s(width) == pytest.approx(rate_gbit_s, rel=1e-12)


def test_ethernet_speeds_keep_the_promise_of_their_names() -> None:
    ethernet = [line for line in speeds() if line.technology is Technology.ETHERNET]
    assert len(ethernet) >= 8
    for line in ethernet:
        assert line.rate_gbit_s() == pytest.approx(int(line.name.removesuffix("GbE")), rel=1e-12), line.name


def test_generations_of_the_published_table() -> None:
    """EDR 2014, HDR 2019, NDR 2022, XDR 2024, GDR still to come: each doubles the last."""
    table = {"EDR": (100, 2014), "HDR": (200, 2019), "NDR": (400, 2022), "XDR": (800, 2024), "GDR": (1600, None)}
    assert {name: (speed(name).rate_gbit_s(), speed(name).year) for name in table} == table


def test_a_name_without_width_means_the_usual_one() -> None:
    assert parse_label("NDR") == (speed("NDR"), 4)
    assert parse_label("PCIe5") == (speed("PCIe5"), 16)
    assert parse_label("800GbE") == (speed("800GbE"), 8)


def test_labels_round_trip_for_every_speed_and_width() -> None:
    for line in speeds():
        for width in line.widths:
            assert parse_label(line.label(width)) == (line, width)
            assert parse_label(line.label(width).lower()) == (line, width)


def test_index_is_the_place_in_the_list() -> None:
    assert [line.index for line in speeds()] == list(range(len(speeds())))
    assert len({line.name.lower() for line in speeds()}) == len(speeds())


def test_unknown_speed_suggests_near_ones() -> None:
    with pytest.raises(UnknownName, match=r"there is no speed 'NDRR'; did you mean .*NDR"):
        speed("NDRR")


def test_a_width_that_the_speed_does_not_have_names_those_it_has() -> None:
    with pytest.raises(ConfigError, match="NDR has no width 3x: it comes in 1x, 2x, 4x, 8x, 12x"):
        parse_label("3xNDR")
    with pytest.raises(ConfigError, match="400GbE has no width 2x"):
        parse_label("2x400GbE")


@pytest.mark.parametrize("label", ["", "4x", "x", "4xNDR!", "4 x NDR", "-4xNDR"])
def test_malformed_labels_are_refused_with_an_example(label: str) -> None:
    with pytest.raises(ConfigError, match=r"write 4xNDR|did you mean|there is no speed"):
        parse_label(label)
