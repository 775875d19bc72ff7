"""PyTorch with backend `weft`, compared with gloo in the same processes."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.interop.conftest import find_module
from tests.jobs.site import Site
from tests.patience import PATIENCE_S, wait_until

_PROGRAM = Path(__file__).with_name("torch_program.py")
_FAULTS_PROGRAM = Path(__file__).with_name("torch_faults_program.py")
_EXAMPLE = Path(__file__).parents[2] / "examples" / "ddp.py"
_RANKS = 4
_TRAININGS = ["DDP of pairs", "DDP", "FSDP2", "tensor parallel"]


def run(folder: Path, ranks: int, device: str, **environment: str) -> list[list[str]]:
    """Return the output of all ranks, line by line."""
    with subprocess.Popen(
        [sys.executable, str(_PROGRAM), str(folder)],
        env=os.environ | {"WORLD_SIZE": str(ranks), "DEVICE": device, "OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            stdout, stderr = started.communicate(timeout=PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
    assert started.returncode == 0, stderr[-3000:]
    lines = stdout.splitlines()
    return [[line for line in lines if line.startswith(f"rank {rank}: ")] for rank in range(ranks)]


def trainings(rank: int, lines: list[str]) -> list[str]:
    """Return the names of the trainings in a rank's output."""
    return [line.removeprefix(f"rank {rank}: ").split(" to gloo after ")[0].rsplit(" ", 1)[0] for line in lines]


@pytest.mark.slow
def test_calls_and_trainings_do_what_they_do_by_gloo(tmp_path: Path) -> None:
    """All collectives, messages, groups; a small transformer by DDP, FSDP2 and tensor parallel, 10 steps of each."""
    find_module("torch")
    for rank, lines in enumerate(run(tmp_path, _RANKS, "cpu")):
        assert lines[0] == f"rank {rank}: DDP of pairs bit-equal to gloo after 10 steps"
        assert trainings(rank, lines) == _TRAININGS


@pytest.mark.gpu
@pytest.mark.parametrize(("ranks", "allocator"), [(2, "expandable_segments:True"), (4, "expandable_segments:False")])
def test_tensors_on_a_gpu_come_out_as_those_of_the_processor_do_by_gloo(
    tmp_path: Path, ranks: int, allocator: str
) -> None:
    """The same calls and trainings, with work on streams; no byte of a tensor goes through the host."""
    find_gpu()
    for rank, lines in enumerate(run(tmp_path, ranks, "cuda", PYTORCH_CUDA_ALLOC_CONF=allocator)):
        assert trainings(rank, lines) == _TRAININGS


def find_gpu() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")  # cheaper than importing PyTorch, which takes two seconds
    except OSError:
        pytest.skip("there is no NVIDIA GPU here")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no NVIDIA GPU here")


_DYING = """
import os, signal, sys, torch, torch.distributed as dist
rank, tensor = int(sys.argv[2]), torch.ones(100_000, device="cuda")
dist.init_process_group("weft", init_method=sys.argv[1], rank=rank, world_size=2)
dist.all_reduce(tensor)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    for _ in range(20):  # the slots of the killed rank still accept some
        dist.all_reduce(tensor)
except dist.DistBackendError as error:
    print(error, flush=True)
os._exit(0)
"""


@pytest.mark.gpu
def test_a_rank_that_is_killed_with_its_gpu_is_named(tmp_path: Path) -> None:
    find_gpu()
    command = [sys.executable, "-c", _DYING, (tmp_path / "meeting").as_uri()]
    killed = subprocess.Popen([*command, "1"])
    left = subprocess.run([*command, "0"], capture_output=True, text=True, timeout=PATIENCE_S / 2, check=False)
    assert killed.wait(PATIENCE_S) == -signal.SIGKILL
    assert left.stdout.startswith("rank 1: no way to it any more"), left.stdout + left.stderr


@pytest.mark.gpu
def test_the_example_trains_on_a_gpu(tmp_path: Path) -> None:
    find_gpu()
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", "-n", "2", "--json", "summary.json", str(_EXAMPLE)],
        cwd=tmp_path,
        env=os.environ | {"STEPS": "3", "DEVICE": "cuda"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert_trained(done.stdout, tmp_path)


def assert_trained(said: str, folder: Path) -> None:
    """Check the example's claim: hosts of a lab sent more than the gradients of two steps."""
    assert "the parameters are the same on all ranks" in said
    hosts = json.loads((folder / "summary.json").read_text())["hosts"]
    assert all(host["sent_bytes"] > 2 * 4 * 64 * 256 for host in hosts.values()), hosts


@pytest.mark.slow
def test_the_example_trains_on_a_lab_and_ddp_goes_on_while_its_fabric_is_broken(warm: Path, tmp_path: Path) -> None:
    """A bad cable, a pulled one, and the end of the subnet manager while another is standby; sums are verified."""
    find_module("torch")
    with ExitStack() as opened:
        site = Site(opened)
        words = ["run", "-n", "2", "--lab", site.lab.name, "--hosts", "h1,h8", "--json", str(tmp_path / "summary.json")]
        job = subprocess.Popen(
            [sys.executable, "-m", "weft", *words, str(_FAULTS_PROGRAM), str(tmp_path), str(_EXAMPLE)],
            env=os.environ | {"STEPS": "3", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        opened.callback(job.kill)

        def go_on() -> None:
            """Continue for some steps."""
            place = tmp_path / "steps.0"
            expected = 5 + (place.stat().st_size if place.exists() else 0)
            wait_until(lambda: place.exists() and place.stat().st_size >= expected, going=lambda: job.poll() is None)

        def uplink() -> str:
            return site.lab.fabric.port(site.way("h1", "h8")[1]).name

        go_on()
        site.lab.degrade(uplink(), 1e-6)
        go_on()
        site.manage("h2")
        wait_until(lambda: site.is_manager("h2", "standby"))
        site.kill("h1")
        go_on()
        wait_until(lambda: site.is_manager("h2", "master") and "SUBNET UP" in site.log("h2"))
        site.lab.break_cable(uplink())
        go_on()
        (tmp_path / "stop").touch()
        output, errors = job.communicate(timeout=PATIENCE_S)
    assert job.returncode == 0, errors
    assert output.count("equal bit for bit after") == 2, output
    assert_trained(output, tmp_path)
