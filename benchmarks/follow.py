"""Measure the model of `weft follow` on large fabrics: MADs and time of a poll, a pulled cable, and memory.

    python benchmarks/follow.py [SPEC ...] [--polls 5] [--faults 3] [--json]

A lab with weft's subnet manager runs in its own processes. Rows:

    whole read      a walk and all tables, as each poll did before polls read what changed
    first poll      the same for the model, which also learns names and history
    poll            a poll of the unchanged fabric, the best of `--polls`; also with the counters of all ports, and of a
                    trap, which names one switch
    ibnetdiscover   of infiniband-diags on the same lab, which reads the cabling without tables, if it is installed

with wall time, processor time of this process (or of ibnetdiscover), and MADs sent. A cable between two switches is
pulled `--faults` times, and put back: the seconds and polls until the history has it, with a trap, and by polls alone,
which begin a second apart. `MB` is the peak memory of this process, without the lab.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import weft
from weft.fabric.kinds import NodeKind
from weft.lab import control, registry
from weft.lab.programs import find_umad2sim
from weft.lab.subnets import Subnet
from weft.monitor.impact import read_routed
from weft.monitor.poll import Poller
from weft.twin.follow import Follower
from weft.twin.history import History
from weft.twin.source import RunningSubnet
from weft.twin.trap_listener import TrapListener

SPECS = ["fat-tree:hosts=1024,radix=64", "fat-tree:hosts=11664,radix=36"]
_EVERY_S = 1.0
_MOST_POLLS = 100
Row = dict[str, float]


class Counted:
    """A carrier that counts the MADs of `exchange`."""

    def __init__(self, carrier) -> None:
        self._carrier, self.mads = carrier, 0

    def exchange(self, mads, to=None, **options):
        self.mads += len(mads)
        return self._carrier.exchange(mads, to, **options)

    def __getattr__(self, name: str):
        return getattr(self._carrier, name)


@contextmanager
def lab(spec: str) -> Iterator[Subnet]:
    """Start a lab with LIDs and routes, and end it afterwards."""
    name = f"bench-{os.getpid()}"
    command = [sys.executable, "-m", "weft"]
    subprocess.run([*command, "up", spec, "--daemon", "--sm", "--name", name], check=True, stdout=subprocess.DEVNULL)
    try:
        yield Subnet(lab=name)
    finally:
        subprocess.run([*command, "down", name], check=True, stdout=subprocess.DEVNULL)


def measure(spec: str, polls: int, faults: int) -> dict[str, object]:
    with lab(spec) as subnet, tempfile.TemporaryDirectory() as folder:
        carrier = Counted(subnet.attach())
        rows = {"whole read": timed(carrier, lambda: read_routed(carrier))}
        history = History(str(Path(folder) / "fabric.db"))
        poller = Poller(carrier)
        source = RunningSubnet(poller)
        follower = Follower(source, history)
        rows["first poll"] = timed(carrier, follower.poll)
        time.sleep(11)  # the manager may still write tables
        rows["poll"] = best(timed(carrier, source.refresh) for _ in range(polls))
        rows["poll of a trap"] = best(timed(carrier, lambda: follower.poll([0])) for _ in range(polls))
        rows["poll with counters"] = timed(carrier, follower.poll)
        if shutil.which("ibnetdiscover"):
            rows["ibnetdiscover"] = timed_peer(subnet)
        cable = middle_cable(spec)
        seconds = {
            "with a trap": [pull(subnet, follower, cable, with_traps=True) for _ in range(faults)],
            "by polls": [pull(subnet, follower, cable, with_traps=False) for _ in range(faults)],
        }
        whole_walks = source.whole_walks
        carrier.close()
        history.close()
    return {
        "spec": spec,
        "rows": rows,
        "faults": seconds,
        "whole walks": whole_walks,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "load": os.getloadavg()[0],
    }


def timed(carrier: Counted, work: Callable[[], object]) -> Row:
    begin_s, cpu_s, mads = time.perf_counter(), time.process_time(), carrier.mads
    work()
    return {
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": time.process_time() - cpu_s,
        "mads": carrier.mads - mads,
    }


def best(rows: Iterable[Row]) -> Row:
    return min(rows, key=lambda row: row["wall_s"])


def timed_peer(subnet: Subnet) -> Row:
    """Return the time of ibnetdiscover; its number of MADs is not known."""
    host = control.ask(registry.find(subnet.lab), "host", name="")
    sim = {"LD_PRELOAD": str(find_umad2sim()), "IBSIM_SOCKNAME": host["sockname"], "SIM_HOST": host["sim_host"]}
    before, begin_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(["ibnetdiscover"], env=os.environ | sim, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": time.perf_counter() - begin_s, "cpu_s": cpu_s}


def middle_cable(spec: str) -> str:
    """Return a port of a cable between two switches."""
    fabric = weft.load(spec)
    switch = fabric.nodes.kind == NodeKind.SWITCH
    between = [link for link, (a, b) in enumerate(zip(*fabric.link_nodes, strict=True)) if switch[a] and switch[b]]
    return fabric.link(between[len(between) // 2]).a.name


def pull(subnet: Subnet, follower: Follower, cable: str, *, with_traps: bool) -> Row:
    """Pull a cable; return the seconds and polls until the history has it. Put it back."""
    entry = registry.find(subnet.lab)
    with closing(subnet.attach()), TrapListener(subnet.attach) as traps:
        time.sleep(3.0)  # for the subscription
        until_known(follower, lambda: traps.wait(0.0), cable, present=True)
        control.ask(entry, "break", name=cable)
        begin_s = time.monotonic()

        def wait() -> frozenset[int]:
            if with_traps:
                return traps.wait(_EVERY_S)
            time.sleep(max(0.0, _EVERY_S - (time.monotonic() - begin_s) % _EVERY_S))
            return frozenset()

        polls = until_known(follower, wait, cable, present=False)
        row = {"seconds": time.monotonic() - begin_s, "polls": polls}
        control.ask(entry, "fix", name=cable)
        until_known(follower, lambda: frozenset(), cable, present=True)
    return row


def until_known(follower: Follower, wait: Callable[[], frozenset[int]], cable: str, *, present: bool) -> int:
    for polls in range(1, _MOST_POLLS):
        follower.poll(wait())
        assert follower.fabric is not None
        if (follower.fabric.find_port(cable).link is not None) == present:
            return polls
    raise SystemExit(f"the model does not learn of {cable} within {_MOST_POLLS} polls")


def show(result: dict[str, object]) -> None:
    print(
        f"{result['spec']}   MB {result['MB']:,.0f}   whole walks {result['whole walks']}   load {result['load']:.1f}"
    )
    for name, row in result["rows"].items():
        mads = f"{row['mads']:10,.0f} MADs" if "mads" in row else ""
        print(f"  {name:20} wall {row['wall_s']:8.3f} s   CPU {row['cpu_s']:8.3f} s   {mads}")
    for name, rows in result["faults"].items():
        texts = [f"{row['seconds']:.2f} s ({row['polls']} polls)" for row in rows]
        print(f"  pulled cable {name}: {', '.join(texts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", default=SPECS)
    parser.add_argument("--polls", type=int, default=5)
    parser.add_argument("--faults", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        results = [measure(spec, options.polls, options.faults) for spec in options.specs]
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for result in results:
        show(result)


if __name__ == "__main__":
    main()
