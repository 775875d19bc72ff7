"""Blocks of the documentation that need an external program: OpenSM, ibdmchk."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from tests.documents import find_block

from weft.cli import app

pytestmark = pytest.mark.interop


@pytest.mark.usefixtures("warm")
def test_the_program_of_the_lab_page_runs_on_the_tables_of_opensm(peer: Callable[[str], str], warm, tmp_path):
    peer("opensm")
    program = find_block("docs/lab.md", '"opensm", "-o"') + "assert result.last_arrival_ps > 0\n"
    subprocess.run([warm, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)


def test_ibdmchk_reads_the_tables_as_the_routing_page_says(peer: Callable[[str], str], tmp_path):
    peer("ibdmchk")
    app(["route", "torus:6x6,hosts=2", "--dump", str(tmp_path / "tables")])  # as the block before it does
    script = find_block("docs/routing.md", "-c opensm.psl")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.stdout.count("no credit loops found") == 1, done.stdout + done.stderr  # with lanes, not without
