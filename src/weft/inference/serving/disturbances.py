"""Faults in the middle of a run: a cable, a switch or a replica, and latencies before, during and after.

dead:decode1@60s-120s       a replica fails, and comes back
cut:dgx1/mlx5_0/1@60s       a cable is cut, for good
dead:leaf1                  a switch fails in the middle third of the run
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import numpy as np

from weft.errors import ConfigError
from weft.inference.serving.figures import Latency, tpot_s, ttft_s
from weft.inference.serving.placement import ADAPTER_SHARE, Placement, break_site
from weft.inference.serving.run import Served
from weft.inference.serving.service import Phase
from weft.inference.serving.slowed import tables_beside
from weft.inference.table import StepTable
from weft.sim.perftest import prepare
from weft.sim.result import Engine as Clock
from weft.training.failures import parse_fault

_REPLICA = re.compile(r"(replica|prefill|decode)\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """A fault with its times."""

    text: str  # as `parse_fault` reads it
    begin_s: float
    end_s: float = inf

    @classmethod
    def parse(cls, text: str, duration_s: float) -> Disturbance:
        """Parse FAULT@BEGIN-END; without times it lasts for the middle third of the run, without END to its end."""
        fault, at, times = text.partition("@")
        if not at:
            return cls(text=fault, begin_s=duration_s / 3, end_s=2 * duration_s / 3)
        begin, dash, end = times.partition("-")
        begin_s = _seconds(text, begin)
        end_s = _seconds(text, end) if dash else inf
        if not 0 <= begin_s < end_s:
            raise ConfigError(f"--fault {text}: its times must ascend, as in {fault}@60s-120s")
        if begin_s > duration_s:
            raise ConfigError(f"--fault {text} begins after the last request, which arrives at {duration_s:.4g} s")
        return cls(text=fault, begin_s=begin_s, end_s=end_s)


def _seconds(text: str, time: str) -> float:
    try:
        return float(time.strip().removesuffix("s"))
    except ValueError:
        raise ConfigError(f"--fault {text}: {time!r} is not a number of seconds, as in dead:leaf1@60s-120s") from None


def phases_of(
    disturbance: Disturbance,
    placement: Placement,
    mean_tokens: float,
    *,
    clock: Clock | None = None,
    adapter_share: float = ADAPTER_SHARE,
) -> tuple[Phase, ...]:
    """Return the phases of a run with a fault: during it, and after."""
    kind, _, where = disturbance.text.partition(":")
    after = () if disturbance.end_s == inf else (Phase(start_s=disturbance.end_s),)
    if kind == "dead" and where in placement.names:
        alive = np.array([name != where for name in placement.names])
        return (Phase(start_s=disturbance.begin_s, alive=alive), *after)
    if kind == "dead" and _REPLICA.fullmatch(where):
        raise ConfigError(f"--fault {disturbance.text}: the replicas are {', '.join(placement.names)}")
    fault = parse_fault(disturbance.text)
    if fault.kind == "flap":
        raise ConfigError(f"--fault {fault}: give its times as cut:{fault.where}@60s-65s")
    broken = break_site(placement, fault.break_(placement.deployment.site.fabric))
    fabric = prepare(broken.deployment.site.fabric)
    alive = broken.ports(fabric)[1]
    if not alive.any():
        raise ConfigError(
            f"--fault {disturbance.text} cuts off all replicas, and no request is served meanwhile: give a fabric with "
            "other paths, such as --fabric superpod:su=1, which has a leaf for each rail"
        )
    tables: tuple[StepTable, ...] | None = None
    if max(each.replica_gpus for each in broken.pools) > broken.deployment.site.template.gpus:
        beside = broken.beside is not None and broken.beside.jobs
        tables = tables_beside(broken, mean_tokens, clock) if beside else broken.tables(mean_tokens, clock)
    routes = None if placement.both else broken.routes(fabric, adapter_share)[0]
    return (Phase(start_s=disturbance.begin_s, alive=alive, tables=tables, routes=routes), *after)


def compare_phases(served: Served, disturbance: Disturbance) -> dict[str, dict[str, Any]]:
    """Return latencies of the requests that arrived before, during and after a fault."""
    arrival_s = served.requests.arrival_s
    late = arrival_s >= disturbance.begin_s
    parts = {
        "before": ~late & (served.requests.finished_s <= disturbance.begin_s),
        "under way": ~late & (served.requests.finished_s > disturbance.begin_s),
        "during": late & (arrival_s < disturbance.end_s),
        "after": arrival_s >= disturbance.end_s,
    }
    return {
        name: {
            "requests": int(chosen.sum()),
            "retries": int(served.requests.retries[chosen].sum()),
            "ttft": asdict(Latency.of(ttft_s(served)[chosen])),
            "tpot": asdict(Latency.of(tpot_s(served)[chosen])),
        }
        for name, chosen in parts.items()
        if chosen.any()
    }
