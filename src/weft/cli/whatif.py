"""`weft whatif`: the effects of a change, before it is made."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import NAMES_FILE, TABLES, Faults, File, Form, RoutingEngine, Whole
from weft.cli.output import console, print_data, progress_bar, table
from weft.cli.subnets import THE_LAB, Subnet
from weft.errors import ConfigError
from weft.units import format_items

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.sim.steady import LoadJob
    from weft.tenants.intent import Intent
    from weft.twin import Answer
    from weft.twin.rounds import Round

_MOST = 5  # alarms and hosts in the printed report


def whatif(
    spec: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    fault: Faults = (),
    routing_engine: RoutingEngine = "",
    add_servers: Whole = 0,
    tenants: File = None,
    reboot: tuple[str, ...] = (),
    rounds: Whole = 1,
    jobs: tuple[str, ...] = (),
    tables: File = None,
    subnet: Subnet = THE_LAB,
    seed: Whole = 1,
    form: Form = TABLES,
) -> None:
    """Show the effects of a change before it is made.

    The change is faults, another routing engine, more servers, other tenants or reboots. Nothing is changed: the answer
    comes from a model. The exit status is 1 if hosts would lose their connection or a deadlock would be possible.

    Parameters
    ----------
    spec
        A topology or the path of a file. [the subnet of a running lab, read by MADs with its tables and its load]
    add_servers
        Add so many servers like the present ones at free ports beside them.
    tenants
        The intent of tenants, in TOML: it replaces the partitions.
    reboot
        A switch, or a server, several as leaf[1-4]. Repeat it for several. Alone, or with --rounds.
    rounds
        The rounds in which they reboot, one after the other.
    jobs
        A job as in `weft load`: 'train=all-to-all:h[1-64]@80%'. Repeat it for several. [those of the lab]
    tables
        Forwarding tables dumped by OpenSM, the present ones of a file: a folder, or one file of routes.
    seed
        Random seed, for permutations.
    """
    from weft.twin import Change, ask

    if reboot:
        if fault or routing_engine or add_servers or tenants:
            raise ConfigError("--reboot cannot be combined with another change: ask for one after the other")
        _ask_rounds(_read_reboots(reboot, rounds), spec, jobs, tables, subnet, seed, form)
        return
    if rounds != 1:
        raise ConfigError("--rounds needs --reboot")
    change = Change(faults=fault, routing_engine=routing_engine, new_servers=add_servers, tenants=_read_intent(tenants))
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


def _read_intent(file: Path | None) -> Intent | None:
    if file is None:
        return None
    from weft.fabric.files.lab.document import Document
    from weft.tenants.intent import intent_of

    return intent_of(Document.load(file, ".toml"))


def _read_reboots(reboot: tuple[str, ...], rounds: int) -> list[tuple[str, ...]]:
    from weft.fabric.files.hostlist import expand
    from weft.twin.rounds import split_rounds

    return split_rounds([name for text in reboot for name in expand(text)], rounds)


def _ask_rounds(
    rounds: list[tuple[str, ...]],
    spec: str,
    jobs: tuple[str, ...],
    tables: Path | None,
    subnet: Subnet,
    seed: int,
    form: Form,
) -> None:
    """Print the effects of reboots in rounds; status 1 if one of them is unsafe."""
    from weft.twin.rounds import ask_rounds

    with progress_bar("reading the fabric") as step:
        fabric, present_jobs = read_present(spec, tables, subnet)
        step(description="routing and checking")
        turns = list(ask_rounds(fabric, rounds, jobs or present_jobs, seed=seed))
    if form.is_data:
        facts = [
            _facts(turn.answer) | {"reboots": turn.reboots, "cut_off": turn.cut_off, "safe": turn.is_safe}
            for turn in turns
        ]
        print_data(form, facts)
    else:
        _print_rounds(turns)
    if not all(turn.is_safe for turn in turns):
        raise SystemExit(1)


def _print_rounds(turns: list[Round]) -> None:
    from weft.fabric.files.hostlist import compress

    rows = []
    for number, turn in enumerate(turns, 1):
        answer = turn.answer
        worst = max((job.loss for job in answer.jobs), default=None)
        proof = "not routed" if answer.refusal else "ok" if turn.is_safe or answer.proof is None else ""
        if not proof:
            proof = "can deadlock" if answer.proof is not None and answer.proof.credit_loop else "cut off"
        rows.append((number, compress(turn.reboots), len(turn.cut_off), answer.changed_entries, _percent(worst), proof))
    columns = ("round", "reboots", "hosts cut off", "changed entries", "worst job loses %", "proof")
    note = "Hosts that reboot themselves do not count as cut off."
    console().print(table("Rounds", columns, rows, note))


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
    if (partitions := answer.partitions) is not None:
        for verb, number, pairs in (
            ("lose", partitions.lost_pairs, partitions.lost),
            ("gain", partitions.gained_pairs, partitions.gained),
        ):
            named = ", ".join(f"{a} - {b}" for a, b in pairs)
            out.print(
                f"  partitions: {format_items(number, 'pair')} {verb} their connection: {named or 'none'}", markup=False
            )
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
    change = _describe(answer)
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


def _describe(answer: Answer) -> str:
    change = answer.change
    more = [change.routing_engine]
    if change.new_servers:
        more.append(f"{format_items(change.new_servers, 'new server')} with {format_items(answer.new_hosts, 'port')}")
    if change.tenants is not None:
        more.append(format_items(len(change.tenants.partitions), "partition"))
    return ", ".join((*change.faults, *filter(None, more)))


def _facts(answer: Answer) -> dict[str, Any]:
    facts = asdict(answer)
    tenants = answer.change.tenants
    facts["change"]["tenants"] = None if tenants is None else [name for _, name in tenants.partitions]
    facts["proof"] = None if answer.proof is None else {"ok": answer.proof.ok, "text": answer.proof.explain()}
    facts["jobs"] = [asdict(job) | {"loss": job.loss} for job in answer.jobs]
    return facts | {"safe": answer.is_safe}
