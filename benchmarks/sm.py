"""weft's subnet manager and OpenSM on the same fabrics and the same server, in the same run: time, MADs, memory.

    python benchmarks/sm.py [--rows 648 1024 3456 ... selene] [--times 3] [--engines minhop ftree] [--server ibsim|lab]
                            [--json]

Both bring up a fabric that nobody configured before, on a server of its own each time, one after the other in turn so
that whatever else the machine does meets both alike; the best of `--times` counts. Then a cable between two switches is
pulled. Sweeps at intervals are off: only the trap tells them. Columns:

    up s        from the first line of the manager's log, when it begins to discover, to SUBNET UP
    start s     from the start of its process: weft has Python to start and kernels to load
    MADs        that it sent until then
    fault s     from the pulled cable to the next SUBNET UP, and MADs for that
    MB          the most memory that it held

One bring-up by weft that does not count comes first: it compiles kernels that are not in the cache. Needs `make peers`.
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
PATIENCE_S = 600
_WEFT_LINE = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) (\w+) (.*)$", re.M)
_OPENSM_LINE = re.compile(r"^(\w{3} \d\d \d\d:\d\d:\d\d) (\d{6}) \[\w+\] \w+ -> (.*)$", re.M)
Lines = list[tuple[float, str]]  # when, what


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One manager, one fabric."""

    up_s: float
    start_s: float
    mads: int
    fault_s: float
    fault_mads: int
    mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a fabric is simulated; `pull` unplugs the cable that this benchmark breaks."""

    name: str  # of its sockets
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
        """Sent so far."""
        raise NotImplementedError

    def engine(self) -> str:
        """That routed first."""
        raise NotImplementedError

    def await_up(self, times: int) -> float:
        """When the subnet was up for the n-th time."""
        until_s = time.monotonic() + PATIENCE_S
        while len(ups := [at_s for at_s, text in self.lines() if "SUBNET UP" in text]) < times:
            if self.child.poll() is not None or time.monotonic() > until_s:
                sys.exit(f"{self.child.args!r} did not bring the subnet up:\n{self.tail()}")
            time.sleep(0.02)
        return ups[times - 1]

    def tail(self) -> str:
        return self._out.read_text(errors="replace")[-2000:]

    def peak_mb(self) -> float:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.child.pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def end(self) -> None:
        self.child.kill()
        self.child.wait()


class Weft(Manager):
    def __init__(self, server: str, host: str, folder: Path) -> None:
        (folder / "weft.conf").write_text("sweep_interval 0\n")
        words = ["sm", "--on", "ibsim", "--ibsim", server, "--at", host, "-F", "weft.conf"]
        keeps = {"PYTHONDONTWRITEBYTECODE": ""}  # bytecode, as an installed program has it
        super().__init__([sys.executable, "-m", "weft", *words], keeps, folder)

    def lines(self) -> Lines:
        found = _WEFT_LINE.findall(self._out.read_text(errors="replace"))
        return [(datetime.fromisoformat(stamp).timestamp(), f"{event} {text}") for stamp, event, text in found]

    def mads(self) -> int:
        return sum(int(found[1].replace(",", "")) for _, text in self.lines() if (found := _SWEPT.search(text)))

    def engine(self) -> str:
        return next(found[1] for _, text in self.lines() if (found := _ENGINE.search(text)))


_SWEPT = re.compile(r"SUBNET UP: .* ([\d,]+) MADs")
_ENGINE = re.compile(r"links, ([\w-]+), ")


class OpenSm(Manager):
    def __init__(self, server: str, host: str, folder: Path, engine: str) -> None:
        self._log = folder / "opensm.log"
        for old in ("opensm.log", "guid2lid", "guid2mkey", "neighbors"):
            (folder / old).unlink(missing_ok=True)
        places = {"OSM_CACHE_DIR": str(folder), "OSM_TMP_DIR": str(folder)}
        sim = {"LD_PRELOAD": str(find_umad2sim()), "IBSIM_SOCKNAME": server, "SIM_HOST": host}
        # 0x83 with -d 2: SUBNET UP is said, and written at once; -q local: the console tells how many MADs it sent.
        words = ["-R", engine, "-s", "0", "-e", "-f", str(self._log), "-D", "0x83", "-d", "2", "-q", "local"]
        super().__init__(["opensm", *words], sim | places, folder)

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
        until_s = time.monotonic() + PATIENCE_S
        while (said := self._out.read_text(errors="replace")).count("SELF") <= before:  # the end of what it says
            if time.monotonic() > until_s:
                sys.exit(f"OpenSM's console does not answer:\n{self.tail()}")
            time.sleep(0.02)
        return int(re.findall(r"QP0 MADs sent +: (\d+)", said)[-1])

    def engine(self) -> str:
        return str(re.findall(r"(\w+) tables configured", self._log.read_text(errors="replace"))[0])


# -- servers ----------------------------------------------------------------------------------------------------------


@contextmanager
def serving(kind: str, spec: str, fabric: Fabric, folder: Path) -> Iterator[Server]:
    """A server that nobody has spoken to."""
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
    """A port of the cable to pull: the last one between two switches, far from the first host."""
    switch = fabric.nodes.kind == NodeKind.SWITCH
    a, b = fabric.link_nodes
    between = [link for link, both in enumerate((switch[a] & switch[b]).tolist()) if both]
    return int(fabric.links.a[between[-1]])


def serve(spec: str, base: str) -> None:
    """The child: a lab's server alone, which pulls the cable of a port that comes on standard input."""
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


