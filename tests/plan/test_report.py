"""The page: the decision first, complete, without external resources, names unchanged."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import weft
from weft.plan import folder, report
from weft.plan.elevation import split_row
from weft.plan.floor.parts import list_parts
from weft.plan.floor.racks import row_name
from weft.plan.floor.room import Room
from weft.plan.optimise import Saving
from weft.plan.plan import Plan, make_plan
from weft.plan.report import BESIDE, command, to_html
from weft.plan.request import Request
from weft.plan.size import size


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(size(Request(gpus=512)))


@pytest.fixture(scope="module")
def page(plan: Plan) -> str:
    return to_html(plan)


def words(page: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.partition("<body>")[2])).replace("\xa0", " ")


def test_the_decision_comes_first_and_how_far_to_trust_it_next(plan: Plan, page: str) -> None:
    text = words(page)
    decision = (
        "64 × dgx-h100 with 512 GPUs take 16 leaf switches and 8 spine switches, 1,024 cables and 19 racks: "
        f"{plan.bill.total.short} USD, {plan.bill.per_gpu} for each GPU. The fabric draws "
    )
    assert text.index(decision) < text.index("How far to trust it.") < text.index("The bill") < text.index("The floor")


def test_the_page_needs_no_network(page: str) -> None:
    elsewhere = re.sub(r"xmlns=(\"|&quot;)http://www.w3.org/2000/svg", "", page)
    assert not re.findall(r"https?://[^ ]*[\"']|url\(|@import|<script|<link|src=", elsewhere)


def test_every_line_of_the_bill_and_every_cable_is_there(plan: Plan, page: str) -> None:
    text = words(page)
    for item in plan.bill.lines:
        assert f"{item.name}{item.count:,}{item.price}{item.total}weak: {item.price.source}" in text
    assert f"sum{plan.bill.total}" in text
    for part in list_parts(plan.cabling):
        assert str(part) in text
    bars = re.findall(r'<td class="n" data-of="cables">([\d,]+)</td>.*?width:([\d.]+)%', page)
    assert sum(int(number.replace(",", "")) for number, _ in bars) == len(plan.cabling)
    assert max(float(width) for _, width in bars) == 100


def test_unpriced_items_are_named_and_not_in_the_sum(plan: Plan) -> None:
    dear, *rest = plan.bill.items
    text = words(to_html(replace(plan, bill=replace(plan.bill, items=(replace(dear, price=None), *rest)))))
    assert f"{dear.name}{dear.count:,}no pricenot in the sum" in text
    assert f"there is no price for {dear}" in text
    assert "without items of unknown price" in text


def test_tiers_have_their_cables_and_the_fullest_tray_its_place(plan: Plan, page: str) -> None:
    text = words(page)
    assert re.search(r"server64dgx-h100653 kW512 to leaf switchesleaf switch16QM970021.2 kW512 to spine switches", text)
    where, cables = plan.cabling.trays.fullest
    assert f"The fullest is {where}: {cables:,} cables." in text


def test_few_rows_are_in_the_page_and_many_are_files_beside_it(plan: Plan, page: str) -> None:
    assert page.count("<details") == 1
    assert page.count("<iframe") == 1 + len(split_row(plan.racks, 0))
    many = make_plan(plan.size, room=Room(racks_per_row=3))
    rows = np.unique(many.racks.row).tolist()
    links = re.findall(r'href="([^"]*)"', to_html(many))
    assert links == [*(f"racks/row-{row_name(row)}.svg" for row in rows), *BESIDE]
    assert {*BESIDE} <= {*folder.FILES}
    assert command(many) == "weft plan --gpus 512 --room FILE"


def test_training_has_its_price(plan: Plan, page: str) -> None:
    assert f"the fabric{plan.upkeep.fabric}with its servers{plan.upkeep.cluster}Purchase" in words(page)
    (server,) = plan.bill.report()["servers"]
    assert f"A dgx-h100 costs 270,000 to 317,000 USD (weak: {server['source']}, {server['date']});" in words(page)
    step = SimpleNamespace(transformer=SimpleNamespace(name="tiny"), tokens_per_s=1e6)
    remaining = replace(plan.upkeep, run=cast("Any", SimpleNamespace(step=step)))
    messages = to_html(replace(plan, upkeep=remaining))
    assert f"the fabric{remaining.fabric}{remaining.per_tokens(remaining.fabric)}" in words(messages)
    assert "tiny trains all that time, at 1,000,000 tokens a second." in words(messages)
    assert command(replace(plan, upkeep=remaining)) == "weft plan --gpus 512 --train tiny"


def test_saving_of_moved_switches_is_printed_beside_the_cables(plan: Plan, page: str) -> None:
    assert "Moved switches" not in page
    leaf = int(plan.racks.rack[plan.racks.boxes.index("leaf1")])
    racks = replace(plan.racks, rack=np.where(plan.racks.rack == leaf, 0, plan.racks.rack))
    after = replace(plan.cabling, racks=racks)
    saving = Saving(before=plan.cabling, after=after, usd=(1000.0, 2000.0), seed=1, rounds=40)
    moved = replace(plan, saving=saving)
    text = words(to_html(moved))
    assert (
        text.index("To order:")
        < text.index(f"Moved switches. {saving}. Empty now: {racks.names[leaf]}.")
        < text.index("Cost over the years")
    )
    assert command(moved) == "weft plan --gpus 512 --optimise"
    assert moved.report()["saving"] == {
        "moved": saving.moved,
        "optical_before": int(plan.cabling.optical.sum()),
        "optical_after": int(after.optical.sum()),
        "metres_before": saving.metres[0],
        "metres_after": saving.metres[-1],
        "usd": (1000.0, 2000.0),
        "emptied_racks": saving.emptied,
        "seed": 1,
        "rounds": 40,
    }
    own = replace(plan, prices=replace(plan.prices, path=Path("offers.toml")))
    assert command(own) == "weft plan --gpus 512 --prices offers.toml"


def test_assumptions_and_the_way_to_make_it_again_come_last(page: str) -> None:
    text = words(page)
    assert "racks_per_row = 0, rack_u = 48" in text
    assert text.rstrip().endswith(f"weft {weft.__version__}: weft plan --gpus 512")
    grown = make_plan(size(Request(servers=20, grow_to=40, ufm_hosts=True)))
    assert command(grown) == "weft plan --servers 20 --grow-to 40 --ufm-hosts"
    assert grown.assumed
    assert all(item in words(to_html(grown)) for item in grown.assumed)


def test_names_are_escaped(plan: Plan) -> None:
    racks = replace(plan.racks, models=("<b>&",) * len(plan.racks.models), boxes=("</iframe>",) * len(plan.racks.boxes))
    odd = replace(plan.size, spec="<b>&", notes=("<b>&",))
    messages = to_html(replace(plan, cabling=replace(plan.cabling, racks=racks), size=odd))
    assert "<b>&" not in messages
    assert messages.count("</iframe>") == messages.count("<iframe")


def test_a_power_that_nobody_knows_is_not_nothing() -> None:
    """The catalog has no watts of an SN4700."""
    plan = make_plan(size(Request(servers=2, switch="SN4700")))
    assert "The power of the fabric is unknown." in words(to_html(plan))


def test_the_floor_of_many_racks_is_a_file_beside_the_page(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_MOST_RACKS", len(plan.racks.names) - 1)
    text = to_html(plan)
    assert 'href="floor.svg"' in text
    assert text.count("<iframe") == len(split_row(plan.racks, 0))
