"""`weft compare`: which fabric for this cluster, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Kinds, Servers, Whole
from weft.cli.output import Cell, console, print_data, progress_bar, say_written, table

if TYPE_CHECKING:
    from weft.compare.outcome import Comparison


def compare(
    spec: Annotated[str, NAMES_FILE],
    /,
    *,
    job: str = "all_reduce:1G",
    fabrics: str | None = None,
    kinds: Kinds = "",
    servers: Servers = "",
    prices: File = None,
    report: File = None,
    seed: Whole = 1,
    form: Form = TABLES,
) -> None:
    """Compare InfiniBand, RoCE and TCP for a cluster and a job.

    Parameters
    ----------
    spec
        A topology with GPU servers: superpod:su=1, fat-tree:hosts=16,server=dgx-h100; or a file, which is one fabric.
    job
        A collective and its size, all_reduce:1G or all_to_all:64M; or trace:FILE with lines collective,size,count.
    fabrics
        Which, by commas, the names as in `weft catalog`. [ndr,roce-400,eth-100-tcp,hdr,xdr,opa-100]
    prices
        A TOML file with your own prices, which stand before weft's: those are weak.
    report
        Write a page with curves, the fabric and its busy cables, .html; it needs no network.
    seed
        Of the hashes by which Ethernet switches choose paths.
    """
    from weft.compare.comparison import compare as run
    from weft.compare.job import parse_job
    from weft.compare.report import check_path, to_html
    from weft.fabric.files.atomic import write_atomically
    from weft.fabric.prices import read_prices
    from weft.fabric.spec import as_kinds

    if report is not None:
        check_path(report)
    asked, known = parse_job(job), read_prices(prices)
    names = None if fabrics is None else [name.strip() for name in fabrics.split(",") if name.strip()]
    with progress_bar(f"reading {spec}") as change:
        found = run(
            as_kinds(spec, kinds),
            asked,
            names,
            servers=servers,
            seed=seed,
            prices=known,
            progress=lambda label: change(description=f"running {label}"),
        )
    if report is not None:
        write_atomically(report, to_html(found))
    if form.is_data:
        print_data(form, found.report(), "fabrics")
        return
    _print(found)
    say_written(report)


def _print(found: Comparison) -> None:
    from weft.compare.words import notes, without_price

    out = console()
    out.print(found.finding, markup=False)
    out.print(f"How far to trust it: {found.trust}", markup=False)
    out.print(table("", _COLUMNS, _rows(found)))
    for one in found.outcomes:
        out.print(f"{one.wire.name}: {one.why}", markup=False)
        if one.wire.transport:  # of which little is published: what is modelled, and what is not
            out.print(f"{one.wire.name}: {one.wire.source}; {one.wire.note}.", markup=False)
    missing = {one.wire.name: without_price(one.bill) for one in found.outcomes if one.bill.missing}
    if missing:
        told = "; ".join(f"{name}: {items}" for name, items in missing.items())
        out.print(f"Without a price, and not in the sums: {told}", markup=False)
    for note in dict.fromkeys(note for one in found.outcomes for note in notes(one.bill)):
        out.print(note, markup=False)
    template, seed = found.outcomes[0].template.name.partition("+")[0], found.seed
    out.print(f"{found.spec}: {found.servers:,} × {template}, {found.gpus:,} GPUs; {found.job.name}; seed {seed}")


_COLUMNS = (
    *("fabric", "adapters/server", "switches", "time", "band", "bus GB/s", "speed-up"),
    *("where the time goes, %", "bound by", "fabric USD"),
)


def _rows(found: Comparison) -> list[tuple[Cell, ...]]:
    from weft.compare.words import show_band, show_parts, show_time, show_usd

    return [
        (
            one.wire.name,
            f"{one.cluster.nics} × {one.template.compute_adapter}",
            one.bill.count("switch"),
            show_time(one.time_us),
            show_band(one.band.low_us, one.band.high_us),
            one.bus_gbyte_s,
            found.speedup(one),
            show_parts(one.parts_us),
            one.bound,
            show_usd(one.bill),
        )
        for one in found.outcomes
    ]
