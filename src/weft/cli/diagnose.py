"""`weft diagnose`: which cable is bad, and how one knows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import NAMES_FILE, TABLES, Form, Whole
from weft.cli.output import console, print_data, progress_bar
from weft.cli.subnets import THE_LAB, Subnet

if TYPE_CHECKING:
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
    from weft.api.operations import diagnose_subnet

    with progress_bar("polling") as change:
        found = diagnose_subnet(
            subnet,
            polls=polls,
            every_s=every,
            plan=plan,
            progress=lambda done, total: change(description=f"poll {done + 1} of {total}", completed=done, total=total),
        )
    if form.is_data:
        print_data(form, found.report(), "suspects")
    else:
        _print(found, polls)
    sys.exit(0 if found.is_well else 1)


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