def measure(who: str, kind: str, spec: str, fabric: Fabric, folder: Path) -> tuple[Figures, str]:
    """Figures, and the engine that routed."""
    host = f"H-{int(fabric.hcas[0].guid):016x}" if kind == "ibsim" else fabric.hcas[0].name
    with serving(kind, spec, fabric, folder) as server:
        manager = (
            Weft(server.name, host, folder) if who == "weft" else OpenSm(server.name, host, folder, who.split()[1])
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
    """The best of each column."""
    return Figures(**{field.name: min(getattr(one, field.name) for one in runs) for field in fields(Figures)})


def compare(row: str, given: argparse.Namespace) -> dict[str, object]:
    """All managers in turn, several times."""
    spec = ROWS[row]
    fabric = weft.load(spec)
    whos = ["weft", *(f"OpenSM {engine}" for engine in given.engines)]
    runs: dict[str, list[Figures]] = {who: [] for who in whos}
    used: dict[str, str] = {}
    loads = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(given.times):
            for who in whos:
                figures, used[who] = measure(who, given.server, spec, fabric, Path(name))
                runs[who].append(figures)
                loads.append(os.getloadavg()[0])
                print(f"{row}: {who}, {number + 1} of {given.times}: {figures}", file=sys.stderr, flush=True)
    return {
        "row": row,
        "server": given.server,
        "load": [min(loads), max(loads)],
        "managers": {who: {"engine": used[who]} | asdict(best(runs[who])) for who in whos},
    }


def show(found: dict[str, object]) -> None:
    """A table; ratios are OpenSM's figures in terms of weft's."""
    low, high = found["load"]
    managers = found["managers"]
    ours = managers["weft"]
    print(f"{found['row']} on {found['server']}, load {low:.1f} to {high:.1f}")
    names = ("up s", "start s", "MADs", "fault s", "MADs", "MB")
    print(f"  {'':16} {'engine':10}" + "".join(f"{name:>18}" for name in names))
    for who, figures in managers.items():
        cells = []
        for key in (field.name for field in fields(Figures)):
            value, times = figures[key], figures[key] / ours[key]
            text = f"{value:.2f}" if key.endswith("_s") else f"{value:,.0f}"
            cells.append(f"{text} ({times:.1f}x)" if who != "weft" else text)
        print(f"  {who:16} {figures['engine']:10}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def main() -> None:
    words = argparse.ArgumentParser()
    words.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    words.add_argument("--times", type=int, default=3)
    words.add_argument("--server", choices=("ibsim", "lab"), default="ibsim")
    words.add_argument("--engines", nargs="*", default=["minhop", "ftree"])
    words.add_argument("--json", action="store_true")
    words.add_argument("--serve", nargs=2)
    given = words.parse_args()
    if given.serve:
        serve(*given.serve)
        return
    rows = [row for row in given.rows if row != "selene" or Path(ROWS[row]).is_file()]
    with tempfile.TemporaryDirectory() as name:
        print("compiling kernels that are not in the cache", file=sys.stderr, flush=True)
        measure("weft", given.server, ROWS["648"], weft.load(ROWS["648"]), Path(name))
    found = []
    for row in rows:
        found.append(compare(row, given))
        if not given.json:
            show(found[-1])
    if given.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
