"""deploy/rootfs.py follows the Dockerfile; `make image` runs all of it."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOTFS = runpy.run_path(str(ROOT / "deploy" / "rootfs.py"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture
def work(tmp_path):
    (tmp_path / "checkout").mkdir()
    return ROOTFS["Build"](tmp_path / "root", "amd64", tmp_path / "checkout")


def test_each_instruction_of_the_dockerfile_is_carried_out(work):
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    starts = [line for at, line in enumerate(lines) if at == 0 or not lines[at - 1].endswith("\\")]
    found = ROOTFS["steps"](DOCKERFILE)
    assert [name for name, _ in found] == [line.split()[0] for line in starts]
    assert {name for name, _ in found} <= set(work.instructions())
    assert not any("\n" in text for _, text in found)


def test_the_configuration_of_containers_is_that_of_the_dockerfile(work):
    known = work.instructions()
    for name, text in ROOTFS["steps"](DOCKERFILE):
        if name not in ("FROM", "RUN", "COPY"):
            known[name](text)
    config = json.loads(json.dumps(work.config))
    assert config["User"] == "10001"
    assert config["Entrypoint"] == ["weft"]
    assert config["Cmd"] == ["--help"]
    assert config["WorkingDir"] == "/work"
    assert config["Healthcheck"]["Test"] == ["CMD", "weft", "sm", "status"]
    variables = dict(variable.split("=", 1) for variable in config["Env"])
    assert variables["PATH"].startswith("/opt/weft/bin:")
    assert (variables["NUMBA_CPU_NAME"], variables["HOME"]) == ("generic", "/tmp")


def test_folders_are_copied_without_what_dockerignore_leaves_out(work):
    for path in ("src/weft/a.py", "src/weft/__pycache__/a.pyc", "src/node_modules/b.js", "README.md", "LICENSE"):
        (work.source / path).parent.mkdir(parents=True, exist_ok=True)
        (work.source / path).write_text(path)
    work.copy("README.md LICENSE /src/")
    work.copy("src /src/src")
    copied = {str(path.relative_to(work.root)) for path in work.root.rglob("*") if path.is_file()}
    assert copied == {"src/README.md", "src/LICENSE", "src/src/weft/a.py"}


@pytest.mark.parametrize("base", ["python:3.13-slim", "debian:trixie", "debian:trixie-slim AS build"])
def test_a_base_that_mmdebstrap_cannot_build_is_refused(work, base):
    with pytest.raises(ROOTFS["BuildError"], match="only debian:SUITE-slim can be built"):
        work.make_base(base)


def test_an_unknown_instruction_is_refused_before_a_folder_is_removed(tmp_path, monkeypatch):
    (tmp_path / "Dockerfile").write_text("FROM debian:trixie-slim\nVOLUME /data\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    monkeypatch.setitem(ROOTFS["build"].__globals__, "CHECKOUT", tmp_path)
    with pytest.raises(ROOTFS["BuildError"], match="the Dockerfile has VOLUME"):
        ROOTFS["build"](tmp_path / "out", "amd64")
    assert (tmp_path / "out" / "mine").exists()


def test_without_mmdebstrap_or_root_a_sentence_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "deploy" / "rootfs.py", tmp_path / "out"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "only root can build" in done.stderr or "apt-get install mmdebstrap" in done.stderr
    assert not (tmp_path / "out").exists()
