"""Measure the time of a poll of all counters of a fabric, and of a scrape of them.

    python benchmarks/monitor_poll.py [SPEC ...] [--polls 3] [--json]

A lab with weft's subnet manager runs in its own processes; the poller is this one, on one core. Columns:

    walk s      the first poll: walks the fabric, asks every agent for its capabilities, and reads
    poll s      a poll of an unchanged fabric, the best of `--polls`; with the processor time of the poller and of the
                lab meanwhile: on one core a poll takes at least the larger of the two
    series      lines of /metrics. In processor time, as all that follow: first s, to render after a walk; render s, for
                another reading; again s, the same reading scraped once more
    client s    prometheus_client's generate_latest for the same samples, if it is installed and they are few
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from weft.lab import control, registry
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.exporter import render
from weft.monitor.poll import Poller, Reading
from weft.monitor.watch import Latest

SPECS = ["fat-tree:hosts=1024,radix=64", "fat-tree:hosts=11664,radix=36"]
MOST_FOR_CLIENT = 500_000  # series: its objects take 1 kB each
_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def lab(spec: str) -> Iterator[dict[str, object]]:
    """Start a lab with LIDs and routes, and end it afterwards."""
    name = f"bench-{os.getpid()}"
    weft = [sys.executable, "-m", "weft"]
    subprocess.run([*weft, "up", spec, "--daemon", "--sm", "--name", name], check=True, stdout=subprocess.DEVNULL)
    try:
        yield control.ask(registry.find(name), "state")
    finally:
        subprocess.run([*weft, "down", "--lab", name], check=True, stdout=subprocess.DEVNULL)


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure(spec: str, polls: int) -> dict[str, object]:
    with lab(spec) as state:
        carrier = IbsimCarrier("", str(state["sockname"]))
        poller, server = Poller(carrier), int(str(state["pid"]))
        walk_s, _, _, reading = timed(poller, server)
        rounds = [timed(poller, server) for _ in range(polls)]
        poll_s, own_s, lab_s, reading = min(rounds, key=lambda timing: timing[0])
        carrier.close()
    latest = Latest(every_s=10.0, reading=reading, polls=2)
    first_s, text = best(lambda: render(latest, now_s=0.0), 1)
    other = replace(latest, reading=replace(reading, at_s=reading.at_s + 10))
    render_s, _ = best(lambda: render(other, now_s=0.0), 1)
    again_s, _ = best(lambda: render(other, now_s=0.0), 3)
    lines = sum(not line.startswith(b"#") for line in text.splitlines())
    ports = int(reading.known.any(axis=1).sum())
    return {
        "spec": spec,
        "ports": ports,
        "walk_s": walk_s,
        "poll_s": poll_s,
        "poller_cpu_s": own_s,
        "lab_cpu_s": lab_s,
        "series": lines,
        "first_s": first_s,
        "render_s": render_s,
        "again_s": again_s,
        "client_s": client_s(text) if lines <= MOST_FOR_CLIENT else None,
    }


def timed(poller: Poller, server: int) -> tuple[float, float, float, Reading]:
    begin, own, its = time.perf_counter(), time.process_time(), cpu_s(server)
    reading = poller.poll()
    return time.perf_counter() - begin, time.process_time() - own, cpu_s(server) - its, reading


def best(work, times: int) -> tuple[float, bytes]:
    times_s = []
    for _ in range(times):
        begin = time.process_time()
        result = work()
        times_s.append(time.process_time() - begin)
    return min(times_s), result


def client_s(text: bytes) -> float | None:
    """Render the same samples with the library that most exporters use, from values already in memory."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        return None
    families = list(text_string_to_metric_families(text.decode()))

    class Collector:
        def collect(self):
            return families

    collected = CollectorRegistry(auto_describe=False)
    collected.register(Collector())
    return best(lambda: generate_latest(collected), 1)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("specs", nargs="*", default=SPECS)
    parser.add_argument("--polls", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        rows = [measure(spec, options.polls) for spec in options.specs]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print(
            "   ".join(
                f"{name} {value:,.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
            )
        )


if __name__ == "__main__":
    main()
