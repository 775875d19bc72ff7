"""`weft route`: forwarding tables, the proof that they hold, and what they are worth."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, File, Form, Spec, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, report_written, table

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.routing.check import TableCheck
    from weft.routing.engine import Options
    from weft.routing.quality import PatternLoad, Quality
    from weft.routing.route import Routing

_QUICK_S = 5.0  # calculations below this are timed a second time: the first may have compiled the kernels
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """Tables by one engine, proved and measured."""

    routing: Routing
    calculation_s: float
    verdict: TableCheck
    quality: Quality | None  # None: fewer than two hosts, no traffic to measure


def route(
    spec: Spec,
    /,
    *,
    engine: str = "auto",
    lmc: Whole = 0,
    max_vls: Whole = 8,
    root: str = "",
    without: str = "",
    compare: bool = False,
    dump: File = None,
    picture: File = None,
    seed: Whole = 1,
    form: Form = TABLES,
) -> None:
    """Compute forwarding tables, verify and rate them.

    `--compare` does so for every routing engine and prints them side by side.

    Parameters
    ----------
    engine
        auto, dimension-order, dragonfly, fat-tree, dfsssp, up-down or min-hop.
    lmc
        Every host port gets 2**LMC LIDs, and as many paths.
    max_vls
        Data lanes that the ports have.
    root
        The switch that up/down calls the top; else the engine chooses.
    without
        Then take this away, a cable by its port, a node or a server, and route again: how many entries change?
    compare
        Route with every engine that can, and print them side by side.
    dump
        A folder to write the tables to, as OpenSM dumps them: ibdmchk reads it.
    picture
        A histogram of link load, .png, .svg or .pdf; with --compare of every engine.
    seed
        Of the random bisections and, in large fabrics, of the sample of shifts.
    """
    from weft.draw.chart import check_suffix
    from weft.errors import ConfigError
    from weft.fabric.spec import load
    from weft.routing.engine import Options

    if compare and (dump is not None or engine != "auto" or without):
        raise ConfigError("--compare looks at every engine: leave out --engine, --without and --dump, or --compare")
    if picture is not None:
        check_suffix(picture)
    with progress_bar(f"reading {spec}"):
        fabric = load(spec)
    options = Options(engine=engine, lmc=lmc, max_vls=max_vls, root=root)
    if compare:
        _compare(fabric, options, seed, picture, form)
    else:
        _route_one(fabric, options, seed, without, dump, picture, form)


def _route_one(
    fabric: Fabric, options: Options, seed: int, without: str, dump: Path | None, picture: Path | None, form: Form
) -> None:
    with _progress(3) as step:
        judged = _judge(fabric, options, seed, step, without=without)
        if dump is not None:
            step(f"writing {dump}")
            _dump(judged, dump)
    if picture is not None:
        _draw(picture, fabric, [judged])
    if form.is_data:
        print_data(form, _head(judged.routing.fabric, options, seed) | _facts(judged))
    else:
        _print_one(judged)
        report_written(dump, picture)
    if not judged.verdict.ok:
        raise SystemExit(1)


def _compare(fabric: Fabric, options: Options, seed: int, picture: Path | None, form: Form) -> None:
    from dataclasses import replace

    from weft.errors import ConfigError
    from weft.routing import ENGINES
    from weft.routing.engine import CannotRoute, EngineFailed
    from weft.routing.route import route as route_fabric

    found: dict[str, Judged] = {}
    refused: dict[str, str] = {}
    with _progress(1 + 3 * len(ENGINES)) as step:
        step("auto")
        chosen = route_fabric(fabric, options).engine
        for name in ENGINES:
            try:
                found[name] = _judge(fabric, replace(options, engine=name), seed, step, again=True)
            except (CannotRoute, EngineFailed) as reason:
                refused[name] = str(reason)
            except ConfigError as broken:  # a plugin that is no engine
                if ENGINES.is_own(name):
                    raise
                refused[name] = str(broken)
    if picture is not None:
        _draw(picture, fabric, list(found.values()))
    if form.is_data:
        engines = [_facts(one) | {"calculation_s": one.calculation_s} for one in found.values()]
        facts = _head(fabric, options, seed) | {"auto": chosen, "engines": engines, "cannot": refused}
        print_data(form, facts, "engines")
        return
    _print_comparison(fabric, found, refused, chosen)
    report_written(picture)


# -- the work ---------------------------------------------------------------------------------------------------------


def _judge(
    fabric: Fabric, options: Options, seed: int, step: Step, *, without: str = "", again: bool = False
) -> Judged:
    from weft.routing.check import check
    from weft.routing.patterns import host_ports
    from weft.routing.quality import measure
    from weft.routing.route import reroute
    from weft.routing.route import route as route_fabric

    step(f"{options.engine}: routing")
    begin = time.perf_counter()
    routing = route_fabric(fabric, options)
    calculation_s = time.perf_counter() - begin
    if again and calculation_s < _QUICK_S:
        begin = time.perf_counter()
        route_fabric(fabric, options)
        calculation_s = time.perf_counter() - begin
    if without:
        routing = reroute(_take_away(routing.fabric, without), routing)
    step(f"{routing.engine}: proving")
    verdict = check(routing.fabric)
    step(f"{routing.engine}: measuring")
    quality = measure(routing.fabric, seed=seed) if len(host_ports(routing.fabric)) > 1 else None
    return Judged(routing=routing, calculation_s=calculation_s, verdict=verdict, quality=quality)


def _take_away(fabric: Fabric, name: str) -> Fabric:
    from weft.fabric import faults
    from weft.fabric.views import Port

    is_port = name in fabric and isinstance(fabric[name], Port)
    return faults.remove_link(fabric, name) if is_port else faults.kill(fabric, name)


def _dump(judged: Judged, folder: Path) -> None:
    from weft.errors import ConfigError
    from weft.fabric.files.opensm import write_dumps

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    write_dumps(judged.routing.fabric, folder)


def _draw(path: Path, fabric: Fabric, found: list[Judged]) -> None:
    from weft.errors import ConfigError
    from weft.routing.histogram import draw_loads

    loads = {_label(judged): judged.quality for judged in found if judged.quality is not None}
    if not loads:
        raise ConfigError(f"--picture shows the load of links, and {_title(fabric)} has no two hosts that could talk")
    draw_loads(path, _title(fabric), loads)


@contextmanager
def _progress(steps: int) -> Iterator[Step]:
    with progress_bar("") as change:
        change(total=steps, completed=-1)
        yield lambda what: change(description=what, advance=1)


# -- printing ---------------------------------------------------------------------------------------------------------


def _title(fabric: Fabric) -> str:
    return ", ".join((Path(fabric.spec).name, *fabric.changes))


def _label(judged: Judged) -> str:
    """`dfsssp, 3 lanes`; `min-hop, can deadlock`."""
    lanes = f", {judged.verdict.vls} lanes" if judged.verdict.vls > 1 else ""
    return f"{judged.routing.engine}{lanes}{', can deadlock' if judged.verdict.credit_loop else ''}"


def _print_one(judged: Judged) -> None:
    from weft.routing import ENGINES

    out, routing, quality = console(), judged.routing, judged.quality
    promise = f"{routing.engine}: {ENGINES[routing.engine].guarantee}"
    for line in (promise, *(f"  {note}" for note in routing.notes if note != promise), judged.verdict.explain()):
        out.print(line, markup=False)
    if routing.changed_entries is not None:
        out.print(
            f"{routing.fabric.changes[-1]}: {routing.changed_entries:,} of {routing.tables.lft.size:,} entries changed"
        )
    hops = "  ".join(f"{count}: {pairs:,}" for count, pairs in judged.verdict.hops.items())
    out.print(f"Pairs by hops between switches  {hops}", end="\n\n")
    if quality is None:
        out.print("There are no two hosts, hence no traffic to measure.")
        return
    shifts, share = quality.shifts, quality.bisection
    which = f"all {shifts.total:,}" if shifts.shifts == shifts.total else f"{shifts.shifts:,} of {shifts.total:,}"
    rows = [_pattern_row(found.pattern, found) for found in quality.patterns]
    rows.append(_pattern_row(f"worst {shifts.worst.pattern}", shifts.worst))
    heads = ("traffic", "flows", "max load", "mean load", "slowdown", "worst link")
    out.print(table("Link load", heads, rows, _what_load_is(quality)))
    out.print(
        f"Shift permutations ({which}): the worst link has {shifts.mean:.3g} flows on average, "
        f"{shifts.worst.max_load:.3g} at most"
    )
    out.print(
        f"Effective bisection bandwidth: {share.mean:.4f} ± {share.standard_error:.4f}, at least {share.minimum:.4f} "
        f"({share.bisections} random bisections, seed {quality.seed})"
    )


def _what_load_is(quality: Quality) -> str:
    return f"Load: flows at {quality.host_rate_gbit_s:g} Gbit/s, the rate of a host port, over the rate of the link."


def _pattern_row(what: str, found: PatternLoad) -> tuple[Cell, ...]:
    return what, found.flows, found.max_load, round(found.mean_load, 3), round(found.slowdown, 2), found.worst_link


def _print_comparison(fabric: Fabric, found: dict[str, Judged], refused: dict[str, str], chosen: str) -> None:
    out = console()
    rows = [_comparison_row(name + (" *" if name == chosen else ""), judged) for name, judged in found.items()]
    heads = ("engine", "lanes", "loop", "hops", "max load", "mean", "worst link", "shifts", "eff. bisection")
    note = "* what auto takes. Hops and shifts: mean, max."
    if quality := next(iter(found.values())).quality:
        note += f" {_what_load_is(quality)}"
    out.print(table(_title(fabric), heads, rows, note))
    for name, reason in refused.items():
        out.print(f"not {name}: {reason.splitlines()[0]}", markup=False)
    times = ", ".join(f"{name} {judged.calculation_s:.3f} s" for name, judged in found.items())
    out.print(f"Calculated in: {times}")


def _comparison_row(name: str, judged: Judged) -> tuple[Cell, ...]:
    verdict, quality = judged.verdict, judged.quality
    mean_hops = sum(hops * pairs for hops, pairs in verdict.hops.items()) / verdict.arrived
    loop = f"cycle of {len(verdict.credit_loop)}" if verdict.credit_loop else "none"
    proved: tuple[Cell, ...] = name, verdict.vls, loop, f"{mean_hops:.2f}, {max(verdict.hops)}"
    if quality is None:
        return *proved, *("",) * 5
    return (
        *proved,
        quality.all_to_all.max_load,
        quality.all_to_all.mean_load,
        quality.all_to_all.worst_link,
        f"{quality.shifts.mean:.2f}, {quality.shifts.worst.max_load:.3g}",
        f"{quality.bisection.mean:.4f} ± {quality.bisection.standard_error:.4f}",
    )


# -- JSON -------------------------------------------------------------------------------------------------------------


def _head(fabric: Fabric, options: Options, seed: int) -> dict[str, Any]:
    from weft.version import __version__

    return {
        "weft": __version__,
        "spec": fabric.spec,
        "changes": fabric.changes,
        "options": asdict(options),
        "seed": seed,
    }


def _facts(judged: Judged) -> dict[str, Any]:
    import numpy as np

    from weft.routing import ENGINES

    routing, verdict, quality = judged.routing, judged.verdict, judged.quality
    facts = {
        "engine": routing.engine,
        "guarantee": ENGINES[routing.engine].guarantee,
        "notes": routing.notes,
        "changed_entries": routing.changed_entries,
        "verdict": {"ok": verdict.ok, "missing": verdict.missing} | asdict(verdict),
        "quality": None,
    }
    if quality is not None:
        loads, links = np.unique(quality.load, return_counts=True)
        facts["quality"] = {
            "hosts": quality.hosts,
            "host_rate_gbit_s": quality.host_rate_gbit_s,
            "patterns": {found.pattern: asdict(found) for found in quality.patterns},
            "shifts": asdict(quality.shifts),
            "bisection": asdict(quality.bisection),
            "histogram": {"load": loads.tolist(), "links": links.tolist()},
        }
    return facts
