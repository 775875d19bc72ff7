"""`weft whatif`: the effects of a change, before it is made."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import NAMES_FILE, TABLES, Faults, File, Form, RoutingEngine, Whole
from weft.cli.output import console, print_data, progress_bar, table
from weft.cli.subnets import THE_LAB, Subnet
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.sim.steady import LoadJob
    from weft.twin import Answer

_MOST = 5  # alarms and hosts in the printed report


def whatif(
    spec: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    fault: Faults = (),
    routing_engine: RoutingEngine = "",
    jobs: tuple[str, ...] = (),
    tables: File = None,
    subnet: Subnet = THE_LAB,
    seed: Whole = 1,
    form: Form = TABLES,
) -> None:
    """Show the effects of a fault or of another routing engine.

    Nothing is changed: the answer comes from a model. The exit status is 1 if hosts would lose their connection or a
    deadlock would be possible.

    Parameters
    ----------
    spec
        A topology or the path of a file. [the subnet of a running lab, read by MADs with its tables and its load]
    jobs
        A job as in `weft load`: 'train=all-to-all:h[1-64]@80%'. Repeat it for several. [those of the lab]
    tables
        Forwarding tables dumped by OpenSM, the present ones of a file: a folder, or one file of routes.
    seed
        Random seed, for permutations.
    """
    from weft.twin import Change, ask

    change = Change(faults=fault, routing_engine=routing_engine)
    with progress_bar("reading the fabric") as step:
        fabric, present_jobs = read_present(spec, tables, subnet)
        step(description="routing and checking")
        answer = ask(fabric, change, jobs or present_jobs, seed=seed)
    if form.is_data:
        print_data(form, _facts(answer), "jobs")
    else:
        _print(answer)
    if not answer.is_safe:
        raise SystemExit(1)


def read_present(spec: str, tables: Path | None, subnet: Subnet) -> tuple[Fabric, list[LoadJob]]:
    """Return the fabric with its tables, and the jobs of a lab."""
    if spec:
        from weft.api.routes import read_routed
        from weft.fabric.spec import load

        if subnet != THE_LAB:
            raise ConfigError("use SPEC or a running subnet (--lab, --ibsim, --umad, --at), not both")
        return read_routed(load(spec), tables=tables)[0], []
    from weft.monitor.impact import read_jobs
    from weft.monitor.impact import read_routed as read_subnet

    if tables is not None:
        raise ConfigError("--tables needs SPEC; a running subnet has its own tables")
    carrier = subnet.attach()
    try:
        fabric = read_subnet(carrier)
    finally:
        carrier.close()
    return fabric, read_jobs(fabric, subnet.jobs())


def _print(answer: Answer) -> None:
    out = console()
    out.print(_summary(answer), markup=False, style="bold")
    for title, names in (("cut off", answer.cut_off), ("alarm", answer.alarms)):
        for name in names[:_MOST]:
            out.print(f"  {title}: {name}", markup=False)
        if len(names) > _MOST:
            out.print(f"  and {len(names) - _MOST:,} more", markup=False)
    if answer.proof is not None and not answer.proof.ok:
        out.print(answer.proof.explain(), markup=False)
    if answer.jobs:
        columns = ("job", "before Gbit/s", "until rerouted", "after", "loss %")
        rows = [
            (job.name, job.before_gbit_s, job.meanwhile_gbit_s, job.after_gbit_s, round(100 * job.loss, 1))
            for job in answer.jobs
        ]
        out.print(table("Jobs", columns, rows))
    if answer.busiest:
        shares = [(link.port, _percent(link.before), _percent(link.after)) for link in answer.busiest]
        out.print(table("Busiest ports afterwards", ("port", "busy before %", "after %"), shares))
    out.print(
        "How far to trust it: rates are fair shares on the forwarding tables, without bursts; weft sim has packets.",
        markup=False,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def _summary(answer: Answer) -> str:
    change = ", ".join((*answer.change.faults, *filter(None, [answer.change.routing_engine])))
    if answer.refusal:
        return f"{change}: the fabric cannot be routed afterwards: {answer.refusal}"
    if answer.cut_off:
        connected = f"{len(answer.cut_off):,} of {answer.hosts:,} host ports lose their connection"
    else:
        connected = f"all {answer.hosts:,} host ports stay connected"
    deadlock = "can deadlock" if answer.proof is not None and answer.proof.credit_loop else "cannot deadlock"
    return (
        f"{change}: {connected}; routing by {answer.engine} changes {answer.changed_entries:,} of {answer.entries:,} "
        f"entries on {answer.changed_switches:,} switches and {deadlock}."
    )


def _facts(answer: Answer) -> dict[str, Any]:
    facts = asdict(answer)
    facts["proof"] = None if answer.proof is None else {"ok": answer.proof.ok, "text": answer.proof.explain()}
    facts["jobs"] = [asdict(job) | {"loss": job.loss} for job in answer.jobs]
    return facts | {"safe": answer.is_safe}
