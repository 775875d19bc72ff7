"""Files, functions and operations of version 1 keep working, as docs/compatibility.md promises."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from tests.compatibility.contracts import VERSION_1, of_python, of_rest

import weft
from weft.cli import main
from weft.errors import FileError
from weft.fabric import server_file
from weft.fabric.files.lab.document import FORMAT, Document
from weft.fabric.kinds import NodeKind
from weft.fabric.prices import read_prices
from weft.plan.floor.room import read_room
from weft.plan.phases import read_schedule
from weft.plan.spares import read_rates
from weft.sim.files import read_traffic
from weft.study import grid
from weft.tenants.intent import intent_of

FILES = VERSION_1 / "files"
READERS: dict[str, Callable[[Path], object]] = {
    "lab.yaml": weft.load,
    "lab.toml": weft.load,
    "server.yaml": lambda path: server_file.read(str(path)),
    "prices.toml": read_prices,
    "room.toml": read_room,
    "failures.toml": read_rates,
    "phases.toml": read_schedule,
    "tenants.toml": lambda path: intent_of(Document.load(path)),
}


def test_lab_files_are_read():
    fabric = weft.load(FILES / "lab.yaml")
    assert (len(fabric.servers), len(fabric.of_kind(NodeKind.SWITCH))) == (5, 3)
    slow, bad = fabric.find_port("leaf1/33").link, fabric.find_port("leaf2/33").link
    assert (slow.rate_gbit_s, bad.bit_error_rate) == (200, 1e-9)
    assert len(weft.load(FILES / "lab.toml").servers) == 2


def test_a_server_template_is_read():
    server = server_file.read(str(FILES / "server.yaml"))
    assert (server.gpu, server.height_u, server.nvlink_spread) == ("H200", 9, (4, 4, 4, 4))


def test_a_price_list_is_read():
    price = read_prices(FILES / "prices.toml").named("QM9700")
    assert (price.low_usd, price.high_usd, price.date) == (21_000, 25_000, date(2026, 11, 2))


def test_files_of_plans_are_read():
    assert (read_room(FILES / "room.toml").rack_u, read_room(FILES / "room.toml").switches) == (42, "end")
    assert read_rates(FILES / "failures.toml")["adapter"].per_year == 0.05
    schedule = read_schedule(FILES / "phases.toml")
    assert [(step.date, step.servers) for step in schedule.phase] == [(date(2027, 1, 15), 8), (date(2027, 6, 1), 32)]
    assert schedule.lead_weeks == {"switch": 30}


def test_an_intent_is_read():
    intent = intent_of(Document.load(FILES / "tenants.toml"))
    assert (intent.tenants["acme"].hosts, intent.services["nas"].hosts) == (("h[2-4]",), ("h8",))


def test_traffic_and_studies_are_read():
    assert len(read_traffic(FILES / "traffic.json", weft.load("star:hosts=3"))) == 2
    study = grid.read([str(FILES / "study.toml")], [])
    assert len(list(study.runs())) == 6


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("version", ["0", str(FORMAT + 1), '"new"'])
def test_a_newer_format_is_refused_with_its_line(name, version, tmp_path):
    text = (FILES / name).read_text(encoding="utf-8")
    path = tmp_path / name
    path.write_text(re.sub("^(format[:=]? =?) *1$", rf"\1 {version}", text, count=1, flags=re.M), encoding="utf-8")
    assert path.read_text(encoding="utf-8") != text
    with pytest.raises(FileError, match=r"format of files|whole number") as refused:
        READERS[name](path)
    assert text.splitlines()[refused.value.line - 1].startswith("format")


def test_the_command_line_says_which_format_it_reads(tmp_path, capsys, monkeypatch):
    (tmp_path / "new.yaml").write_text("format: 2\nhosts: {}\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["weft", "show", str(tmp_path / "new.yaml")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "new.yaml:1: '2' is not valid; expected 1, the format of files that this weft reads: upgrade weft" in error


def check(promised: list[str], present: list[str]) -> None:
    """Check that each line is still there with all its words, and that no argument became necessary."""
    now = {name: words.split() for name, _, words in (line.partition(": ") for line in present)}
    for name, _, text in (line.partition(": ") for line in promised):
        assert name in now, f"{name} is gone"
        then = text.split()
        assert {word.strip("[]") for word in then} <= {word.strip("[]") for word in now[name]}, name
        if not name.endswith(" answers"):
            assert {word for word in now[name] if not word.startswith("[")} <= {*then}, f"{name} needs more"


def test_functions_take_the_arguments_of_version_1():
    check((VERSION_1 / "python.txt").read_text(encoding="utf-8").splitlines(), of_python())


def test_rest_operations_take_and_answer_the_fields_of_version_1():
    check((VERSION_1 / "rest.txt").read_text(encoding="utf-8").splitlines(), of_rest())


def test_a_function_that_is_gone_or_needs_more_is_noticed():
    for present in ([], ["load: spec server"], ["load: [speed]"]):
        with pytest.raises(AssertionError):
            check(["load: spec"], present)
    check(["load: spec [server]"], ["load: [spec] [server] [speed]", "draw: fabric"])
    check(["GET /ports answers: guid"], ["GET /ports answers: guid name"])
