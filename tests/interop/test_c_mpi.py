"""Open MPI and MPICH, unmodified, over UCX on weft's libibverbs: processes of this machine, and hosts of a lab."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.interop.c_programs import outside_of_labs, program
from tests.interop.test_c_ucx import only, packets
from tests.lab.rdma import running
from tests.patience import PATIENCE_S

import weft
from weft import compiler
from weft.cli.run import run
from weft.lab.own_lab import own_lab
from weft.lab.programs import environment

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
OPEN_MPI, MPICH = "openmpi", "mpich"  # suffixes of their programs' names in Debian
# Allow root, and more ranks than cores, which yield the processor while they wait. MPICH would exchange data between
# ranks of one machine through its own shared memory.
OPTIONS = {
    OPEN_MPI: ("--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "--mca", "pml", "ucx"),
    MPICH: ("-genv", "MPIR_CVAR_NOLOCAL", "1"),
}


@pytest.fixture(scope="module", params=[OPEN_MPI, MPICH])
def kind(request) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def checks(kind, tmp_path_factory) -> str:
    """The path of the compiled mpi_program.c."""
    result = tmp_path_factory.mktemp("mpi") / "checks"
    words = [program(f"mpicc.{kind}"), "-O1", str(Path(__file__).with_name("mpi_program.c")), "-o", str(result)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return str(result)


def mpirun(kind: str, words: list[str], variables: Mapping[str, str]) -> str:
    done = subprocess.run(
        [program(f"mpirun.{kind}"), *OPTIONS[kind], *words],
        env=dict(variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_data_sent_reduced_and_put_between_processes_is_right(kind, checks):
    assert "all of 2 ranks is right" in mpirun(kind, ["-n", "2", checks], outside_of_labs() | only("rc_v"))


def rank_on(host: dict[str, str], checks: str) -> list[str]:
    """Return the arguments that run one rank on a host, as `-n 1 weft exec HOST PROGRAM` would."""
    return ["-n", "1", program("env"), *(f"{name}={value}" for name, value in environment(host).items()), checks]


def test_weft_run_is_all_of_it_in_one_command(kind, checks, capfd, tmp_path):
    """Its exit status is that of the program."""
    starter, report = f"--mpi={program(f'mpirun.{kind}')}", tmp_path / "report.json"
    with own_lab(weft.load("star:hosts=2"), f"mpi-{os.getpid()}") as result:
        lab = ("--lab", result.entry.name)
        with pytest.raises(SystemExit) as ended:
            run("-n", "2", *lab, "--json", str(report), starter, checks)
        assert ended.value.code == 0
        assert "[0] all of 2 ranks is right\n" in capfd.readouterr().out
        with pytest.raises(SystemExit) as ended:
            run("-n", "2", *lab, starter, "sh", "-c", "exit 5")
        assert ended.value.code == 5
        assert "weft: mpirun ended with status 5" in capfd.readouterr().err
    for host in json.loads(report.read_text())["hosts"].values():
        assert host["sent_bytes"] > 1 << 20


def test_ranks_are_hosts_of_a_lab_whose_counters_move(kind, checks):
    with running() as lab:
        before = packets(lab)
        ranks = [rank_on(lab.host(host), checks) for host in ("h1", "h5", "h8")]
        words = [*ranks[0], ":", *ranks[1], ":", *ranks[2]]
        assert "all of 3 ranks is right" in mpirun(kind, words, os.environ | only("rc_v"))
        ring_bytes, mtu_bytes = 3 * (1 << 20), 4096
        assert packets(lab) - before > ring_bytes // mtu_bytes
