"""Measure OpenSM's bring-up of a fabric on weft's lab, with both ways to attach, and on ibsim, in the same run.

    python benchmarks/lab.py [SPEC ...] [--times 3] [--json]

The same unmodified OpenSM sweeps once from a cold start, attached by libumad2sim or, third, by the preload of `weft
exec`. The
time is from its start to SUBNET UP, the best of `--times`. MADs are those that weft's server carried; ibsim does not
count
them, and OpenSM sends it the same. Memory is the peak of the server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import weft
from weft.fabric.files import ibnetdiscover
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.lab import preload
from weft.lab.programs import find_umad2sim

SPECS = ["fat-tree:hosts=648,radix=36,speed=HDR", "fat-tree:hosts=3456,radix=36,speed=HDR"]
PRELOAD = "bench.umad"
SELENE = "selene.compute.txt"
_STAMP = re.compile(r"^(\w{3} \d\d \d\d:\d\d:\d\d) (\d{6}) .*SUBNET UP", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one server and one fabric."""

    up_s: float
    server_cpu_s: float
    server_mb: float
    mads: int


def measure(server: str, spec: str, fabric: Fabric, folder: Path) -> Figures:
    base = f"bench-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    command = ibsim_command(fabric, folder) if server == "ibsim" else weft_command(spec, base)
    places = {"IBSIM_SOCKNAME": base, "XDG_RUNTIME_DIR": str(folder)}
    with (folder / f"{server}.log").open("w+") as log:
        child = subprocess.Popen(command, env=os.environ | places, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            await_socket(base, child)
            before = cpu_s(child.pid)
            up_s = sweep(attached(server, base, fabric, folder), fabric, folder)
            figures = Figures(up_s=up_s, server_cpu_s=cpu_s(child.pid) - before, server_mb=peak_mb(child.pid), mads=0)
        finally:
            child.terminate()
            child.wait()
        log.seek(0)
        counted = re.search(r"mads (\d+)", log.read())
    return Figures(**asdict(figures) | {"mads": int(counted[1]) if counted else 0})


def weft_command(spec: str, base: str) -> list[str]:
    return [sys.executable, __file__, "--serve", spec, base]


def serve(spec: str, base: str) -> None:
    """Run the child process: a lab's server alone."""
    import signal

    from weft import runtime
    from weft.lab.attach import Attachments
    from weft.lab.fast_path import compile_kernel
    from weft.lab.ibsim import Server
    from weft.mad.subnet import Subnet

    compile_kernel()  # as in a lab that has been up for a second
    server = Server(Subnet(weft.load(spec)), base)
    server.add_service(Attachments(server.subnet, runtime.folder() / PRELOAD, fast_path=server.fast_path))
    server.fast_path.load()
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    server.serve()
    server.close()
    print("mads", server.subnet.mads)


def attached(server: str, base: str, fabric: Fabric, folder: Path) -> dict[str, str]:
    """Return the environment of OpenSM."""
    if server == "preload":
        library = preload.library()
        assert library is not None, "the preload needs a C compiler"
        return preload.environment(library, folder / "weft" / PRELOAD, fabric.hcas[0].name)
    host = f"H-{int(fabric.hcas[0].guid):016x}"
    return {"LD_PRELOAD": str(find_umad2sim()), "IBSIM_SOCKNAME": base, "SIM_HOST": host}


def ibsim_command(fabric: Fabric, folder: Path) -> list[str]:
    net = folder / "net"
    if not net.exists():
        net.write_text(ibnetdiscover.to_text(fabric), encoding="utf-8")
    nodes, switches = len(fabric.nodes) + 1, len(fabric.of_kind(NodeKind.SWITCH)) + 1
    return ["ibsim", "-s", "-n", "-N", str(nodes), "-S", str(switches), "-P", str(len(fabric.ports) + 1), str(net)]


def await_socket(base: str, child: subprocess.Popen[bytes]) -> None:
    while f"@{base}:ctl" not in Path("/proc/net/unix").read_text(encoding="ascii", errors="replace"):
        if child.poll() is not None:
            sys.exit(f"{child.args!r} did not start")
        time.sleep(0.02)


def sweep(attached: dict[str, str], fabric: Fabric, folder: Path) -> float:
    """Run OpenSM once; return the seconds from its start to SUBNET UP in its log."""
    log = folder / "opensm.log"
    for old in ("opensm.log", "guid2lid", "guid2mkey", "neighbors"):
        (folder / old).unlink(missing_ok=True)
    places = {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}
    begin = time.time()
    subprocess.run(
        ["opensm", "-o", "-e", "-f", str(log), "-D", "0x83", "-d", "2"],
        cwd=folder,
        env=os.environ | attached | places,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    stamp = _STAMP.search(log.read_text(errors="replace"))
    if stamp is None:
        sys.exit(f"OpenSM did not bring {fabric.spec} up:\n{log.read_text(errors='replace')[-2000:]}")
    up = datetime.strptime(f"{datetime.now().year} {stamp[1]}", "%Y %b %d %H:%M:%S").timestamp() + int(stamp[2]) / 1e6
    return up - begin


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    match = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1024 if match else 0.0


def best(server: str, spec: str, fabric: Fabric, folder: Path, times: int) -> Figures:
    return min((measure(server, spec, fabric, folder) for _ in range(times)), key=lambda figures: figures.up_s)


def report(name: str, ours: Figures, theirs: Figures, preloaded: Figures) -> str:
    mads = ours.mads
    each_us = [1e6 * figures.server_cpu_s / mads for figures in (ours, theirs, preloaded)]
    return (
        f"{name}: SUBNET UP {ours.up_s:.2f} s, ibsim {theirs.up_s:.2f} s: {ours.up_s / theirs.up_s:.2f} times; "
        f"by weft's preload {preloaded.up_s:.2f} s: {preloaded.up_s / theirs.up_s:.2f} times\n"
        f"  {mads:,} MADs, {mads / ours.up_s:,.0f} a second, ibsim {mads / theirs.up_s:,.0f}; "
        f"server CPU {each_us[0]:.1f} us each, ibsim {each_us[1]:.1f}, by the preload {each_us[2]:.1f}; "
        f"memory {ours.server_mb:.0f} MB, ibsim {theirs.server_mb:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("specs", nargs="*")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs=2)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    selene = Path(os.environ.get("WEFT_DUMPS", "")) / SELENE
    specs = options.specs or [*SPECS, *([str(selene)] if selene.is_file() else [])]
    rows = []
    for spec in specs:
        fabric = weft.load(spec)
        with tempfile.TemporaryDirectory() as name, suppress(KeyboardInterrupt):
            servers = ("ibsim", "weft", "preload")
            figures = {server: best(server, spec, fabric, Path(name), options.times) for server in servers}
        ours, theirs = figures["weft"], figures["ibsim"]
        rows.append(
            {"spec": Path(spec).name, "ratio": ours.up_s / theirs.up_s} | {k: asdict(v) for k, v in figures.items()}
        )
        if not options.json:
            print(report(Path(spec).name, ours, theirs, figures["preload"]))
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
