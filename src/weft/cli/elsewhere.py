"""Advice for options and programs of other tools that weft has by another name, or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Collection

from weft.errors import ConfigError

_SIZE_VARIABLES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # set by Open MPI's and by MPICH's mpirun
_OPTIONS = {
    "nccl": {
        "-p --parallel_init": "no process is started; leave it out",
        "-m --agg_iters": "every collective is a launch of its own; leave it out",
        "-z --blocking -y --stream_null -T --timeout": "simulated runs do not block; leave it out",
        "-G --cudagraph": "CUDA graphs are not modelled; leave it out",
        "-C --report_cputime": "CPU time is not modelled; leave it out",
        "-a --average": "all ranks take the same time; leave it out",
        "-r --root": "the root is the first rank, and all roots take the same time; leave it out",
        "-J --output_file": "use --json > FILE",
        "-np --np --npernode": "every GPU is a rank; choose the servers with --servers 4",
        "--nodes --gpus": "every GPU is a rank; choose the servers with --servers 4 or --servers dgx1,dgx3",
        "-H --host --hostfile": "name the servers with --servers dgx1,dgx2",
        "--genv --mca": "set NCCL's variables in the environment or as options: --NCCL_ALGO Ring",
    },
    "osu": {
        "-np --np -n": "use --servers and --ppn: --servers 4 --ppn 8 starts 32 processes",
        "-c --validation": "weft verifies the algorithms; leave it out",
        "--nodes": "use --servers",
        "-N --npernode -npernode -ppn --ntasks-per-node": "use --ppn for the processes per server",
        "-H --host --hostfile -hostfile": "name the servers with --servers h1,h2",
        "-d --accelerator": "buffers are in host memory; `weft nccl` models GPUs",
        "-t --num_threads -P --papi -G -u -z": "it is not modelled; leave it out",
        "-T --type": "the data type is the test's; leave it out",
        "--bind-to -bind-to --rank-by": "binding inside a server is not modelled; leave it out",
        "--mca -mca --genv -genv": "use --mpi and --coll for the algorithms, --UCX_TLS for the transports",
    },
}
# Words for the same thing, in the order in which a command's own flag is looked for.
_SAME_THING = (
    ("--engine", "--routing-engine", "--routing_engine"),
    ("--picture", "--plot", "--plot-latency", "--chart", "--figure", "--image", "--output"),
    ("--picture-queue", "--plot-queue"),
    ("--report", "--html"),
    ("--measured", "--check", "--compare", "--results"),
    ("--fault", "--without", "--break", "--cut", "--kill", "--remove"),
    ("--fabrics", "--compare", "--alternatives"),
    ("--find", "--search"),
    ("--folder", "--directory", "--out-dir"),
    ("--output", "--out", "--file", "--picture", "-o"),
    ("--sort-by", "--colour-by", "--distance", "--by", "--sort", "--order", "--color-by", "--colour", "--color"),
    ("--servers", "--nodes", "--hosts", "--server-count"),
    ("--size", "--message", "--message-size", "--bytes"),
    ("--message-rate", "--rate"),
    ("--batch-tokens", "--tokens"),
    ("--storage-network", "--storage"),
    ("--ufm-hosts", "--ufm"),
    ("--state", "--sm"),
    ("--seconds", "--watch", "--duration", "--duration-us"),
    ("--explain", "--verbose", "-v", "--details"),
)
_PROGRAMS = {
    r"\w+_perf|nccl-tests": "`weft nccl all_reduce SPEC` predicts its output",
    r"osu_\w+": "`weft osu {} SPEC` predicts its output",
    r"ib_\w+_(bw|lat)": "`weft perf {} HOST HOST SPEC` predicts its output, `weft perftest {}` runs it",
    r"mpirun|mpiexec|torchrun": "use `weft run`",
    r"opensm": "use `weft sm`; `weft exec h1 opensm` runs OpenSM in a lab",
}


def check_first_argument(command: str, first: str, spec: str) -> None:
    """Refuse swapped arguments, and copies of weft started by mpirun: weft simulates all ranks in one process."""
    ranks = max(os.environ.get(name, "1") for name in _SIZE_VARIABLES)
    if ranks != "1":
        raise ConfigError(f"weft {command} simulates all ranks in one process; start it without mpirun")
    if ":" in first:
        raise ConfigError(f"{first!r} is a fabric and comes second: weft {command} {spec or 'all_reduce'} {first}")


def advice_for_program(program: str) -> str | None:
    """Return the weft command for a program of another tool, or None."""
    from weft.diags import TOOLS

    if program in TOOLS:
        return f"use `weft diag {program}`"
    patterns = _PROGRAMS.items()
    return next((advice.format(program, program) for name, advice in patterns if re.fullmatch(name, program)), None)


def advice_for_option(command: str, option: str, flags: Collection[str]) -> str | None:
    """Return advice for an option that the original tool has, or that is another word for one of `flags`; or None."""
    name = option.partition("=")[0]
    advice = next((advice for names, advice in _OPTIONS.get(command, {}).items() if name in names.split()), None)
    same = (flag for words in _SAME_THING if name in words for flag in words if flag in flags)
    return advice or next((f"use {flag}" for flag in same), None)
