"""Write the comparison as one self-contained HTML page: the finding first, then table, curves and cables."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from shlex import quote

from weft.compare.curves import COLOURS, Axis, Curve, draw_curves, powers
from weft.compare.formatting import show_band, show_time, show_usd, weakness, without_price
from weft.compare.outcome import Comparison, Outcome, Point
from weft.draw import lay_out
from weft.draw.page import make_report, picture, prose, table
from weft.draw.svg import clean
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.files.text import suffix_of
from weft.plan.bill import Bill, Item
from weft.sim.figures import format_size
from weft.units import format_size_bytes
from weft.version import __version__

_ROOM = 24  # longest label after a curve, in letters
_PARTS = {
    "launch": "launch: kernels start",
    "steps": "steps: ranks wait for the previous message",
    "pipeline": "pipeline: filling and draining",
    "data": "data: transfer",
}
_BODY = """<h1>Which fabric for {spec}? {servers}, {gpus:,} GPUs, {job}</h1>
<p class="finding">{finding}</p>
<p class="trust"><b>How far to trust it.</b> {trust}</p>
{table}
<h2>Why</h2>
<dl>{why}</dl>
<h2>Other sizes, other clusters</h2>
<div class="pair">{curves}</div>
<p class="note">Pale areas: 90 % bands.</p>
<h2>Where the load is</h2>
{heat}
<h2>What it costs</h2>
{costs}
<footer>{footer}</footer>"""


def check_path(path: Path) -> None:
    """Refuse an invalid path before anything runs."""
    if suffix_of(path, ".html") not in (".html", ".htm"):
        raise ConfigError(f"--report {path} must end with .html")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write the report {path}: no folder {path.parent}")


def to_html(comparison: Comparison) -> str:
    template = comparison.outcomes[0].template.name.partition("+")[0]
    content = _BODY.format(
        spec=clean(comparison.spec),
        servers=clean(f"{comparison.servers:,} × {template}"),
        gpus=comparison.gpus,
        job=clean(str(comparison.job)),
        finding=prose(comparison.finding),
        trust=prose(comparison.trust),
        table=_table(comparison),
        why="".join(
            f"<dt>{_name(outcome)}</dt><dd>{prose(outcome.why)}{_modelled(outcome)}</dd>"
            for outcome in comparison.fastest_first
        ),
        curves=_curves(comparison),
        heat=_heat(comparison),
        costs=_costs(comparison),
        footer=_footer(comparison),
    )
    style = files("weft.compare").joinpath("report.css").read_text("utf-8")
    return make_report(f"weft compare {comparison.spec}", content, style=style)


def _colour(outcome: Outcome) -> str:
    """Return the colour of a fabric by its index in the catalog, the same in every report."""
    return COLOURS[catalog.interconnects().index(outcome.interconnect) % len(COLOURS)]


def _name(outcome: Outcome) -> str:
    return f'<span class="swatch" style="background:{_colour(outcome)}"></span>{clean(outcome.interconnect.label)}'


def _modelled(outcome: Outcome) -> str:
    """Return the note about a modelled transport."""
    return (
        f"<br><small>{prose(f'{outcome.interconnect.source}; {outcome.interconnect.note}.')}</small>"
        if outcome.interconnect.transport
        else ""
    )


# -- the table --------------------------------------------------------------------------------------------------------


_HEADS = {  # heading -> class of its cells, the most important first
    "fabric": "nowrap",
    "time": "n nowrap",
    "": "wide",
    "bus bandwidth": "n nowrap",
    "ratio": "n",
    "where the time goes": "wide",
    "bound by": "",
    "adapters of a server": "nowrap",
    "switches": "n",
    "fabric, USD": "",
}


def _table(comparison: Comparison) -> str:
    key = "".join(f'<span><i class="swatch {part}"></i>{label}</span>' for part, label in _PARTS.items())
    rows = [_cells(comparison, outcome) for outcome in comparison.fastest_first]
    return f'{table(_HEADS, rows)}<p class="note key">{key}</p>'


def _cells(comparison: Comparison, outcome: Outcome) -> tuple[str, ...]:
    longest = 100 * outcome.time_us / comparison.slowest.time_us
    total = sum(outcome.parts_us.values()) or 1.0
    parts = "".join(
        f'<i class="{part}" style="width:{100 * outcome.parts_us.get(part, 0) / total:.2f}%" '
        f'title="{part} {show_time(outcome.parts_us.get(part, 0))}"></i>'
        for part in _PARTS
    )
    return (
        f'{_name(outcome)}<br><small class="below">{clean(outcome.interconnect.name)}</small>',
        f"<b>{show_time(outcome.time_us)}</b><br><small>{show_band(outcome.band.low_us, outcome.band.high_us)}<br>"
        f"{clean(str(outcome.published))}</small>",
        f'<div class="bar" style="width:{longest:.1f}%;background:{_colour(outcome)}"></div>',
        f"{outcome.bus_gbyte_s:,.3g} GB/s",
        f"{outcome.time_us / comparison.fastest.time_us:,.2f}",
        f'<div class="bar">{parts}</div>',
        clean(outcome.bound),
        f"{outcome.cluster.nics} × {clean(outcome.template.compute_adapter)}"
        f"<br><small>{outcome.cluster.nic_gbit_s:g} Gbit/s each</small>",
        f"{outcome.bill.count('switch'):,}<br><small>{clean(outcome.interconnect.switch)}</small>",
        clean(show_usd(outcome.bill)),
    )


# -- curves -----------------------------------------------------------------------------------------------------------


def _curves(comparison: Comparison) -> str:
    leading = comparison.job.leading
    sizes = powers(1 << 10, 1 << 34, 4)
    named = {size: format_size_bytes(int(size)) for size in sizes[::2]}
    by_size = _chart(
        comparison,
        lambda outcome: outcome.by_size,
        lambda point, us: point.bus_gbyte_s * point.time_us / us,
        Axis(label="size of the collective", ticks=sizes, show=lambda at: named.get(at, "")),
        "bus bandwidth, GB/s",
        leading.size_bytes,
        format_size,
    )
    counts = [point.at for point in comparison.outcomes[0].by_servers]
    by_servers = _chart(
        comparison,
        lambda outcome: outcome.by_servers,
        lambda _, us: us / 1000,
        Axis(label="servers", ticks=powers(counts[0], counts[-1], 2), show=lambda at: f"{at:g}"),
        "time, ms",
        comparison.servers,
        lambda count: f"{count:,} servers",
    )
    titles = (
        f"{leading.collective} by size on these {comparison.servers:,} servers",
        f"{comparison.job} on fewer and more servers, at the same rate per server",
    )
    pairs = zip(titles, (by_size, by_servers), strict=True)
    return "".join(f"<figure><figcaption>{clean(title)}</figcaption>{svg}</figure>" for title, svg in pairs)


def _chart(
    comparison: Comparison,
    points: Callable[[Outcome], tuple[Point, ...]],
    value: Callable[[Point, float], float],  # value of a point for a time
    x: Axis,
    y_label: str,
    mark: float,
    where: Callable[[int], str],
) -> str:
    curves = [
        Curve(
            name=outcome.interconnect.label if len(outcome.interconnect.label) <= _ROOM else outcome.interconnect.name,
            colour=_colour(outcome),
            points=tuple((float(point.at), value(point, point.time_us)) for point in points(outcome)),
            band=tuple(
                (value(point, point.band.low_us), value(point, point.band.high_us)) for point in points(outcome)
            ),
            tips=tuple(
                f"{outcome.interconnect.label}, {where(point.at)}: {show_time(point.time_us)} "
                f"({show_band(point.band.low_us, point.band.high_us)}), {point.bus_gbyte_s:,.3g} GB/s"
                for point in points(outcome)
            ),
        )
        for outcome in comparison.outcomes
    ]
    values = [height for curve in curves for pair in curve.band for height in pair]
    y = Axis(label=y_label, ticks=powers(min(values), max(values), 10), show=lambda at: f"{at:,.10g}")
    return draw_curves(curves, x, y, mark=mark)


# -- the fabric -------------------------------------------------------------------------------------------------------


def _heat(comparison: Comparison) -> str:
    """Draw the first fabric, and the one with the largest bottleneck, with cables coloured by load."""
    limited = [outcome for outcome in comparison.outcomes if outcome.bottleneck is not None]
    drawn = [
        comparison.outcomes[0],
        *sorted(limited, key=lambda outcome: -(outcome.bottleneck.load if outcome.bottleneck else 0))[:1],
    ]
    return "".join(_heat_of(outcome) for outcome in dict.fromkeys(drawn))


def _heat_of(outcome: Outcome) -> str:
    result = outcome.results[outcome.pattern]
    caption = f"{outcome.interconnect.label}: each cable's load while every edge of the {outcome.pattern} carries data"
    scene = lay_out(
        outcome.fabric,
        metric=100 * result.link_metric(result.utilisation),
        metric_label="busy, % of the time",
        title=outcome.fabric.spec,
    )
    return picture(scene, caption, note=str(outcome.bottleneck) if outcome.bottleneck is not None else "")


# -- money and provenance ---------------------------------------------------------------------------------------------


_COSTS = ("fabric", "switches", "adapters", "cables", "sum, USD", "for each GPU, USD", "power", "not in the sum")


def _costs(comparison: Comparison) -> str:
    rows = []
    for outcome in comparison.outcomes:
        bill = outcome.bill
        bought = (
            "<br>".join(_line(item) for kind in kinds for item in bill.of_kind(kind))
            for kinds in (("switch", "board"), ("adapter",), ("cable", "transceiver", "fibre"))
        )
        per_gpu = str(bill.per_gpu or "no price")
        left_out = clean(without_price(bill)) or "nothing"
        whole = f"<br><small>{bill.cluster.short} with the servers</small>" if bill.cluster else ""
        rows.append(
            (
                _name(outcome),
                *bought,
                clean(show_usd(bill)) + whole,
                per_gpu,
                _power(bill),
                f"<small>{left_out}</small>",
            )
        )
    whose = (
        f"yours, {comparison.prices.path}, before weft's"
        if comparison.prices.path
        else "weft's; put in your own, --prices FILE"
    )
    note = (
        f"Bands, low to high. {weakness([outcome.bill for outcome in comparison.outcomes])} They are {whose}. "
        "Cables are those of a floor plan with rows of racks, each of the cheapest medium that reaches. Servers are "
        "not in the sum."
    )
    return f'{table(dict.fromkeys(_COSTS, ""), rows)}<p class="note">{clean(note)}</p>'


def _line(item: Item) -> str:
    price = "no price" if item.price is None else f"{item.price} USD each"
    note = f"<br>{clean(item.note)}" if item.note else ""
    prefix = f"{item.kind}, " if item.kind in ("transceiver", "fibre") else ""  # a part number alone is not clear
    return f"{clean(str(item))}<br><small>{prefix}{price}{note}</small>"


def _power(bill: Bill) -> str:
    """Return the power; unknown if that of the switches, most of it, is unknown."""
    if any(item.kind == "switch" for item in bill.powerless):
        return "not known"
    unknown = ", ".join(dict.fromkeys(item.name for item in bill.powerless))
    return f"{bill.power_w / 1000:,.1f} kW" + (f"<br><small>without {clean(unknown)}</small>" if unknown else "")


def _footer(comparison: Comparison) -> str:
    specs = "; ".join(
        f"{outcome.interconnect.name}: <code>{clean(outcome.fabric.spec)}</code>" for outcome in comparison.outcomes
    )
    names = ",".join(outcome.interconnect.name for outcome in comparison.outcomes)
    prices = f" --prices {clean(str(comparison.prices.path))}" if comparison.prices.path else ""
    servers = clean(quote(comparison.picked or str(comparison.servers)))
    command = (
        f"weft {__version__}: <code>weft compare {clean(quote(comparison.spec))} "
        f"--job {clean(quote(comparison.job.name))} --fabrics {names} "
        f"--servers {servers} --seed {comparison.seed}{prices}</code>"
    )
    return f"{command}<br>{specs}"
