"""Compare tenants on a lab with weft's subnet manager and with OpenSM: the same work on the same fabric, in the same
run.

    python benchmarks/tenants.py [--tenants 1000] [--each 4] [--changes 5] [--alone] [--no-lanes] [--json]

A fabric for that many tenants with so many hosts each, and eight hosts of storage that all of them reach. Switches
check P_Keys,
every tenant has its IPoIB group, and tenants are of four classes with their own lanes, storage of a fifth. Both
managers have
brought the subnet up before timing starts. Columns:

    all s       from an empty fabric to the applied intent: read, compile, plan, write, read back; and of that, write
    one s       the same intent with one host more in one tenant; the median of some
    none s      the same intent again: nothing to do
    CPU s       of the manager's process, for all and for one
    MB          peak memory

weft's manager is controlled by its socket, and responds when it is done; OpenSM by partitions.conf, opensm.conf and
SIGHUP, until
the tables of the ports have it, and, since lanes are set after those, until it has sent nothing for two seconds,
which do not
count. `--alone`: without OpenSM, which takes minutes for thousands of hosts. Needs `make peers`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import weft
from weft.lab import control, daemon, registry, subnet_manager
from weft.lab.programs import find_umad2sim
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.conf.options import Options
from weft.sm.control import ManagerSocket, socket_of
from weft.sm.status import read_status
from weft.tenants.apply import apply_change, plan_change
from weft.tenants.drivers.driver import Driver
from weft.tenants.drivers.opensm import OpenSmDriver
from weft.tenants.drivers.subnet_manager import ManagerDriver
from weft.tenants.intent import Intent, parse_intent

TIMEOUT_S = 1800.0
SILENT_S, ASIDE = 2.0, 8  # at most this many MADs between two polls for this long: OpenSM is done
STORAGE = 8  # hosts; the manager is on the first
CLASSES = 4


Sent = Callable[[], int]  # number of MADs that a manager has sent


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one manager."""

    all_s: float
    write_s: float
    one_s: float
    none_s: float
    all_cpu_s: float
    one_cpu_s: float
    peak_mb: float


# -- the work ---------------------------------------------------------------------------------------------------------


def intent(tenants: int, each: int, *, lanes: bool, visitor: int = 0) -> Intent:
    """Return the intent; `visitor` is the tenant of the last host, which otherwise belongs to none (0)."""
    first = STORAGE + 1
    sections = {}
    for number in range(tenants):
        hosts = [f"h[{first + number * each}-{first + (number + 1) * each - 1}]"]
        if number + 1 == visitor:
            hosts.append(f"h{first + tenants * each}")
        sections[f"t{number + 1}"] = {"hosts": hosts, "ipoib": True} | (
            {"class": f"c{number % CLASSES}"} if lanes else {}
        )
    storage = {"hosts": [f"h[1-{STORAGE}]"], "ipoib": True} | ({"class": "storage"} if lanes else {})
    document = {"p_keys": "0x0100-0x7ffe", "tenant": sections, "service": {"storage": storage}}
    if lanes:
        shares = {f"c{number}": {"share": 15} for number in range(CLASSES)}
        document["class"] = shares | {"storage": {"share": 30}}
    return parse_intent(document)


def measure(driver: Driver, pid: int, sent: Sent | None, options: argparse.Namespace) -> Figures:
    size = {"tenants": options.tenants, "each": options.each, "lanes": not options.no_lanes}
    before_s = cpu_s(pid)
    all_s, write_s = apply(driver, intent(**size), sent)
    between_s = cpu_s(pid)
    none_s, _ = apply(driver, intent(**size))
    changes_s = [apply(driver, intent(**size, visitor=number + 1), sent)[0] for number in range(options.changes)]
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return Figures(
        all_s=all_s,
        write_s=write_s,
        one_s=statistics.median(changes_s),
        none_s=none_s,
        all_cpu_s=between_s - before_s,
        one_cpu_s=(cpu_s(pid) - between_s) / options.changes,
        peak_mb=int(peak[1]) / 1024 if peak else 0.0,
    )


def apply(driver: Driver, requested: Intent, sent: Sent | None = None) -> tuple[float, float]:
    """Apply an intent; return the seconds, and those from the plan on, until the manager sends no more."""
    begin_s = time.perf_counter()
    change = plan_change(driver, requested)
    planned_s = time.perf_counter()
    apply_change(driver, change)
    end_s = time.perf_counter()
    last = sent() if sent else 0
    while sent and time.perf_counter() - end_s < SILENT_S:
        time.sleep(0.05)
        before, last = last, sent()
        if last - before > ASIDE:  # its responses to this query count too
            end_s = time.perf_counter()
    return end_s - begin_s, end_s - planned_s


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- managers ---------------------------------------------------------------------------------------------------------


