"""Benchmark collectives with weft's three engines by the number of GPUs, and ns-3 on the same bytes in the same run.

    python benchmarks/collectives.py [256 2048 16384 65536] [--no-ns3] [--json]

Scale: a hierarchical all-reduce of 1 GB on DGX H100 SuperPODs, by the flow engine, rail by rail: loading, routing and
running
together, each size in its own process. The exponents are those of seconds and megabytes against GPUs.

Engines: the same hierarchical all-reduce of 16 MB on 256 GPUs by packets, flows and closed form; and a ring all-
reduce of 128
hosts, for which ns-3 sends the same bytes to the same neighbours (without waiting in between).
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import weft
from ns3_peer import run_ns3
from weft.collectives.kinds import Collective
from weft.collectives.rails import run_by_rails
from weft.collectives.ranks import place
from weft.collectives.run import run_program
from weft.collectives.schedules.writers import program
from weft.fabric.nvlink import join_nvlinks
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.analytic import AnalyticEngine
from weft.sim.flow.engine import FlowEngine
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Engine

GPUS_PER_UNIT = 256
SCALE_BYTES = 1 << 30
POD_BYTES = 16 << 20
RING_HOSTS, RING_BYTES = 128, 2 << 20
ENGINES: dict[str, Engine] = {"packet": PacketEngine(), "flow": FlowEngine(), "analytic": AnalyticEngine()}
Figures = dict[str, float]


def scale(gpus: int) -> Figures:
    """Run everything from the name of the fabric to the time of the collective."""
    fabric = weft.load(f"superpod:su={gpus // GPUS_PER_UNIT}")
    timing = run_by_rails(fabric, Collective.ALL_REDUCE, SCALE_BYTES)
    return {"simulated_ms": timing.time_us / 1000, "bus_gbyte_s": timing.bus_gbyte_s}


def pod(name: str) -> Figures:
    ranks = place(join_nvlinks(route(weft.load("superpod:su=1"), RoutingOptions(adaptive=True)).fabric))
    whole = program("all_reduce", "hierarchical", nodes=32, gpus=8)
    return best_of(lambda: run_program(whole, ranks, POD_BYTES, engine=ENGINES[name]).time_us)


def ring(name: str) -> Figures:
    fabric = route(weft.load(f"fat-tree:hosts={RING_HOSTS},radix=8"), RoutingOptions(adaptive=True)).fabric
    ranks, whole = place(fabric), program("all_reduce", "ring", nodes=RING_HOSTS)
    return best_of(lambda: run_program(whole, ranks, RING_BYTES, engine=ENGINES[name]).time_us)


def best_of(run: Callable[[], float]) -> Figures:
    """Return the best of three runs, after one that may compile."""
    times_s = []
    for _ in range(4):
        begin = time.process_time()
        simulated_us = run()
        times_s.append(time.process_time() - begin)
    return {"cpu_s": min(times_s[1:]), "simulated_ms": simulated_us / 1000}


JOBS: dict[str, Callable[..., Figures]] = {"scale": lambda gpus: scale(int(gpus)), "pod": pod, "ring": ring}


def measure(job: str, argument: str) -> Figures:
    """Run a job in its own process, so that its memory is separate; importing is not counted."""
    command = [sys.executable, __file__, "--child", job, argument]
    figures: Figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


def child(job: str, argument: str) -> None:
    begin, used = time.perf_counter(), time.process_time()
    figures = JOBS[job](argument)
    figures.setdefault("cpu_s", time.process_time() - used)
    figures["wall_s"] = time.perf_counter() - begin
    figures["mbyte"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(figures))


def exponent(rows: list[Figures], key: str) -> float:
    """Return the exponent of the last step in size."""
    first, last = rows[-2:]
    return math.log(last[key] / first[key]) / math.log(last["gpus"] / first["gpus"])


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--child"]:
        child(*arguments[1:])
        return
    sizes = [int(word) for word in arguments if word.isdecimal()] or [256, 2048, 16384, 65536]
    measure("scale", str(min(sizes)))  # compile
    scaled: list[Figures] = [{"gpus": gpus, **measure("scale", str(gpus))} for gpus in sizes]
    pods = {name: measure("pod", name) for name in ENGINES}
    rings = {name: measure("ring", name) for name in ENGINES}
    sent_bytes = RING_BYTES * 2 * (RING_HOSTS - 1) // RING_HOSTS
    neighbours = [(host + 1) % RING_HOSTS for host in range(RING_HOSTS)]
    peer = "ns-3 left out" if "--no-ns3" in arguments else run_ns3(RING_HOSTS, neighbours, sent_bytes)
    if isinstance(peer, str):
        print(peer, file=sys.stderr)
    else:
        rings["ns-3"] = {"cpu_s": peer["user_s"], "simulated_ms": peer["last_arrival_ps"] / 1e9, "mbyte": peer["mbyte"]}
    if "--json" in arguments:
        print(json.dumps({"scale": scaled, "pod": pods, "ring": rings}, indent=2))
        return
    print(f"hierarchical all-reduce of {SCALE_BYTES:,} bytes, flow engine by rails\n")
    print(f"{'GPUs':>8}{'wall s':>9}{'cpu s':>8}{'MB':>8}{'simulated ms':>14}{'bus GB/s':>10}")
    for row in scaled:
        print(
            f"{row['gpus']:>8,.0f}{row['wall_s']:>9.2f}{row['cpu_s']:>8.2f}{row['mbyte']:>8,.0f}"
            f"{row['simulated_ms']:>14.2f}{row['bus_gbyte_s']:>10.1f}"
        )
    if len(scaled) > 1:
        print(f"\nexponents: wall {exponent(scaled, 'wall_s'):.2f}, memory {exponent(scaled, 'mbyte'):.2f}")
    for title, engines in (
        (f"hierarchical all-reduce of {POD_BYTES:,} bytes on 256 GPUs", pods),
        (f"ring all-reduce of {RING_BYTES:,} bytes on {RING_HOSTS} hosts", rings),
    ):
        slowest = max(row["cpu_s"] for row in engines.values())
        print(f"\n{title}\n\n{'engine':>10}{'cpu s':>10}{'× faster':>10}{'MB':>8}{'simulated ms':>14}")
        for name, row in engines.items():
            print(
                f"{name:>10}{row['cpu_s']:>10.3f}{slowest / row['cpu_s']:>10.1f}{row['mbyte']:>8.0f}"
                f"{row['simulated_ms']:>14.3f}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
