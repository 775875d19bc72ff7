"""The command line: one module per command, imported when it is called, so that `weft --help` is fast."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
from contextlib import suppress
from functools import partial
from inspect import getdoc
from typing import Any

from cyclopts import App, Group, Parameter

from weft.cli import defaults
from weft.version import __version__

__all__ = ["main"]

# The first line of each command's docstring, repeated here so that `weft --help` imports no command.
GROUPS = {
    "Inspect": {
        "show": "Summarise a fabric, or show a node, port or server.",
        "draw": "Draw a fabric as SVG, PNG, PDF or an HTML page.",
        "export": "Convert a fabric to another tool's file format.",
        "topologies": "List the topologies and their parameters.",
        "links": "List link speeds: encoding, data rate by width, year.",
        "catalog": "List switches, adapters, GPUs, servers and cables.",
        "server": "Import a template of your own server.",
        "doctor": "Check this machine: libraries, kernel cache, labs.",
    },
    "Route and verify": {
        "route": "Compute forwarding tables, verify and rate them.",
        "check": "Verify forwarding tables: reachability, credit loops.",
        "path": "Show the path between two hosts, hop by hop.",
    },
    "Predict": {
        "nccl": "Predict nccl-tests: a collective at every size.",
        "ep": "Predict dispatch and combine of expert kernels: DeepEP.",
        "train": "Predict the step time of a training job.",
        "infer": "Predict throughput and latency of a served model.",
        "osu": "Predict the OSU micro-benchmarks for MPI.",
        "perf": "Predict perftest between two hosts, or measure it.",
        "sim": "Simulate traffic: times, goodput, latency.",
        "expect": "Print expected benchmark results, and check measured ones.",
        "replay": "Replay a job's trace: Chakra, PyTorch, SimAI, GOAL.",
        "scenario": "Test a claim about InfiniBand with numbers.",
        "study": "Run a command for many options and seeds.",
    },
    "Plan and buy": {
        "compare": "Compare InfiniBand, RoCE and TCP for a cluster and a job.",
        "advise": "Advise whether a cluster needs InfiniBand, and why.",
        "plan": "Plan a cluster: switches, racks, cables, price, power.",
        "bill": "List the parts of a fabric, or check a vendor's quote.",
        "audit": "Compare a discovered fabric with its plan.",
        "grow": "Plan the steps that extend a fabric without an outage.",
    },
    "Run a lab": {
        "up": "Start a lab: an emulated fabric for real tools.",
        "ps": "List the running labs.",
        "down": "Stop a lab.",
        "exec": "Run a program as a host of a lab.",
        "run": "Run a program as many ranks in a lab, like torchrun.",
        "join": "Run a program as a lab's host on another machine.",
        "break": "Pull cables of a lab.",
        "degrade": "Degrade a lab cable: bit errors, flaps, lower speed.",
        "fix": "Reconnect and repair cables of a lab.",
        "swap": "Exchange two cables of a lab.",
        "load": "Run background traffic so that counters move.",
        "unload": "Stop background traffic.",
        "traffic": "Send traffic through a lab with the packet engine.",
        "capture": "Capture the packets of a lab cable for Wireshark.",
    },
    "Operate": {
        "sm": "Run a subnet manager, or show its status.",
        "monitor": "Export port counters to Prometheus.",
        "top": "Show the busiest and the faulty links.",
        "diag": "Run a tool of infiniband-diags: ibstat, smpquery, ...",
        "cables": "List the cables of a subnet: serial, temperature, power.",
        "diagnose": "Find bad cables: suspects, evidence, what to do.",
        "follow": "Record the changes of a running subnet, and check them.",
        "history": "List the recorded changes of a subnet.",
        "diff": "Compare a subnet at two moments of its history.",
        "whatif": "Show the effects of a change before it is made.",
        "maintain": "Plan reboots and replacements step by step.",
    },
    "Tenants": {
        "tenants": "Isolate tenants with partitions: plan, apply, verify.",
        "serve": "Serve tenants over REST, UFM's API and the console.",
        "slurm": "Give a Slurm job its own partition.",
    },
    "RDMA programs": {
        "verbs": "Run a pyverbs program on weft's software adapter.",
        "perftest": "Run one end of a perftest program: ib_write_bw, ...",
        "ibv_devices": "List the RDMA devices.",
        "ibv_devinfo": "Show the attributes of RDMA devices.",
        "ibv_rc_pingpong": "Run one end of a ping-pong over RC.",
        "ibv_uc_pingpong": "Run one end of a ping-pong over UC.",
        "ibv_ud_pingpong": "Run one end of a ping-pong over UD.",
    },
}
COMMANDS = {name: line for commands in GROUPS.values() for name, line in commands.items()}
_SHARED_MODULES = {  # modules with several commands
    "catalog": ("topologies", "links"),
    "follow": ("history", "diff"),
    "lab": ("exec", "ps", "break", "degrade", "fix", "swap", "load", "unload", "traffic", "capture", "down"),
    "route": ("check",),
    "show": ("draw", "export", "path"),
    "top": ("monitor",),
    "verbs": tuple(GROUPS["RDMA programs"]),
}
_MODULE_OF = {command: module for module, commands in _SHARED_MODULES.items() for command in commands}
_RUNNERS = {"exec", "join", "run", *GROUPS["RDMA programs"]} - {"ibv_devices"}  # the rest of the line is a program's
# Flags and `--` belong to the program. No argument contains NUL, so no argument ends the options.
_PASS_FLAGS: dict[str, Any] = {"help_flags": [], "version_flags": [], "end_of_options_delimiter": "\0"}
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def _show_default(value: object) -> str | None:
    """Return the default as help prints it; None for flags that are off and for empty values."""
    return None if value is None or value is False or value in ("", ()) else "on" if value is True else str(value)


app = App(
    name="weft",
    help_format="plaintext",  # markdown would cost a sixth of the start-up time
    help="A complete InfiniBand fabric in software.\n\n"
    "SPEC is a topology (superpod:su=1, fat-tree:hosts=1024,switch=QM9700; see weft topologies) or a file: "
    "a lab file, ibnetdiscover output, an OpenSM dump, a cable plan, or - for standard input.\n\n"
    "--plugin FILE.py or --plugin MODULE loads your own topologies, routing engines and file formats.",
    version=__version__,
    version_flags=["--version"],
    result_action="return_value",
    default_parameter=Parameter(negative_bool=(), negative_iterable=(), show_default=_show_default),
)
app.config = (partial(defaults.apply, app),)


def module_of(command: str) -> str:
    """Return the name of a command's module in this package."""
    return _MODULE_OF.get(command, command)


