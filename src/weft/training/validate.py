"""Predictions beside published step times: how far to trust a step.

    for row in validate():
        print(row.published.name, row.published.step_s, row.step.step_s, row.error)

One set of constants for each type of GPU, and none for a row. The network is taken to be without flaws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from typing import Any

import msgspec

from weft.collectives.cluster import from_server
from weft.fabric import catalog
from weft.fabric.rates import read_data
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.step import Step, run_step
from weft.training.transformer import find


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A measured step."""

    name: str
    model: str
    server: str
    step_s: float
    layout: dict[str, Any]
    source: str
    date: date
    overrides: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Row:
    published: Published
    step: Step

    @property
    def error(self) -> float:
        """Of the prediction, as a part of what was measured: less than 0 is too fast."""
        return self.step.step_s / self.published.step_s - 1


@cache
def published() -> tuple[Published, ...]:
    tables = read_data("weft.training", "published.toml")
    return msgspec.convert([{**table, "name": name} for name, table in tables.items()], tuple[Published, ...])


def predict(one: Published) -> Step:
    """The step of a published job."""
    layout = Layout(**one.layout)
    server = catalog.server(one.server)
    over = Ideal(from_server(one.server, nodes=layout.gpus // server.gpus), layout)
    return run_step(replace(find(one.model), **one.overrides), layout, Gpu.of(server.gpu), over)


def validate() -> list[Row]:
    """Every published row, in the order of the file."""
    return [Row(published=one, step=predict(one)) for one in published()]
