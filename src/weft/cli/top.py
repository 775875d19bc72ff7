"""`weft top` and `weft monitor`: show the load and errors of links in the terminal, or export them to Prometheus."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

from weft.cli.arguments import NAMES_FILE, TABLES, Form, Whole
from weft.cli.output import console, print_data, table
from weft.cli.subnets import THE_LAB, Subnet
from weft.errors import ConfigError, SubnetError

if TYPE_CHECKING:
    from rich.console import Group

    from weft.monitor.busiest import By, Row
    from weft.monitor.watch import Latest, Watch
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


_SHOWN = 5  # suspects, and events
_FASTER = 1.5  # lab time over real time above which the headline mentions the lab's clock
_COUNTS = ("symbol errors", "rcv errors", "discards", "downs")


def top(
    *,
    subnet: Subnet = THE_LAB,
    sort_by: Literal["errors", "load", "wait"] = "errors",
    lines: Whole = 0,
    every: float = 2.0,
    form: Form = TABLES,
) -> None:
    """Show the busiest and the faulty links.

    Refreshes until Ctrl-C on a terminal; prints once otherwise.

    Parameters
    ----------
    sort_by
        Order: ports with errors, then the busiest; the busiest; or those that wait longest for credits.
    lines
        Links to show. [as many as fit; 20 without a terminal]
    every
        Seconds between two polls, in real time; the clock of a lab may run faster.
    """

    if lines < 0:
        raise ConfigError(f"--lines {lines}: give how many links to show, or leave it out")
    watch = new_watch(subnet, every)
    if form.is_data or not sys.stdout.isatty():
        _print_once(watch, sort_by, lines or 20, form)
    else:
        _go_on(watch, sort_by, lines)


def _print_once(watch: Watch, by: By, lines: int, form: Form) -> None:
    from weft.monitor.busiest import busiest

    for wait_s in (watch.latest.every_s, 0.0):
        latest = watch.tick()
        if latest.failure:
            raise SubnetError(latest.failure)
        time.sleep(wait_s)
    assert latest.change is not None
    if form.is_data:
        print_data(form, [asdict(row) for row in busiest(latest.change, by, lines)])
        return
    console().print(_picture(latest, by, lines))


def _go_on(watch: Watch, by: By, lines: int) -> None:
    from rich.live import Live

    screen = console()
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        try:
            while True:
                latest = watch.tick()
                live.update(_picture(latest, by, lines or max(screen.height - 8 - 2 * _SHOWN, 5)), refresh=True)
                time.sleep(watch.latest.every_s)
        except KeyboardInterrupt:
            return


def _picture(latest: Latest, by: By, lines: int) -> Group:
    from rich.console import Group
    from rich.text import Text

    from weft.monitor.busiest import busiest

    parts: list[object] = [Text(_headline(latest), style="bold")]
    if latest.failure:
        parts.append(Text(f"The last poll failed: {latest.failure}", style="red"))
    if latest.change is not None:
        columns = ("port", "to", "Gbit/s", "out", "in", "load %", "wait %", *_COUNTS)
        rows = [_cells(row) for row in busiest(latest.change, by, lines)]
        parts.append(table("", columns, rows, note="Errors, discards and downs are of this interval; ?: not known."))
        suspects = latest.diagnosis.suspects if latest.diagnosis is not None else ()
        parts += [
            Text(f"{suspect.name}: {suspect.kind}; {suspect.evidence[0]}", style="red") for suspect in suspects[:_SHOWN]
        ]
        events = latest.change.events[:_SHOWN]
        parts += [Text(f"{event.port} {event.text}") for event in events]
        if len(latest.change.events) > len(events):
            parts.append(Text(f"and {len(latest.change.events) - len(events):,} more events"))
    return Group(*parts)  # type: ignore[arg-type]


def _headline(latest: Latest) -> str:
    if latest.reading is None:
        return "no poll has brought counters yet"
    reading = latest.reading
    at = time.strftime("%H:%M:%S", time.localtime(reading.stamp_s))
    answering = int(reading.known.any(axis=1).sum())
    silent = int(reading.ports.is_polled.sum()) - answering
    master = f"subnet manager at {latest.manager.node}" if latest.manager else "no subnet manager answers"
    span = f" in {latest.change.seconds:.1f} s" if latest.change else ""
    if latest.change and latest.change.seconds > _FASTER * latest.change_s:
        span += " on the lab's clock"
    return f"{at}   {answering:,} ports{span}{f', {silent:,} silent' if silent else ''}   {master}"


def _cells(row: Row) -> tuple[str | int | float, ...]:
    def rounded(value: float | None, unit: float = 1.0) -> str | float:
        return "?" if value is None else round(value * unit, 1)

    counts = (row.symbol_errors, row.rcv_errors, row.discards, row.downs)
    return (
        row.port,
        row.peer or "down",
        round(row.rate_gbit_s),
        rounded(row.out_gbit_s),
        rounded(row.in_gbit_s),
        rounded(row.load, 100),
        rounded(row.wait, 100),
        *("?" if count is None else count for count in counts),
    )
