"""`weft monitor`: export the counters of a fabric to Prometheus."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import NAMES_FILE
from weft.cli.subnets import THE_LAB, Subnet
from weft.errors import ConfigError, SubnetError

if TYPE_CHECKING:
    from weft.mad.carrier import Carrier
    from weft.monitor.poll import Poller
    from weft.monitor.watch import Watch


def monitor(
    *,
    subnet: Subnet = THE_LAB,
    listen: str = "127.0.0.1:9315",
    every: float = 10.0,
    plan: Annotated[str, NAMES_FILE] = "",
    once: bool = False,
    rules: bool = False,
    dashboard: bool = False,
) -> None:
    """Export port counters to Prometheus.

    The metrics have the names of infiniband_exporter.

    Parameters
    ----------
    listen
        Address and port of `/metrics`.
    every
        Seconds between two polls, in real time; the clock of a lab may run faster.
    plan
        The planned cabling, as for `weft diagnose`; cables that were up once are expected in any case.
    once
        Run once and end: print the metrics of one poll.
    rules
        Print alert rules for Prometheus, and end.
    dashboard
        Print a dashboard for Grafana, and end.
    """
    if rules and dashboard:
        raise ConfigError("--rules and --dashboard are two files: print one, then the other")
    if rules or dashboard:
        from weft.monitor.files import DASHBOARD, RULES, read

        print(read(RULES if rules else DASHBOARD), end="")
        return
    from weft.monitor.exporter import render

    watch = new_watch(subnet, every, plan=plan, tell=_log)
    if once:
        latest = watch.tick()
        if latest.failure:
            raise SubnetError(latest.failure)
        print(render(latest, now_s=time.monotonic()).decode(), end="")
        return
    from weft.monitor.listen import Listener

    with Listener(listen, lambda: render(watch.latest, now_s=time.monotonic())) as listener, watch:
        print(f"{listener.url}: every {every:g} s", flush=True)
        _until_interrupted()


def _log(failure: str) -> None:
    print(f"a poll failed: {failure}" if failure else "the fabric answers again", file=sys.stderr, flush=True)


def new_watch(subnet: Subnet, every_s: float, *, plan: str = "", tell: Callable[[str], None] | None = None) -> Watch:
    from weft.monitor.diagnose import diagnose
    from weft.monitor.watch import Watch

    if not 0.1 <= every_s <= 86_400:
        raise ConfigError(f"--every must be 0.1 to 86,400 seconds, got {every_s:g}")

    carriers: list[Carrier] = []

    def new_poller() -> Poller:
        while carriers:  # attached to a lab that has ended
            carriers.pop().close()
        poller = subnet.new_poller(plan)
        carriers.append(poller.carrier)
        return poller

    return Watch(new_poller(), every_s=every_s, diagnose=diagnose, again=new_poller, tell=tell)


def _until_interrupted() -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
