"""`weft tenants`: isolate tenants in partitions, as described in a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Spec, Whole
from weft.cli.output import console, print_data, progress_bar, table
from weft.cli.tenant_drivers import LAB, Where, attached, find_driver
from weft.errors import ConfigError, UnknownName
from weft.units import parse_size_bytes

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.mad.carrier import Carrier
    from weft.tenants.apply import Change
    from weft.tenants.drivers.driver import Driver, Observed
    from weft.tenants.intent import Intent
    from weft.tenants.partitions import Allocation
    from weft.tenants.reconcile import Names
    from weft.tenants.violations import Violation

CHANGES = 3  # the exit status of `plan` if there are changes; 1 and 2 are errors
IntentFile = Annotated[Path, NAMES_FILE, Parameter(help="The intent: tenants, services and classes, in TOML.")]

tenants = App(name="tenants", help_format="markdown")


@tenants.default
def _default(action: str | None = None, /, *, where: Where = LAB, form: Form = TABLES) -> None:
    """Isolate tenants with partitions: plan, apply, verify.

    Without ACTION, show the current partitions.

    Parameters
    ----------
    action
        plan, apply, prove, show, violations, destroy or simulate: `weft tenants apply --help`.
    """
    if action is not None:
        raise UnknownName("action", action, [name for name in tenants if not name.startswith("-")])
    show(where=where, form=form)


@tenants.command
def plan(file: IntentFile, /, *, where: Where = LAB, form: Form = TABLES) -> None:
    """Show the changes that an intent needs. The exit status is 0 without changes, 3 with changes."""
    from weft.tenants.apply import plan_change

    with _reading(file) as intent, find_driver(where, intent.pool) as driver:
        change = plan_change(driver, intent)
        _say(driver, change, form)
    if not change.is_empty:
        sys.exit(CHANGES)


@tenants.command
def apply(file: IntentFile, /, *, yes: bool = False, where: Where = LAB, form: Form = TABLES) -> None:
    """Apply an intent: show the plan, ask, write it, and verify it.

    Parameters
    ----------
    yes
        Do not ask.
    """
    from weft.tenants.apply import plan_change

    with _reading(file) as intent, find_driver(where, intent.pool) as driver:
        _apply_change(driver, plan_change(driver, intent), yes, form)


@tenants.command
def destroy(
    file: IntentFile, /, *, open_default: bool = False, yes: bool = False, where: Where = LAB, form: Form = TABLES
) -> None:
    """Delete all partitions with a P_Key of this file's p_keys, and their lanes.

    Parameters
    ----------
    open_default
        Make all ports full members of Default again if no partition is left, so that every port reaches every other.
    yes
        Do not ask.
    """
    from weft.tenants.apply import plan_change, remove_all

    with _reading(file) as intent, find_driver(where, intent.pool) as driver:
        _apply_change(driver, plan_change(driver, remove_all(intent), open_default=open_default), yes, form)


@tenants.command
def show(*, where: Where = LAB, form: Form = TABLES) -> None:
    """Show the current partitions with their members and lanes."""
    from weft.tenants.reconcile import Names

    with find_driver(where) as driver:
        names, observed = Names(driver.inventory()), driver.read()
        if form.is_data:
            print_data(form, _state(observed, names), "partitions")
        else:
            _print_state(driver.title, observed, names)


@tenants.command
def prove(file: File = None, /, *, where: Where = LAB, form: Form = TABLES) -> None:
    """Prove from the tables of all devices that members reach each other and no other port. Status 1 if not.

    Parameters
    ----------
    file
        The intent to prove, in TOML. [the present partitions of the subnet manager]
    """
    from weft.tenants.compile import compile_intent
    from weft.tenants.isolation import prove_isolation
    from weft.tenants.reading import read_fabric

    with find_driver(where) as driver, attached(where) as carrier:
        observed = driver.read()
        allocation = observed.allocation
        if file is not None:
            with _reading(file) as intent:
                allocation = compile_intent(intent, driver.inventory(), observed.foreign_p_keys, allocation).allocation
        proof = prove_isolation(read_fabric(carrier), allocation, observed.foreign_p_keys)
    if form.is_data:
        print_data(form, {"is_isolated": proof.is_isolated, **asdict(proof)}, "leaks", "cuts")
    else:
        print(proof.explain())
    if not proof.ok:
        sys.exit(1)


@tenants.command
def violations(*, seconds: float = 0, where: Where = LAB, form: Form = TABLES) -> None:
    """Show P_Key and Q_Key violations: packets dropped per port, and the traps of ports.

    Parameters
    ----------
    seconds
        Seconds to run, listening for traps with sender, receiver and key; then the counters of the ports are printed.
    """
    from weft.tenants.reading import read_fabric
    from weft.tenants.violations import count_violations

    with find_driver(where) as driver, attached(where) as carrier:
        allocation, fabric = driver.read().allocation, read_fabric(carrier)
        heard = []
        for violation in _listen(carrier, fabric, allocation, seconds):
            heard.append(violation)
            if not form.is_data:
                print(violation, flush=True)
        counted = count_violations(carrier, fabric, allocation)
    if form.is_data:
        facts = {
            "heard": [asdict(violation) for violation in heard],
            "counted": [asdict(violation) for violation in counted],
        }
        print_data(form, facts, "counted")
        return
    heads = ("port", "partitions", "bad P_Keys", "bad Q_Keys", "from it, at its switch", "to it, at its switch")
    rows = [
        (
            violation.port,
            ", ".join(violation.partitions),
            violation.p_keys,
            violation.q_keys,
            violation.from_port,
            violation.to_port,
        )
        for violation in counted
    ]
    console().print(table("Dropped packets", heads, rows, "" if rows else "None."))


def _listen(carrier: Carrier, fabric: Fabric, allocation: Allocation, watch_s: float) -> Iterator[Violation]:
    from weft.tenants.violations import Watch, attribute

    if watch_s > 0:
        with Watch(carrier) as watch:
            yield from (attribute(notice, fabric, allocation) for notice in watch.notices(watch_s))


@tenants.command
def simulate(
    file: IntentFile, spec: Spec, /, *, messages: Whole = 600, size: str = "64", seed: Whole = 1, form: Form = TABLES
) -> None:
    """Simulate the classes on a fabric: latency of a tenant's messages under another's load, before and after.

    Parameters
    ----------
    messages
        Messages to time.
    size
        Message size: 64K, 1M.
    seed
        Random seed, for the start times.
    """
    from weft.fabric.spec import load
    from weft.tenants.compile import compile_intent
    from weft.tenants.simulate import planned_inventory, simulate_quality

    with progress_bar(f"simulating {spec}"), _reading(file) as intent:
        fabric = load(spec)
        compiled = compile_intent(intent, planned_inventory(fabric))
        result = simulate_quality(compiled, fabric, messages=messages, size_bytes=parse_size_bytes(size), seed=seed)
    if form.is_data:
        print_data(form, {"seed": seed, **asdict(result)}, "outcomes")
        return
    heads = ("run", "median, µs", "p99, µs", "longest, µs", "load, Gbit/s")
    rows = [
        (outcome.name, outcome.p50_us, outcome.p99_us, outcome.max_us, outcome.load_gbit_s)
        for outcome in result.outcomes
    ]
    title = f"{result.tenant} while {result.load} loads the cable of {result.case.receiver}"
    console().print(table(title, heads, rows, f"{result.explain()}.\nSeed {seed}. {result.trust}"))


# -- common parts ------------------------------------------------------------------------------------------------------


@contextmanager
def _reading(file: Path) -> Iterator[Intent]:
    """Yield the intent of a file; errors about it on this fabric then name the file and the line."""
    from weft.fabric.files.lab.document import Document
    from weft.tenants.intent import intent_of, lines_of

    document = Document.load(file, otherwise=".toml")
    with lines_of(document):
        yield intent_of(document)


def _apply_change(driver: Driver, change: Change, yes: bool, form: Form) -> None:
    from weft.tenants.apply import apply_change

    asks = not (yes or change.is_empty)
    if asks and (form.is_data or not sys.stdin.isatty()):
        raise ConfigError("standard input is not a terminal: check the change with `weft tenants plan`, then add --yes")
    _say(driver, change, form)
    if asks and input("Apply these changes? Type yes: ").strip() != "yes":
        raise SystemExit("nothing was changed")
    apply_change(driver, change)
    if not (form.is_data or change.is_empty):
        print(f"Applied to {driver.title}.")


def _say(driver: Driver, change: Change, form: Form) -> None:
    from weft.tenants.reconcile import Names, lines, records

    names = Names(change.inventory)
    if form.is_data:
        facts = {
            "fabric": driver.title,
            "changes": records(change.plan, names),
            "lanes": [_lane(lane) for lane in change.compiled.needs],
            "notes": [*change.compiled.notes],
            "drift": [*change.drift],
        }
        print_data(form, facts, "changes")
        return
    out = console()
    for line in lines(change.plan, names):
        out.print(f"  {line}", style=_STYLES[line.strip()[0]], markup=False)
    if change.compiled.needs and change.plan.lanes_change:
        heads = ("class", "SL", "VL", "priority", "requested, %", "gets, %")
        rows = [tuple(_lane(lane).values()) for lane in change.compiled.needs]
        note = "Shares of a link that all classes load, in packets of 4 KiB."
        out.print(table("\nLanes", heads, rows, note))
    for note in change.compiled.notes:
        out.print(f"Note: {note}", markup=False)
    for line in change.drift:
        out.print(f"  ! {line}", style="red", markup=False)
    out.print(f"{driver.title}. {change.summary}", markup=False)


_STYLES = {"+": "green", "~": "yellow", "-": "red"}


def _lane(lane: Any) -> dict[str, Any]:
    return {
        "class": lane.name,
        "sl": lane.sl,
        "vl": lane.vl,
        "priority": "high" if lane.is_high else "low",
        "asked_percent": lane.asked_percent,
        "given_percent": lane.given_percent,
    }


# -- the present partitions --------------------------------------------------------------------------------------------


def _state(observed: Observed, names: Names) -> dict[str, Any]:
    allocation = observed.allocation
    return {
        "default": "full" if allocation.default_is_full else "limited",
        "taken": [f"{p_key:#06x}" for p_key in sorted(observed.foreign_p_keys)],
        "partitions": [
            {
                "name": partition.name,
                "p_key": f"{partition.p_key:#06x}",
                "sl": partition.sl,
                "ipoib": partition.ipoib,
                "members": [
                    names.record(guid) | {"membership": "full" if member.full else "limited", "index0": member.index0}
                    for guid, member in partition.members.items()
                ],
            }
            for partition in allocation.partitions.values()
        ],
    }


def _print_state(title: str, observed: Observed, names: Names) -> None:
    allocation = observed.allocation
    rows = []
    for partition in allocation.partitions.values():
        both = [
            names.spell(guid for guid, member in partition.members.items() if member.full is full)
            for full in (True, False)
        ]
        rows.append((partition.name, f"{partition.p_key:#06x}", partition.sl, "yes" if partition.ipoib else "", *both))
    default_note = (
        "Every port is a full member of Default (0x7fff) and reaches every other port."
        if allocation.default_is_full
        else "Ports are limited members of Default (0x7fff), where they reach the subnet manager but not each other."
    )
    heads = ("partition", "P_Key", "SL", "IPoIB", "full members", "limited members")
    out = console()
    out.print(table(title, heads, rows, default_note))
    missing = names.missing(
        dict.fromkeys(guid for partition in allocation.partitions.values() for guid in partition.members)
    )
    if missing:
        out.print(f"Offline: {names.spell(missing)}", markup=False)
    if observed.foreign_p_keys:
        out.print(
            f"Not weft's: {', '.join(f'{p_key:#06x}' for p_key in sorted(observed.foreign_p_keys))}", markup=False
        )
