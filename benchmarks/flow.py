"""Measure the flow engine against the packet engine, on the same traffic in the same run.

    python benchmarks/flow.py [--messages 12000] [--pareto 1000000] [--units 176] [--json]

Irregular traffic: 1,024 hosts of a three-level fat tree send to random hosts at load 0.8, by static routes and adaptive
ones, with messages of 4 KiB (one packet), 64 KiB and 256 KiB. Times are CPU seconds of one core with set-up and
compiled kernels, the best of two. `exact_s` is the flow engine without its tolerance of rates; `error` is the largest
change of a latency by that tolerance. With `--pareto`, so many messages of Pareto sizes (mean 10.5 KB, shape 1.2) in a
Poisson process at the same load, by both engines. With `--units`, the all-to-all of NCCL on a SuperPOD of so many
units of 256 GPUs, and its memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import weft
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.flow.engine import FlowEngine
from weft.sim.flow.fair import EXACT
from weft.sim.flow.loop import run_moments
from weft.sim.flow.plan import plan
from weft.sim.packet.engine import PacketEngine
from weft.sim.patterns import uniform
from weft.sim.traffic import Traffic

SPEC = "fat-tree:hosts=1024,radix=16"
LOAD = 0.8
SIZES_BYTES = (4096, 65_536, 262_144)
FOREVER_PS = 1 << 52


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=12_000)
    parser.add_argument("--pareto", type=int, default=0)
    parser.add_argument("--units", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    for row in measure_all(arguments.messages, arguments.pareto, arguments.units):
        rows.append(row)
        if not arguments.json:
            print("  ".join(f"{name} {value:,.4g}" for name, value in row.items()), flush=True)
    if arguments.json:
        json.dump(rows, sys.stdout, indent=2)


def measure_all(messages: int, pareto: int, units: int) -> Iterator[dict[str, float]]:
    if messages:
        yield from measure(messages)
    if pareto:
        yield measure_pareto(pareto)
    if units:
        yield measure_all_to_all(units)


def measure(messages: int) -> Iterator[dict[str, float]]:
    fabric = route(weft.load(SPEC), RoutingOptions(adaptive=True)).fabric
    hosts, rate_bytes_per_ps = len(fabric.hcas), 400 / 8000
    for size_bytes in SIZES_BYTES:
        duration_ps = int(messages * size_bytes / (hosts * LOAD * rate_bytes_per_ps))
        traffic = uniform(fabric, size_bytes=size_bytes, load=LOAD, duration_ps=duration_ps)
        for paths in ("table", "adaptive"):
            options = Options(paths=paths)
            packet_s, _ = best_s(lambda o=options, t=traffic: PacketEngine().run(fabric, t, replace(o, threads=1)))
            flow_s, flow = best_s(lambda o=options, t=traffic: FlowEngine().run(fabric, t, o))
            exact_s, exact_ps = best_s(lambda o=options, t=traffic: run_exactly(fabric, t, o))
            yield {
                "size_bytes": size_bytes,
                "adaptive": paths == "adaptive",
                "messages": len(traffic),
                "packet_s": packet_s,
                "flow_s": flow_s,
                "exact_s": exact_s,
                "flow_us_per_message": flow_s / len(traffic) * 1e6,
                "packet_over_flow": packet_s / flow_s,
                "mean_error": float(np.abs(flow.latency_ps / exact_ps - 1).mean()),
                "error": float(np.abs(flow.latency_ps / exact_ps - 1).max()),
            }


def measure_pareto(messages: int) -> dict[str, float]:
    """Time both engines on messages of Pareto sizes by static routes."""
    fabric = route(weft.load(SPEC)).fabric
    hosts, rng = host_ports(fabric), np.random.default_rng(1)
    size_bytes = (1750 * (1 + rng.pareto(1.2, messages))).astype(np.int64)
    gap_ps = 10_500 / (len(hosts) * LOAD * 400 / 8000)
    sender = rng.integers(0, len(hosts), messages)
    receiver = (sender + rng.integers(1, len(hosts), messages)) % len(hosts)
    start_ps = np.cumsum(rng.exponential(gap_ps, messages)).astype(np.int64)
    traffic = Traffic.make(hosts[sender], hosts[receiver], size_bytes, start_ps=start_ps)
    options = Options()
    flow_s, _ = best_s(lambda: FlowEngine().run(fabric, traffic, options))
    packet_s, _ = best_s(lambda: PacketEngine().run(fabric, traffic, replace(options, threads=1)))
    return {"pareto": messages, "flow_s": flow_s, "packet_s": packet_s, "packet_over_flow": packet_s / flow_s}


def run_exactly(fabric: Fabric, traffic: Traffic, options: Options) -> NDArray[np.int64]:
    """Run flows without a tolerance of rates and return the latency of each message."""
    state = plan(fabric, traffic, options).state
    state.run.until_ps, state.run.tolerance, state.run.batch_ps = FOREVER_PS, EXACT, 0
    run_moments(state, 1 << 40)
    latency_ps: NDArray[np.int64] = state.messages.finish_ps - state.messages.start_ps
    return latency_ps


def best_s(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of the faster of two runs, and the result."""
    times_s = []
    for _ in range(2):
        begin = time.process_time()
        result = function()
        times_s.append(time.process_time() - begin)
    return min(times_s), result


def measure_all_to_all(units: int) -> dict[str, float]:
    """Time the prediction of an all-to-all of 64 MiB, whose steps run as flows."""
    begin = time.process_time()
    row = weft.time(f"superpod:su={units}", "all_to_all", "64M")
    return {
        "gpus": 256 * units,
        "time_us": row.time_us,
        "cpu_s": time.process_time() - begin,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20),
    }


if __name__ == "__main__":
    main()
