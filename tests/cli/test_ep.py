"""`weft ep`: tables, data and errors."""

from __future__ import annotations

import json

import pytest

from weft.cli import app
from weft.errors import ConfigError

FOUR = "star:hosts=4,server=dgx-h100"


def test_table_has_both_calls_for_each_number_of_tokens(capsys):
    app(["ep", FOUR, "--num-tokens", "128,4096", "--topk-groups", "2"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:2] for line in lines if line[1:2] in (["dispatch"], ["combine"])] == [
        ["128", "dispatch"],
        ["128", "combine"],
        ["4,096", "dispatch"],
        ["4,096", "combine"],
    ]


def _time_us(capsys, *flags: str) -> float:
    app(["ep", FOUR, "--json", *flags])
    return json.loads(capsys.readouterr().out)[0]["dispatch"]["time_us"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--kernel", "deepep-ll"),
        ("--num-tokens", "8192"),
        ("--topk", "4"),
        ("--experts", "32"),
        ("--topk-groups", "1"),
        ("--hidden", "4096"),
        ("--dispatch", "bf16"),
        ("--balanced",),
        ("--sms", "2"),
        ("--ep", "16"),
        ("--servers", "2"),
        ("--fault", "slow:dgx1/mlx5_0/1=4xHDR"),
    ],
)
def test_every_option_changes_the_time(flags, capsys):
    assert _time_us(capsys, *flags) != _time_us(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FOUR, "--num-tokens", "many"), "give numbers separated by commas"),
        ((FOUR, "4096"), "give the tokens with --num-tokens 4096"),
        ((FOUR, "--ep", "12"), "a multiple of 8"),
        ((FOUR, "--ep", "8", "--topk-groups", "1"), "--topk-groups changes nothing"),
        ((f"{FOUR},speed=400GbE", "--network", "tcp"), "give --kernel pairs"),
        (("calibration", "h100-99"), "weft ep calibration"),
    ],
)
def test_mistakes_name_the_flag(arguments, message):
    with pytest.raises(ConfigError, match=message):
        app(["ep", *arguments])


def test_published_runs_are_listed_and_shown(capsys):
    app(["ep", "calibration"])
    assert "mean absolute error" in capsys.readouterr().out
    app(["ep", "calibration", "mori-mi300x"])
    assert "Source: github.com/ROCm/mori" in capsys.readouterr().out
    app(["ep", "calibration", "--json"])
    assert len(json.loads(capsys.readouterr().out)) == 72
