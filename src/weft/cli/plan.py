"""`weft plan`: list the parts of a cluster's fabric with their places and prices, and write them to a folder."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Whole
from weft.cli.output import Cell, check_explain, console, print_data, progress_bar, report_written, table
from weft.cli.plan_serving import DEFAULT_SERVED, Served, demand_of, networks, traffic
from weft.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from weft.plan.plan import Plan


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Sizing:
    """The cluster to plan, unless SPEC names one."""

    gpus: Whole | None = None
    """Number of GPUs."""
    servers: Whole | None = None
    """Servers: their number, instead of --gpus."""
    server: str | None = None
    """Server template: dgx-h100, dgx-a100, host. [default: dgx-h100]"""
    fabric: str | None = None
    """The fabric: a name of `weft catalog`, ndr, xdr, hdr, roce-400, eth-100-tcp, opa-400. [default: the switch's or
    the server's]"""
    switch: str | None = None
    """Switch model of the catalog. [default: the fabric's]"""
    topology: str | None = None
    """superpod, fat-tree or dragonfly+. [default: superpod; fat-tree for servers with one rail]"""
    rails: Whole | None = None
    """Compute adapters per server that are cabled. [default: all]"""
    planes: Whole | None = None
    """Planes of each adapter port: independent networks of a share of its rate. [default: 1]"""
    breakout: Whole | None = None
    """Ports that each port of a switch is split into: more adapters of a lower rate. [default: as adapters need]"""
    oversubscription: float | None = None
    """Server ports per uplink of a leaf. [default: 1]"""
    grow_to: Whole | None = None
    """Plan so that this size can be reached later without moving a cable; in GPUs, or in servers with --servers."""
    ufm_hosts: bool = False
    """Reserve the place of one server for two UFM hosts."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Around:
    """The parts of the site to plan besides the fabric."""

    storage_fabric: str | None = None
    """Also plan a storage network: a fabric and its number of storage servers, ndr:16; with --serve ndr alone has as
    many as the model needs."""
    management_fabric: str | None = None
    """Also plan a management network: a fabric of `weft catalog`, eth-100-tcp."""
    spares: float | None = None
    """Also list spare parts: so many that with this probability none runs out before new ones arrive, 0.99."""
    lead_weeks: float | None = None
    """Weeks from order to delivery, for spares and phases. [default: 12]"""
    failure_rates: File = None
    """A TOML file with your own failure rates of parts, for --spares."""
    phases: File = None
    """A TOML file with the dates on which parts of the plan run: bills and order dates for each."""
    quotes: Annotated[tuple[Path, ...], Parameter(name="--quote")] = ()
    """A vendor's quote, CSV with the columns part, count and unit_usd, to compare with the bills. Repeat it for
    several."""


DEFAULT_SIZING = Sizing()
DEFAULT_AROUND = Around()


def plan(
    spec: Annotated[str | None, NAMES_FILE] = None,
    /,
    *,
    sizing: Sizing = DEFAULT_SIZING,
    room: File = None,
    prices: File = None,
    compare: bool = False,
    optimise: bool = False,
    train: str | None = None,
    served: Served = DEFAULT_SERVED,
    around: Around = DEFAULT_AROUND,
    folder: Path | None = None,
    explain: bool = False,
    form: Form = TABLES,
) -> None:
    """Plan a cluster: switches, racks, cables, price, power.

    Writes a folder with the report, the bill and the list of cables.

    Parameters
    ----------
    spec
        Plan the floor, cables and bill of this fabric: a topology, fat-tree:hosts=256, or a file.
    room
        A TOML file that describes the room: racks_per_row, rack_u, rack_power_w and more.
    prices
        A TOML file with your own prices, which replace weft's estimates. `weft catalog` has the names.
    compare
        Print the alternatives side by side: topologies for so many adapters, instead of a plan, with switches, links,
        price and power per endpoint, bandwidth, and the cost of a dead leaf, spine or plane.
    optimise
        Move switches to reduce the cost of cables, and print the saving; Ctrl-C ends the search with the best so far.
    train
        Also print the cost of training this model: llama3-70b and others of `weft train`.
    folder
        The folder to write; an older plan in it is replaced. [default: plan-SERVER-NUMBER; none with --json or --csv]
    explain
        Print more: racks, cable lengths, possible savings, upkeep and power.
    """
    from weft.api.purchases import plan as make_plan
    from weft.api.purchases import size_cluster
    from weft.plan.folder import default_name

    check_explain(explain, form)
    if compare:
        others = (spec, folder, room, optimise or None, train, explain or None, *vars(around).values())
        if served != DEFAULT_SERVED or any(option not in (None, ()) for option in others):
            raise ConfigError("--compare takes the size of a cluster, --prices and --json or --csv only")
        _compare(sizing, prices, form)
        return
    demand = demand_of(served)
    with _without_collections(), progress_bar("sizing the fabric") as change:

        def describe(step: str) -> None:
            change(description=step)

        sizes = {name: None if value is False else value for name, value in vars(sizing).items()}
        size = size_cluster(spec, sizes, demand)
        target = folder or (None if form.is_data else Path(default_name(size)))
        with _until_interrupted() if optimise else nullcontext(lambda: False) as stop:
            result = make_plan(
                size,
                room=room,
                prices=prices,
                optimise=optimise,
                train=train,
                serve=demand,
                **vars(around),
                folder=target,
                stop=stop,
                progress=describe,
            )
    if form.is_data:
        print_data(form, result.report(), *(["runs"] if form.csv else []))
        return
    _print(result, explain)
    report_written(target)
    print("Open report.html, order by bill.csv, cable by cables.csv.")


def _compare(sizing: Sizing, prices: Path | None, form: Form) -> None:
    from weft.api.purchases import compare_topologies
    from weft.plan.candidates import explain_gaps

    with progress_bar("comparing topologies") as change:
        options = {name: value for name, value in vars(sizing).items() if value not in (None, False)}
        rows = compare_topologies(prices=prices, progress=lambda name: change(description=name), **options)
    if form.is_data:
        print_data(form, [asdict(row) for row in rows])
        return
    heads = ("topology", "endpoints", "switches", "links", "USD each", "W each", "bisection", "worst shift")
    cells = [
        (
            row.name,
            row.endpoints,
            row.switches,
            row.links,
            f"{row.usd_per_endpoint[0]:,.0f} to {row.usd_per_endpoint[1]:,.0f}" if row.usd_per_endpoint else None,
            round(row.power_w_per_endpoint, 1),
            _share(row.bisection),
            _share(row.worst_shift),
            _share(row.all_to_all),
            None if row.dead_leaf_loss is None else f"{row.dead_leaf_hosts} hosts -{row.dead_leaf_loss:.0%}",
            None if row.dead_spine_loss is None else f"-{row.dead_spine_loss:.1%}",
            f"-{row.dead_plane_loss:.0%}" if row.planes > 1 else None,
        )
        for row in rows
    ]
    note = (
        "Switches are boxes, links those between switches. Bandwidth is a share of the hosts' rate, by weft's routes "
        "with one path for each pair. A dead leaf costs its hosts their rate in its plane."
    )
    note = f"{note} {explain_gaps(rows)}".rstrip()
    more = ("all-to-all", "dead leaf", "dead spine", "dead plane")
    console().print(table("Topologies", (*heads, *more), cells, note))


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


@contextmanager
def _without_collections() -> Iterator[None]:
    """Keep unused cycles in memory: a large plan has millions of objects and few cycles, and searches take a sixth."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def _until_interrupted() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed; a second Ctrl-C ends weft."""
    if threading.current_thread() is not threading.main_thread():  # other threads get no signals
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


def _print(plan: Plan, explain: bool) -> None:
    from weft.compare.formatting import weakness

    out = console()
    out.print(plan.name, markup=False)
    for sentence in _answer(plan):
        out.print(sentence, markup=False)
    out.print(table("", ("item", "number", "part", "medium", "metres"), [*_switch_rows(plan), *_cable_rows(plan)]))
    if plan.serving:
        out.print(traffic(plan.serving))
        out.print(networks(plan.serving))
    for text in _around(plan):
        out.print(text, markup=False)
    if explain:
        for name, value in _details(plan):
            out.print(f"{name:<10}{value}", markup=False)
    for note in plan.assumed:
        out.print(note, markup=False)
    trust = f"{weakness([plan.bill])} "
    own = "" if "your own" in trust else "Give your own prices with --prices FILE. "
    out.print(f"How far to trust it: {trust}{own}{'' if explain else 'More: --explain'}".rstrip(), markup=False)


def _answer(plan: Plan) -> Iterator[str]:
    """Yield the price and the power of the fabric, and the results of --optimise and --train."""
    bill, upkeep = plan.bill, plan.upkeep
    power = f" and draws {_kilowatts(bill.power_w)}" if bill.power_w else ""
    racks = f"{plan.n_racks:,} rack{'s' * (plan.n_racks != 1)}"
    if bill.complete:
        each = f" ({bill.per_gpu} per GPU)" if bill.per_gpu else ""
        yield f"The fabric costs {bill.total.short} USD{each}{power}; the cluster fills {racks}."
    else:
        yield (
            f"The fabric has no total price, because switches or adapters have none; the rest costs "
            f"{bill.total.short} USD{power}; the cluster fills {racks}."
        )
    if bill.missing:
        yield f"No price: {', '.join(map(str, bill.missing))}; give your own with --prices FILE."
    if plan.saving:
        where = ", all in the later fabric" if plan.size.grows else ""
        yield f"Optimised: {plan.saving}{where}."
    if upkeep.run and bill.complete:
        yield f"Training: {_training_cost(plan)}."
    if plan.serving:
        yield f"Serving: {plan.serving.finding}"


def _training_cost(plan: Plan) -> str:
    bill, upkeep = plan.bill, plan.upkeep
    assert upkeep.run is not None
    lacking = [
        f"{item.name} has no known {'price' if item.price is None else 'power'}"
        for item in bill.servers
        if item.price is None or item.power_w is None
    ]
    servers = f" (no total with the servers: {', '.join(lacking)})" if lacking else ""
    servers = f", {upkeep.per_tokens(upkeep.cluster)} with the servers," if upkeep.cluster else servers
    model = upkeep.run.step.transformer.name
    return f"{upkeep.per_tokens(upkeep.fabric)} USD of fabric{servers} for 10^12 tokens of {model}"


def _switch_rows(plan: Plan) -> Iterator[tuple[Cell, ...]]:
    from weft.plan.size import tier_name

    racks = plan.racks
    tiers = [tier_name(tier) if model else "" for tier, model in zip(racks.tier.tolist(), racks.models, strict=True)]
    models = dict.fromkeys(zip(tiers, racks.models, strict=True))
    for tier, count in reversed(plan.size.switches.items()):
        names = ", ".join(model for other, model in models if other == tier)
        yield f"{tier} switches", count, names or "unknown", "", ""


def _cable_rows(plan: Plan) -> Iterator[tuple[Cell, ...]]:
    for run in plan.runs:
        yield f"{run.between} cables", run.count, run.part, _medium(run.medium), _metres(run.shortest_m, run.longest_m)


def _storage_cards(plan: Plan) -> Iterator[str]:
    """Yield the storage cards of the servers, with the link layers that their ports can have."""
    from weft.fabric import catalog
    from weft.fabric.link_layers import link_layers

    if not any(network.name == "storage" for network in plan.site.networks):
        return
    models = dict.fromkeys(model for model, tier in zip(plan.racks.models, plan.racks.tier, strict=True) if not tier)
    cards = {card for model in models if catalog.is_server(model) and (card := catalog.server(model).storage_adapter)}
    for card in sorted(cards):
        layers = link_layers(catalog.adapter(card))
        choice = "InfiniBand or Ethernet, as each is configured" if len(layers) > 1 else f"{layers[0]} only"
        yield f"Storage ports of servers: {card}, {choice}."


def _around(plan: Plan) -> Iterator[RenderableType]:
    """Yield lines and tables on the networks, spares and phases that were wished for."""
    from weft.draw.parts import count

    site = plan.site
    for network in site.networks:
        switches, cables = count(network.switches, "switch"), count(len(network.cabling), "cable")
        parts = f"{switches}, {cables}, {count(network.new_racks, 'more rack')}"
        yield f"{network.name.capitalize()} network: {parts}, {network.bill.total.short} USD."
        if network.bill.missing:
            yield f"No price: {', '.join(map(str, network.bill.missing))}."
    if site.networks:
        by_model = plan.switch_kinds
        of = (
            f"{sum(by.values()):,} × {model} ({', '.join(f'{number:,} {name}' for name, number in by.items())})"
            for model, by in by_model.items()
        )
        yield f"Switches of all networks: {count(len(by_model), 'kind')}, {', '.join(of)}."
        yield from _storage_cards(plan)
    if site.spares:
        rows = [
            (spare.part, spare.length_m, spare.installed, round(spare.failures_per_year, 2), spare.spares)
            for spare in site.spares
        ]
        yield table("Spares", ("part", "m", "installed", "failures a year", "spares"), rows)
    if site.phases:
        dates = [
            (
                phase.name,
                str(phase.date),
                str(phase.first_order),
                phase.servers,
                phase.count("switch", "board"),
                phase.count("cable", "fibre"),
                phase.total.short,
            )
            for phase in site.phases
        ]
        yield table("Phases", ("phase", "runs", "order by", "servers", "switches", "cables", "USD"), dates)
    if site.quotes:
        kinds = ("missing", "extra", "count", "price")
        offers: list[tuple[Cell, ...]] = [
            (quote.name, round(quote.priced_usd), *(quote.count(kind) for kind in kinds)) for quote in site.quotes
        ]
        yield table("Quotes: differences from the bills", ("quote", "USD", *kinds), offers)
        for quote in site.quotes:
            if quote.without_price:
                yield f"{quote.name}: {count(quote.without_price, 'line')} without a price."
            yield from (f"{quote.name}: {each.kind}: {each}" for each in quote.findings)


def _medium(name: str) -> str:
    return name if name in ("ACC", "AOC", "DAC") else name.lower()


def _metres(shortest_m: float, longest_m: float) -> str:
    return f"{shortest_m:g}" if shortest_m == longest_m else f"{shortest_m:g} to {longest_m:g}"


def _details(plan: Plan) -> Iterator[tuple[str, str]]:
    from weft.fabric.prices import Band

    facts, bill, upkeep = plan.report(), plan.bill, plan.upkeep
    rows = "one row" if facts["rows"] == 1 else f"{facts['rows']} rows"
    total, most = _kilowatts(facts["racks_power_w"]), _kilowatts(facts["fullest_rack_w"])
    yield "racks", f"{facts['racks']:,} in {rows}, {total} in total, at most {most} in one"
    power = facts["site"]["power"]
    air = f"{power['air_m3_h']:,.0f} m³/h of air {plan.racks.room.air_delta_k:g} K warmer"
    feeds = f"{power['pdus']:,.0f} PDUs on {plan.racks.room.feeds} feeds"
    yield "supply", f"{feeds}; {power['heat_btu_h']:,.0f} BTU/h of heat, {air}"
    where, cables = plan.cabling.trays.fullest
    metres = f"{facts['cables_m']:,.0f} m in {facts['bundles']:,} bundles"
    yield "cables", f"{metres}; the fullest is {where} with {cables:,}" if cables else metres
    if plan.possible:
        saved = Band(low_usd=min(plan.possible.usd), high_usd=max(plan.possible.usd))
        before, after = plan.possible.optics
        yield "possible", f"--optimise saves {saved.short} USD or more: {before:,} optical links become {after:,}"
    if bill.complete:
        if bill.servers and bill.beside != bill.total:
            yield "to buy", f"{bill.beside.short} USD besides the servers, which already include suitable adapters"
        yield "upkeep", f"{upkeep.fabric.short} USD in {upkeep.years:g} years, with electricity"
    unknown = ", ".join(sorted({item.name for item in bill.powerless}))
    watts = f"; {bill.power_w / bill.gpus:,.0f} W per GPU" if bill.gpus else ""
    power = f"{_kilowatts(bill.power_w)} for the fabric{watts}" if bill.power_w else ""
    yield "power", "; ".join(filter(None, (power, f"not known: {unknown}" if unknown else "")))


def _kilowatts(watts: float) -> str:
    return f"{watts / 1000:,.1f} kW"
