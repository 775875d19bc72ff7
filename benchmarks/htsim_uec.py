"""Compare Ultra Ethernet in weft with htsim's uec on the same flows, and its speed with that of the RoCE rules.

    python benchmarks/htsim_uec.py [PATH/TO/htsim_uec] [--hosts 128] [--permutations 5] [--json]

The program is `htsim_uec` of github.com/ultraethernet/uet-htsim, which is not part of weft; without it only the speeds
are measured. Both read the same `.cm` files: an incast of all hosts into one, and permutations of 2 MB flows on a
three-level fat tree, 100 Gbit/s, 1 µs a link, 64-byte ACKs in htsim and 110 in weft. The hashes differ, so only
distributions can agree. A flow ends when its sender has the last acknowledgement.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import weft
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.connection_matrix import read_connection_matrix
from weft.sim.engine import Options
from weft.sim.packet.engine import PacketEngine
from weft.sim.result import Result

RADIX = {16: 4, 128: 8, 1024: 16}
CABLE_M = 139.0  # 1 µs with the switch behind it
FLOW_BYTES = 2_000_000
FINISHED = re.compile(r"^Flow \S+ flowId \d+ \S+ \d+ finished at ([\d.]+)", re.MULTILINE)
SENDER = "-sender_cc_only"
# name, words of htsim, options of weft
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("incast, NSCC", SENDER, {}),
    ("incast, RCCC", "-receiver_cc_only", {"congestion_control": "rccc"}),
    ("incast, both", "-sender_cc -receiver_cc", {"congestion_control": "nscc-rccc"}),
    ("incast, dropped", f"{SENDER} -disable_trim -sleek", {"full_queue": "drop"}),
    ("oblivious", f"{SENDER} -load_balancing_algo oblivious", {"paths": "oblivious"}),
    ("bitmap", f"{SENDER} -load_balancing_algo bitmap", {"paths": "bitmap"}),
    ("REPS", f"{SENDER} -load_balancing_algo reps", {"paths": "reps"}),
    ("mixed", SENDER, {}),
    ("one path", f"{SENDER} -paths 1", {"paths": "ecmp"}),
    ("mixed, RCCC", "-receiver_cc_only", {"congestion_control": "rccc"}),
)
SPEEDS = (
    ("RoCE, ECMP", {"network": "roce"}),
    ("RoCE, adaptive", {"network": "roce", "paths": "adaptive"}),
    ("UET", {"network": "uet"}),
)


def flows(hosts: int, name: str, seed: int) -> list[str]:
    """Return the lines of a connection matrix: an incast into the last host, or a permutation."""
    order = np.random.default_rng(seed).permutation(hosts)
    pairs = zip(order.tolist(), np.roll(order, -1).tolist(), strict=True)
    if name.startswith("incast"):
        pairs = zip(range(hosts - 1), [hosts - 1] * (hosts - 1), strict=True)
    rows = [f"{src}->{dst} start 0 size {FLOW_BYTES}" for src, dst in pairs]
    return [f"Nodes {hosts}", f"Connections {len(rows)}", *rows]


def run_htsim(program: str, matrix: Path, words: str) -> NDArray[np.float64]:
    paths = "" if "-paths" in words else "-paths 128"
    command = [str(Path(program).resolve()), "-tm", str(matrix), *words.split(), *paths.split(), "-end", "300000"]
    done = subprocess.run(
        [*command, "-o", str(matrix.with_suffix(".log"))],
        capture_output=True,
        text=True,
        check=False,
        cwd=matrix.parent,
    )
    times_us = np.array([float(text) for text in FINISHED.findall(done.stdout)])
    if done.returncode or not len(times_us):
        sys.exit(f"{program} ended with status {done.returncode}: {done.stderr[-300:]}")
    return times_us


def run_weft(fabric: Fabric, matrix: Path, seed: int, options: dict[str, Any]) -> Result:
    chosen = {
        "network": "uet",
        "switching": "store-and-forward",
        "mtu_bytes": 4032,
        "threads": 1,
        "seed": seed,
    } | options
    return PacketEngine().run(fabric, read_connection_matrix(matrix, fabric), Options(**chosen))


def speeds(fabric: Fabric, matrix: Path) -> dict[str, float]:
    """Return the nanoseconds of processor time that a packet takes for each link that it passes: the least of five."""
    ns = {}
    for name, options in SPEEDS:
        each = []
        for _ in range(6):  # the first compiles
            begin = time.process_time()
            result = run_weft(fabric, matrix, 1, {**options, "mtu_bytes": 4096})
            each.append((time.process_time() - begin) * 1e9 / result.packet_hops)
        ns[name] = min(each[1:])
    return ns | {f"UET / {name}": ns["UET"] / ns[name] for name, _ in SPEEDS[:-1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="htsim_uec, built from uet-htsim")
    parser.add_argument("--hosts", type=int, default=128, choices=RADIX)
    parser.add_argument("--permutations", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    fabric = weft.load(f"fat-tree:hosts={chosen.hosts},radix={RADIX[chosen.hosts]},levels=3,speed=100GbE")
    cables = replace(fabric.links, length_m=np.full(len(fabric.links), CABLE_M, np.float32))
    fabric = route(fabric.with_links(cables), RoutingOptions(adaptive=True)).fabric
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "flows.cm"
        for name, words, options in CASES if chosen.program else ():
            times_us: dict[str, list[NDArray[np.float64]]] = {"htsim": [], "weft": []}
            for seed in range(1, 1 + (1 if name.startswith("incast") else chosen.permutations)):
                matrix.write_text("\n".join(flows(chosen.hosts, name, seed)) + "\n")
                times_us["htsim"].append(run_htsim(chosen.program, matrix, words))
                times_us["weft"].append(run_weft(fabric, matrix, seed, options).acked_ps / 1e6)
            for who, parts in times_us.items():
                tail = float(np.mean([part.max() for part in parts]))
                rows[f"{name}: {who}"] = {"mean": float(np.concatenate(parts).mean()), "tail": tail}
            ours, theirs = rows[f"{name}: weft"], rows[f"{name}: htsim"]
            rows[f"{name}: ratio"] = {column: ours[column] / theirs[column] for column in ours}
        matrix.write_text("\n".join(flows(chosen.hosts, "permutation", 1)) + "\n")
        ns = speeds(fabric, matrix)
    if chosen.json:
        print(json.dumps({"completion_us": rows, "ns_per_packet_hop": ns}, indent=2))
        return
    for name, row in rows.items():
        print(f"{name:24}" + "".join(f"{column:>7}{value:11,.3f}" for column, value in row.items()))
    print("ns per packet and link: " + ", ".join(f"{name} {value:,.2f}" for name, value in ns.items()))


if __name__ == "__main__":
    main()
