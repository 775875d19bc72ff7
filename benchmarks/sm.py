"""Compare weft's subnet manager and OpenSM on the same fabrics and the same server, in the same run: time, MADs,
memory.

    python benchmarks/sm.py [--rows 648 1024 3456 ... selene] [--times 3] [--engines minhop ftree] [--server ibsim|lab]
                            [--json]

Both bring up an unconfigured fabric, on a new server each time, one after the other in turn so that other load on the
machine
affects both equally; the best of `--times` counts. Then a cable between two switches is pulled. Periodic sweeps are
off: only the
trap reports it. Columns:

    up s        from the first line of the manager's log, when it begins to discover, to SUBNET UP
    start s     from the start of its process: weft starts Python and loads kernels
    MADs        sent until then
    fault s     from the pulled cable to the next SUBNET UP, and MADs for that
    MB          peak memory

The first bring-up by weft does not count: it compiles kernels that are not in the cache. Needs `make peers`.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from pathlib import Path

import weft
from weft.fabric.files import ibnetdiscover
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.lab.programs import find_umad2sim

DUMPS = Path(os.environ.get("WEFT_DUMPS", Path(__file__).parents[2] / "shared" / "dumps"))
ROWS = {
    "648": "fat-tree:hosts=648,radix=36,speed=HDR",
    "1024": "fat-tree:hosts=1024,radix=64,speed=HDR",
    "3456": "fat-tree:hosts=3456,radix=36,speed=HDR",
    "11664": "fat-tree:hosts=11664,radix=36,speed=HDR",
    "selene": str(DUMPS / "selene.compute.txt"),
}
TIMEOUT_S = 600
_WEFT_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) (\w+) (.*)$", re.M)
_OPENSM_LINE = re.compile(r"^(\w{3} \d\d \d\d:\d\d:\d\d) (\d{6}) \[\w+\] \w+ -> (.*)$", re.M)
Lines = list[tuple[float, str]]  # time, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one manager and one fabric."""

    up_s: float
    start_s: float
    mads: int
    fault_s: float
    fault_mads: int
    mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A simulated fabric; `pull` unplugs the cable that this benchmark breaks."""

    name: str  # name of its sockets
    pull: Callable[[], None]


class Manager:
    """A running subnet manager and its log."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.folder, self._out = folder, folder / "manager.out"
        self.begin_s = time.time()
        with self._out.open("w") as out:
            self.child = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                text=True,
            )

    def lines(self) -> Lines:
        raise NotImplementedError

    def mads(self) -> int:
        """Return the number of MADs sent so far."""
        raise NotImplementedError

    def engine(self) -> str:
        """Return the engine that routed first."""
        raise NotImplementedError

    def await_up(self, times: int) -> float:
        """Return when the subnet was up for the n-th time."""
        until_s = time.monotonic() + TIMEOUT_S
        while len(ups := [at_s for at_s, text in self.lines() if "SUBNET UP" in text]) < times:
            if self.child.poll() is not None or time.monotonic() > until_s:
                sys.exit(f"{self.child.args!r} did not bring the subnet up:\n{self.tail()}")
            time.sleep(0.02)
        return ups[times - 1]

    def tail(self) -> str:
        return self._out.read_text(errors="replace")[-2000:]

    def peak_mb(self) -> float:
        match = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.child.pid}/status").read_text())
        return int(match[1]) / 1024 if match else 0.0

    def end(self) -> None:
        self.child.kill()
        self.child.wait()


class Weft(Manager):
    def __init__(self, server: str, host: str, folder: Path) -> None:
        (folder / "weft.conf").write_text("sweep_interval 0\n")
        arguments = ["sm", "--on", "ibsim", "--ibsim", server, "--at", host, "-F", "weft.conf"]
        variables = {"PYTHONDONTWRITEBYTECODE": ""}  # allow bytecode, as for an installed program
        super().__init__([sys.executable, "-m", "weft", *arguments], variables, folder)

    def lines(self) -> Lines:
        lines = _WEFT_LINE.findall(self._out.read_text(errors="replace"))
        return [(datetime.fromisoformat(stamp).timestamp(), f"{event} {text}") for stamp, event, text in lines]

    def mads(self) -> int:
        return sum(int(match[1].replace(",", "")) for _, text in self.lines() if (match := _SWEPT.search(text)))

    def engine(self) -> str:
        return next(match[1] for _, text in self.lines() if (match := _ENGINE.search(text)))


