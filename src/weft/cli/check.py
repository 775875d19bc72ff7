"""`weft check`: verify that forwarding tables reach every port and cannot deadlock."""

from __future__ import annotations

import sys
from dataclasses import asdict

from weft.cli.arguments import TABLES, File, Form, Spec
from weft.cli.output import console, print_data, progress_bar, table


def check(
    spec: Spec, /, *, tables: File = None, hosts_only: bool = False, paths: str = "table", form: Form = TABLES
) -> None:
    """Verify forwarding tables: reachability, credit loops.

    The exit status is 1 if a pair is unreachable, a route loops or the channel dependencies have a cycle. Also report
    whether replies on the service level of their requests are covered by the proof.

    Parameters
    ----------
    tables
        Forwarding tables dumped by OpenSM: a folder with opensm.fdbs or opensm-lfts.dump, and guid2lid or
        opensm-subnet.lst for the LIDs; or one file of routes. VLs are read from opensm.psl and opensm.slvl beside them,
        as `weft route --dump` and `weft sm --dump` write them; OpenSM does not.
    hosts_only
        Check only paths between adapters, as ibdmchk does; otherwise also paths from and to switches.
    paths
        table; or valiant, ugal or par: include all paths through intermediate switches in the proof, on the lanes that
        `weft sim --paths` gives them.
    """
    from weft.api.routes import check as check_tables
    from weft.fabric.spec import load

    with progress_bar(f"reading {spec}") as report:
        fabric = load(spec)
        report(description=f"proving {spec}")
        verdict = check_tables(fabric, tables=tables, hosts_only=hosts_only, paths=paths)
    if form.is_data:
        facts = {"ok": verdict.ok, "changes": fabric.changes, "missing": verdict.missing}
        print_data(form, facts | asdict(verdict))
    else:
        out = console()
        for change in fabric.changes:
            out.print(f"{spec}: {change}", markup=False)
        out.print(verdict.explain(), markup=False)
        out.print(table("Paths", ("hops between switches", "pairs"), list(verdict.hops.items())))
    if not verdict.ok:
        sys.exit(1)
