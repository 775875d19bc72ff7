"""`weft diagnose`: which cable is bad, and how one knows."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import NAMES_FILE, TABLES, Form, Whole
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
    plan: Annotated[str, NAMES_FILE] = "",
    subnet: Subnet = THE_LAB,
    form: Form = TABLES,
) -> None:
    """Find bad cables: suspects, evidence, what to do.

    The exit status is 1 if there is a suspect.

    Parameters
    ----------
    polls
        How often the counters of all ports are read, 2 or more: the first time is what others are compared with.
    every
        Seconds between two polls, by the clock of the subnet: a lab's may run faster. Longer finds rarer errors.
    plan
        The planned cabling: a folder of weft plan, a cables.csv, an NDT, a dump, any SPEC. A lab's plan is
        the fabric that it was started with.
    """
    from weft.errors import ConfigError
    from weft.monitor.diagnose import diagnose as find
    from weft.monitor.impact import add_impact, read_jobs, read_routed

    if polls < 2:
        raise ConfigError(f"--polls {polls}: counts may be old, so 2 polls are the fewest that say something")
    if not 0.1 <= every <= 86_400:
        raise ConfigError(f"--every {every:g}: give seconds from poll to poll, 0.1 to 86,400")
    poller = subnet.new_poller(plan)
    try:
        found = find(_poll(poller, polls, every))
        if found.suspects:
            fabric = read_routed(poller.carrier)
            found = add_impact(found, fabric, read_jobs(fabric, _jobs_of(subnet)))
    finally:
        poller.carrier.close()
    if form.is_data:
        print_data(form, found.report(), "suspects")
    else:
        _print(found, polls)
    sys.exit(0 if found.is_well else 1)


def _jobs_of(subnet: Subnet) -> list[dict[str, Any]]:
    """Of a lab's load; who runs what on another fabric nobody can be asked."""
    from weft.lab import control, registry

    if subnet.ibsim or subnet.umad:
        return []
    jobs: list[dict[str, Any]] = control.ask(registry.find(subnet.lab), "load_state")["jobs"]
    return jobs


def _poll(poller: Poller, polls: int, every: float) -> list[Change]:
    from weft.monitor.change import between

    changes: list[Change] = []
    with progress_bar("polling") as change:
        last = poller.poll()
        for number in range(2, polls + 1):
            change(description=f"poll {number} of {polls}", completed=number - 1, total=polls)
            while poller.clock() < last.at_s + every:
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