_SWEPT = re.compile(r"SUBNET UP: .* ([\d,]+) MADs")
_ENGINE = re.compile(r"links, ([\w-]+), ")


class OpenSm(Manager):
    def __init__(self, server: str, host: str, folder: Path, engine: str) -> None:
        self._log = folder / "opensm.log"
        for old in ("opensm.log", "guid2lid", "guid2mkey", "neighbors"):
            (folder / old).unlink(missing_ok=True)
        places = {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}
        sim = {"LD_PRELOAD": str(find_umad2sim()), "IBSIM_SOCKNAME": server, "SIM_HOST": host}
        # 0x83 with -d 2: SUBNET UP is logged, and flushed at once; -q local: the console reports how many MADs it
        # sent.
        arguments = ["-R", engine, "-s", "0", "-e", "-f", str(self._log), "-D", "0x83", "-d", "2", "-q", "local"]
        super().__init__(["opensm", *arguments], sim | places, folder)

    def lines(self) -> Lines:
        if not self._log.exists():
            return []
        year = datetime.now().year
        return [
            (datetime.strptime(f"{year} {stamp}.{micro}", "%Y %b %d %H:%M:%S.%f").timestamp(), text)
            for stamp, micro, text in _OPENSM_LINE.findall(self._log.read_text(errors="replace"))
            if "SUBNET UP" in text or "DISCOVERING" in text
        ]

    def mads(self) -> int:
        before = self._out.read_text(errors="replace").count("SELF")
        assert self.child.stdin is not None
        self.child.stdin.write("status\n")
        self.child.stdin.flush()
        until_s = time.monotonic() + TIMEOUT_S
        while (output := self._out.read_text(errors="replace")).count("SELF") <= before:  # the end of its output
            if time.monotonic() > until_s:
                sys.exit(f"OpenSM's console does not respond:\n{self.tail()}")
            time.sleep(0.02)
        return int(re.findall(r"QP0 MADs sent +: (\d+)", output)[-1])

    def engine(self) -> str:
        return str(re.findall(r"(\w+) tables configured", self._log.read_text(errors="replace"))[0])


# -- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def serving(kind: str, spec: str, fabric: Fabric, folder: Path) -> Iterator[Server]:
    """Start a new server."""
    base = f"bench-{os.getpid()}-{time.monotonic_ns() % 10**9}"
    slot = cable(fabric)
    node = fabric.nodes.guid[fabric.ports.node[slot]]
    if kind == "ibsim":
        command, pull = ibsim_command(fabric, folder), f'Unlink "S-{int(node):016x}"[{fabric.ports.number[slot]}]\n'
    else:
        command, pull = [sys.executable, __file__, "--serve", spec, base], f"{slot}\n"
    with (folder / "server.out").open("w") as out:
        child = subprocess.Popen(
            command, env=os.environ | {"IBSIM_SOCKNAME": base}, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True
        )
    console = child.stdin
    assert console is not None

    def unplug() -> None:
        console.write(pull)
        console.flush()

    try:
        while f"@{base}:ctl" not in Path("/proc/net/unix").read_text(encoding="ascii", errors="replace"):
            if child.poll() is not None:
                sys.exit(f"{command!r} did not start:\n{(folder / 'server.out').read_text()[-2000:]}")
            time.sleep(0.02)
        yield Server(name=base, pull=unplug)
    finally:
        child.terminate()
        child.wait()


def ibsim_command(fabric: Fabric, folder: Path) -> list[str]:
    net = folder / "net"
    if not net.exists():
        net.write_text(ibnetdiscover.to_text(fabric), encoding="utf-8")
    nodes, switches = len(fabric.nodes) + 1, len(fabric.of_kind(NodeKind.SWITCH)) + 1
    return ["ibsim", "-s", "-N", str(nodes), "-S", str(switches), "-P", str(len(fabric.ports) + 1), str(net)]


def cable(fabric: Fabric) -> int:
    """Return a port of the cable to pull: the last one between two switches, far from the first host."""
    switch = fabric.nodes.kind == NodeKind.SWITCH
    a, b = fabric.link_nodes
    between = [link for link, both in enumerate((switch[a] & switch[b]).tolist()) if both]
    return int(fabric.links.a[between[-1]])


