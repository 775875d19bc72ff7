"""`weft maintain`: reboots and replacements as proved steps, and their execution on a lab."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, report_written, table
from weft.cli.subnets import THE_LAB, Subnet
from weft.cli.whatif import read_present
from weft.errors import ConfigError, UnknownName
from weft.units import format_items

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.twin.maintenance import Maintenance

_SHOWN = 4  # tasks of a step in the table


def maintain(
    spec: Annotated[str, NAMES_FILE] = "",
    /,
    *,
    reboot: tuple[str, ...] = (),
    replace_: Annotated[tuple[str, ...], Parameter(name="--replace")] = (),
    to_engine: str = "",
    keep_rate: float | None = None,
    accept_cut_off: bool = False,
    accept_mixed: bool = False,
    jobs: tuple[str, ...] = (),
    tables: File = None,
    subnet: Subnet = THE_LAB,
    seed: Whole | None = None,
    output: Annotated[Path | None, Parameter(name=("--output", "-o"))] = None,
    run: File = None,
    form: Form = TABLES,
) -> None:
    """Plan reboots and replacements step by step.

    In every step all other hosts stay connected, jobs keep a share of their rate, and nothing can deadlock, also while
    the subnet manager writes new tables. Nothing is changed, except with --run, which carries out a plan on a lab.

    Parameters
    ----------
    spec
        A topology or the path of a file. [the subnet of a running lab, read by MADs with its tables and its load]
    reboot
        A switch, several as spine[1-4], or `all` switches. Repeat it for several.
    replace_
        A port whose cable is replaced: leaf1/5, leaf[1-8]/33. Repeat it for several.
    to_engine
        First change to this routing engine: up-down, fat-tree, ...
    keep_rate
        Minimum share of its rate that each job keeps; without jobs, of all-to-all among all hosts. [0.25]
    accept_cut_off
        Accept that hosts whose only switch is rebooted lose their connection meanwhile.
    accept_mixed
        Accept steps in which old and new tables together can form a credit loop.
    jobs
        A job as in `weft load`: 'train=all-to-all:h[1-64]@80%'. Repeat it for several. [those of the lab]
    tables
        Forwarding tables dumped by OpenSM, the present ones of a file: a folder, or one file of routes.
    seed
        Random seed, for permutations. [1]
    output
        The file to write: FILE.json, a plan for --run, FILE.md as a runbook.
    run
        Carry out the plan of this file on the lab; after an interruption, the steps that remain.
    """
    given: dict[str, object] = {
        "SPEC": spec,
        "--reboot": reboot,
        "--replace": replace_,
        "--to-engine": to_engine,
        "--jobs": jobs,
    }
    given |= {"--keep-rate": keep_rate, "--tables": tables, "--seed": seed, "--output": output}
    given |= {"--accept-cut-off": accept_cut_off, "--accept-mixed": accept_mixed}
    if run is not None:
        if needless := [flag for flag, value in given.items() if value not in (None, "", (), False)]:
            raise ConfigError(f"--run has all from its plan: leave out {', '.join(needless)}")
        _run(run, subnet)
        return
    from weft.twin.maintenance import KEEP, Limits, plan_maintenance
    from weft.twin.runbook import write_runbook

    if output is not None and output.suffix not in (".json", ".md"):
        raise ConfigError(f"--output {output} must end in .json, for --run, or .md, a runbook")
    limits = Limits(
        keep=KEEP if keep_rate is None else keep_rate, accept_cut_off=accept_cut_off, accept_mixed=accept_mixed
    )
    with progress_bar("reading the fabric") as step:
        fabric, present_jobs = read_present(spec, tables, subnet)
        plan = plan_maintenance(
            fabric,
            [*_switches(fabric, reboot), *_ports(fabric, replace_)],
            limits,
            jobs or present_jobs,
            to_engine=to_engine,
            seed=1 if seed is None else seed,
            progress=lambda text: step(description=text),
        )
    if output is not None:
        write_runbook(plan, output)
    if form.is_data:
        print_data(form, asdict(plan), "steps")
        return
    _print(plan, has_jobs=bool(jobs or present_jobs))
    report_written(*([output] if output is not None else []))


def _switches(fabric: Fabric, names: tuple[str, ...]) -> list[str]:
    from weft.fabric.kinds import NodeKind

    switches = [fabric.nodes.name[node] for node in fabric.of_kind(NodeKind.SWITCH).tolist()]
    chosen = [name for text in names for name in (switches if text == "all" else _expand(text))]
    for name in chosen:
        if name not in switches and name in fabric:
            raise ConfigError(f"--reboot {name}: not a switch; use --replace for the cable of a host")
        if name not in switches:
            raise UnknownName("switch", name, switches)
    return [f"dead:{name}" for name in chosen]


def _ports(fabric: Fabric, names: tuple[str, ...]) -> list[str]:
    ports = [name for text in names for name in _expand(text)]
    for name in ports:
        if fabric.find_port(name).link is None:
            raise ConfigError(f"--replace {name}: this port has no cable")
    return [f"cut:{name}" for name in ports]


def _expand(text: str) -> list[str]:
    from weft.fabric.files.hostlist import expand

    return expand(text)


def _run(path: Path, subnet: Subnet) -> None:
    from weft.lab import registry
    from weft.twin.runbook import run

    if subnet.ibsim or subnet.umad:
        raise ConfigError("--run works on a lab, whose cables it pulls; elsewhere follow the runbook: -o FILE.md")
    lab = registry.find(subnet.lab)
    steps = run(path, lab, lambda host: replace(subnet, at=host).attach(), say=lambda line: print(line, flush=True))
    print(f"all {steps} steps are done")


def _print(plan: Maintenance, *, has_jobs: bool) -> None:
    from weft.twin.runbook import title

    out = console()
    tasks = sum(len(step.tasks) for step in plan.steps)
    worst = min(step.kept for step in plan.steps)
    cut_off = max(len(step.cut_off) for step in plan.steps)
    kept = "every job keeps" if has_jobs else "all-to-all keeps"
    connected = (
        f"at most {cut_off:,} host ports lose their connection at a time" if cut_off else "all hosts stay connected"
    )
    out.print(
        f"{format_items(tasks, 'task')} in {format_items(len(plan.steps), 'step')}: {connected}, "
        f"{kept} at least {worst:.0%} of its rate, {_deadlock(plan)}.",
        markup=False,
        style="bold",
    )
    rows: list[tuple[Cell, ...]] = []
    for number, step in enumerate(plan.steps, 1):
        shown = [title(task) for task in step.tasks[:_SHOWN]]
        more = [f"and {len(step.tasks) - _SHOWN:,} more"] if len(step.tasks) > _SHOWN else []
        entries = f"{step.during.changed_entries:,}; {step.after.changed_entries:,}"
        dropped = step.during.dropped_entries + step.after.dropped_entries
        rows.append((number, ", ".join(shown + more), len(step.cut_off), f"{step.kept:.0%}", entries, dropped))
    note = (
        "Kept: smallest share of its rate that a job keeps during the step. Entries: changed forwarding entries, when "
        "the cables go and when they are back. Dropped: those that drop packets meanwhile, so that none loops."
    )
    out.print(table("Steps", ("step", "tasks", "cut off", "kept", "entries", "dropped"), rows, note))
    out.print(
        "How far to trust it: routes are those of weft's subnet manager; rates are fair shares, without bursts.",
        markup=False,
    )


def _deadlock(plan: Maintenance) -> str:
    mixed = sum(bool(step.during.mixed_loop or step.after.mixed_loop) for step in plan.steps)
    if mixed:
        return f"but in {mixed:,} steps old and new tables together can deadlock until packets expire"
    return "and nothing can deadlock, also while tables are written"
