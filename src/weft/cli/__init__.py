"""The command line: one module per command, loaded when it is called, so that `weft --help` starts at once."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from contextlib import suppress
from functools import partial
from typing import Any

from cyclopts import App

from weft.cli import defaults
from weft.version import __version__

app = App(
    name="weft",
    help_format="plaintext",  # of this page: a reader of markdown costs a sixth of its time
    help="A complete InfiniBand fabric in software.\n\n"
    "SPEC is a topology, superpod:su=1 or fat-tree:hosts=1024,switch=QM9700 (weft topologies lists them), "
    "or the path of a file: a lab file, ibnetdiscover output, an OpenSM dump, a cable plan; - is standard input.\n\n"
    "--plugin FILE.py or --plugin MODULE adds what that has: topologies, routing engines, file formats and more.",
    version=__version__,
    version_flags=["--version"],
    result_action="return_value",
)
app.config = (partial(defaults.apply, app),)
# The first line of each command's docstring, written again here so that `--help` need not import them all.
COMMANDS = {
    "show": "Summarise a fabric, or show one node, port or server of it.",
    "draw": "Draw a fabric: tiers with spines on top and servers in racks, or groups in a ring, or a grid.",
    "export": "Write a fabric in the form of another tool. With no SPEC, list the formats.",
    "check": "Prove forwarding tables: every pair arrives, nothing goes round, no credit loop. Status 1 if not.",
    "route": "Calculate forwarding tables, prove them, and say how good they are; or compare all engines.",
    "path": "Show the way of packets from one host to another, hop by hop, and back. Status 1 if it ends early.",
    "sim": "Run traffic over a fabric: times, goodput, latency, the busiest links.",
    "perf": "Measure bandwidth or latency between two hosts as perftest does; or run all published measurements again.",
    "nccl": "Run a collective at every size as nccl-tests does, in its form; or show published runs beside weft's.",
    "osu": "Run MPI between hosts at every size as the OSU micro-benchmarks do, in their form; or show published runs.",
    "replay": "Run a job's trace on a fabric: Chakra, PyTorch's profiler, SimAI, GOAL; how long, where the time goes.",
    "compare": "Compare fabrics for a cluster: one job over InfiniBand, RoCE or TCP, how long, why, and what it costs.",
    "advise": "Say whether a cluster needs InfiniBand, RoCE or plain Ethernet, why, and when that changes; or ask.",
    "plan": "Plan a cluster's fabric: switches, racks, every cable, dollars and watts; writes a folder with all of it.",
    "train": "Train a transformer on a fabric: step time, tokens/s, MFU, memory, where the time goes.",
    "audit": "Compare a discovered fabric with its plan: cables to mend, in the order of a walk. Status 1 if any.",
    "grow": "Grow a fabric without an outage: the fewest cables that move, in steps that are each routed and proved.",
    "scenario": "Test a claim about InfiniBand with numbers. With no NAME, list the scenarios.",
    "study": "Run a command over lists of options and seeds, on all cores or a Ray cluster, and write one table.",
    "tenants": "Give tenants isolated slices of a fabric: plan, apply, prove, simulate, destroy. With no ACTION, show.",
    "topologies": "List the topologies, their parameters and an example of each.",
    "links": "Show every link speed: signalling, encoding, data rate by width, year.",
    "sm": "Run a subnet manager: discover, give LIDs, route, answer hosts; or show the status of those that run.",
    "serve": "Serve tenants over REST, our own and UFM's, with roles and an audit log: of a lab, an OpenSM, a UFM.",
    "monitor": "Read the counters of all ports of a fabric, and tell Prometheus, in infiniband_exporter's names.",
    "top": "Show the links of a fabric as they are now: errors, load, waiting. Once, where there is no terminal.",
    "diag": "Ask a subnet as infiniband-diags does: weft diag smpquery -D portinfo 0,1 3. With no TOOL, list them.",
    "diagnose": "Find what is down or bad: suspects, evidence, what to do, whom it concerns. Status 1 if any.",
    "join": "Run a program as a host of a lab on another machine: weft join ADDRESS:PORT --as h3 -- ibstat.",
    "run": "Run a program as many ranks on the hosts of a lab, as torchrun does: weft run -n 8 train.py.",
    "slurm": "Give a Slurm job its own partition, or take it away: for PrologSlurmctld and EpilogSlurmctld.",
    "catalog": "List switches, adapters, GPUs, servers and cables, or show one with its sources.",
    "server": "Make a template of a server of your own, from `nvidia-smi topo -m` or NCCL's topology XML.",
    "doctor": "Say what this machine has and lacks: libraries, kernel cache, labs, judges. Status 1 if it is bad.",
    "up": "Start a lab: a fabric that runs, for OpenSM, infiniband-diags and the like. On a terminal, with a prompt.",
}
# All in one module: what they do to a lab is one command to it.
LAB_COMMANDS = {
    "exec": "Run a program as a host of a lab: weft exec h1 ibnetdiscover. With --lab NAME before HOST, of that lab.",
    "ps": "List the labs that run: fabric, attached programs, MADs so far, what is broken.",
    "break": "Pull a cable of a lab, by a port; of a node or a server, all its cables.",
    "degrade": "Make a cable of a lab ill, in one or more ways; `weft fix` mends it.",
    "fix": "Put cables of a lab back, and replace those that are ill: by a name, or all.",
    "load": "Let jobs run through a lab on and on, so that its counters live; without a job, show those that do.",
    "unload": "End jobs of `weft load`; without a name all, and the clock.",
    "traffic": "Send data through a lab by the packet engine, on its subnet manager's tables; ports count it.",
    "capture": "Capture what crosses a cable of a lab, both ways, in a file for Wireshark.",
    "down": "End a lab: the only one that runs, or the one of that name.",
}
# Tools of RDMA, in one module; their words are their own.
VERBS_COMMANDS = {
    "verbs": "Run a program for pyverbs over weft's adapter: weft verbs python app.py. --roce ADDRESS: over UDP.",
    "perftest": "Run one end of a test of perftest over weft's adapter: weft perftest ib_write_bw [HOST] [-s 64K].",
    "ibv_devices": "List RDMA devices as rdma-core's ibv_devices does.",
    "ibv_devinfo": "Show what RDMA devices can do, as rdma-core's ibv_devinfo does: -v all, -l names only.",
    "ibv_rc_pingpong": "Run one end of rdma-core's ping-pong over a reliable connection: ibv_rc_pingpong [HOST].",
    "ibv_uc_pingpong": "Run one end of rdma-core's ping-pong over an unreliable connection: ibv_uc_pingpong [HOST].",
    "ibv_ud_pingpong": "Run one end of rdma-core's ping-pong over datagrams: ibv_ud_pingpong [HOST].",
}
_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_RUNNERS = {"exec", "join", "run", *VERBS_COMMANDS} - {"ibv_devices"}  # it takes no words
# Of a program that is run: its flags, its `--`. No word has a NUL, so none ends our options.
_OWN_FLAGS: dict[str, Any] = {"help_flags": [], "version_flags": [], "end_of_options_delimiter": "\0"}
_ALL = COMMANDS | LAB_COMMANDS | VERBS_COMMANDS
for _place, (_name, _help) in enumerate(_ALL.items()):
    _module = "lab" if _name in LAB_COMMANDS else "verbs" if _name in VERBS_COMMANDS else _name
    _function = f"{_name}_" if _name in ("exec", "break") else _name  # words of Python
    _flags = (
        _OWN_FLAGS if _name in _RUNNERS else {} if _name in ("scenario", "tenants") else {"help_format": "markdown"}
    )
    app.command(f"weft.cli.{_module}:{_function}", name=_name, help=_help, sort_key=_place, **_flags)
# As `register_install_completion_command` would, but without what that loads: a tenth of the time of `--help`.
app.command(
    "weft.cli.completion:install_completion",
    name="--install-completion",
    help="Install shell completion for this application.",
    sort_key=len(_ALL),
)


def main() -> None:
    """Run the command and end with its status; what went wrong is one clear message, and never a silent one.

    Status 2 if the input is at fault, 1 if something else is. A reader of standard output that has seen enough, `head`
    say, is no error.
    """
    if sys.stdout is None:  # closed by the caller, >&-
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (to the end)
    atexit.register(gc.freeze)  # or Python looks for garbage twice as it ends, in all that was imported
    sys.exit(_print_out(_run()))


def _run() -> int:
    from cyclopts import CycloptsError

    from weft.errors import ConfigError, SimulationBug, WeftError

    try:
        app(_without_plugins(sys.argv[1:]), exit_on_error=False, print_error=False)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else _complain(str(end.code), 1)
    except WeftError as error:
        kind = "a bug in weft, please report it: " if isinstance(error, SimulationBug) else ""
        return _complain(f"{kind}{error}", 2 if isinstance(error, ConfigError) else 1)
    except CycloptsError as error:
        from weft.cli.mistakes import explain

        return _complain(explain(error, app), 2)
    except BrokenPipeError:
        return 0
    except OSError as error:
        return _complain(_words(error), 1)
    return 0


def _without_plugins(words: list[str]) -> list[str]:
    """Use the plugins that are named; the other words. What follows a program that is run is the program's."""
    left: list[str] = []
    coming = iter(words)
    for word in coming:
        flag, equals, plugin = word.partition("=")
        if flag == "--plugin":
            from weft.plugins import use

            use(plugin if equals else next(coming, ""))
            continue
        left.append(word)
        if word in _RUNNERS:
            left += coming
    return left


def _print_out(status: int) -> int:
    """Print what still waits to be printed: a disk that is full may be seen only now."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python prints what waits once more when it ends, and would complain in its own words.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return status if isinstance(error, BrokenPipeError) else status or _complain(_words(error), 1)
    return status


def _words(error: OSError) -> str:
    """Of an exception that may have come without any. Files that weft writes are named in errors of its own."""
    said = str(error.strerror or error) or f"{type(error).__name__}, and nothing more is known"
    if error.errno in _OF_WRITING and not error.filename:
        return f"cannot write standard output: {said}"
    return f"{error.filename}: {said}" if error.filename else said


def _complain(message: str, status: int) -> int:
    with suppress(OSError):  # standard error may be full as well
        print(f"weft: {message}", file=sys.stderr)
    return status
