"""`weft route` and `weft check`: compute forwarding tables, verify them and measure their quality."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.arguments import TABLES, Faults, File, Form, RoutingEngine, Spec, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, report_written, table
from weft.errors import ConfigError
from weft.version import __version__

if TYPE_CHECKING:
    from weft.fabric.model import Fabric
    from weft.routing.check import TableCheck
    from weft.routing.engine import Options
    from weft.routing.quality import PatternLoad, Quality
    from weft.routing.route import Routing
    from weft.routing.subnets import SubnetsCheck


_QUICK_S = 5.0  # calculations below this are timed a second time: the first may have compiled the kernels
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """The tables of one routing engine, verified and measured."""

    routing: Routing
    calculation_s: float
    verdict: TableCheck | SubnetsCheck
    quality: Quality | None  # None: fewer than two hosts, no traffic to measure


def route(
    spec: Spec,
    /,
    *,
    routing_engine: RoutingEngine = "auto",
    lmc: Whole = 0,
    max_vls: Whole = 8,
    root: str = "",
    fault: Faults = (),
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
    lmc
        Assign 2**LMC LIDs, hence paths, to each host port.
    max_vls
        Data VLs per port.
    root
        Root switch for up/down routing. [chosen by the engine]
    compare
        Print the alternatives side by side: route with every suitable engine.
    dump
        The folder for dumps in OpenSM's formats, which ibdmchk reads; several subnets get a folder each.
    picture
        The picture to write: a histogram of link load, .png, .svg or .pdf; with --compare for every engine.
    seed
        Random seed, for bisections and, in large fabrics, for the sample of shifts.
    """
    from weft.draw.chart import check_suffix
    from weft.fabric.spec import load
    from weft.routing.engine import Options
    from weft.routing.rails import needs_subnets

    if compare and (dump is not None or routing_engine != "auto" or fault):
        raise ConfigError(
            "--compare looks at every engine: leave out --routing-engine, --fault and --dump, or --compare"
        )
    if picture is not None:
        check_suffix(picture)
    with progress_bar(f"reading {spec}"):
        fabric = load(spec)
    options = Options(engine=routing_engine, lmc=lmc, max_vls=max_vls, root=root)
    if needs_subnets(fabric):
        if compare or dump is not None or picture is not None or lmc:
            raise ConfigError(
                f"{spec} needs more LIDs than a subnet has: leave out --compare, --dump, --picture, --lmc"
            )
        _route_rails(fabric, options, seed, fault, form)
    elif compare:
        _compare(fabric, options, seed, picture, form)
    else:
        _route_one(fabric, options, seed, fault, dump, picture, form)


def _route_one(
    fabric: Fabric,
    options: Options,
    seed: int,
    faults: Sequence[str],
    dump: Path | None,
    picture: Path | None,
    form: Form,
) -> None:
    with _progress(3) as step:
        result = _evaluate(fabric, options, seed, step, faults=faults)
        if dump is not None:
            step(f"writing {dump}")
            _dump(result, dump)
    if picture is not None:
        _draw(picture, fabric, [result])
    if form.is_data:
        print_data(form, _head(result.routing.fabric, options, seed) | _facts(result))
    else:
        _print_one(result)
        report_written(dump, picture)
    if not result.verdict.ok:
        raise SystemExit(1)


def _route_rails(fabric: Fabric, options: Options, seed: int, faults: Sequence[str], form: Form) -> None:
    """Route the rails of a fabric that is too large for a subnet: one of each kind."""
    from weft.routing.rails import rail_subnets
    from weft.training.failures import break_permanently

    parts = rail_subnets(break_permanently(fabric, faults))
    with _progress(3 * len(parts)) as step:
        results = [_evaluate(part.fabric, options, seed, step) for part in parts]
    if form.is_data:
        rails = [{"rails": part.rails} | _facts(each) for part, each in zip(parts, results, strict=True)]
        print_data(form, _head(fabric, options, seed) | {"subnets": rails}, "subnets")
    else:
        print(f"{fabric.spec} needs more LIDs than a subnet has; each rail is routed as a subnet.")
        for part, result in zip(parts, results, strict=True):
            equal = f"{len(part.rails)} equal rails, of which one is verified" if len(part.rails) > 1 else "one rail"
            print(f"\n{', '.join(part.rails)}: {equal}")
            _print_one(result)
    if not all(result.verdict.ok for result in results):
        raise SystemExit(1)


