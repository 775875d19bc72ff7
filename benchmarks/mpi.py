"""Compare Open MPI between two ranks of this machine: over weft's adapter, its shared memory, and TCP on loopback,
twice.

    python benchmarks/mpi.py [--times 3] [--json]

`mpi.c` measures as the OSU benchmarks do. All run in turn, `--times` times, so that other load on the machine affects
all
equally; the best of each counts. Two polling ranks need two cores, so the load is printed. TCP is that of Open MPI
itself, and
that of UCX, through which weft is used. The second table: how many times faster weft is than each. Needs Open MPI and
UCX:
`make peers`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from weft.verbs import launch

SIZES = {8: 20_000, 4096: 10_000, 65_536: 4_000, 1 << 20: 1_000, 1 << 24: 20}  # bytes -> rounds
WEFT, SHARED, TCP, UCX_TCP = "weft, RC", "shared memory", "TCP", "UCX's TCP"
ANY_DEVICE = ("--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any")
OB1 = ("--mca", "pml", "ob1", "--mca", "btl")
WAYS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    WEFT: (("--mca", "pml", "ucx"), {"UCX_TLS": "rc_v,self", "UCX_NET_DEVICES": "mlx5_0:1"}),
    SHARED: ((*OB1, "self,vader"), {}),
    TCP: ((*OB1, "self,tcp", "--mca", "btl_tcp_if_include", "lo"), {}),
    UCX_TCP: (("--mca", "pml", "ucx", *ANY_DEVICE), {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}),
}
Figures = dict[int, tuple[float, float]]  # us and GB/s by size in bytes


def measure(program: str, way: str) -> Figures:
    arguments, variables = WAYS[way]
    environment: Mapping[str, str] = os.environ | (launch.environment() if way == WEFT else {}) | variables
    sizes = [str(number) for pair in SIZES.items() for number in pair]
    command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2", *arguments, program, *sizes]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    rows = [line.split() for line in done.stdout.splitlines()]
    return {int(size): (float(us), float(gbyte_s)) for size, us, gbyte_s in rows}


def best(runs: list[Figures]) -> Figures:
    return {size: (min(run[size][0] for run in runs), max(run[size][1] for run in runs)) for size in SIZES}


def table(figures_of: dict[str, Figures]) -> str:
    lines = [f"{'bytes':>9}" + "".join(f"{way + ', us':>20}{'GB/s':>8}" for way in figures_of)]
    for size in SIZES:
        cells = (f"{us:>20.2f}{gbyte_s:>8.2f}" for us, gbyte_s in (figures_of[way][size] for way in figures_of))
        lines.append(f"{size:>9}" + "".join(cells))
    peers = [way for way in figures_of if way != WEFT]
    lines += ["", f"{'weft over':>9}" + "".join(f"{way + ', us':>20}{'GB/s':>8}" for way in peers)]
    for size in SIZES:
        mine_us, mine_gbyte_s = figures_of[WEFT][size]
        times = ((us / mine_us, mine_gbyte_s / gbyte_s) for us, gbyte_s in (figures_of[way][size] for way in peers))
        lines.append(f"{size:>9}" + "".join(f"{quicker:>20.2f}{more:>8.2f}" for quicker, more in times))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "mpi"))
        subprocess.run(["mpicc.openmpi", "-O2", str(Path(__file__).with_suffix(".c")), "-o", program], check=True)
        runs = [{way: measure(program, way) for way in WAYS} for _ in range(options.times)]
    figures = {way: best([run[way] for run in runs]) for way in WAYS}
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "figures": figures}))
    else:
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, best of {options.times}\n{table(figures)}")


if __name__ == "__main__":
    main()