def _add_commands() -> None:
    for place, (title, commands) in enumerate(GROUPS.items()):
        group = Group(title, sort_key=place)
        for number, (name, line) in enumerate(commands.items()):
            function = f"{name}_" if name in ("exec", "break") else name  # Python keywords or builtins
            has_own_app = name in ("scenario", "tenants")
            flags = _PASS_FLAGS if name in _RUNNERS else {} if has_own_app else {"help_format": "markdown"}
            app.command(
                f"weft.cli.{module_of(name)}:{function}", name=name, help=line, group=group, sort_key=number, **flags
            )


_add_commands()
app["--help"].group = app["--version"].group = Group("Options", sort_key=len(GROUPS))
# As `register_install_completion_command` does, but without its imports, which take a tenth of the time of `--help`.
app.command(
    "weft.cli.completion:install_completion",
    name="--install-completion",
    help="Install shell completion for weft.",
    group="Options",
)


def use_whole_docstring(name: str) -> None:
    """Show a command's whole docstring on its help page. The listing has the first line alone."""
    command = app[name]
    command.help = getdoc(command.default_command) or ""


def main() -> None:
    """Run the command and exit with its status; every failure prints one clear message.

    The status is 2 if the user's input is wrong and 1 for any other failure. A closed pipe (`weft ... | head`) is no
    failure.
    """
    if sys.stdout is None:  # closed by the caller, >&-
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  (open until the process ends)
    atexit.register(gc.freeze)  # else Python collects garbage twice at exit, in everything that was imported
    sys.exit(_flush(_run()))


def _run() -> int:
    from cyclopts import CycloptsError

    from weft.errors import EXTRA_OF, ConfigError, SimulationBug, WeftError

    try:
        arguments = _load_plugins(sys.argv[1:])
        if arguments[:1] and arguments[0] in COMMANDS and not {"--help", "-h"}.isdisjoint(arguments):
            use_whole_docstring(arguments[0])
        app(arguments, exit_on_error=False, print_error=False)
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
        return _complain(_describe(error), 1)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        return _complain(f"{package} is not installed: pip install 'weft-fabric[{EXTRA_OF[package]}]'", 2)
    return 0


def _load_plugins(arguments: list[str]) -> list[str]:
    """Load the plugins of `--plugin` and return the other arguments. Arguments of a program are left alone."""
    remaining: list[str] = []
    queue = iter(arguments)
    for argument in queue:
        flag, equals, plugin = argument.partition("=")
        if flag == "--plugin":
            from weft.plugins import use

            use(plugin if equals else next(queue, ""))
            continue
        remaining.append(argument)
        if argument in _RUNNERS:
            remaining += queue
    return remaining


def _flush(status: int) -> int:
    """Flush standard output and return the exit status: a full disk may show only now."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python flushes again at exit and would print an error of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return status if isinstance(error, BrokenPipeError) else status or _complain(_describe(error), 1)
    return status


def _describe(error: OSError) -> str:
    """Return the message of an OSError, with its file. Files that weft writes have errors of their own."""
    message = str(error.strerror or error) or type(error).__name__
    if error.errno in _WRITE_ERRORS and not error.filename:
        return f"cannot write standard output: {message}"
    return f"{error.filename}: {message}" if error.filename else message


def _complain(message: str, status: int) -> int:
    with suppress(OSError):  # standard error may be full as well
        print(f"weft: {message}", file=sys.stderr)
    return status
