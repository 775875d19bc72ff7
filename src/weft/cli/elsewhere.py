"""Options of nccl-tests, of OSU's programs and of mpirun that weft's commands do not have, and the way out."""

from __future__ import annotations

import os
import re

from weft.errors import ConfigError

_RANKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # how many Open MPI's mpirun, or MPICH's, has started
_WHY = {
    "nccl": {
        "-p --parallel_init": "nothing is started here: leave it out",
        "-m --agg_iters": "every collective is a launch of its own: leave it out",
        "-z --blocking -y --stream_null -T --timeout": "nothing runs that could wait: leave it out",
        "-G --cudagraph": "no launch is captured in a graph: leave it out",
        "-C --report_cputime": "no processor's time is modelled: leave it out",
        "-a --average": "all ranks take the same time: leave it out",
        "-r --root": "all roots are alike, and the first rank is it: leave it out",
        "-J --output_file": "--json prints it: --json > FILE",
        "-np --np --npernode": "there is a rank on each GPU: --servers 4 takes so many servers",
        "--nodes --gpus": "there is a rank on each GPU of --servers: --servers 4, or dgx1,dgx3",
        "-H --host --hostfile": "--servers names them: dgx1,dgx2",
        "--genv --mca": "variables of NCCL are options, --NCCL_ALGO Ring, or stand in the environment",
    },
    "osu": {
        "-np --np -n": "there are --ppn processes on each of --servers: --servers 4 --ppn 8 are 32",
        "-c --validation": "what algorithms compute is proved: leave it out",
        "--nodes": "--servers says how many, or which",
        "-N --npernode -npernode -ppn --ntasks-per-node": "--ppn says how many processes a server has",
        "-H --host --hostfile -hostfile": "--servers names them: h1,h2",
        "-d --accelerator": "memory is the host's; `weft nccl` has GPUs",
        "-t --num_threads -P --papi -G -u -z": "it is not modelled: leave it out",
        "-T --type": "bytes are what counts, of the type that the test has: leave it out",
        "--bind-to -bind-to --rank-by": "what is in a server has no place here: leave it out",
        "--mca -mca --genv -genv": "--coll and --mpi say who chooses, --UCX_TLS what carries messages",
    },
}


_PROGRAMS = {
    r"\w+_perf|nccl-tests": "`weft nccl all_reduce SPEC` says what it would print",
    r"osu_\w+": "`weft osu {} SPEC` says what it would print",
    r"ib_\w+_(bw|lat)": "`weft perf {} HOST HOST SPEC` says what it would print, `weft perftest {}` runs it",
    r"mpirun|mpiexec|torchrun": "`weft run` starts programs as ranks",
    r"opensm": "`weft sm` is a subnet manager, and `weft exec h1 opensm` runs yours in a lab",
}


def check_words(command: str, what: str, spec: str) -> None:
    """Their order; and that nobody starts many of them, as one starts what is simulated."""
    ranks = max(os.environ.get(name, "1") for name in _RANKS)
    if ranks != "1":
        raise ConfigError(
            f"{ranks} processes of weft {command}: all ranks are simulated in one. Start it without mpirun"
        )
    if ":" in what:
        raise ConfigError(f"{what!r} is a fabric, which comes second: weft {command} {spec or 'all_reduce'} {what}")


def way_to(program: str) -> str | None:
    """To what is a program elsewhere, and here a word of a command."""
    from weft.diags import TOOLS

    if program in TOOLS:
        return f"`weft diag {program}` is it"
    return next((way.format(program, program) for name, way in _PROGRAMS.items() if re.fullmatch(name, program)), None)


def way_out(command: str, option: str) -> str | None:
    """Of an option that others know by this name."""
    name = option.partition("=")[0]
    return next((why for names, why in _WHY.get(command, {}).items() if name in names.split()), None)