def serve(spec: str, base: str) -> None:
    """Run the child process: a lab's server alone, which pulls the cable of a port read from standard input."""
    import signal
    import threading

    from weft.lab.ibsim import Server as LabServer
    from weft.mad.faults import pull_cable
    from weft.mad.subnet import Subnet

    server = LabServer(Subnet(weft.load(spec)), base)
    signal.signal(signal.SIGTERM, lambda *_: server.stop())

    def listen() -> None:
        for line in sys.stdin:
            server.call(partial(pull_cable, server.subnet.devices, int(line)))

    threading.Thread(target=listen, daemon=True).start()
    server.serve()


# -- measuring --------------------------------------------------------------------------------------------------------


def measure(manager_name: str, kind: str, spec: str, fabric: Fabric, folder: Path) -> tuple[Figures, str]:
    """Return the figures, and the engine that routed."""
    host = f"H-{int(fabric.hcas[0].guid):016x}" if kind == "ibsim" else fabric.hcas[0].name
    with serving(kind, spec, fabric, folder) as server:
        manager = (
            Weft(server.name, host, folder)
            if manager_name == "weft"
            else OpenSm(server.name, host, folder, manager_name.split()[1])
        )
        try:
            up_s = manager.await_up(1)
            first_s, mads = manager.lines()[0][0], manager.mads()
            pulled_s = time.time()
            server.pull()
            again_s = manager.await_up(2)
            figures = Figures(
                up_s=up_s - first_s,
                start_s=up_s - manager.begin_s,
                mads=mads,
                fault_s=again_s - pulled_s,
                fault_mads=manager.mads() - mads,
                mb=manager.peak_mb(),
            )
            return figures, manager.engine()
        finally:
            manager.end()


def best(runs: list[Figures]) -> Figures:
    """Return the best of each column."""
    return Figures(**{field.name: min(getattr(run, field.name) for run in runs) for field in fields(Figures)})


def compare(row: str, options: argparse.Namespace) -> dict[str, object]:
    """Run all managers in turn, several times."""
    spec = ROWS[row]
    fabric = weft.load(spec)
    names = ["weft", *(f"OpenSM {engine}" for engine in options.engines)]
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    used: dict[str, str] = {}
    loads = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.times):
            for name in names:
                figures, used[name] = measure(name, options.server, spec, fabric, Path(folder))
                runs[name].append(figures)
                loads.append(os.getloadavg()[0])
                print(f"{row}: {name}, {number + 1} of {options.times}: {figures}", file=sys.stderr, flush=True)
    return {
        "row": row,
        "server": options.server,
        "load": [min(loads), max(loads)],
        "managers": {name: {"engine": used[name]} | asdict(best(runs[name])) for name in names},
    }


def show(comparison: dict[str, object]) -> None:
    """Print a table; ratios are OpenSM's figures relative to weft's."""
    low, high = comparison["load"]
    managers = comparison["managers"]
    ours = managers["weft"]
    print(f"{comparison['row']} on {comparison['server']}, load {low:.1f} to {high:.1f}")
    names = ("up s", "start s", "MADs", "fault s", "MADs", "MB")
    print(f"  {'':16} {'engine':10}" + "".join(f"{name:>18}" for name in names))
    for manager, figures in managers.items():
        cells = []
        for key in (field.name for field in fields(Figures)):
            value, times = figures[key], figures[key] / ours[key]
            text = f"{value:.2f}" if key.endswith("_s") else f"{value:,.0f}"
            cells.append(f"{text} ({times:.1f}x)" if manager != "weft" else text)
        print(f"  {manager:16} {figures['engine']:10}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--server", choices=("ibsim", "lab"), default="ibsim")
    parser.add_argument("--engines", nargs="*", default=["minhop", "ftree"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", nargs=2)
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
        return
    rows = [row for row in options.rows if row != "selene" or Path(ROWS[row]).is_file()]
    with tempfile.TemporaryDirectory() as name:
        print("compiling kernels that are not in the cache", file=sys.stderr, flush=True)
        measure("weft", options.server, ROWS["648"], weft.load(ROWS["648"]), Path(name))
    comparisons = []
    for row in rows:
        comparisons.append(compare(row, options))
        if not options.json:
            show(comparisons[-1])
    if options.json:
        print(json.dumps(comparisons, indent=2))


if __name__ == "__main__":
    main()
