"""The effective training time ratio of a job under failures, and the best interval between checkpoints.

    goodput = Goodput(nodes=2048, rate=find_rate("llama3"), blocks_s=10)
    goodput.ettr, goodput.interval_s, goodput.mttf_s

    |--- interval ---|w|--- interval ---|w|--- inter X            a failure: work since the checkpoint is lost
                                                     | restart |--- interval ---|w|

Failures come at random, at a rate that grows with the servers; a failure while the job restarts restarts it again.
Then an interval with its checkpoint takes M e^(u/M) (e^((t+w)/M) - 1) in the mean (Daly, 2006): M mean time to
failure, u restart, t interval, w the time that a checkpoint blocks. Where failures are rare that is Meta's
(1 - N rf (u + t/2)) / (1 + w/t), "Revisiting Reliability", and the best interval Young's sqrt(2 w M).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import exp, expm1
from typing import Any

from weft.errors import ConfigError, find_named
from weft.fabric.rates import read_data

_DAY_S = 86_400
SERVER_GPUS = 8  # GPUs in each server of the published rates


@cache
def constants() -> dict[str, Any]:
    """Return the tables of failures.toml."""
    return read_data("weft.training", "failures.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A published failure rate of servers."""

    name: str
    per_node_day: float
    source: str
    network_share: float | None = None  # share of failures caused by the network, if published


@cache
def rates() -> Mapping[str, Rate]:
    return {name: _rate(name, table) for name, table in constants()["rates"].items()}


def _rate(name: str, table: dict[str, Any]) -> Rate:
    share = table["network"] / table["failures"] if "network" in table else None
    per_node_day = table["failures"] / table["node_days"]
    return Rate(name=name, per_node_day=per_node_day, source=table["source"], network_share=share)


def find_rate(name: str) -> Rate:
    return find_named("failure rate", name, rates())


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """A job under failures, with a given interval between checkpoints or the best one.

    A checkpoint that does not block the job has no best interval.
    """

    nodes: int  # servers of 8 GPUs
    rate: Rate
    blocks_s: float  # how long a checkpoint keeps the job from training
    restart_s: float = field(default_factory=lambda: float(constants()["restart"]["seconds"]))
    interval_s: float = 0.0  # training time between two checkpoints

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise ConfigError(f"a job on {self.nodes} servers: it needs one at least")
        for name in ("blocks_s", "restart_s", "interval_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} = {getattr(self, name)}: it is a time from 0 up, in seconds")
        if self.interval_s == 0 and self.blocks_s == 0:
            raise ConfigError("a checkpoint that blocks for 0 s has no best interval: give the interval, or how long")
        if self.interval_s == 0:
            object.__setattr__(self, "interval_s", best_interval_s(self.mttf_s, self.blocks_s))

    @property
    def mttf_s(self) -> float:
        """Return the mean time to failure of the whole job, which any failed server ends."""
        return _DAY_S / (self.nodes * self.rate.per_node_day)

    @property
    def ettr(self) -> float:
        """Return the effective training time ratio: the share of time spent on training that is not lost."""
        mttf_s = self.mttf_s
        return self.interval_s / mttf_s * exp(-self.restart_s / mttf_s) / expm1(self._turn_s / mttf_s)

    @property
    def ettr_of_few(self) -> float:
        """Return the ratio by Meta's closed form for rare failures; it is below 0 if they are frequent."""
        lost = (self.restart_s + self.interval_s / 2) / self.mttf_s
        return (1 - lost) / (1 + self.blocks_s / self.interval_s)

    @property
    def parts(self) -> dict[str, float]:
        """Return the shares of time: training and checkpoints that count, restarts, and lost work."""
        mttf_s, ettr = self.mttf_s, self.ettr
        checkpoint = ettr * self.blocks_s / self.interval_s
        up = exp(-self.restart_s / mttf_s)  # an attempt to restart lasts so long, in the mean, that this is left
        return {"training": ettr, "checkpoint": checkpoint, "restart": 1 - up, "lost": up - ettr - checkpoint}

    @property
    def _turn_s(self) -> float:
        return self.interval_s + self.blocks_s

    def report(self) -> dict[str, Any]:
        """Return the fields of `--json`."""
        return {
            "rate": self.rate.name,
            "source": self.rate.source,
            "nodes": self.nodes,
            "mttf_s": self.mttf_s,
            "checkpoint_s": self.blocks_s,
            "restart_s": self.restart_s,
            "interval_s": self.interval_s,
            "best_interval_s": best_interval_s(self.mttf_s, self.blocks_s) if self.blocks_s else None,
            "ettr": self.ettr,
            "ettr_of_few": self.ettr_of_few,
            "parts": self.parts,
        }


def best_interval_s(mttf_s: float, blocks_s: float) -> float:
    """Return the interval that maximises `ettr`: x - 1 + e^-x = w/M with x = (t+w)/M."""
    target = blocks_s / mttf_s
    low, high = 0.0, target + 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if middle + expm1(-middle) < target else (low, middle)
    return high * mttf_s - blocks_s