@contextmanager
def lab(hosts: int) -> Iterator[registry.Entry]:
    """Start a lab of switches with 64 ports, without a subnet manager."""
    entry = daemon.start(weft.load(f"fat-tree:hosts={hosts},switch=QM9700"), f"bench-{os.getpid()}", follow=True)
    try:
        yield entry
    finally:
        control.end(entry)


@contextmanager
def weft_manager(entry: registry.Entry) -> Iterator[tuple[Driver, int, Sent | None]]:
    sockname = control.ask(entry, "state")["sockname"]
    state = subnet_manager.state_file(entry, "h1")
    subnet_manager.start(entry, sockname, "h1", Options(state_file=state, sweep_interval_s=0))
    status = read_status(state)
    assert status is not None
    try:
        yield ManagerDriver(ManagerSocket(socket_of(state))), status.pid, None
    finally:
        os.kill(status.pid, signal.SIGTERM)  # it does not poll, and would not notice the end of its lab


@contextmanager
def opensm(entry: registry.Entry) -> Iterator[tuple[Driver, int, Sent | None]]:
    sockname = control.ask(entry, "state")["sockname"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        partitions, options, log = folder / "partitions.conf", folder / "opensm.conf", folder / "osm.log"
        partitions.write_text("")
        options.write_text("sweep_interval 0\nqos_policy_file (null)\nrouting_engine ftree\nmax_wire_smps 128\n")
        sim = {"LD_PRELOAD": str(find_umad2sim()), "IBSIM_SOCKNAME": sockname, "SIM_HOST": "h1"}
        places = {"OSM_CACHE_DIR": name, "OSM_TMP_DIR": name}
        command = ["opensm", "-f", str(log), "-D", "0x83", "-d", "2", "-F", str(options), "-P", str(partitions)]
        with (folder / "out").open("w") as out:
            child = subprocess.Popen(command, cwd=folder, env=os.environ | sim | places, stdout=out, stderr=out)
        try:
            until_s = time.monotonic() + TIMEOUT_S
            while not log.exists() or "SUBNET UP" not in log.read_text(errors="replace"):
                if child.poll() is not None or time.monotonic() > until_s:
                    sys.exit(f"OpenSM did not bring the subnet up:\n{(folder / 'out').read_text()[-2000:]}")
                time.sleep(0.1)
            carrier = IbsimCarrier(f"h{STORAGE}", sockname)
            same = {"partitions": partitions, "options": options, "carrier": carrier}
            driver = OpenSmDriver(**same, signal=child.pid, timeout_s=TIMEOUT_S)
            yield driver, child.pid, driver._activity
            carrier.close()
        finally:
            child.kill()
            child.wait()


# -- report -----------------------------------------------------------------------------------------------------------


def show(name: str, figures: Figures) -> None:
    print(
        f"{name:<8} all {figures.all_s:8.2f} s (write {figures.write_s:.2f})  one {figures.one_s:7.3f} s  "
        f"none {figures.none_s:.3f} s  CPU {figures.all_cpu_s:.2f} + {figures.one_cpu_s:.3f} s  "
        f"{figures.peak_mb:,.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--each", type=int, default=4)
    parser.add_argument("--changes", type=int, default=5)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--no-lanes", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    hosts = STORAGE + options.tenants * options.each + 1
    figures: dict[str, Figures] = {}
    for name, manager in {"weft": weft_manager, "OpenSM": opensm}.items():
        if name == "weft" or not options.alone:
            with lab(hosts) as entry, manager(entry) as (driver, pid, sent):
                figures[name] = measure(driver, pid, sent, options)
            if not options.json:
                show(name, figures[name])
    ours, theirs = figures["weft"], figures.get("OpenSM")
    ratios = {} if theirs is None else {"all": theirs.all_s / ours.all_s, "one": theirs.one_s / ours.one_s}
    if options.json:
        print(json.dumps({"hosts": hosts, **{name: asdict(each) for name, each in figures.items()}, "ratios": ratios}))
    elif ratios:
        print(f"{hosts:,} hosts: OpenSM takes {ratios['all']:.1f} times as long for all, {ratios['one']:.1f} for one")


if __name__ == "__main__":
    main()
