"""`weft audit`, as the command line calls it."""

from __future__ import annotations

import json
import sys

import pytest

from weft.cli import main
from weft.fabric import faults, files
from weft.plan.audit.positions import read_plan


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs `weft audit` and returns the status, the output and the errors."""

    def one(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["weft", "audit", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return int(end.value.code), printed.out, printed.err

    return one


@pytest.fixture(scope="module")
def schedule(tmp_path_factory):
    """Return a cable schedule as a plan writes it: spine1 in the first row, the leaves in the second, one above the
    other.
    """
    stands = {"spine1": ("A02", 40), "leaf1": ("B01", 40), "leaf2": ("B01", 42), "h1": ("B01", 3), "h2": ("B03", 1)}
    cables = [("h1/1", "leaf1/1"), ("h2/1", "leaf2/1"), ("leaf1/2", "spine1/1"), ("leaf2/2", "spine1/2")]
    lines = ["cable,tier,label_a,label_b,port_a,rack_a,u_a,port_b,rack_b,u_b,speed,length_m"]
    for number, (a, b) in enumerate(cables, start=1):
        (rack_a, u_a), (rack_b, u_b) = (stands[port.rpartition("/")[0]] for port in (a, b))
        lines.append(f"{number},x,,,{a},{rack_a},{u_a},{b},{rack_b},{u_b},4xNDR,3")
    folder = tmp_path_factory.mktemp("plan")
    (folder / "cables.csv").write_text("\n".join(lines) + "\n")
    return folder


def found_in(folder, *broken):
    result = read_plan(str(folder)).fabric
    for change in broken:
        result = change(result)
    files.write(result, folder / "found.ibnetdiscover")
    return folder / "found.ibnetdiscover"


def test_the_walk_goes_row_by_row_and_from_the_top_down(run, schedule):
    """And a plan may be a folder; the real cabling comes from ibnetdiscover."""
    result = found_in(
        schedule,
        lambda fabric: faults.slow(fabric, "leaf1/1", "1xNDR"),
        lambda fabric: faults.slow(fabric, "leaf2/1", "1xNDR"),
        lambda fabric: faults.slow(fabric, "spine1/2", "1xNDR"),
        lambda fabric: faults.kill(fabric, "h1"),
    )
    status, printed, _ = run(result, "--plan", schedule, "--json")
    assert status == 1
    assert [action["text"] for action in json.loads(printed)["walk"]] == [
        "A02-U40 spine1/2: reseat or replace the cable to B01-U42 leaf2/2",
        "B01-U42 leaf2/1: reseat or replace the cable to B03-U1 h2/1",
        "B01-U3 h1: rack it or switch it on, with its 1 cable",
    ]
    assert json.loads(printed)["findings"][0]["cables"] == [
        {"a": "leaf2/2", "b": "spine1/2", "label": "B01-U42 leaf2/2 > A02-U40 spine1/2"}
    ]


def test_as_planned_is_status_0(run, schedule):
    plan = schedule / "cables.csv"
    assert run(found_in(schedule), "--plan", plan) == (
        0,
        f"4 of 4 cables of {plan} are as planned: nothing to do\n",
        "",
    )


def test_another_fabric_is_refused_with_what_was_compared(run, schedule):
    status, _, complaint = run("torus:2x2,server=dgx-h100", "--plan", schedule)
    assert status == 2
    assert "dgx1/mlx5_0, dgx1/mlx5_3, dgx1/mlx5_4, ... against h1, leaf1, h2, ...) or GUID" in complaint
