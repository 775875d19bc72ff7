"""`weft diagnose`: which cable is bad, and how one knows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, Form, Whole
from weft.cli.output import console, print_data, progress_bar
from weft.cli.subnets import THE_LAB, Subnet

if TYPE_CHECKING:
    from weft.monitor.change import Change
    from weft.monitor.poll import Poller
    from weft.monitor.suspects import Diagnosis

_MOST = 10  # suspects that are printed


def diagnose(
    *,
    polls: Whole = 3,
    every: float = 10.0,
    subnet: Subnet = THE_LAB,
    form: Form = TABLES,
) -> None:
    """Find the bad cable of a fabric: suspects, evidence, what to do, whom it concerns. Status 1 if any.

    Parameters
    ----------
    polls
        How often the counters of all ports are read, 2 or more: the first time is what others are compared with.
    every
        Seconds from poll to poll, by the clock of the subnet: a lab's may be faster. Longer finds rarer errors.
    """
    from weft.errors import ConfigError
    from weft.monitor.diagnose import diagnose as find
    from weft.monitor.impact import add_impact, read_jobs, read_routed
    from weft.monitor.poll import Poller

    if polls < 2:
        raise ConfigError(f"--polls {polls}: counts may be old, so 2 polls are the fewest that say something")
    if not 0.1 <= every <= 86_400:
        raise ConfigError(f"--every {every:g}: give seconds from poll to poll, 0.1 to 86,400")
    load: dict[str, Any] = {"jobs": (), "speed": 0.0} if subnet.ibsim or subnet.umad else _load_of(subnet.lab)
    carrier = subnet.attach()
    try:
        clock = (lambda: float(_load_of(subnet.lab)["seconds"])) if load["speed"] else time.monotonic
        found = find(_poll(Poller(carrier, clock=clock), clock, polls, every))
        if found.suspects:
            fabric = read_routed(carrier)
            found = add_impact(found, fabric, read_jobs(fabric, load["jobs"]))
    finally:
        carrier.close()
    if form.is_data:
        print_data(form, found.report(), "suspects")
    else:
        _print(found, polls)
    sys.exit(0 if found.is_well else 1)


def _load_of(lab: str) -> dict[str, Any]:
    from weft.lab import control, registry

    state: dict[str, Any] = control.ask(registry.find(lab), "load_state")
    return state


def _poll(poller: Poller, clock: Callable[[], float], polls: int, every: float) -> list[Change]:
    from weft.monitor.change import between

    changes: list[Change] = []
    with progress_bar("polling") as change:
        last = poller.poll()
        for number in range(2, polls + 1):
            change(description=f"poll {number} of {polls}", completed=number - 1, total=polls)
            while clock() < last.at_s + every:
                time.sleep(min(0.05, every / 2))
            last, before = poller.poll(), last
            changes.append(between(before, last))
    return changes


def _print(found: Diagnosis, polls: int) -> None:
    from weft.monitor.evidence import concerns, seconds_in_words

    out = console()
    for number, suspect in enumerate(found.suspects[:_MOST], 1):
        out.print(f"{number}. {suspect.kind}: {suspect.name}", style="bold", markup=False)
        for line in (*suspect.evidence, *concerns(suspect), f"To do: {suspect.action}"):
            out.print(f"   {line}", markup=False)
    if len(found.suspects) > _MOST:
        out.print(f"{len(found.suspects) - _MOST:,} more suspects: --json has them all.")
    for note in found.notes:
        out.print(f"Note: {note}", markup=False)
    verdict = "" if found.suspects else "No suspect. "
    others = f"{found.symbol_ber:.1e}" if found.symbol_ber else "no error"
    out.print(
        f"{verdict}{found.ports:,} ports of {found.links:,} links, {polls} polls in {seconds_in_words(found.seconds)}; "
        f"bit error rate of all but suspects: {others}.",
        markup=False,
    )
