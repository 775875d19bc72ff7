"""A flag means the same in every command, and every command that answers a question prints JSON.

The meaning of a flag is the beginning of its help, up to the first punctuation; values and
defaults may differ after it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from cyclopts import App
from cyclopts.argument import Argument

from weft.cli import COMMANDS, app

# Flags of other tools, whose command lines are pasted: nccl-tests, OSU's programs, perftest and opensm.
_OTHER_TOOLS = {"nccl", "osu", "perf", "sm"}
_EXCEPTIONS = {
    "--iterations": "OSU and perftest",
    "--iters": "nccl-tests and perftest",
}


def _commands(level: App, names: tuple[str, ...] = ()) -> Iterator[tuple[str, App]]:
    inner = [name for name in level if not name.startswith("-")]
    if names and (level.default_command or not inner):
        yield " ".join(names), level
    for name in inner:
        yield from _commands(level[name], (*names, name))


EVERY = {name: command for name, command in _commands(app) if name.split()[0] in COMMANDS}


def _options(command: App) -> Iterator[tuple[str, Argument]]:
    for argument in command.assemble_argument_collection(parse_docstring=True):
        yield from ((name, argument) for name in argument.names if name.startswith("-"))


def _meaning(argument: Argument) -> str:
    text = " ".join((argument.parameter.help or "").split())
    return re.split(r"[:.,;\[(]", text)[0].strip()


def _flags() -> dict[str, dict[str, list[str]]]:
    """Return the commands by meaning, by flag. Each scenario is an experiment with parameters of its own."""
    flags: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, command in EVERY.items():
        if name.startswith("scenario "):
            continue
        for flag, argument in _options(command):
            is_pasted = len(flag) == 2 and name in _OTHER_TOOLS
            if flag not in _EXCEPTIONS and not is_pasted and not flag.startswith(("--no-", "--empty-")):
                flags[flag][_meaning(argument)].append(name)
    return flags


def test_a_flag_has_one_meaning():
    different = {flag: dict(meanings) for flag, meanings in _flags().items() if len(meanings) > 1}
    assert not different


def test_every_flag_has_help():
    lacking = {flag: meanings[""] for flag, meanings in _flags().items() if "" in meanings}
    assert not lacking


def test_exceptions_are_still_needed():
    flags = {flag for name, command in EVERY.items() for flag, _ in _options(command)}
    assert flags >= _EXCEPTIONS.keys()


_FILE, _PROGRAM, _CHANGE = "writes a file", "runs a program, which prints", "changes a lab, and answers nothing"
_WITHOUT_JSON = {
    "follow": "prints changes as they come; weft history --json has them",
    "draw": _FILE,
    "server": _FILE,
    "study": _FILE,
    "capture": _FILE,
    "exec": _PROGRAM,
    "run": _PROGRAM,
    "join": _PROGRAM,
    "verbs": _PROGRAM,
    "perftest": _PROGRAM,
    "ibv_devices": "prints what rdma-core's program prints",
    "ibv_devinfo": "prints what rdma-core's program prints",
    "ibv_rc_pingpong": "prints what rdma-core's program prints",
    "ibv_uc_pingpong": "prints what rdma-core's program prints",
    "ibv_ud_pingpong": "prints what rdma-core's program prints",
    "diag": "prints what the programs of infiniband-diags print",
    "monitor": "serves metrics, or prints them in Prometheus' format",
    "slurm": "is Slurm's prolog and epilog",
    "up": "runs a lab; `weft ps --json` describes it",
    "down": _CHANGE,
    "break": _CHANGE,
    "degrade": _CHANGE,
    "fix": _CHANGE,
    "swap": _CHANGE,
    "unload": _CHANGE,
}


@pytest.mark.parametrize("name", EVERY)
def test_command_has_json_or_a_reason(name):
    has_json = any(flag == "--json" for flag, _ in _options(EVERY[name]))
    assert has_json != (name in _WITHOUT_JSON)


def test_reasons_are_of_commands():
    assert EVERY.keys() >= _WITHOUT_JSON.keys()


@pytest.mark.parametrize(
    "words",
    [
        "show star:hosts=4",
        "route star:hosts=4",
        "path star:hosts=4 h1 h2",
        "sim star:hosts=4 --size 8",
        "osu allreduce star:hosts=2 -m 8:8",
        "perf write_bw h1 h2 star:hosts=2",
        "train llama3-8b --gpus 8 --tp 2",
        "train llama3-8b --gpus 16 --tp 2 --fabrics ndr,hdr --engine analytic",
        "compare star:hosts=2,server=dgx-h100 --fabrics ndr",
        "plan --gpus 16",
        "grow fat-tree:hosts=16,radix=8 --servers 32",
        "links",
        "topologies",
        "catalog QM9700",
    ],
)
def test_numbers_with_a_unit_have_it_in_their_key(words, capsys):
    """The JSON of `weft nccl` is that of nccl-tests, and not in the list."""
    app([*words.split(), "--json"])
    unclear = {key for key in _keys(json.loads(capsys.readouterr().out)) if key in _QUANTITIES}
    assert not unclear


_QUANTITIES = {
    "time",
    "size",
    "rate",
    "bandwidth",
    "latency",
    "length",
    "power",
    "price",
    "cost",
    "memory_used",
    "duration",
}


def _keys(facts: Any) -> Iterator[str]:
    """Yield the keys of numbers."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield key
            yield from _keys(value)
    elif isinstance(facts, list):
        for value in facts:
            yield from _keys(value)
