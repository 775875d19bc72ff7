"""Run random small workloads compiled, on several threads and interpreted: all must give the same digests.

    python benchmarks/random_runs.py 10000                      1, 2 and 3 threads, compiled
    python benchmarks/random_runs.py 1000 --interpreted         and interpreted, about 0.3 s each

A workload is a fabric of at most 12 hosts with one or more virtual lanes, up to eight messages with dependencies, and
options drawn at random: network, paths, congestion control, crossbar, switching, buffers, bit errors, cables that are
cut, slow or flapping for some time. Each runs once as one group of switches, and once divided into groups as small as
possible. An error is a result too. `--first` is the first seed, to go on later.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import cache

import numpy as np

import weft
from weft.errors import WeftError
from weft.fabric import faults
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.engine import Options
from weft.sim.packet import groups
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic, Transport

SPECS = (
    "star:hosts=5",
    "fat-tree:hosts=8,radix=4",
    "torus:3x3",
    "dragonfly:p=1,a=4,h=1",
    "hyperx:3x3",
    "star:hosts=6,speed=100GbE",
    "fat-tree:hosts=12,radix=8,speed=100GbE",
)
CONTROLS = {
    "infiniband": ("none", "none", "ib", "hpcc", "swift", "timely", "credits"),
    "roce": ("none", "dcqcn", "hpcc", "swift", "timely", "credits"),
    "tcp": ("reno", "dctcp"),
    "uet": ("nscc", "rccc", "nscc-rccc"),
}


@cache
def routed(spec: str, vls: int) -> Fabric:
    fabric = route(weft.load(spec), RoutingOptions(adaptive=True)).fabric
    if vls > 1 and "sl2vl" not in vars(fabric.tables):
        fabric.tables.sl2vl[:] = np.arange(16) % vls
    return fabric


def draw(seed: int) -> tuple[Fabric, Traffic, dict[str, object]]:
    """Return a random fabric, its messages and the options."""
    rng = np.random.default_rng(seed)
    spec = str(rng.choice(SPECS))
    ethernet = "GbE" in spec
    network = str(rng.choice(["roce", "tcp", "uet"])) if ethernet else "infiniband"
    fabric = routed(spec, int(rng.choice([1, 1, 2, 3])))
    hosts = len(fabric.servers)
    n = int(rng.integers(1, 9))
    src = rng.integers(0, hosts, n)
    dst = (src + rng.integers(1, hosts, n)) % hosts
    if rng.random() < 0.3:
        dst = np.where(src == dst[0], dst, dst[0])
    rows = [
        (f"h{a + 1}", f"h{b + 1}", int(size))
        for a, b, size in zip(src, dst, rng.choice([0, 1, 700, 4096, 9000, 20_000], n), strict=True)
    ]
    options: dict[str, object] = {"network": network, "seed": int(rng.integers(1, 1000))}
    lossy = rng.random() < 0.25
    if lossy:
        cables = [port.name for port in fabric["h1"].ports if port.link is not None]
        fabric = faults.degrade(fabric, str(rng.choice([*cables, "h2/1"])), float(rng.choice([1e-6, 8e-6])))
    reliable = network in ("tcp", "uet") or rng.random() < 0.7
    columns = {
        "operation": rng.choice([0, 1, 2] if reliable and network != "tcp" else [0, 1], n),
        "transport": np.full(n, Transport.RC if reliable else Transport.UC),
        "start_ps": rng.integers(0, 3_000_000, n) * (rng.random() < 0.7),
        "delay_ps": rng.integers(0, 1_000_000, n),
        "qp": rng.integers(0, 2, n),
        "after": [[] if at == 0 or rng.random() < 0.6 else [int(rng.integers(0, at))] for at in range(n)],
        "outstanding": int(rng.choice([0, 0, 1])),
    }
    if not ethernet and rng.random() < 0.5:
        columns["sl"] = rng.integers(0, 3, n)
    paths = ["table", "table", "adaptive", "spray", "ecmp"]
    if spec.startswith(("torus", "dragonfly", "hyperx")):
        paths = ["table", "valiant", "ugal", "par"]
    if network == "uet":
        paths += ["oblivious", "bitmap", "reps", "mixed"]
        options["full_queue"] = str(rng.choice(["trim", "trim", "drop", "credits"]))
        options["link_retry"] = bool(lossy and rng.random() < 0.5)
    options["paths"] = str(rng.choice(["table", *paths] if spec.startswith("star") is False else ["table"]))
    options["congestion_control"] = str(rng.choice(CONTROLS[network]))
    if rng.random() < 0.2 and network not in ("tcp", "uet"):
        options["crossbar"] = "one-read-port"
    if rng.random() < 0.2:
        options["switching"] = "store-and-forward"
    if rng.random() < 0.3:
        options["buffer_bytes"] = int(rng.choice([5_000, 20_000]))
    if rng.random() < 0.3:
        begin = rng.integers(0, 3)
        slow = "slow:h2/1=1x10GbE" if ethernet else "slow:h2/1=1xHDR"
        fault = str(rng.choice([f"cut:h1/1@{begin}us-{begin + 2}us", f"{slow}@{begin}us-{begin + 4}us"]))
        flaps = [f"cut:h1/1@{begin + at}us-{begin + at + 1}us" for at in (4, 6, 9)] if rng.random() < 0.5 else []
        options["faults"] = (fault, *flaps)
    options["ack_timeout_exponent"] = int(rng.choice([2, 4]))
    return fabric, Traffic.of(fabric, rows, **columns), options


def outcome(seed: int, threads: int = 0, *, divided: bool = False) -> str:
    """Return the digest of a workload, or the error that ends it."""
    usual = groups.LEAST_HOSTS, groups.HOSTS_OF_A_GROUP
    if divided:
        groups.LEAST_HOSTS = groups.HOSTS_OF_A_GROUP = 2
    try:
        fabric, traffic, options = draw(seed)
        result = PacketEngine().run(fabric, traffic, Options(**options, threads=threads))  # type: ignore[arg-type]
        return f"{result.digest()[:16]} {result.packet_hops} {int(result.retransmitted.sum())}"
    except WeftError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    finally:
        groups.LEAST_HOSTS, groups.HOSTS_OF_A_GROUP = usual


def several(seed: int, threads: int) -> str:
    """Return the outcome on several threads, or of one where the run has one group."""
    said = outcome(seed, threads, divided=True)
    return outcome(seed, divided=True) if "runs on one thread" in said else said


def lines(first: int, count: int) -> list[tuple[str, str]]:
    return [(outcome(seed), outcome(seed, divided=True)) for seed in range(first, first + count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--interpreted", action="store_true")
    parser.add_argument("--print", action="store_true", help="print the outcomes only")
    chosen = parser.parse_args()
    if chosen.print:
        for one, divided in lines(chosen.first, chosen.count):
            print(one, divided, sep="\t", flush=True)
        return
    ours = lines(chosen.first, chosen.count)
    differ = 0
    for seed, (_, divided) in enumerate(ours, chosen.first):
        for threads in (2, 3):
            if several(seed, threads) != divided:
                differ += 1
                print(f"seed {seed}: {threads} threads differ from one")
    if chosen.interpreted:
        command = [sys.executable, __file__, str(chosen.count), "--first", str(chosen.first), "--print"]
        environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for seed, (own, other) in enumerate(zip(ours, run.stdout, strict=True), chosen.first):
                if "\t".join(own) != other.rstrip("\n"):
                    differ += 1
                    print(f"seed {seed}: compiled {own}, interpreted {other}", flush=True)
    errors = sum(": " in one for one, _ in ours)
    resent = sum(one.split()[-1] not in ("0",) for one, _ in ours if ": " not in one)
    hops = sum(int(one.split()[1]) for one, _ in ours if ": " not in one)
    how = "1, 2 and 3 threads" + (" and interpreted" if chosen.interpreted else "")
    print(f"{chosen.count:,} random runs, seeds from {chosen.first}, by {how}: {differ} differ")
    print(f"{hops:,} packet-hops; {resent:,} runs with retransmissions, {errors:,} that end with an error")


if __name__ == "__main__":
    main()
