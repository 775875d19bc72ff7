"""The commands, run as a user runs them."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys

import pytest

from weft.cli import COMMANDS, app, main


def weft(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([os.environ["WEFT_WARM"], *arguments], capture_output=True, text=True, check=False)


def json_of(*arguments: str) -> object:
    done = weft(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_help_of_a_command_is_the_first_line_of_its_docstring():
    for name, line in COMMANDS.items():
        function = app[name].default_command
        assert (function.__doc__ or "").splitlines()[0] == line


def test_the_first_screen_has_one_line_for_each_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    app(["--help"])
    listed = capsys.readouterr().out.splitlines()
    for name, line in COMMANDS.items():
        assert any(row.strip("│ ").split() == [name, *line.split()] for row in listed), name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_help_page_has_the_whole_docstring_and_no_noise(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["weft", name, "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        main()
    page = capsys.readouterr().out
    assert end.value.code == 0
    for noise in ('[default: ""]', "[default: None]", "[default: False]", "--no-json"):
        assert noise not in page
    if name == "check":
        assert "The exit status is 1 if a pair is unreachable" in page


def test_help_imports_no_numpy():
    code = "import sys\nfrom weft.cli import app\napp(['--help'])\nassert 'numpy' not in sys.modules, 'slow'"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_show_counts_a_superpod():
    summary = json_of("show", "superpod:su=1")
    assert summary["servers"] == 32
    assert summary["nodes"]["GPU"] == 256
    assert [(tier["name"], tier["switches"]) for tier in summary["tiers"]] == [("leaf", 8), ("spine", 4)]
    assert summary["cabling_warnings"] == []


def test_show_prints_the_rates_of_tiers_in_tbit_s(capsys):
    app(["show", "superpod:su=1"])
    (leaf,) = (line.split() for line in capsys.readouterr().out.splitlines() if " leaf " in line and "QM9700" in line)
    assert leaf[-6:] == ["102.4", "102.4", "1", ":", "1", "0"]  # 256 links of 400 Gbit/s down and up


def test_show_shows_one_port_with_its_other_end():
    (port,) = json_of("show", "star:hosts=4,switch=QM9700", "h3/1")
    assert (port["peer"], port["rate_gbit_s"]) == ("leaf1/3", 400)


def test_show_says_that_lengths_of_a_topology_are_typical(capsys):
    app(["show", "superpod:su=1", "leaf1/1"])
    assert "`weft plan superpod:su=1` computes them from a floor plan" in capsys.readouterr().out
    app(["show", "superpod:su=1", "dgx1/gpu0"])  # no cable
    assert "typical" not in capsys.readouterr().out


def test_show_lists_the_ports_of_a_server():
    ports = json_of("show", "superpod:su=1", "dgx2")
    assert {"dgx2/mlx5_0/1", "dgx2/gpu7/1"} <= {port["port"] for port in ports}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "fat-tree:hosts=99999999,radix=36"), "fat-tree"),
        (("show", "fattree:hosts=4"), "did you mean fat-tree"),
        (("show", "no/such/file.txt"), "there is neither a file nor a topology 'no/such/file.txt'"),
        (("show", "star:hosts=4", "h9"), "there is no node, port or server 'h9'"),
        (("draw", "star:hosts=4", "-o", "picture.bmp"), ".svg"),
        (("catalog", "QM9701"), "did you mean QM9700"),
        (("export", "star:hosts=4"), "-o FILE"),
        (("export", "star:hosts=4", "-o", "x.unknown"), "x.unknown"),
        (("topologies", "taurus"), "did you mean torus"),
        (("shw", "star:hosts=4"), "show"),
        (("show",), "SPEC"),
    ],
)
def test_bad_input_gets_one_clear_error_and_status_2(arguments, words):
    done = weft(*arguments)
    assert done.returncode == 2, done
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_left_behind_when_writing_fails(tmp_path):
    done = weft("export", "star:hosts=4", "-o", str(tmp_path / "missing" / "x.graphml"))
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["topologies", "links", "catalog", "export"])
def test_every_list_has_a_table_and_the_same_as_json(name):
    table = weft(name)
    assert table.returncode == 0
    assert len(table.stdout.splitlines()) > 5
    assert len(json_of(name)) > 5


@pytest.mark.parametrize(
    ("arguments", "columns", "rows"),
    [
        (("links",), {"name", "rate_gbit_s.4x", "source"}, 30),
        (("topologies", "star"), {"name", "parameters.name", "parameters.default"}, None),
        (("show", "star:hosts=4", "leaf1"), {"port", "peer", "rate_gbit_s"}, None),
        (("show", "superpod:su=1"), {"table", "switches", "between", "count"}, 9),
        (("route", "torus:4x4"), {"engine", "verdict.vls", "quality.patterns.all-to-all.max_load"}, 1),
        (("route", "torus:4x4", "--compare"), {"engine", "calculation_s", "quality.bisection.mean"}, 4),
        (("perf", "write_bw", "h1", "h2", "star:hosts=2", "-s", "2,64K"), {"MsgSize", "BW_average"}, 2),
        (
            ("nccl", "all_reduce", "superpod:su=1", "--servers", "2", "-b", "1M", "-e", "2M"),
            {"size", "in_place.time"},
            2,
        ),
        (("sim", "star:hosts=4"), {"seed", "goodput_gbit_s", "latency_us.p50"}, 1),
        (("scenario",), {"scenario", "question"}, 16),
    ],
)
def test_every_table_is_there_as_csv(arguments, columns, rows):
    done = weft(*arguments, "--csv")
    assert done.returncode == 0, done.stderr
    result = list(csv.DictReader(io.StringIO(done.stdout)))
    assert columns <= set(result[0])
    assert len(result) == rows or (rows is None and result)


def test_every_command_that_has_json_has_csv():
    for name in COMMANDS:
        flags = {flag for argument in app[name].assemble_argument_collection() for flag in argument.names}
        assert ("--json" in flags) == ("--csv" in flags), name


def test_one_form_at_a_time():
    done = weft("links", "--json", "--csv")
    assert done.returncode == 2
    assert done.stderr == "weft: use --json or --csv, not both\n"


def test_exported_files_load_again(tmp_path):
    path = tmp_path / "net.txt"
    assert weft("export", "fat-tree:hosts=32,radix=8", "-o", str(path), "--format", "ibnetdiscover").returncode == 0
    before, after = json_of("show", "fat-tree:hosts=32,radix=8"), json_of("show", str(path))
    for field in ("nodes", "servers"):
        assert before[field] == after[field]
    assert [tier["switches"] for tier in before["tiers"]] == [tier["switches"] for tier in after["tiers"]]


def test_draw_by_load_knows_the_cables_of_hosts(tmp_path):
    """All 16 send to all: 15 flows on each of their cables, and each cable has a colour."""
    path = tmp_path / "load.svg"
    assert weft("draw", "fat-tree:hosts=16,radix=8", "-o", str(path), "--colour-by", "load").returncode == 0
    text = path.read_text()
    assert "h1/1 - leaf1/1\n4xNDR, 400 Gbit/s" in text
    assert text.count("flows, all to all 15<") == 2 * 16  # for a line and for its end at the host
    assert "unknown" not in text


def test_draw_writes_the_picture(tmp_path):
    path = tmp_path / "star.svg"
    done = weft("draw", "star:hosts=4", "-o", str(path))
    assert done.returncode == 0, done.stderr
    assert "<svg" in path.read_text()
