"""Published runs, read from a file: a table for each, with its source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from weft.errors import find_named
from weft.fabric.rates import Sourced, read_data


class Run(Sourced, frozen=True, kw_only=True):
    """A published run. The note has assumptions that the source does not state."""

    name: str


AnyRun = TypeVar("AnyRun", bound=Run)


def read_runs(package: str, file: str, kind: type[AnyRun]) -> tuple[AnyRun, ...]:
    tables = read_data(package, file)
    return tuple(msgspec.convert({**table, "name": name}, kind) for name, table in tables.items())


def find_run(name: str, runs: Iterable[AnyRun], command: str) -> AnyRun:
    return find_named("run", name, {run.name: run for run in runs}, f"`{command}` lists them.")
