"""`weft plan`: what to buy for so many GPUs, where it stands, what it costs; a folder with all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, table

if TYPE_CHECKING:
    from weft.plan.plan import Plan
    from weft.plan.size import Size


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is planned, unless a SPEC says it."""

    gpus: Whole | None = None
    """GPUs in all."""
    servers: Whole | None = None
    """Or servers in all."""
    server: str | None = None
    """Server template of the catalog: dgx-h100, dgx-a100, host. [dgx-h100]"""
    fabric: str | None = None
    """Fabric of the catalog: ndr, xdr, hdr, roce-400, eth-100-tcp, opa-400. [that of the switch or the server]"""
    switch: str | None = None
    """Switch model of the catalog. [the fabric's]"""
    topology: str | None = None
    """superpod, fat-tree or dragonfly+. [superpod; fat-tree for servers with one rail]"""
    rails: Whole | None = None
    """Compute adapters of each server that are cabled. [all]"""
    oversubscription: float | None = None
    """Ports to servers for each uplink of a leaf. [1]"""
    grow_to: Whole | None = None
    """Build so that so many can be reached later and nothing is moved; in GPUs, or servers where these are given."""
    ufm: bool = False
    """Two hosts of UFM, in the place of a server."""


NOTHING = Wanted()


def plan(
    spec: Annotated[str | None, NAMES_FILE] = None,
    /,
    *,
    wanted: Wanted = NOTHING,
    room: File = None,
    prices: File = None,
    optimise: bool = False,
    train: str | None = None,
    folder: Path | None = None,
    form: Form = TABLES,
) -> None:
    """Plan a cluster: switches, racks, cables, price, power.

    Writes a folder with the report, the bill and the list of cables.

    Parameters
    ----------
    spec
        Plan the floor, cables and bill of this: a topology, fat-tree:hosts=256, or a file, a real fabric's dump.
    room
        The room, a TOML file: racks_per_row, rack_u, rack_power_w and the like.
    prices
        Your own prices, a TOML file; weft's own are weak. `weft catalog` has the names.
    optimise
        Move switches to where cables cost less, and say what that saves; Ctrl-C ends the search with the best so far.
    train
        Also what training this model costs: llama3-70b and others of `weft train`.
    folder
        Where to write; a plan that is there is replaced. [plan-SERVER-NUMBER; with --json or --csv, nowhere]
    """
    from weft.fabric.prices import read_prices
    from weft.plan.floor.room import Room, read_room
    from weft.plan.folder import check_folder, default_name, write_folder
    from weft.plan.plan import make_plan

    known, hall = read_prices(prices), Room() if room is None else read_room(room)
    with progress_bar("sizing the fabric") as change:

        def tell(what: str) -> None:
            change(description=what)

        sized = _size(spec, wanted)
        to = folder or (None if form.is_data else Path(default_name(sized)))
        if to is not None:
            check_folder(to)  # before the work, not after it
        with _until_interrupted() if optimise else nullcontext(lambda: False) as stop:
            made = make_plan(
                sized, room=hall, prices=known, model=train, move=optimise, look=True, stop=stop, progress=tell
            )
        if to is not None:
            write_folder(made, to, tell)
    if form.is_data:
        print_data(form, made.report(), *(["runs"] if form.csv else []))
        return
    _print(made)
    print(f"{to}: written; open report.html, order bill.csv, cable by cables.csv")


@contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Yields whether Ctrl-C was pressed; the second ends weft as ever."""
    import signal
    import threading

    if threading.current_thread() is not threading.main_thread():  # which alone hears signals
        yield lambda: False
        return
    pressed: list[int] = []

    def on_signal(number: int, _: object) -> None:
        pressed.append(number)
        signal.signal(number, before)

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def _size(spec: str | None, wanted: Wanted) -> Size:
    from weft.errors import ConfigError
    from weft.fabric.spec import load
    from weft.plan.request import Request
    from weft.plan.size import count, size

    given = {name: value for name, value in vars(wanted).items() if value is not None and value is not False}
    if spec is None:
        return size(Request(**given))
    if given:
        flag = next(iter(given)).replace("_", "-")
        raise ConfigError(f"{spec} says what is planned: leave out --{flag}, or the spec")
    fabric = load(spec)
    return count(fabric.spec, fabric)


def _print(made: Plan) -> None:
    out = console()
    out.print(made.name, markup=False)
    out.print(table("", ("tier", "switches", "model"), _tiers(made)))
    runs: list[tuple[Cell, ...]] = [
        (run.between, run.count, run.medium, run.part, _metres(run.shortest_m, run.longest_m)) for run in made.runs
    ]
    out.print(table("", ("cables", "number", "medium", "part", "metres"), runs))
    for name, value in _facts(made):
        out.print(f"{name:<10}{value}", markup=False)
    for note in made.assumed:
        out.print(note, markup=False)


def _metres(shortest_m: float, longest_m: float) -> str:
    return f"{shortest_m:g}" if shortest_m == longest_m else f"{shortest_m:g} to {longest_m:g}"


def _tiers(made: Plan) -> list[tuple[Cell, ...]]:
    from weft.plan.size import tier_name

    racks = made.racks
    names = [tier_name(tier) if model else "" for tier, model in zip(racks.tier.tolist(), racks.models, strict=True)]
    models = dict.fromkeys(zip(names, racks.models, strict=True))
    rows: list[tuple[Cell, ...]] = []
    for tier, count in reversed(made.size.switches.items()):
        rows.append((tier, count, ", ".join(model for of, model in models if of == tier) or "unknown"))
    return rows


def _facts(made: Plan) -> Iterator[tuple[str, str]]:
    from weft.fabric.prices import Band

    said, bill, kept = made.report(), made.bill, made.upkeep
    rows = "a row" if said["rows"] == 1 else f"{said['rows']} rows"
    drawn, most = _kilowatts(said["racks_power_w"]), _kilowatts(said["fullest_rack_w"])
    yield "racks", f"{said['racks']:,} in {rows}, {drawn} in all, at most {most} in one"
    where, cables = made.cabling.trays.fullest
    metres = f"{said['cables_m']:,.0f} m in {said['bundles']:,} bundles"
    yield "cables", f"{metres}; the fullest is {where} with {cables:,}" if cables else metres
    if made.saving:
        where = ", all in the later fabric" if made.size.grows else ""
        yield "moved", f"{made.saving}{where}"
    if made.possible:
        saved = Band(low_usd=min(made.possible.usd), high_usd=max(made.possible.usd))
        before, after = made.possible.optics
        yield "possible", f"--optimise saves {saved.short} USD or more: {before:,} optical links become {after:,}"
    if bill.missing:
        yield "no price", f"{', '.join(map(str, bill.missing))}: put in your own, --prices FILE"
    if bill.complete:
        each = f"; {bill.per_gpu} for each GPU" if bill.per_gpu else ""
        weak = [line.price.weak for line in bill.lines if line.price]
        yield "fabric", f"{bill.total.short} USD{each}; {sum(weak)} of {len(weak)} prices are weak"
        if bill.servers and bill.beside != bill.total:
            yield "", f"{bill.beside.short} USD of it beside the servers, which are sold with cards that serve"
        yield "upkeep", f"{kept.fabric.short} USD in {kept.years:g} years, with electricity"
    else:
        yield "fabric", f"no sum, as switches or adapters have no price; the rest costs {bill.total.short} USD"
    unknown = ", ".join(sorted({item.name for item in bill.powerless}))
    watts = f"; {bill.power_w / bill.gpus:,.0f} W for each GPU" if bill.gpus else ""
    known = f"{_kilowatts(bill.power_w)} of fabric{watts}" if bill.power_w else ""
    yield "power", "; ".join(filter(None, (known, f"not known: {unknown}" if unknown else "")))
    if kept.run and bill.complete:
        model = kept.run.step.transformer.name
        lacking = [
            f"{item.name} has no known {'price' if item.price is None else 'power'}"
            for item in bill.servers
            if item.price is None or item.power_w is None
        ]
        whole = f" (with the servers no sum: {', '.join(lacking)})" if lacking else ""
        whole = f", {kept.per_tokens(kept.cluster)} with the servers," if kept.cluster else whole
        yield "training", f"{kept.per_tokens(kept.fabric)} USD of fabric{whole} for 10^12 tokens of {model}"


def _kilowatts(watts: float) -> str:
    return f"{watts / 1000:,.1f} kW"
