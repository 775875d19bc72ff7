"""Compare the flow and analytic engines with the packet engine on random workloads.

    python benchmarks/engines.py [--workloads 500] [--seed 1] [--worst 5] [--json]

Every workload has a random fabric of 8 to 64 hosts, protocol, choice of paths, pattern, number of messages, size and
time of start, all by the seed. Printed are percentiles of the ratio to the packet engine, of the last arrival and of
the mean latency: `weft.sim.trust` contains the middle 90 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from functools import cache

import numpy as np

import weft
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.patterns import host_ports
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.engines import ENGINES
from weft.sim.traffic import Traffic

SPECS = (
    "star:hosts=8",
    "fat-tree:hosts=16,radix=8",
    "fat-tree:hosts=64,radix=16",
    "torus:4x4",
    "dragonfly:p=2,a=4,h=2",
)
PATTERNS = ("uniform", "incast", "permutation", "hot spot")
PERCENTILES = (0, 5, 50, 95, 100)


@cache
def routed(spec: str) -> Fabric:
    return route(weft.load(spec), RoutingOptions(adaptive=True)).fabric


def workload(seed: int) -> tuple[str, Fabric, Traffic, Options]:
    """Return a random workload with its description."""
    chance = np.random.default_rng(seed)
    network = str(chance.choice(["infiniband", "infiniband", "infiniband", "roce", "tcp"]))
    spec = str(chance.choice(SPECS)) + ("" if network == "infiniband" else ",speed=400GbE")
    paths = str(chance.choice(["table", "adaptive"] if network == "infiniband" else ["ecmp", "spray"]))
    if network == "tcp":
        paths = "ecmp"
    pattern = str(chance.choice(PATTERNS))
    fabric = routed(spec)
    hosts = host_ports(fabric)
    n = int(chance.integers(10, 200))
    size_bytes = int(2 ** chance.uniform(6, 20))
    src = chance.choice(hosts, n)
    if pattern == "permutation":
        order = chance.permutation(hosts)
        src, dst = order, np.roll(order, 1)
    elif pattern == "incast":
        dst = np.full(n, chance.choice(hosts))
    else:
        dst = chance.choice(hosts, n)
        if pattern == "hot spot":
            dst = np.where(chance.random(n) < 0.3, hosts[0], dst)
    apart = src != dst
    src, dst = src[apart], dst[apart]
    load = chance.uniform(0.1, 1.0)
    span_ps = 0 if pattern == "permutation" else int(len(src) * size_bytes * 20 / load / len(hosts))
    start_ps = chance.integers(span_ps + 1, size=len(src))
    sizes = np.full(len(src), size_bytes) if chance.random() < 0.5 else chance.integers(1, 2 * size_bytes, len(src))
    words = f"{seed}: {spec} {network} {paths} {pattern}, {len(src)} of {size_bytes} B, load {load:.2f}"
    return (
        words,
        fabric,
        Traffic.make(src, dst, sizes, start_ps=start_ps),
        Options(network=network, paths=paths, seed=seed),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    ratios: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for seed in range(arguments.seed, arguments.seed + arguments.workloads):
        name, fabric, traffic, options = workload(seed)
        packet, *others = (engine.run(fabric, traffic, options) for engine in ENGINES.values())
        for other in others:
            kind = f"{other.engine}, {options.network}"
            ratios[f"{kind}, last arrival"].append((other.last_arrival_ps / packet.last_arrival_ps, name))
            ratios[f"{kind}, mean latency"].append((other.latency_ps.mean() / packet.latency_ps.mean(), name))
    rows = {name: _percentiles([value for value, _ in pairs]) for name, pairs in sorted(ratios.items())}
    if arguments.json:
        json.dump(rows, sys.stdout, indent=2)
        return
    print(f"{'ratio to packet':<36}{'workloads':>9}" + "".join(f"{f'{p} %':>8}" for p in PERCENTILES))
    for name, row in rows.items():
        print(f"{name:<36}{len(ratios[name]):9}" + "".join(f"{value:8.3f}" for value in row.values()))
    for name, pairs in ratios.items():
        order = sorted(pairs)
        for value, words in order[: arguments.worst] + order[len(order) - arguments.worst :]:
            print(f"{name} {value:.3f}  {words}")


def _percentiles(values: list[float]) -> dict[int, float]:
    return dict(zip(PERCENTILES, np.percentile(values, PERCENTILES).round(3).tolist(), strict=True))


if __name__ == "__main__":
    main()
