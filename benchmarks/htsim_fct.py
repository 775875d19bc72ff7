"""Compare flow completion times of weft and of htsim's RoCE on the same permutations, in the same run.

    python benchmarks/htsim_fct.py PATH/TO/htsim_roce [--hosts 128] [--permutations 20] [--json]

The program is `htsim_roce` of github.com/Broadcom/csg-htsim, which is not part of weft. Each permutation is written as
a `.cm` file that both read: one flow of 2 MB from every host of a three-level fat tree, 400 Gbit/s, 4 KiB packets, 500
ns a link, ECMP by flow, no congestion control, a pause from 15 packets of input buffer on. The hashes differ, so flows
collide at other places and only distributions can agree. The least is a flow without collisions. weft counts the time
of its switches and adapters too, htsim until the sender has the last acknowledgement.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import weft
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.connection_matrix import read_connection_matrix
from weft.sim.engine import CongestionControl, Network, Options, Paths
from weft.sim.packet.engine import PacketEngine

RADIX = {16: 4, 128: 8, 1024: 16}
CABLE_M = 500 / 4.9  # 500 ns
FLOW_BYTES, PACKET_BYTES, PAUSE_PACKETS = 2_000_000, 4096, 15
FINISHED = re.compile(r"^Flow \S+ \d+ finished at ([\d.]+)", re.MULTILINE)
COLUMNS = ("least", "mean", "p50", "p90", "p99", "most")


def permutation(hosts: int, seed: int) -> list[str]:
    """Return the lines of a connection matrix: host order[i] sends to order[i + 1]."""
    order = np.random.default_rng(seed).permutation(hosts)
    pairs = zip(order.tolist(), np.roll(order, -1).tolist(), strict=True)
    flows = [f"{src}->{dst} id {row} start 0 size {FLOW_BYTES}" for row, (src, dst) in enumerate(pairs, 1)]
    return [f"Nodes {hosts}", f"Connections {hosts}", *flows]


def run_htsim(program: str, hosts: int, matrix: Path) -> NDArray[np.float64]:
    """Return the completion time of each flow in microseconds."""
    words = f"-nodes {hosts} -linkspeed 400000 -mtu {PACKET_BYTES} -hop_latency 0.5 -strat ecmp_host -paths 1 -end 9000"
    files = f"-pfc_thresholds {PAUSE_PACKETS - 3} {PAUSE_PACKETS} -tm {matrix} -o {matrix.with_suffix('.log')}"
    command = [str(Path(program).resolve()), *words.split(), *files.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=matrix.parent)
    times_us = np.array([float(text) for text in FINISHED.findall(done.stdout)])
    if done.returncode or len(times_us) != hosts:
        sys.exit(f"{program} finished {len(times_us)} of {hosts} flows, status {done.returncode}: {done.stderr[-300:]}")
    return times_us


def run_weft(fabric: Fabric, matrix: Path, seed: int) -> NDArray[np.float64]:
    options = Options(
        network=Network.ROCE,
        paths=Paths.ECMP,
        congestion_control=CongestionControl.NONE,
        mtu_bytes=PACKET_BYTES,
        buffer_bytes=PAUSE_PACKETS * PACKET_BYTES,
        seed=seed,
        threads=1,
    )
    result = PacketEngine().run(fabric, read_connection_matrix(matrix, fabric), options)
    return np.asarray(result.latency_ps / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="htsim_roce, built from csg-htsim")
    parser.add_argument("--hosts", type=int, default=128, choices=RADIX)
    parser.add_argument("--permutations", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    fabric = weft.load(f"fat-tree:hosts={chosen.hosts},radix={RADIX[chosen.hosts]},levels=3,speed=400GbE")
    cables = replace(fabric.links, length_m=np.full(len(fabric.links), CABLE_M, np.float32))
    fabric = route(fabric.with_links(cables), RoutingOptions(adaptive=True)).fabric
    times_us: dict[str, list[NDArray[np.float64]]] = {"htsim": [], "weft": []}
    cpu_s = {"htsim": 0.0, "weft": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / "permutation.cm"
        for seed in range(1, chosen.permutations + 1):
            matrix.write_text("\n".join(permutation(chosen.hosts, seed)) + "\n")
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            times_us["htsim"].append(run_htsim(chosen.program, chosen.hosts, matrix))
            cpu_s["htsim"] += resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            if seed == 1:
                run_weft(fabric, matrix, seed)  # compiles
            begin = time.process_time()
            times_us["weft"].append(run_weft(fabric, matrix, seed))
            cpu_s["weft"] += time.process_time() - begin
    rows = {}
    for name, parts in times_us.items():
        each = np.concatenate(parts)
        figures = (each.min(), each.mean(), *np.percentile(each, [50, 90, 99]), each.max())
        rows[name] = dict(zip(COLUMNS, map(float, figures), strict=True)) | {"cpu_s": cpu_s[name]}
    rows["weft / htsim"] = {column: rows["weft"][column] / rows["htsim"][column] for column in (*COLUMNS, "cpu_s")}
    if chosen.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{chosen.permutations} permutations of {chosen.hosts} hosts, {FLOW_BYTES:,} bytes a flow; completion in µs")
    print(f"{'':14}" + "".join(f"{column:>9}" for column in (*COLUMNS, "cpu s")))
    for name, row in rows.items():
        print(f"{name:14}" + "".join(f"{value:9.3f}" for value in row.values()))


if __name__ == "__main__":
    main()
