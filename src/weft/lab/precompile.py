"""Compile kernels, and the library for programs in C, before they are needed.

Numba compiles a kernel for the types of its arguments, which a call provides. So small commands run that call the
kernels, in a temporary folder and with no other lab in reach; each kernel that they compile is in the cache then.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from weft import compiler, runtime
from weft.collectives.live import reading
from weft.errors import WeftError
from weft.lab import fast_path
from weft.sm.conf.options import Options
from weft.sm.process import warm_up
from weft.verbs.c import build

_TENANTS = "[tenant.a]\nhosts = ['h[2-3]']\n"
_ALLREDUCE = (
    "import numpy; from weft.collectives.live.world import join_world as w; w().all_reduce(numpy.ones(1 << 16))"
)


@dataclass(frozen=True, slots=True)
class Step:
    """A part of weft and the commands that call its kernels."""

    name: str
    commands: tuple[str, ...]


STEPS = (
    Step("routing", ("route torus:4x4 --compare", "route superpod:su=1")),
    Step("flow simulation", ("nccl all_reduce -b 1M -e 1M superpod:su=1", "sim star:hosts=4 --engine flow")),
    Step("packet simulation", ("sim torus:3x3", "sim star:hosts=4,speed=400GbE --network uet")),
    Step("training", ("train llama3-8b --gpus 16 --pp 2",)),
    Step("served requests", ("infer llama3-8b --rate 1 --seconds 5",)),
    Step("plans", ("plan --gpus 64",)),
    Step(
        "labs and tenants",
        (
            "up fat-tree:hosts=8,radix=4 --sm --daemon --name precompile",
            "tenants apply tenants.toml --yes",
            "tenants prove tenants.toml",
            "load train=all-to-all",
        ),
    ),
    Step("RDMA", ("perf send_lat --live", "perf write_bw --live", "verbs --roce 127.0.0.1 ibv_devinfo")),
    Step("collectives between processes", ("run -n 2 --quiet allreduce.py",)),
)


def compile_all() -> Iterator[str]:
    """Compile step by step; yield the name of each step before it begins."""
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        (Path(folder) / "tenants.toml").write_text(_TENANTS, encoding="utf-8")
        (Path(folder) / "allreduce.py").write_text(_ALLREDUCE, encoding="utf-8")
        for step in STEPS:
            yield step.name
            with ExitStack() as stack:
                for words in step.commands:
                    _run(words, folder)
                    if words.startswith("up "):
                        stack.callback(_run, "down", folder)
    yield "adaptive routing"
    warm_up(Options(adaptive_routing=True))
    yield "answers of a lab's switches"
    fast_path.compile_kernel()
    yield "copies between ranks"
    reading.kernels()
    if compiler.find() is not None:
        yield "libibverbs for programs in C"
        build.folder()


def _run(words: str, folder: str) -> None:
    environment = runtime.environment_in(Path(folder) / "own") | {"WEFT_DEFAULTS": ""}
    command = [sys.executable, "-P", "-m", "weft", *words.split()]
    errors = None if sys.stderr.isatty() else subprocess.PIPE  # on a terminal the notices that kernels are compiled
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors, text=True, check=False
    )
    if done.returncode:
        raise WeftError(f"`weft {words}` failed with status {done.returncode}\n{done.stderr or ''}".rstrip())
