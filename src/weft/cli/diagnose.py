"""`weft diagnose`: find bad cables, with the evidence."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import NAMES_FILE, TABLES, Form, Whole
from weft.cli.output import console, print_data, progress_bar
from weft.cli.subnets import THE_LAB, Subnet

if TYPE_CHECKING:
    from weft.monitor.suspects import Diagnosis

_MOST = 10  # suspects in the printed report


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
        Polls of the counters of all ports, 2 or more; the first is the baseline.
    every
        Seconds between two polls, by the clock of the subnet: a lab's may run faster. Longer finds rarer errors.
    plan
        The planned cabling: a folder of weft plan, a cables.csv, an NDT, a dump, any SPEC. A lab's plan is
        the fabric that it was started with.
    """
    from weft.api.operations import diagnose_subnet

    with progress_bar("polling") as change:
        diagnosis = diagnose_subnet(
            subnet,
            polls=polls,
            every_s=every,
            plan=plan,
            progress=lambda done, total: change(description=f"poll {done + 1} of {total}", completed=done, total=total),
        )
    if form.is_data:
        print_data(form, diagnosis.report(), "suspects")
    else:
        _print(diagnosis, polls)
    sys.exit(0 if diagnosis.is_well else 1)


def _print(diagnosis: Diagnosis, polls: int) -> None:
    from weft.monitor.evidence import concerns, seconds_in_words

    out = console()
    for number, suspect in enumerate(diagnosis.suspects[:_MOST], 1):
        out.print(f"{number}. {suspect.kind}: {suspect.name}", style="bold", markup=False)
        for line in (*suspect.evidence, *concerns(suspect), f"To do: {suspect.action}"):
            out.print(f"   {line}", markup=False)
    if len(diagnosis.suspects) > _MOST:
        out.print(f"{len(diagnosis.suspects) - _MOST:,} more suspects: --json has them all.")
    for note in diagnosis.notes:
        out.print(f"Note: {note}", markup=False)
    verdict = "" if diagnosis.suspects else "No suspect. "
    background = f"{diagnosis.symbol_ber:.1e}" if diagnosis.symbol_ber else "no error"
    duration = seconds_in_words(diagnosis.seconds)
    out.print(
        f"{verdict}{diagnosis.ports:,} ports of {diagnosis.links:,} links, {polls} polls in {duration}; "
        f"bit error rate of all but suspects: {background}.",
        markup=False,
    )
