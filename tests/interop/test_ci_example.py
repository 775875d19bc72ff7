"""The example project of another's CI passes outside of the repository, and fails if its program is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.conftest import do_without, find_peer

PROJECT = Path(__file__).parents[2] / "examples" / "ci"
pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture
def project(tmp_path) -> Path:
    for program in ("cc", "ibnetdiscover", "ibstat"):
        find_peer(program)
    if not Path("/usr/include/infiniband/verbs.h").is_file():
        do_without("libibverbs-dev")
    return Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")))


def run(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "weft.testing", "-p", "no:cacheprovider", *words]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=project, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=900, check=False
    )


def test_the_example_project_passes_outside_of_the_repository(project):
    ended = run(project)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "12 passed" in ended.stdout


def test_a_program_that_ignores_the_status_of_its_writes_fails_its_test(project):
    source = project / "replicate.c"
    text = source.read_text(encoding="utf-8")
    assert text.count("status != IBV_WC_SUCCESS") == 1
    source.write_text(text.replace("status != IBV_WC_SUCCESS", "status == IBV_WC_GENERAL_ERR"), encoding="utf-8")
    ended = run(project, "test_replicate.py")
    assert ended.returncode == 1
    assert "FAILED test_replicate.py::test_a_writer_without_a_cable_reports_the_status" in ended.stdout
    assert "1 failed, 2 passed" in ended.stdout