def _compare(fabric: Fabric, options: Options, seed: int, picture: Path | None, form: Form) -> None:
    from weft.routing import ENGINES
    from weft.routing.engine import CannotRoute, EngineFailed
    from weft.routing.route import route as route_fabric

    results: dict[str, Evaluation] = {}
    refused: dict[str, str] = {}
    with _progress(1 + 3 * len(ENGINES)) as step:
        step("auto")
        chosen = route_fabric(fabric, options).engine
        for name in ENGINES:
            try:
                results[name] = _evaluate(fabric, replace(options, engine=name), seed, step, again=True)
            except (CannotRoute, EngineFailed) as reason:
                refused[name] = str(reason)
            except ConfigError as error:  # a plugin that is not a routing engine
                if ENGINES.is_own(name):
                    raise
                refused[name] = str(error)
    if picture is not None:
        _draw(picture, fabric, list(results.values()))
    if form.is_data:
        engines = [_facts(result) | {"calculation_s": result.calculation_s} for result in results.values()]
        head = _head(fabric, options, seed)
        print_data(form, head | {"auto": chosen, "engines": engines, "cannot": refused}, "engines")
        return
    _print_comparison(fabric, results, refused, chosen)
    report_written(picture)


# -- routing and evaluation -------------------------------------------------------------------------------------------


def _evaluate(
    fabric: Fabric, options: Options, seed: int, step: Step, *, faults: Sequence[str] = (), again: bool = False
) -> Evaluation:
    from weft.routing.patterns import host_ports
    from weft.routing.quality import measure
    from weft.routing.route import reroute
    from weft.routing.route import route as route_fabric
    from weft.routing.subnets import check_all

    step(f"{options.engine}: routing")
    begin = time.perf_counter()
    routing = route_fabric(fabric, options)
    calculation_s = time.perf_counter() - begin
    if again and calculation_s < _QUICK_S:
        begin = time.perf_counter()
        route_fabric(fabric, options)
        calculation_s = time.perf_counter() - begin
    if faults:
        from weft.training.failures import break_permanently

        routing = reroute(break_permanently(routing.fabric, faults), routing)
    step(f"{routing.engine}: proving")
    verdict = check_all(routing.fabric)
    step(f"{routing.engine}: measuring")
    quality = measure(routing.fabric, seed=seed) if len(host_ports(routing.fabric)) > 1 else None
    return Evaluation(routing=routing, calculation_s=calculation_s, verdict=verdict, quality=quality)


def _dump(result: Evaluation, folder: Path) -> None:
    """Write dumps: of several subnets, each into a folder of its own."""
    from weft.fabric.files.opensm import write_dumps
    from weft.fabric.subnets import by_subnet

    for name, subnet in by_subnet(result.routing.fabric).items():
        place = folder / name
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder {place}: {error.strerror}") from error
        write_dumps(subnet, place)


def _draw(path: Path, fabric: Fabric, results: list[Evaluation]) -> None:
    from weft.routing.histogram import draw_loads

    loads = {_label(result): result.quality for result in results if result.quality is not None}
    if not loads:
        raise ConfigError(f"--picture shows the load of links, and {_title(fabric)} has no two hosts that could talk")
    draw_loads(path, _title(fabric), loads)


@contextmanager
def _progress(steps: int) -> Iterator[Step]:
    with progress_bar("") as change:
        change(total=steps, completed=-1)
        yield lambda description: change(description=description, advance=1)


# -- printing ---------------------------------------------------------------------------------------------------------


def _title(fabric: Fabric) -> str:
    return ", ".join((Path(fabric.spec).name, *fabric.changes))


def _label(result: Evaluation) -> str:
    """Return the label of an engine's result: `dfsssp, 3 lanes` or `min-hop, can deadlock`."""
    lanes = f", {result.verdict.vls} lanes" if result.verdict.vls > 1 else ""
    return f"{result.routing.engine}{lanes}{', can deadlock' if result.verdict.credit_loop else ''}"


