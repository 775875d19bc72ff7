"""The plan as one self-contained HTML page: summary, bill, cables, floor and racks."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict

from weft.draw.page import make_report, picture, prose, table
from weft.draw.parts import count
from weft.draw.svg import clean
from weft.fabric.kinds import Medium
from weft.plan.bill import Bill, Item
from weft.plan.elevation import row_file, split_row
from weft.plan.floor.cables import Cabling
from weft.plan.floor.parts import list_parts
from weft.plan.floor.racks import Racks, row_name
from weft.plan.floor.room import Room
from weft.plan.looks import TIERS, Power, looks_of, power_of
from weft.plan.optimise import Saving
from weft.plan.pictures import lay_out_floor
from weft.plan.upkeep import Upkeep
from weft.version import __version__

if TYPE_CHECKING:
    from weft.plan.plan import Plan
    from weft.plan.serving import Demand, Serving

_MOST_RACKS = 1_000  # on the floor plan in the page; that of more racks is a separate file
_MOST_ROWS = 4  # of racks in the page; elevations of more rows are separate files
BESIDE = ("bill.csv", "cables.csv", "cables.ndt", "fabric.yaml", "fabric.svg", "power.csv", "plan.json")
_BODY = """<h1>Plan for {spec}</h1>
<p class="finding">{finding}</p>
<p class="trust"><b>How far to trust it.</b> {trust}</p>
<h2>Tiers</h2>
{tiers}
<h2>The bill</h2>
{bill}
<h2>Cables</h2>
{cables}
{saving}
<h2>Cost over the years</h2>
{upkeep}
{serving}
<h2>The floor</h2>
{floor}
<h2>Racks</h2>
{racks}
<h2>Assumptions</h2>
{assumptions}
<footer>{footer}</footer>"""


def to_html(plan: Plan) -> str:
    content = _BODY.format(
        spec=clean(Path(plan.size.spec).name),
        finding=prose(_finding(plan)),
        trust=prose(_trust(plan.bill)),
        tiers=_tiers(plan.cabling),
        bill=_bill(plan.bill),
        cables=_cables(plan.cabling),
        saving=_saving(plan.saving) if plan.saving else "",
        upkeep=_upkeep(plan.upkeep),
        serving=_serving(plan.serving) if plan.serving else "",
        floor=_floor(plan.cabling),
        racks=_racks(plan.cabling.racks),
        assumptions=_assumptions(plan),
        footer=_footer(plan),
    )
    style = files("weft.plan").joinpath("report.css").read_text("utf-8")
    return make_report(f"weft plan {plan.size.spec}", content, style=style)


# -- summary ----------------------------------------------------------------------------------------------------------


def _finding(plan: Plan) -> str:
    racks, bill = plan.cabling.racks, plan.bill
    servers = " and ".join(map(str, bill.servers)) or count(int((racks.tier == 0).sum()), "server")
    with_gpus = f" with {bill.gpus:,} GPUs" if bill.gpus else ""
    switches = np.bincount(looks_of(racks), minlength=len(TIERS)).tolist()[1:]
    *most, last = [count(n, name) for n, name in zip(switches, TIERS[1:], strict=True) if n] or ["no switches"]
    tiers = f"{', '.join(most)} and {last}" if most else last
    need = (
        f"{servers}{with_gpus} take {tiers}, {count(len(plan.cabling), 'cable')} and {count(len(racks.names), 'rack')}"
    )
    return f"{need}: {_cost(bill)}. {_draws(bill)}"


def _cost(bill: Bill) -> str:
    """Format the price: `1.3 to 2.2 million USD, 1,300 to 2,100 for each GPU`."""
    cost = f"{bill.total.short} USD"
    if bill.per_gpu:
        cost += f", {bill.per_gpu} for each GPU"
    return cost if bill.complete else f"{cost}, without items of unknown price"


def _draws(bill: Bill) -> str:
    if any(item.kind == "switch" for item in bill.powerless):  # the largest part
        return "The power of the fabric is unknown."
    alone = f"The fabric draws {Power(watts=bill.power_w)}"
    if bill.gpus:
        alone += f", {bill.power_w / bill.gpus:,.0f} W for each GPU"
    with_servers = f", with the servers {Power(watts=bill.cluster_w)}" if bill.cluster_w else ""
    return f"{alone}{with_servers}."


def _trust(bill: Bill) -> str:
    """Return the accuracy of the plan: counted, computed and estimated parts."""
    lines = [line for line in bill.lines if line.price]
    weak = sum(line.price.weak for line in lines if line.price)
    prices = f"{weak} of {len(lines)} prices are rough estimates, without a model name or a seller"
    missing = f"; there is no price for {', '.join(map(str, bill.missing))}" if bill.missing else ""
    unknown = ", ".join(dict.fromkeys(item.name for item in bill.powerless))
    power = f"; that of {unknown} is unknown" if unknown else ""
    return (
        "Switches and cables are counted, port by port. Lengths are those of the floor below, in a room with the "
        f"measures under Assumptions. {prices}{missing}. The power of the fabric is from data sheets{power}; that of "
        "racks is the maximum, with optics in every cabled port."
    )


# -- tables -----------------------------------------------------------------------------------------------------------

_TIER_HEADS = {"tier": "nowrap", "how many": "n nowrap", "model": "", "power": "n nowrap", "cables upwards": ""}


def _tiers(cabling: Cabling) -> str:
    racks, looks = cabling.racks, looks_of(cabling.racks)
    low, high = looks[cabling.low_box], looks[cabling.high_box]
    rows = []
    for tier, name in enumerate(TIERS):
        boxes = looks == tier
        if not boxes.any():
            continue
        models = sorted({racks.models[box] or "unknown" for box in np.flatnonzero(boxes).tolist()})
        upwards = np.bincount(high[low == tier], minlength=len(TIERS)).tolist()
        to = [
            f"{n:,} to {'each other' if above == tier else f'{TIERS[above]}es'}" for above, n in enumerate(upwards) if n
        ]
        power = str(power_of(racks, boxes))
        rows.append((name, f"{int(boxes.sum()):,}", clean(", ".join(models)), power, ", ".join(to)))
    return table(_TIER_HEADS, rows)


_BILL_HEADS = {"what": "nowrap", "how many": "n nowrap", "USD each": "n nowrap", "USD": "n nowrap", "source": ""}


def _bill(bill: Bill) -> str:
    rows = [_priced(item) for item in bill.lines]
    total = ("<b>sum</b>", "", "", f"<b>{bill.total}</b>", "")
    note = "Servers, racks and labour are not included. bill.csv has every length of cable with its order number."
    return f'{table(_BILL_HEADS, [*rows, total])}<p class="note">{note}</p>'


def _priced(item: Item) -> tuple[str, ...]:
    label = clean(item.name) + (f"<br><small>{clean(item.note)}</small>" if item.note else "")
    if item.price is None:
        return label, f"{item.count:,}", "no price", "not in the sum", ""
    weak = "weak: " if item.price.weak else ""
    source = f"<small>{weak}{clean(item.price.source)}, {item.price.date}</small>"
    return label, f"{item.count:,}", str(item.price), str(item.total), source


_CABLE_HEADS = {"to": "nowrap", "what": "", "length": "n nowrap", "cables": "n", "": "half"}
_MEDIA = {
    Medium.DAC: "passive copper",
    Medium.ACC: "active copper",
    Medium.AOC: "active optical",
    Medium.TRANSCEIVER: "transceivers and fibre",
}


def _cables(cabling: Cabling) -> str:
    """Return a bar for each length and kind of cable, and the parts to order."""
    to_server = cabling.racks.tier[cabling.low_box] == 0
    kinds = Counter(zip((~to_server).tolist(), cabling.part.tolist(), cabling.length_m.tolist(), strict=True))
    most = max(kinds.values(), default=1)
    rows = []
    for (to_switch, index, length_m), number in sorted(kinds.items()):
        part = cabling.parts[index]
        medium = part.medium.name.lower()
        label = f'<span class="swatch {medium}"></span>{clean(part.name)}'
        bar = f'<div class="bar {medium}" style="width:{100 * number / most:.1f}%"></div>'
        rows.append(("switches" if to_switch else "servers", label, f"{length_m:g} m", f"{number:,}", bar))
    media = Counter(cabling.parts[index].medium for index in cabling.part.tolist())
    key = "".join(
        f'<span><i class="swatch {medium.name.lower()}"></i>{_MEDIA[medium]}: {number:,}</span>'
        for medium, number in sorted(media.items())
    )
    order = clean("; ".join(map(str, list_parts(cabling))))
    return f'<p class="key">{key}</p>{table(_CABLE_HEADS, rows)}<p class="note">To order: {order}.</p>'


def _saving(saving: Saving) -> str:
    emptied = f" Empty now: {', '.join(saving.emptied)}." if saving.emptied else ""
    return f"<p><b>Moved switches.</b> {prose(f'{saving}.{emptied}')}</p>"


# -- over the years --------------------------------------------------------------------------------------------------


_KEEP_HEADS = {"what": "nowrap", "USD": "n nowrap"}
_TRAIN_HEADS = {**_KEEP_HEADS, "USD for 10¹² tokens": "n nowrap"}


def _upkeep(upkeep: Upkeep) -> str:
    bands = {"the fabric": upkeep.fabric, "with its servers": upkeep.cluster}
    sums = {name: band for name, band in bands.items() if band is not None}
    note = (
        f"Purchase and {upkeep.years:g} years of power: a kWh costs {upkeep.electricity} USD "
        f"({upkeep.electricity.source}, {upkeep.electricity.date}), and the site draws {upkeep.pue:g} W for each W in "
        "its racks."
    )
    if upkeep.cluster is not None:
        note += "".join(f" {_server(item)}" for item in upkeep.bill.servers)
    if upkeep.run is None:
        body = table(_KEEP_HEADS, [(name, str(band)) for name, band in sums.items()])
    else:
        step = upkeep.run.step
        note += f" {step.transformer.name} trains all that time, at {step.tokens_per_s:,.0f} tokens a second."
        body = table(_TRAIN_HEADS, [(name, str(band), str(upkeep.per_tokens(band))) for name, band in sums.items()])
    return f'{body}<p class="note">{prose(note)}</p>'


def _server(item: Item) -> str:
    price = item.price
    if price is None:
        return ""
    name, weak = item.name.partition("+")[0], "weak: " if price.weak else ""
    return (
        f"A {name} costs {price} USD ({weak}{price.source}, {price.date}); the cards that it includes are not counted "
        "again."
    )


# -- a served model ---------------------------------------------------------------------------------------------------

_TRAFFIC_HEADS = {
    "traffic of a server": "nowrap",
    "mean": "n nowrap",
    "busiest second": "n nowrap",
    "share": "n",
}


_NETWORK_HEADS = {
    "network": "nowrap",
    "fabric": "nowrap",
    "of a server": "n nowrap",
    "of all": "n nowrap",
    "ports of a server": "n",
    "storage servers": "n",
}


def _serving(serving: Serving) -> str:
    networks = [
        (
            network.name,
            network.fabric,
            f"{network.server_gbit_s:,.3g} Gbit/s",
            f"{network.total_gbit_s:,.3g} Gbit/s",
            f"{network.ports}",
            f"{network.storage_servers or ''}",
        )
        for network in serving.networks
    ]
    rows = [
        (
            flow.name,
            f"{flow.mean_gbit_s:,.3g} Gbit/s",
            f"{flow.peak_gbit_s:,.3g} Gbit/s",
            "" if flow.share is None else f"{flow.share:.2%}",
        )
        for flow in serving.flows
    ]
    return (
        f"<h2>Serving</h2><p>{prose(serving.finding)}</p>{table(_TRAFFIC_HEADS, rows)}"
        f'<p class="note">{prose(serving.note)}</p>{table(_NETWORK_HEADS, networks)}'
        f'<p class="note">{prose(serving.sizes_note)}</p>'
    )


# -- pictures ---------------------------------------------------------------------------------------------------------


def _floor(cabling: Cabling) -> str:
    where, cables = cabling.trays.fullest
    bundles = count(cabling.bundles, "bundle")
    note = f"{bundles}, each between two racks. The fullest is {where}: {count(cables, 'cable')}." if cables else ""
    if len(cabling.racks.names) > _MOST_RACKS:
        note = f'{note} In the folder of this page: <a href="floor.svg">floor.svg</a>.'
        return f'<p class="note">{note.strip()}</p>'
    return picture(lay_out_floor(cabling), "From above, to scale", note, natural=True)


def _racks(racks: Racks) -> str:
    rows = np.unique(racks.row).tolist()
    if len(rows) > _MOST_ROWS:
        links = "".join(f'<li><a href="{row_file(row)}">row {row_name(row)}</a></li>' for row in rows)
        return f'<p class="note">In the folder of this page:</p><ul class="links">{links}</ul>'
    return "".join(_row(racks, row, is_open=row == rows[0]) for row in rows)


def _row(racks: Racks, row: int, *, is_open: bool) -> str:
    scenes = "".join(picture(scene, "From the front, to scale", natural=True) for scene in split_row(racks, row))
    return f"<details{' open' if is_open else ''}><summary>Row {row_name(row)}</summary>{scenes}</details>"


# -- provenance -------------------------------------------------------------------------------------------------------


def _assumptions(plan: Plan) -> str:
    room = ", ".join(f"{name} = {value}" for name, value in asdict(plan.racks.room).items() if value is not None)
    items = "".join(f"<li>{prose(note)}</li>" for note in plan.assumed)
    return f"<ul>{items}<li>The room, in the form of a room file: <code>{clean(room)}</code></li></ul>"


def _footer(plan: Plan) -> str:
    beside = ", ".join(f'<a href="{name}">{name}</a>' for name in BESIDE)
    return f"In the folder of this page: {beside}<br>weft {__version__}: <code>{clean(command(plan))}</code>"


def command(plan: Plan) -> str:
    """Return the command line that makes the plan; the values of a room file are listed under Assumptions."""
    words = ["weft", "plan"]
    if plan.size.request is None:
        words.append(plan.size.spec)
    else:
        for field in fields(plan.size.request):
            value = getattr(plan.size.request, field.name)
            if value != field.default:
                words.append(f"--{field.name.replace('_', '-')}" + ("" if value is True else f" {value}"))
    if plan.racks.room != Room():
        words.append("--room FILE")
    if plan.prices.path:
        words.append(f"--prices {plan.prices.path}")
    if plan.saving:
        words.append("--optimise")
    if plan.upkeep.run:
        words.append(f"--train {plan.upkeep.run.step.transformer.name}")
    if plan.serving:
        words += _serving_words(plan.serving.demand)
    return " ".join(words)


def _serving_words(demand: Demand) -> list[str]:
    """Return the options of a demand that differ from their defaults."""
    texts = {
        "input-len": demand.prompt,
        "output-len": demand.answer,
        "weights": demand.weights,
        "slo-ttft": f"{demand.ttft_s:g}s",
        "slo-tpot": f"{1000 * demand.tpot_s:g}ms",
    }
    return [f"--serve {demand.model} --rate {demand.rate:g}", *(f"--{name} {text}" for name, text in texts.items())]
