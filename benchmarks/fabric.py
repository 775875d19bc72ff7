"""Measure build and load times of weft, and of networkx making the same graph in the same run.

    python benchmarks/fabric.py [--json]

Each row is the best of three in a fresh process: seconds, and the peak memory of that process with all its imports.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

DUMPS = Path(os.environ.get("WEFT_DUMPS", Path(__file__).parents[2] / "shared" / "dumps"))
SPECS = {
    "build fat-tree, 1,024 hosts": "fat-tree:hosts=1024,radix=64",
    "build fat-tree, 11,664 hosts": "fat-tree:hosts=11664,radix=36",
    "build fat-tree, 27,648 hosts": "fat-tree:hosts=27648,radix=48",
    "build superpod, 1,024 DGX H100": "superpod:su=32",
    "load Selene (ibnetdiscover)": str(DUMPS / "selene.compute.txt"),
}


def run_weft(spec: str) -> float:
    import weft

    weft.load("star:hosts=2")  # leave the imports out of the time
    begin = time.perf_counter()
    weft.load(spec)
    return time.perf_counter() - begin


def run_networkx(spec: str) -> float:
    """Build the same nodes and links, with name, kind and speed, as a MultiGraph: from arrays, or from the file."""
    import networkx as nx

    import weft

    if Path(spec).is_file():
        begin = time.perf_counter()
        _networkx_from_file(nx, Path(spec))
        return time.perf_counter() - begin
    fabric = weft.load(spec)
    names, kinds = fabric.nodes.name, fabric.nodes.kind.tolist()
    ends = [column.tolist() for column in fabric.link_nodes]
    ports = [fabric.ports.number[column].tolist() for column in (fabric.links.a, fabric.links.b)]
    rates = fabric.link_rate_gbit_s.tolist()
    begin = time.perf_counter()
    graph = nx.MultiGraph()
    for name, kind in zip(names, kinds, strict=True):
        graph.add_node(name, kind=kind)
    for a, b, p, q, rate in zip(*ends, *ports, rates, strict=True):
        graph.add_edge(names[a], names[b], ports=(p, q), rate_gbit_s=rate)
    return time.perf_counter() - begin


def _networkx_from_file(nx, path: Path) -> None:
    node_line = re.compile(r'(Switch|Ca)\s+(\d+) "([^"]+)"\s*# "([^"]*)"')
    port_line = re.compile(r'\[(\d+)\](?:\(\w+\))?\s+"([^"]+)"\[(\d+)\].*?lid (\d+).* (\d+x\w+)')
    graph, node = nx.MultiGraph(), ""
    for line in path.read_text().splitlines():
        if match := node_line.match(line):
            node = match[3]
            graph.add_node(node, kind=match[1], ports=int(match[2]), name=match[4])
        elif (match := port_line.match(line)) and (node, int(match[1])) < (match[2], int(match[3])):
            graph.add_edge(node, match[2], ports=(int(match[1]), int(match[3])), speed=match[5])


def measure(tool: str, spec: str) -> tuple[float, float]:
    """Return seconds, the best of three, and megabytes at the peak."""
    command = [sys.executable, __file__, "--one", tool, spec]
    runs = [json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(3)]
    return min(run["s"] for run in runs), max(run["mbyte"] for run in runs)


def main() -> None:
    if "--one" in sys.argv:
        tool, spec = sys.argv[-2:]
        seconds = (run_weft if tool == "weft" else run_networkx)(spec)
        peak_kbyte = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
        print(json.dumps({"s": seconds, "mbyte": peak_kbyte / 1024}))
        return
    rows = []
    for title, spec in SPECS.items():
        if spec.startswith("/") and not Path(spec).is_file():
            print(f"{title}: skipped, no file {spec} (set WEFT_DUMPS)", file=sys.stderr)
            continue
        (ours_s, ours_mbyte), (theirs_s, _) = measure("weft", spec), measure("networkx", spec)
        rows.append({"what": title, "weft_s": ours_s, "networkx_s": theirs_s, "weft_peak_mbyte": ours_mbyte})
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':34} {'weft s':>8} {'networkx s':>11} {'ratio':>7} {'weft MB':>8}")
    for row in rows:
        ratio = row["networkx_s"] / row["weft_s"]
        times = f"{row['weft_s']:8.3f} {row['networkx_s']:11.3f} {ratio:6.1f}x"
        print(f"{row['what']:34} {times} {row['weft_peak_mbyte']:8.0f}")


if __name__ == "__main__":
    main()
