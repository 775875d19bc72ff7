"""`weft audit`: compare the cabling of a fabric with its plan, and list the plugs to move."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, Form
from weft.cli.output import console, print_data, progress_bar, table
from weft.version import __version__

if TYPE_CHECKING:
    from weft.plan.audit.findings import Audit


def audit(
    discovered: Annotated[
        str,
        NAMES_FILE,
        Parameter(help="The discovered fabric: output of ibnetdiscover, a lab file, an OpenSM dump, ..."),
    ],
    /,
    *,
    plan: Annotated[
        str, NAMES_FILE, Parameter(help="The planned cabling: a folder of weft plan, a cables.csv, an NDT, any SPEC.")
    ],
    form: Form = TABLES,
) -> None:
    """Compare a discovered fabric with its plan.

    Lists the cables to repair in walking order. The exit status is 1 if there are any.
    """
    from weft.fabric.spec import load
    from weft.plan.audit.audit import compare
    from weft.plan.audit.positions import read_plan

    with progress_bar(f"reading {discovered}"):
        actual, planned = load(discovered), read_plan(plan)
    with progress_bar("comparing"):
        done = compare(actual, planned)
    if form.is_data:
        print_data(form, _facts(done), "walk")
    else:
        _print(done)
    if not done.ok:
        sys.exit(1)


def _print(done: Audit) -> None:
    out = console()
    for note in done.notes:
        out.print(note, markup=False)
    verdict = f"{done.as_planned:,} of {done.cables:,} cables of {done.plan} are as planned"
    if done.ok:
        out.print(f"{verdict}: nothing to do", markup=False)
        return
    out.print(f"{verdict}; {_count(len(done.findings), 'finding')}", markup=False, end="\n\n")
    rows = [(number, finding.kind, finding.text) for number, finding in enumerate(done.findings, start=1)]
    out.print(table("Findings", ("#", "kind", "what"), rows))
    walk = [(number, str(action)) for number, action in done.walk()]
    note = "If a port is still occupied, leave the plug loose: another step with the same # frees the port."
    out.print(
        table(
            f"Repairs in walking order: {_count(len(walk), 'step')}",
            ("#", "do"),
            walk,
            note if any(len(finding.actions) > 1 for finding in done.findings) else "",
        )
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _facts(done: Audit) -> dict[str, Any]:
    return {
        "weft": __version__,
        "found": done.found,
        "plan": done.plan,
        "ok": done.ok,
        "cables": done.cables,
        "as_planned": done.as_planned,
        "notes": done.notes,
        "findings": [
            {
                "finding": number,
                "kind": finding.kind,
                "what": finding.text,
                "harmless": finding.harmless,
                "cables": [
                    {"a": a, "b": b, "label": label}
                    for (a, b), label in zip(finding.cables, finding.labels, strict=True)
                ],
            }
            for number, finding in enumerate(done.findings, start=1)
        ],
        "walk": done.records(),
    }
