"""`weft route`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest

import weft
from weft.cli import app
from weft.errors import ConfigError
from weft.fabric.build import FabricBuilder
from weft.fabric.files import write
from weft.fabric.files.opensm import read_fdbs
from weft.fabric.kinds import NodeKind
from weft.routing import ENGINES
from weft.routing.engine import Options
from weft.routing.route import route as route_fabric

TREE = "fat-tree:hosts=32,radix=8"
TORUS = "torus:4x4,hosts=2"


def run(*arguments: str) -> None:
    app(["route", *arguments])


def json_of(capsys, *arguments: str) -> dict:
    run(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def test_json_says_what_was_asked_and_found(capsys):
    facts = json_of(capsys, TREE, "--routing-engine", "fat-tree", "--seed", "7")
    assert facts["weft"] == weft.__version__
    assert facts["spec"] == TREE
    assert (facts["seed"], facts["options"]["engine"], facts["engine"]) == (7, "fat-tree", "fat-tree")
    assert facts["verdict"]["ok"]
    assert facts["verdict"]["missing"] == 0
    (all_to_all, ring) = facts["quality"]["patterns"].values()
    assert (all_to_all["max_load"], ring["max_load"]) == (28, 1)
    assert facts["quality"]["histogram"] == {"load": [28], "links": [64]}
    assert 0 < facts["quality"]["bisection"]["standard_error"] < facts["quality"]["bisection"]["mean"] < 1


def test_the_seed_decides_the_bisections(capsys):
    means = [json_of(capsys, TREE, "--seed", seed)["quality"]["bisection"]["mean"] for seed in ("1", "1", "2")]
    assert means[0] == means[1] != means[2]


def test_the_text_names_engine_verdict_and_quality(capsys):
    run("superpod:su=1", "--routing-engine", "fat-tree")
    printed = capsys.readouterr().out
    for words in ("fat-tree: complete", "no credit loop", "rails", "worst shift", "Effective bisection", "seed 1"):
        assert words in printed


def test_figures_of_equal_planes_are_those_of_one(capsys):
    run("star:hosts=4,planes=2")
    assert "2 equal planes: the figures are those of one." in capsys.readouterr().out


def test_auto_says_why(capsys):
    run(TREE)
    assert "not dimension-order: " in capsys.readouterr().out


def test_compare_tells_of_every_engine(capsys):
    facts = json_of(capsys, TREE, "--compare")
    routed = {entry["engine"] for entry in facts["engines"]}
    assert routed | facts["cannot"].keys() == set(ENGINES)
    assert not routed & facts["cannot"].keys()
    assert {"fat-tree", "dfsssp", "up-down", "min-hop"} <= routed
    assert facts["auto"] == "fat-tree"
    assert all(entry["calculation_s"] > 0 for entry in facts["engines"])
    run(TREE, "--compare")
    printed = capsys.readouterr().out
    assert "fat-tree *" in printed
    assert all(f"not {name}: " in printed for name in facts["cannot"])


def test_tables_that_can_deadlock_are_shown_with_their_loop_and_status_1(capsys):
    with pytest.raises(SystemExit) as stopped:
        run(TORUS, "--routing-engine", "min-hop")
    assert stopped.value.code == 1
    assert "credit loop of" in capsys.readouterr().out


def test_a_comparison_shows_the_loop_and_goes_on(capsys):
    facts = json_of(capsys, TORUS, "--compare")
    verdicts = {entry["engine"]: entry["verdict"]["ok"] for entry in facts["engines"]}
    assert not verdicts["min-hop"]
    assert verdicts[facts["auto"]]


def test_a_dump_holds_the_tables(tmp_path, capsys):
    folder = tmp_path / "new" / "dump"
    run(TREE, "--routing-engine", "fat-tree", "--dump", str(folder))
    assert {"opensm-subnet.lst", "opensm.fdbs"} <= {path.name for path in folder.iterdir()}
    assert f"{folder}: written" in capsys.readouterr().out
    read = weft.load(str(folder / "opensm-subnet.lst"))
    read_fdbs(folder / "opensm.fdbs", read)
    tables = route_fabric(weft.load(TREE), Options(engine="fat-tree")).tables
    row = read.tables.switch_row[[read.find_node(f"leaf{n}").index for n in range(1, 9)]]
    assert np.array_equal(read.tables.lft[row][:, 1:33], tables.lft[:8, 1:33])


def test_a_dump_tells_of_the_lanes_where_there_are_several(tmp_path):
    run("torus:5x5", "--routing-engine", "dimension-order", "--dump", str(tmp_path / "several"))
    run(TREE, "--routing-engine", "fat-tree", "--dump", str(tmp_path / "one"))
    lanes = {"opensm.psl", "opensm.slvl"}
    assert lanes <= {path.name for path in (tmp_path / "several").iterdir()}
    assert not lanes & {path.name for path in (tmp_path / "one").iterdir()}


@pytest.mark.parametrize("more", [(), ("--compare",)])
def test_a_picture_is_drawn(tmp_path, capsys, more):
    path = tmp_path / "loads.svg"
    run(TREE, "--picture", str(path), *more)
    assert "<svg" in path.read_text()
    assert f"{path}: written" in capsys.readouterr().out


def test_several_lids_per_port(capsys):
    assert json_of(capsys, TREE, "--lmc", "1")["verdict"]["pairs"] > json_of(capsys, TREE)["verdict"]["pairs"]


def test_the_root_can_be_named(capsys):
    spread = [
        json_of(capsys, TORUS, "--routing-engine", "up-down", "--root", root)["quality"]["patterns"]["all-to-all"][
            "worst_link"
        ]
        for root in ("sw1", "sw11")
    ]
    assert spread[0] != spread[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((TREE, "--routing-engine", "fattree"), "did you mean fat-tree"),
        ((TREE, "--compare", "--dump", "x"), "leave out"),
        ((TREE, "--compare", "--routing-engine", "min-hop"), "leave out"),
        ((TREE, "--picture", "loads.jpg"), ".png, .svg, .pdf"),
        ((TREE, "--seed", "-1"), "--seed must be 0 or more"),
        ((TREE, "--root", "h99", "--routing-engine", "up-down"), "h99"),
        ((TREE, "--root", "h1", "--routing-engine", "up-down"), "h1 is not a switch"),
        ((TREE, "--lmc", "9"), "--lmc must be 0 to 7"),
        ((TREE, "--dump", "/dev/null/x"), "/dev/null/x"),
    ],
)
def test_bad_input_gets_one_clear_error(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        run(*arguments)
    assert words in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def islands(tmp_path) -> str:
    """The path of a fabric of two stars without a link between them."""
    builder = FabricBuilder("two islands")
    switches = builder.add_nodes(NodeKind.SWITCH, ["east", "west"], n_ports=4)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2", "h3", "h4"], n_ports=1)
    builder.add_links(hosts, 1, switches[[0, 0, 1, 1]], [1, 2, 1, 2], "NDR")
    path = tmp_path / "islands.yaml"
    write(builder.build(), path)
    return str(path)


@pytest.mark.parametrize("more", [(), ("--compare",)])
def test_islands_are_named(islands, more):
    done = subprocess.run(
        [os.environ["WEFT_WARM"], "route", islands, *more], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "east" in done.stderr
    assert "west" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("fault", ["cut:leaf3/9", "dead:spine2", "dead:h7"])
def test_entries_changed_by_a_fault_are_counted(fault, capsys):
    app(["route", "fat-tree:hosts=128,radix=16", "--fault", fault, "--json"])
    output = json.loads(capsys.readouterr().out)
    assert output["verdict"]["ok"]
    assert fault.split(":")[1] in output["changes"][-1]
    assert output["changed_entries"] < 500
    assert (output["changed_entries"] == 0) == (fault == "dead:h7")


def test_a_fabric_with_one_host_has_tables_and_a_proof_and_no_traffic(capsys, tmp_path):
    facts = json_of(capsys, "star:hosts=1", "--dump", str(tmp_path / "tables"))
    assert facts["verdict"]["ok"]
    assert facts["quality"] is None
    assert (tmp_path / "tables" / "guid2lid").is_file()
    run("star:hosts=1", "--compare")
    assert "min-hop" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no two hosts"):
        run("star:hosts=1", "--picture", str(tmp_path / "load.png"))
