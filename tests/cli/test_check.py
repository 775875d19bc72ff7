"""`weft check`, run as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

import weft
from weft.cli import app
from weft.fabric.files.opensm import write_dumps
from weft.routing.engine import Options
from weft.routing.route import route


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [os.environ["WEFT_WARM"], "check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=["min-hop", "up-down"])
def dumps(request, tmp_path_factory):
    """A torus routed by an engine whose tables can deadlock, and by one whose cannot."""
    folder = tmp_path_factory.mktemp(request.param)
    write_dumps(route(weft.load("torus:5x5"), Options(engine=request.param)).fabric, folder)
    return request.param == "up-down", folder


def test_the_verdict_is_in_words_and_in_the_status(dumps):
    sound, folder = dumps
    done = run(folder / "opensm-subnet.lst", "--tables", folder, "--hosts-only")
    assert done.returncode == (0 if sound else 1)
    printed = " ".join(done.stdout.split())  # a long path wraps the lines elsewhere
    assert "600 of 600 pairs arrive" in printed
    assert ("no credit loop" in printed) == sound
    assert ("holds sw" in printed) == (not sound)


def test_tables_may_be_one_file_and_the_fabric_another(dumps):
    """LIDs come with the directory; a file of routes goes with those of the fabric."""
    sound, folder = dumps
    assert run("torus:5x5", "--tables", folder).returncode == (0 if sound else 1)
    assert run(folder / "opensm-subnet.lst", "--tables", folder / "opensm-lfts.dump").returncode == (0 if sound else 1)


def test_json_has_all_of_the_verdict(dumps):
    sound, folder = dumps
    verdict = json.loads(run(folder / "opensm-subnet.lst", "--tables", folder, "--json").stdout)
    assert verdict["ok"] == sound
    assert verdict["missing"] == 0
    assert verdict["pairs"] == 50 * 49 == sum(verdict["hops"].values())
    assert bool(verdict["credit_loop"]) == (not sound)


def test_a_fabric_without_tables_is_refused_with_the_way_out():
    done = run("torus:5x5")
    assert done.returncode == 2
    assert "--tables" in done.stderr
    assert "weft route" in done.stderr


def test_tables_of_another_fabric_are_refused(dumps):
    done = run("torus:4x4", "--tables", dumps[1])
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_lanes_of_a_dump_are_read_back_and_their_absence_is_said(tmp_path):
    """Two VLs make a 6x6 torus free of deadlock; without the files of VLs this cannot be checked."""
    write_dumps(route(weft.load("torus:6x6")).fabric, tmp_path)
    done = run("torus:6x6", "--tables", tmp_path)
    assert done.returncode == 0
    assert "2 lanes, no credit loop" in done.stdout
    for name in ("opensm.psl", "opensm.slvl"):
        (tmp_path / name).unlink()
    done = run("torus:6x6", "--tables", tmp_path)
    assert done.returncode == 1
    assert "lanes unknown, a credit loop if all share one" in done.stdout
    assert "can deadlock" not in done.stdout


def test_brackets_in_the_name_of_a_file_are_printed(tmp_path, capsys):
    """They are not parsed as markup: `[red]` would vanish."""
    folder = tmp_path / "[red]"
    folder.mkdir()
    write_dumps(route(weft.load("star:hosts=2"), Options()).fabric, folder)
    app(["check", str(folder / "opensm-subnet.lst"), "--tables", str(folder)])
    assert "[red]" in capsys.readouterr().out


def test_all_subnets_of_a_fabric_are_checked(capsys):
    app(["check", "subnets:2,of=star:hosts=2", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ok"], facts["routers"], facts["router_loop"], facts["missing"]) == (True, 1, [], 0)
    assert [(subnet["spec"], subnet["pairs"]) for subnet in facts["subnets"]] == [("subnet 1", 12), ("subnet 2", 12)]
