"""`weft grow`: plan the steps that extend a fabric, moving as few cables as possible."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, report_written, table
from weft.errors import ConfigError
from weft.version import __version__

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.plan.growth.growth import Growth, Step


_MANY = {"server": "servers", "leaf": "leaves", "spine": "spines", "core": "cores"}


def grow(
    today: Annotated[str, NAMES_FILE],
    /,
    *,
    gpus: Whole | None = None,
    servers: Whole | None = None,
    to: Annotated[str | None, NAMES_FILE] = None,
    keep: float = 0.75,
    folder: File = None,
    form: Form = TABLES,
) -> None:
    """Plan the steps that extend a fabric without an outage.

    Moves as few cables as possible; every step is routed and verified.

    Parameters
    ----------
    today
        A topology, superpod:su=1, the path of a file, or the folder of a plan.
    gpus
        Number of GPUs, of the larger fabric with the same topology.
    servers
        Servers: the number of the larger fabric, with the same topology.
    to
        The state after the change: a topology, or a file.
    keep
        Minimum share of its uplinks that each leaf keeps during a step, from 0 to 1.
    folder
        The folder to write: for each step a list of its plugs, step-1.csv, and the fabric after it, step-1.yaml.
    """
    from weft.fabric.spec import load
    from weft.plan.audit.positions import read_today
    from weft.plan.growth.growth import grow as grow_fabric
    from weft.plan.growth.growth import write_steps

    with progress_bar(f"reading {today}") as change:
        current = read_today(today)
        target = load(_target(current.fabric, gpus, servers, to))
        done = grow_fabric(current.fabric, target, keep=keep, progress=lambda step: change(description=step))
    written = write_steps(done, folder, current.positions) if folder is not None else []
    if form.is_data:
        print_data(form, _facts(done), "steps")
        return
    _print(done)
    report_written(*written)


def _target(today: Fabric, gpus: int | None, servers: int | None, to: str | None) -> str:
    from weft.plan.growth.growth import larger, servers_of

    if sum(option is not None for option in (gpus, servers, to)) != 1:
        raise ConfigError("give one of --gpus, --servers and --to")
    return to if to is not None else larger(today, servers_of(today, gpus) if gpus is not None else servers or 0)


def _print(done: Growth) -> None:
    out = console()
    new = f"{done.new:,} are new, {done.moved:,} of today's move"
    fewest = "no choice moves fewer" if done.moved == done.least_moved else f"at least {done.least_moved:,} must"
    out.print(f"{done.today.spec} to {done.target}: {done.stay:,} cables stay, {new} ({fewest})", markup=False)
    if done.retired:
        out.print(f"No longer needed: {', '.join(done.retired)}", markup=False)
    moved = 0
    rows: list[tuple[Cell, ...]] = []
    for number, step in enumerate(done.steps, start=1):
        moved += len(step.batch.out)
        rows.append(_row(number, step, moved))
    heads = ("step", "rack", "out", "in", "moved", "worst leaf", "slowdown", "after", "routed by", "hosts", "proved")
    note = (
        "Worst leaf: remaining uplinks while cables are out. Slowdown: all-to-all among today's hosts, while cables "
        f"are out and after; today {done.before.slowdown:.2f}. Hosts: on the network after. Proved: pairs of hosts and "
        "switches that arrive without a credit loop, while cables are out and after."
    )
    out.print(table("", heads, rows, note))


def _row(number: int, step: Step, moved: int) -> tuple[Cell, ...]:
    least = step.during or step.after
    engines = dict.fromkeys((least.engine, step.after.engine))
    racked = ", ".join(f"{count:,} {name if count == 1 else _MANY[name]}" for name, count in step.racked.items())
    return (
        number,
        racked,
        len(step.batch.out),
        len(step.batch.into),
        moved,
        f"{least.worst_leaf:.0%}",
        round(least.slowdown, 2),
        round(step.after.slowdown, 2),
        ", ".join(engines),
        step.after.hosts,
        f"{least.pairs:,}; {step.after.pairs:,}" if step.during else f"{step.after.pairs:,}",
    )


def _facts(done: Growth) -> dict[str, Any]:
    return {
        "weft": __version__,
        "today": done.today.spec,
        "target": done.target,
        "keep": done.keep,
        "stay": done.stay,
        "moved": done.moved,
        "least_moved": done.least_moved,
        "new": done.new,
        "retired": done.retired,
        "before": asdict(done.before),
        "steps": [
            {
                "step": number,
                "racked": dict(step.racked),
                "out": len(step.batch.out),
                "in": len(step.batch.into),
                "during": asdict(step.during) if step.during else None,
                "after": asdict(step.after),
            }
            for number, step in enumerate(done.steps, start=1)
        ],
    }
