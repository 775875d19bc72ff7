"""`weft compare`: compare the time and the price of a job on several fabrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from weft.cli.arguments import NAMES_FILE, TABLES, File, Form, Kinds, Servers, Whole
from weft.cli.output import Cell, check_explain, console, print_data, progress_bar, report_written, table

if TYPE_CHECKING:
    from rich.console import Console

    from weft.compare.outcome import Comparison, Outcome


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
    explain: bool = False,
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
        Fabrics to compare, names of `weft catalog` separated by commas.
        [default: ndr,roce-400,eth-100-tcp,hdr,xdr,opa-100]
    prices
        A TOML file with your own prices, which replace weft's estimates.
    report
        Write an HTML page with curves, the fabric and its busiest cables; it works offline.
    explain
        Print more: where the time goes, why, missing prices, and the assumptions.
    seed
        Random seed, for ECMP hashing.
    """
    from weft.api.purchases import compare as run
    from weft.compare.report import check_path, to_html
    from weft.fabric.files.atomic import write_atomically
    from weft.fabric.spec import as_kinds

    check_explain(explain, form)
    if report is not None:
        check_path(report)
    with progress_bar(f"reading {spec}") as change:
        comparison = run(
            as_kinds(spec, kinds),
            job,
            fabrics,
            servers=servers,
            seed=seed,
            prices=prices,
            progress=lambda label: change(description=f"running {label}"),
        )
    if report is not None:
        write_atomically(report, to_html(comparison))
    if form.is_data:
        print_data(form, comparison.report(), "fabrics")
        return
    _print(comparison, explain)
    report_written(report)


def _print(comparison: Comparison, explain: bool) -> None:
    out = console()
    out.print(comparison.finding, markup=False)
    out.print(table("", _COLUMNS, [_row(comparison, outcome) for outcome in comparison.fastest_first]))
    if explain:
        _explain(out, comparison, comparison.fastest_first)
        return
    out.print(f"How far to trust it: {comparison.short_trust} More: --explain", markup=False)


def _explain(out: Console, comparison: Comparison, fastest_first: tuple[Outcome, ...]) -> None:
    from weft.compare.formatting import notes, without_price

    out.print(table("Where the time goes", _DETAILS, [_detail_row(outcome) for outcome in fastest_first]))
    for outcome in fastest_first:
        out.print(f"{outcome.interconnect.name}: {outcome.why}", markup=False)
        if outcome.interconnect.transport:  # little is published about these: list the model's parts and gaps
            out.print(
                f"{outcome.interconnect.name}: {outcome.interconnect.source}; {outcome.interconnect.note}.",
                markup=False,
            )
    missing = [f"{item.interconnect.name}: {without_price(item.bill)}" for item in fastest_first if item.bill.missing]
    if missing:
        out.print(f"Items without a price, not in the sums: {'; '.join(missing)}", markup=False)
    for note in dict.fromkeys(note for outcome in fastest_first for note in notes(outcome.bill)):
        out.print(note, markup=False)
    out.print(f"How far to trust it: {comparison.trust}", markup=False)
    template, seed = comparison.outcomes[0].template.name.partition("+")[0], comparison.seed
    size = f"{comparison.servers:,} × {template}, {comparison.gpus:,} GPUs"
    out.print(f"{comparison.spec}: {size}; {comparison.job.name}; seed {seed}")


_COLUMNS = ("fabric", "time", "90 % band", "ratio", "bus GB/s", "fabric USD")


def _row(comparison: Comparison, outcome: Outcome) -> tuple[Cell, ...]:
    from weft.compare.formatting import show_band, show_time, show_usd, three

    return (
        outcome.interconnect.name,
        show_time(outcome.time_us),
        show_band(outcome.band.low_us, outcome.band.high_us),
        round(outcome.time_us / comparison.fastest.time_us, 2),
        three(outcome.bus_gbyte_s),
        show_usd(outcome.bill),
    )


_DETAILS = ("fabric", "adapters per server", "switches", "bound by", "share of the time, %")


def _detail_row(outcome: Outcome) -> tuple[Cell, ...]:
    from weft.compare.formatting import show_parts

    return (
        outcome.interconnect.name,
        f"{outcome.cluster.nics} × {outcome.template.compute_adapter}",
        outcome.bill.count("switch"),
        outcome.bound,
        show_parts(outcome.parts_us),
    )
