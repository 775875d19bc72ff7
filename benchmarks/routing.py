"""Compare route calculation of weft and of OpenSM on ibsim, on the same fabrics in the same run: time, memory, quality.

    python benchmarks/routing.py [648 3456 11664 selene] [--json]

OpenSM's time is that of its second heavy sweep, from "building routing" to "tables configured": nothing has changed
then, so no table is sent and the time is calculation alone. weft's is the engine's, on switches already read, the best
of five in a fresh process, with compiled kernels. Needs `make peers`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

DUMPS = Path(os.environ.get("WEFT_DUMPS", Path(__file__).parents[2] / "shared" / "dumps"))
FABRICS = {
    "648": ("fat-tree:hosts=648,radix=36,speed=EDR", ("minhop", "updn", "ftree", "dfsssp")),
    "3456": ("fat-tree:hosts=3456,radix=36,pods=12,speed=EDR", ("minhop", "updn", "ftree")),
    "11664": ("fat-tree:hosts=11664,radix=36,speed=EDR", ("minhop", "ftree")),
    "selene": (str(DUMPS / "selene.compute.txt"), ("minhop", "updn", "ftree")),
}


def run_opensm(net: Path, engine: str, folder: Path) -> dict[str, object]:
    """Return calculation seconds, peak megabytes and the engine used."""
    environment = os.environ | {
        "IBSIM_SOCKNAME": f"weft-bench-{os.getpid()}-{engine}",
        "OSM_CACHE_DIR": str(folder),
        "OSM_TMP_DIR": str(folder),
    }
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    sizes = ("-N", "20000", "-S", "3000", "-P", "400000")
    ibsim = subprocess.Popen(["ibsim", "-s", "-n", *sizes, str(net)], cwd=folder, env=environment, **quiet)
    log = folder / "opensm.log"
    command = ["ibsim-run", "opensm", "-s", "0", "-f", str(log), "-e", "-D", "0x47", "-d", "2", "-R", engine]
    opensm = None
    try:
        time.sleep(1)
        opensm = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **quiet)
        _wait(log, "SUBNET UP", 1, 300)
        os.killpg(opensm.pid, signal.SIGHUP)
        _wait(log, "tables configured", 2, 300)
        peak_mbyte = max(_peak_mbyte(pid) for pid in _group(opensm.pid))
    finally:
        for process in (opensm, ibsim):
            if process is not None:
                process.send_signal(signal.SIGTERM) if process is ibsim else os.killpg(process.pid, signal.SIGTERM)
                process.wait()
    text = log.read_text()
    used = re.findall(r"(\w+) tables configured", text)[-1]
    begin, end = (_moments(text, words)[-1] for words in ("building routing with", "tables configured"))
    return {"s": end - begin, "mbyte": peak_mbyte, "used": used}


def _peak_mbyte(pid: int | str) -> float:
    """Return VmHWM, since ru_maxrss includes the parent's memory from before the exec."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def _group(leader: int) -> list[int]:
    pids = subprocess.run(["ps", "-o", "pid=", "-g", str(leader)], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid in pids.split()]


def _wait(log: Path, words: str, times: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not (log.exists() and log.read_text(errors="replace").count(words) >= times):
        if time.monotonic() > deadline:
            raise TimeoutError(f"OpenSM did not log {words!r} within {seconds:g} s")
        time.sleep(0.2)


def _moments(text: str, words: str) -> list[float]:
    stamps = re.findall(rf"^\w+ +\d+ (\d\d:\d\d:\d\d) (\d{{6}}) .*{words}", text, re.M)
    return [datetime.strptime(f"{clock}.{micro}", "%H:%M:%S.%f").timestamp() for clock, micro in stamps]


def quality_of_dump(net: Path, folder: Path) -> dict[str, object]:
    import weft
    from weft.fabric.files import opensm
    from weft.routing.check import check
    from weft.routing.quality import measure

    fabric = weft.load(str(folder / "opensm-subnet.lst"))
    opensm.read_lfts(folder / "opensm-lfts.dump", fabric)
    verdict = check(fabric, hosts_only=True)
    return {"max_load": measure(fabric, bisections=2).all_to_all.max_load, "deadlock": bool(verdict.credit_loop)}


def run_weft(net: str) -> dict[str, object]:
    import weft
    from weft.routing import ENGINES
    from weft.routing.check import check
    from weft.routing.engine import Options, Subnet
    from weft.routing.lids import assign_lids
    from weft.routing.quality import measure

    fabric = weft.load(net)
    lid, lmc = assign_lids(fabric)
    subnet = Subnet(fabric=fabric, lid=lid, lmc=lmc)
    engine = ENGINES["fat-tree"]
    assert subnet.graph.n_switches
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        tables = engine.route(subnet, Options())
        times.append(time.perf_counter() - begin)
    mbyte = _peak_mbyte("self")
    routed = fabric.configured(tables)
    max_load = measure(routed, bisections=2).all_to_all.max_load
    return {
        "s": min(times[1:]),  # the first one compiles or reads the cache
        "mbyte": mbyte,
        "used": engine.name,
        "max_load": max_load,
        "deadlock": bool(check(routed).credit_loop),
    }


def main() -> None:
    if "--one" in sys.argv:
        print(json.dumps(run_weft(sys.argv[-1])))
        return
    import weft
    from weft.fabric.files import ibnetdiscover

    names = [argument for argument in sys.argv[1:] if argument in FABRICS] or list(FABRICS)
    rows = []
    for name in names:
        spec, engines = FABRICS[name]
        with tempfile.TemporaryDirectory() as scratch:
            net = Path(scratch) / "fabric.net"
            net.write_text(ibnetdiscover.to_text(weft.load(spec)))
            own = subprocess.run(
                [sys.executable, __file__, "--one", str(net)], capture_output=True, text=True, check=True
            )
            rows.append({"fabric": name, "who": "weft", "asked": "fat-tree", **json.loads(own.stdout)})
            for engine in engines:
                folder = Path(scratch) / engine
                folder.mkdir()
                measured = run_opensm(net, engine, folder)
                rows.append(
                    {"fabric": name, "who": "OpenSM", "asked": engine, **measured, **quality_of_dump(net, folder)}
                )
            _print(rows[-len(engines) - 1 :])
    if "--json" in sys.argv:
        print(json.dumps(rows, indent=2))


def _print(rows: list[dict[str, object]]) -> None:
    heads = (
        f"{'fabric':8} {'who':8} {'asked':9} {'used':9} {'calculation s':>13} {'x weft':>8} {'MB':>6} {'max load':>9}"
    )
    print(f"{heads}  deadlock")
    for row in rows:
        ratio = row["s"] / rows[0]["s"]
        print(
            f"{row['fabric']:8} {row['who']:8} {row['asked']:9} {row['used']:9} {row['s']:13.4f} {ratio:7.1f}x"
            f" {row['mbyte']:6.0f} {row['max_load']:9,}  {'possible' if row['deadlock'] else 'no'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
