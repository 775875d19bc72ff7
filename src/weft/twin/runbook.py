"""Runbooks of a planned maintenance: as text for people, and carried out on a lab, step by step.

    run(path, lab, attach)       resumes after an interruption; the file has the number of steps that are done

Before a step all cables and hosts must be there. The step pulls the cables of its tasks, waits until the subnet manager
has routed around them, checks the tables in the switches, plugs the cables in again, and checks once more. If a check
fails, the cables are plugged in again and the run ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from weft.errors import ConfigError, SubnetError
from weft.fabric.files.atomic import write_atomically
from weft.fabric.model import Fabric
from weft.lab import control
from weft.lab.registry import Entry
from weft.mad.carrier import Carrier
from weft.monitor.impact import read_routed
from weft.routing.check import check
from weft.twin.maintenance import ENGINE, Maintenance, Step
from weft.twin.what_if import host_names
from weft.version import __version__

_POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Runbook:
    """A plan, and the number of its steps that are done."""

    weft: str
    plan: Maintenance
    done: int = 0


def write_runbook(plan: Maintenance, path: Path, done: int = 0) -> None:
    """Write a plan as JSON; to a path that ends in .md, as text."""
    if path.suffix == ".md":
        write_atomically(path, describe(plan))
        return
    book = Runbook(weft=__version__, plan=plan, done=done)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(book)).decode() + "\n")


def read_runbook(path: Path) -> Runbook:
    """Read a plan in JSON; raise ConfigError if it is not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Runbook)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is not a plan that `weft maintain -o FILE.json` wrote: {error}") from None


def describe(plan: Maintenance) -> str:
    """Return the runbook as Markdown."""
    lines = [
        f"# Maintenance of {plan.spec}",
        "",
        f"{len(plan.steps)} steps, {plan.hosts:,} host ports, by weft {__version__}.",
    ]
    for number, step in enumerate(plan.steps, 1):
        lines += ["", f"## Step {number}: {', '.join(map(title, step.tasks))}", ""]
        lines += [f"- [ ] {line}" for line in _actions(step)]
    return "\n".join(lines) + "\n"


def title(task: str) -> str:
    """Return a task in words."""
    kind, _, name = task.partition(":")
    return {"dead": f"reboot {name}", "cut": f"replace the cable of {name}"}.get(kind, task)


def _actions(step: Step) -> list[str]:
    if step.tasks[0].startswith(ENGINE):
        engine = step.tasks[0].removeprefix(ENGINE)
        return [
            f"Set `routing_engine {engine}` in opensm.conf and send SIGHUP to the subnet manager.",
            f"Check: {step.after.changed_entries:,} forwarding entries change; `weft check` finds no credit loop.",
            "Way back: the former routing_engine and SIGHUP; the mix of tables is proved both ways.",
        ]
    faults = " ".join(f"--fault {task}" for task in step.tasks)
    lines = [f"Check first: `weft whatif {faults}`, and `weft diagnose` finds no suspect."]
    if step.cut_off:
        lines.append(f"Move jobs away from {len(step.cut_off)} host ports: {', '.join(step.cut_off)}.")
    return [
        *lines,
        *(f"{title(task)[0].upper()}{title(task)[1:]}." for task in step.tasks),
        f"Meanwhile: jobs keep at least {step.kept:.0%} of their rate; {step.during.changed_entries:,} entries change.",
        "Check afterwards: all ports are Active (`iblinkinfo`), and `weft diagnose` finds no suspect.",
        "Way back at any time: switches on, cables in; the subnet manager returns to the tables before the step.",
    ]


# -- on a lab ----------------------------------------------------------------------------------------------------


def run(
    path: Path,
    lab: Entry,
    attach: Callable[[str], Carrier],
    *,
    patience_s: float = 60,
    say: Callable[[str], None] = lambda line: None,
) -> int:
    """Carry out the remaining steps of a plan on a lab; return their number.

    attach   return a port of the lab's subnet at a host, by name
    """
    book = read_runbook(path)
    if any(task.startswith(ENGINE) for step in book.plan.steps[book.done :] for task in step.tasks):
        raise ConfigError("a lab's subnet manager keeps its routing engine: plan without --to-engine")
    for number, step in enumerate(book.plan.steps[book.done :], book.done + 1):
        say(f"step {number} of {len(book.plan.steps)}: {', '.join(map(title, step.tasks))}")
        names = [task.partition(":")[2] for task in sorted(step.tasks)]  # cables first: a switch takes its own with it
        cut_off = {name.rpartition("/")[0] for name in step.cut_off}
        carrier = attach(next(host for host in _hosts(lab) if host not in cut_off))
        watch = _Watch(carrier, book.plan, patience_s)
        try:
            _tell(lab, "fix", names)  # an interrupted run may have left them out
            watch.wait(f"before step {number}", [], ())
            try:
                _tell(lab, "break", names)
                watch.wait(f"in step {number}", names, step.cut_off)
            finally:
                _tell(lab, "fix", names)
            watch.wait(f"after step {number}", [], ())
        finally:
            carrier.close()
        book = replace(book, done=number)
        write_runbook(book.plan, path, book.done)
    return len(book.plan.steps)


def _hosts(lab: Entry) -> list[str]:
    return [name for name, kind in control.ask(lab, "nodes") if kind == "hca"]


def _tell(lab: Entry, command: str, names: Sequence[str]) -> None:
    for name in names:
        control.ask(lab, command, name=name)


@dataclass(frozen=True, slots=True)
class _Watch:
    """A port of the subnet from which the state of a step is read."""

    carrier: Carrier
    plan: Maintenance
    patience_s: float

    def wait(self, when: str, removed: Sequence[str], cut_off: Sequence[str]) -> None:
        """Wait until the subnet is as the plan says; raise SubnetError with the difference if it is not in time."""
        end = time.monotonic() + self.patience_s
        while difference := self._difference(read_routed(self.carrier), removed, cut_off):
            if time.monotonic() > end:
                raise SubnetError(f"{when}: {difference}\n  All cables of the step are plugged in again.")
            time.sleep(_POLL_S)

    def _difference(self, fabric: Fabric, removed: Sequence[str], cut_off: Sequence[str]) -> str:
        """Return the first difference from the plan; empty if there is none."""
        for name in removed:
            if name in fabric.node_index or (name in fabric and fabric.find_port(name).link is not None):
                return f"{name} is still there"
        expected = self.plan.hosts - len(cut_off)
        if (hosts := len(host_names(fabric))) < expected:
            return f"{hosts:,} of {expected:,} host ports are connected"
        proof = check(fabric, hosts_only=True)
        return "" if proof.ok else proof.explain()
