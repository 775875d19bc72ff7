"""The comparison as one HTML page that opens without a network: the finding first, then table, curves and cables."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from shlex import quote

from weft.compare.curves import COLOURS, Axis, Curve, draw_curves, powers
from weft.compare.outcome import Comparison, Outcome, Point
from weft.compare.words import show_band, show_time, show_usd, weakness, without_price
from weft.draw import lay_out
from weft.draw.page import make_report, picture, prose, table
from weft.draw.svg import clean
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.files.streams import suffix_of
from weft.plan.bill import Bill, Item
from weft.sim.figures import format_size
from weft.units import format_size_bytes
from weft.version import __version__

_ROOM = 24  # letters behind a curve
_PARTS = {
    "launch": "launch: kernels start",
    "steps": "steps: ranks wait for the message before",
    "pipeline": "pipeline: filling and draining",
    "data": "data: bytes move",
}
_BODY = """<h1>Which fabric for {spec}? {servers}, {gpus:,} GPUs, {job}</h1>
<p class="finding">{finding}</p>
<p class="trust"><b>How far to trust it.</b> {trust}</p>
{table}
<h2>Why</h2>
<dl>{why}</dl>
<h2>Other sizes, other clusters</h2>
<div class="pair">{curves}</div>
<p class="note">Pale: the bands, in which nine of ten times lie.</p>
<h2>Where the load is</h2>
{heat}
<h2>What it costs</h2>
{costs}
<footer>{footer}</footer>"""


def check_path(path: Path) -> None:
    """Refuse what cannot be written before anything runs."""
    if suffix_of(path, ".html") not in (".html", ".htm"):
        raise ConfigError(f"cannot write the report {path}: it is a page, name it .html")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write the report {path}: there is no folder {path.parent}, make it first")


def to_html(found: Comparison) -> str:
    template = found.outcomes[0].template.name.partition("+")[0]
    content = _BODY.format(
        spec=clean(found.spec),
        servers=clean(f"{found.servers:,} × {template}"),
        gpus=found.gpus,
        job=clean(str(found.job)),
        finding=prose(found.finding),
        trust=prose(found.trust),
        table=_table(found),
        why="".join(f"<dt>{_name(one)}</dt><dd>{prose(one.why)}{_modelled(one)}</dd>" for one in found.outcomes),
        curves=_curves(found),
        heat=_heat(found),
        costs=_costs(found),
        footer=_footer(found),
    )
    style = files("weft.compare").joinpath("report.css").read_text("utf-8")
    return make_report(f"weft compare {found.spec}", content, style=style)


def _colour(one: Outcome) -> str:
    """The same in every report: of its place in the catalog."""
    return COLOURS[catalog.interconnects().index(one.wire) % len(COLOURS)]


def _name(one: Outcome) -> str:
    return f'<span class="swatch" style="background:{_colour(one)}"></span>{clean(one.wire.label)}'


def _modelled(one: Outcome) -> str:
    """Of a transport of its own, what is modelled, and what is not."""
    return f"<br><small>{prose(f'{one.wire.source}; {one.wire.note}.')}</small>" if one.wire.transport else ""


# -- the table --------------------------------------------------------------------------------------------------------


_HEADS = {  # what decides comes first, and a class for each
    "fabric": "nowrap",
    "time": "n nowrap",
    "": "wide",
    "bus bandwidth": "n nowrap",
    "times faster": "n",
    "where the time goes": "wide",
    "bound by": "",
    "adapters of a server": "nowrap",
    "switches": "n",
    "fabric, USD": "",
}


def _table(found: Comparison) -> str:
    key = "".join(f'<span><i class="swatch {part}"></i>{told}</span>' for part, told in _PARTS.items())
    return f'{table(_HEADS, [_cells(found, one) for one in found.outcomes])}<p class="note key">{key}</p>'


def _cells(found: Comparison, one: Outcome) -> tuple[str, ...]:
    longest = 100 * one.time_us / found.slowest.time_us
    total = sum(one.parts_us.values()) or 1.0
    parts = "".join(
        f'<i class="{part}" style="width:{100 * one.parts_us.get(part, 0) / total:.2f}%" '
        f'title="{part} {show_time(one.parts_us.get(part, 0))}"></i>'
        for part in _PARTS
    )
    return (
        f'{_name(one)}<br><small class="below">{clean(one.wire.name)}</small>',
        f"<b>{show_time(one.time_us)}</b><br><small>{show_band(one.band.low_us, one.band.high_us)}<br>"
        f"{clean(str(one.published))}</small>",
        f'<div class="bar" style="width:{longest:.1f}%;background:{_colour(one)}"></div>',
        f"{one.bus_gbyte_s:,.3g} GB/s",
        f"{found.speedup(one):,.3g}",
        f'<div class="bar">{parts}</div>',
        clean(one.bound),
        f"{one.cluster.nics} × {clean(one.template.compute_adapter)}"
        f"<br><small>{one.cluster.nic_gbit_s:g} Gbit/s each</small>",
        f"{one.bill.count('switch'):,}<br><small>{clean(one.wire.switch)}</small>",
        clean(show_usd(one.bill)),
    )


# -- curves -----------------------------------------------------------------------------------------------------------


def _curves(found: Comparison) -> str:
    leading = found.job.leading
    sizes = powers(1 << 10, 1 << 34, 4)
    named = {size: format_size_bytes(int(size)) for size in sizes[::2]}
    by_size = _chart(
        found,
        lambda one: one.by_size,
        lambda point, us: point.bus_gbyte_s * point.time_us / us,
        Axis(label="size of the collective", ticks=sizes, show=lambda at: named.get(at, "")),
        "bus bandwidth, GB/s",
        leading.size_bytes,
        format_size,
    )
    counts = [point.at for point in found.outcomes[0].by_servers]
    by_servers = _chart(
        found,
        lambda one: one.by_servers,
        lambda _, us: us / 1000,
        Axis(label="servers", ticks=powers(counts[0], counts[-1], 2), show=lambda at: f"{at:g}"),
        "time, ms",
        found.servers,
        lambda count: f"{count:,} servers",
    )
    titles = (
        f"{leading.collective} of other sizes on these {found.servers:,} servers",
        f"{found.job} on fewer and more servers, each getting of the network what it gets here",
    )
    pairs = zip(titles, (by_size, by_servers), strict=True)
    return "".join(f"<figure><figcaption>{clean(title)}</figcaption>{svg}</figure>" for title, svg in pairs)


def _chart(
    found: Comparison,
    points: Callable[[Outcome], tuple[Point, ...]],
    value: Callable[[Point, float], float],  # of a point, if it took so long
    x: Axis,
    y_label: str,
    mark: float,
    where: Callable[[int], str],
) -> str:
    curves = [
        Curve(
            name=one.wire.label if len(one.wire.label) <= _ROOM else one.wire.name,
            colour=_colour(one),
            points=tuple((float(point.at), value(point, point.time_us)) for point in points(one)),
            band=tuple((value(point, point.band.low_us), value(point, point.band.high_us)) for point in points(one)),
            tips=tuple(
                f"{one.wire.label}, {where(point.at)}: {show_time(point.time_us)} "
                f"({show_band(point.band.low_us, point.band.high_us)}), {point.bus_gbyte_s:,.3g} GB/s"
                for point in points(one)
            ),
        )
        for one in found.outcomes
    ]
    values = [height for curve in curves for pair in curve.band for height in pair]
    y = Axis(label=y_label, ticks=powers(min(values), max(values), 10), show=lambda at: f"{at:,.10g}")
    return draw_curves(curves, x, y, mark=mark)


# -- the fabric -------------------------------------------------------------------------------------------------------


def _heat(found: Comparison) -> str:
    """The first fabric, and the most crowded one: cables in the colour of their load."""
    crowded = [one for one in found.outcomes if one.crowd is not None]
    shown = [found.outcomes[0], *sorted(crowded, key=lambda one: -(one.crowd.load if one.crowd else 0))[:1]]
    return "".join(_heat_of(one) for one in dict.fromkeys(shown))


def _heat_of(one: Outcome) -> str:
    result = one.results[one.pattern]
    told = f"{one.wire.label}: each cable's load while every edge of the {one.pattern} carries data"
    scene = lay_out(
        one.fabric,
        metric=100 * result.link_metric(result.utilisation),
        metric_label="busy, % of the time",
        title=one.fabric.spec,
    )
    return picture(scene, told, note=str(one.crowd) if one.crowd is not None else "")


# -- money and provenance ---------------------------------------------------------------------------------------------


_COSTS = ("fabric", "switches", "adapters", "cables", "sum, USD", "for each GPU, USD", "power", "not in the sum")


def _costs(found: Comparison) -> str:
    rows = []
    for one in found.outcomes:
        bill = one.bill
        bought = (
            "<br>".join(_line(item) for kind in kinds for item in bill.of_kind(kind))
            for kinds in (("switch",), ("adapter",), ("cable", "transceiver", "fibre"))
        )
        per_gpu = str(bill.per_gpu or "no price")
        left_out = clean(without_price(bill)) or "nothing"
        whole = f"<br><small>{bill.cluster.short} with the servers</small>" if bill.cluster else ""
        rows.append(
            (_name(one), *bought, clean(show_usd(bill)) + whole, per_gpu, _power(bill), f"<small>{left_out}</small>")
        )
    whose = (
        f"yours, {found.prices.path}, before weft's" if found.prices.path else "weft's; put in your own, --prices FILE"
    )
    note = (
        f"Bands, low to high. {weakness([one.bill for one in found.outcomes])} They are {whose}. Cables are those of a "
        "floor plan with rows of racks, each of the cheapest medium that reaches. Servers are not in the sum."
    )
    return f'{table(dict.fromkeys(_COSTS, ""), rows)}<p class="note">{clean(note)}</p>'


def _line(item: Item) -> str:
    price = "no price" if item.price is None else f"{item.price} USD each"
    note = f"<br>{clean(item.note)}" if item.note else ""
    what = (
        f"{item.kind}, " if item.kind in ("transceiver", "fibre") else ""
    )  # named by a part number, which says little
    return f"{clean(str(item))}<br><small>{what}{price}{note}</small>"


def _power(bill: Bill) -> str:
    """Not known where that of switches is not, which is most of it."""
    if any(item.kind == "switch" for item in bill.powerless):
        return "not known"
    unknown = ", ".join(dict.fromkeys(item.name for item in bill.powerless))
    return f"{bill.power_w / 1000:,.1f} kW" + (f"<br><small>without {clean(unknown)}</small>" if unknown else "")


def _footer(found: Comparison) -> str:
    specs = "; ".join(f"{one.wire.name}: <code>{clean(one.fabric.spec)}</code>" for one in found.outcomes)
    names = ",".join(one.wire.name for one in found.outcomes)
    prices = f" --prices {clean(str(found.prices.path))}" if found.prices.path else ""
    servers = clean(quote(found.picked or str(found.servers)))
    told = (
        f"weft {__version__}: <code>weft compare {clean(quote(found.spec))} --job {clean(quote(found.job.name))} "
        f"--fabrics {names} --servers {servers} --seed {found.seed}{prices}</code>"
    )
    return f"{told}<br>{specs}"
