"""Tables and prose fit 80 columns: the commands of the documents run with COLUMNS=80."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from contextlib import suppress

import pytest
from tests.documents import ROOT, all_blocks
from tests.patience import PATIENCE_S
from tests.warm import WARM

from weft.cli import app
from weft.errors import WeftError
from weft.lab import control, registry

WIDTH = 80
# `nccl`, `osu`, `perf` and `diag` print what nccl-tests, OSU's programs, perftest and infiniband-diags print, `export`
# the formats of other tools; commands of labs run below; scenarios have a test of their own.
_TABLES = {"advise", "audit", "catalog", "check", "compare", "grow", "path", "plan", "replay", "route", "show", "sim"}
_TABLES |= {"server", "train"}
_WRITES = {"--picture", "--picture-queue", "--picture-watch", "--picture-cdf", "--write-messages", "--write-samples"}
_WRITES |= {"--report", "--folder", "--timeline", "--trace", "--trace-out", "--dump"}
_SLOW = ("grow superpod:su=1,radix=16", "advise --workload mpi", "advise --servers 32")  # similar ones run
_SLOW += ("advise --workload inference --gpus 256 --model",)
_SMALLER = ("--size 64M", "--size 1M")  # the lines are the same
_UNDOCUMENTED = ("links", "topologies", "doctor", "catalog", "catalog dgx-h100", "scenario", "train --validate")


def _documented() -> list[str]:
    """Return the documented commands that print tables, without files to write; one for each set of flags."""
    commands: dict[tuple[str, ...], str] = {}
    for block in all_blocks("console"):
        for line in re.findall(r"^\$ weft (.*)$", block.text, re.M):
            command = re.sub(r"( 2>&1)? \|\|? .*$", "", line)
            is_plain = command.split()[0] in _TABLES and not re.search(r"[<>$&;]|--(json|csv|plugin)", command)
            if not is_plain:
                continue
            words = shlex.split(command)
            remaining = [
                word
                for word, before in zip(words, ["", *words], strict=False)
                if word not in _WRITES and before not in _WRITES
            ]
            flags = sorted(word for word in remaining if word.startswith("-"))
            commands.setdefault((remaining[0], *flags), shlex.join(remaining).replace(*_SMALLER))
    return [command for command in commands.values() if not command.startswith(_SLOW)]


DOCUMENTED = _documented()


def _check_width(printed: str) -> None:
    assert printed
    wide = [line for line in printed.splitlines() if len(line.rstrip()) > WIDTH]
    assert not wide


@pytest.mark.parametrize("command", [*DOCUMENTED, *_UNDOCUMENTED])
def test_output_fits_80_columns(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.chdir(tmp_path)
    for folder in ("examples", "docs"):
        os.symlink(ROOT / folder, tmp_path / folder)
    try:
        with suppress(SystemExit):  # a finding, such as a credit loop, is status 1
            app(shlex.split(command))
    except WeftError as error:  # a file that an earlier block of the document writes, or an error that it shows
        pytest.skip(str(error))
    _check_width(capsys.readouterr().out)


def test_most_documented_commands_are_found():
    assert len(DOCUMENTED) > 40


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A lab with a subnet manager, in a runtime folder for this module alone."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("r"))
        patch.setenv("XDG_RUNTIME_DIR", folder)
        name = f"w{os.getpid()}"
        up = [os.environ[WARM], "up", "fat-tree:hosts=16,radix=8", "--sm", "--daemon", "--name", name]
        done = subprocess.run(up, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
        _check_width(done.stdout.replace(folder, "/run/user/1000"))
        yield name
        control.end(registry.find(name))


@pytest.mark.usefixtures("lab")
def test_output_on_a_lab_fits_80_columns(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.toml").write_text('[tenant.red]\nhosts = ["h[2-4]"]\n[tenant.blue]\nhosts = ["h[5-6]"]\n')
    for command in (
        "ps",
        "sm status",
        "traffic permutation --size 64K",
        "load permutation",
        "unload",
        "top --lines 4 --every 0.1",
        "diagnose --polls 2 --every 0.1",
        "tenants apply two.toml --yes",
        "tenants show",
        "tenants prove",
        "break leaf1/5",
        "fix",
    ):
        done = subprocess.run(
            [os.environ[WARM], *command.split()], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        _check_width(done.stdout)


def test_output_on_files_fits_80_columns(capsys, monkeypatch, tmp_path):
    """Files that earlier blocks of the documents write with the shell."""
    monkeypatch.chdir(tmp_path)
    app(["plan", "--gpus", "16", "--folder", "plan"])
    app(["export", "superpod:su=1,servers=3", "-o", "found.ndt"])
    app(["route", "fat-tree:hosts=16,radix=8", "--dump", "tables"])
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    capsys.readouterr()
    for command in (
        "audit found.ndt --plan plan",
        "check fat-tree:hosts=16,radix=8 --tables tables",
        "path fat-tree:hosts=16,radix=8 h1 h16 --tables tables",
        "study sim star:hosts=4 --engine flow --grid size=64K,1M --workers 1 -o sizes.csv",
    ):
        with suppress(SystemExit):
            app(command.split())
        _check_width(capsys.readouterr().out)
