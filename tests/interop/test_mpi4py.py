"""The same program by mpi4py with Open MPI, and by weft.mpi: what they print is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.c_programs import program
from tests.interop.conftest import find_module
from tests.interop.test_c_mpi import OPEN_MPI
from tests.patience import PATIENCE_S, errors_in

from weft.jobs.store import Store

pytestmark = pytest.mark.interop
PROGRAM = str(Path(__file__).with_name("mpi4py_program.py"))
RANKS = 3


def by_mpi4py() -> str:
    find_module("mpi4py")
    # More ranks than cores; between processes of this machine, by its shared memory.
    options = ["--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ob1"]
    done = subprocess.run(
        [program(f"mpirun.{OPEN_MPI}"), *options, "-n", str(RANKS), sys.executable, PROGRAM, "mpi4py.MPI"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_weft(folder: Path) -> str:
    with Store(folder / "store") as store:
        common = os.environ | {"WORLD_SIZE": str(RANKS), "WEFT_JOB": store.address}
        ranks = [
            subprocess.Popen(
                [sys.executable, PROGRAM, "weft.mpi"],
                env=common | {"RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(RANKS)
        ]
        try:
            output = [item.communicate(timeout=PATIENCE_S) for item in ranks]
        finally:
            for item in ranks:
                item.kill()
    assert [(item.returncode, errors_in(err)) for item, (_, err) in zip(ranks, output, strict=True)] == [
        (0, "")
    ] * RANKS
    return output[0][0]


def test_a_program_prints_the_same_by_mpi4py_and_by_weft(tmp_path: Path) -> None:
    result, expected = by_weft(tmp_path), by_mpi4py()
    assert len(expected.splitlines()) > 10 * RANKS
    assert result == expected