def _print_one(result: Evaluation) -> None:
    from weft.routing import ENGINES

    out, routing, quality = console(), result.routing, result.quality
    promise = f"{routing.engine}: {ENGINES[routing.engine].guarantee}"
    if routing.fabric.multiplicity > 1:
        out.print(f"{routing.fabric.multiplicity} equal planes: the figures are those of one.", markup=False)
    for line in (promise, *(f"  {note}" for note in routing.notes if note != promise), result.verdict.explain()):
        out.print(line, markup=False)
    if routing.changed_entries is not None:
        out.print(
            f"{routing.fabric.changes[-1]}: {routing.changed_entries:,} of {routing.tables.lft.size:,} entries changed"
        )
    hops = "  ".join(f"{count}: {pairs:,}" for count, pairs in result.verdict.hops.items())
    out.print(f"Pairs by hops between switches  {hops}", end="\n\n")
    if quality is None:
        out.print("There are no two hosts, hence no traffic to measure.")
        return
    shifts, share = quality.shifts, quality.bisection
    tested = f"all {shifts.total:,}" if shifts.shifts == shifts.total else f"{shifts.shifts:,} of {shifts.total:,}"
    rows = [_pattern_row(load.pattern, load) for load in quality.patterns]
    rows.append(_pattern_row(f"worst {shifts.worst.pattern}", shifts.worst))
    heads = ("traffic", "flows", "max load", "mean load", "slowdown", "worst link")
    out.print(table("Link load", heads, rows, _load_note(quality)))
    out.print(
        f"Shift permutations ({tested}): the worst link has {shifts.mean:.3g} flows on average, "
        f"{shifts.worst.max_load:.3g} at most"
    )
    out.print(
        f"Effective bisection bandwidth: {share.mean:.4f} ± {share.standard_error:.4f}, at least {share.minimum:.4f} "
        f"({share.bisections} random bisections, seed {quality.seed})"
    )


def _load_note(quality: Quality) -> str:
    return f"Load: flows at {quality.host_rate_gbit_s:g} Gbit/s, the rate of a host port, over the rate of the link."


def _pattern_row(pattern: str, load: PatternLoad) -> tuple[Cell, ...]:
    return pattern, load.flows, load.max_load, round(load.mean_load, 3), round(load.slowdown, 2), load.worst_link


def _print_comparison(fabric: Fabric, results: dict[str, Evaluation], refused: dict[str, str], chosen: str) -> None:
    out = console()
    rows = [_comparison_row(name + (" *" if name == chosen else ""), result) for name, result in results.items()]
    heads = ("engine", "lanes", "loop", "hops", "max load", "mean", "worst link", "shifts", "eff. bisection")
    note = "* what auto takes. Hops and shifts: mean, max."
    if quality := next(iter(results.values())).quality:
        note += f" {_load_note(quality)}"
    out.print(table(_title(fabric), heads, rows, note))
    for name, reason in refused.items():
        out.print(f"not {name}: {reason.splitlines()[0]}", markup=False)
    times = ", ".join(f"{name} {result.calculation_s:.3f} s" for name, result in results.items())
    out.print(f"Calculated in: {times}")


def _comparison_row(name: str, result: Evaluation) -> tuple[Cell, ...]:
    verdict, quality = result.verdict, result.quality
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
    run = {"weft": __version__, "spec": fabric.spec, "changes": fabric.changes}
    return run | {"options": asdict(options), "seed": seed}


def _facts(result: Evaluation) -> dict[str, Any]:
    import numpy as np

    from weft.routing import ENGINES

    routing, verdict, quality = result.routing, result.verdict, result.quality
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
            "patterns": {load.pattern: asdict(load) for load in quality.patterns},
            "shifts": asdict(quality.shifts),
            "bisection": asdict(quality.bisection),
            "histogram": {"load": loads.tolist(), "links": links.tolist()},
        }
    return facts


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
        Choice of paths: table; or valiant, ugal or par, to include all paths through intermediate switches in the
        proof, on the lanes that `weft sim --paths` gives them.
    """
    from weft.api.routes import check as check_tables
    from weft.fabric.spec import load

    with progress_bar(f"reading {spec}") as report:
        fabric = load(spec)
        report(description=f"proving {spec}")
        verdict = check_tables(fabric, tables=tables, hosts_only=hosts_only, paths=paths)
    if form.is_data:
        print_data(form, {"ok": verdict.ok, "changes": fabric.changes, "missing": verdict.missing} | asdict(verdict))
    else:
        out = console()
        for change in fabric.changes:
            out.print(f"{spec}: {change}", markup=False)
        out.print(verdict.explain(), markup=False)
        out.print(table("Paths", ("hops between switches", "pairs"), list(verdict.hops.items())))
    if not verdict.ok:
        sys.exit(1)
