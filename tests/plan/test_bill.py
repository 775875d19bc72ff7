"""The cost of a fabric: every switch, card and network cable once, and parts without a price listed."""

from __future__ import annotations

import csv
import datetime
import io
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import weft
from weft.fabric import catalog, faults
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.prices import Band, Price, read_prices
from weft.plan.bill import Bill, Item, bill_of, make_bill, to_csv
from weft.plan.floor.cables import Cabling, cable
from weft.plan.floor.racks import place

OPTICS = (2 * 293 + 50, 2 * 391 + 100)  # a port of a transceiver at each end, and a fibre
PER_LINK = {Medium.DAC: (50, 100), Medium.ACC: (100, 200), Medium.AOC: (200, 200), Medium.TRANSCEIVER: OPTICS}


def of(spec: str) -> Bill:
    return bill_of(weft.load(spec), read_prices())


@pytest.fixture(scope="module")
def unit() -> Cabling:
    """A unit of 32 DGX H100: NVIDIA's table has 8 leaves, 4 spines, 256 cables to servers and 256 between switches."""
    return cable(place(weft.load("superpod:su=1")))


def test_a_bill_counts_switches_cards_and_network_cables(unit: Cabling) -> None:
    bill = make_bill(unit, read_prices())
    assert [str(line) for line in bill.lines][:2] == ["12 × QM9700", "256 × ConnectX-7"]
    assert bill.links == 512
    assert [str(item) for item in bill.servers] == ["32 × dgx-h100"]


def test_every_cable_is_in_the_sum_at_the_price_of_what_it_is_made_of(unit: Cabling) -> None:
    """Computed by hand: ports at 500 to 1,000, cards at 3,000 to 5,000, and each link at the price of its medium."""
    bill, links = make_bill(unit, read_prices()), unit.fabric.links
    media = [Medium(medium) for medium in links.medium[unit.fabric.network_links].tolist()]
    assert len(media) == 512
    low, high = (sum(PER_LINK[medium][end] for medium in media) for end in (0, 1))
    assert bill.total == Band(low_usd=12 * 64 * 500 + 256 * 3_000 + low, high_usd=12 * 64 * 1_000 + 256 * 5_000 + high)
    assert not bill.missing
    assert bill.per_gpu == bill.total * (1 / 256)


def test_the_4096_server_cables_of_a_large_one_have_a_price() -> None:
    cabling = cable(place(weft.load("superpod:su=16")))
    bill = make_bill(cabling, read_prices())
    assert bill.links == 3 * 4096  # two tiers of switches above the leaves
    flat = sum(item.count for item in bill.items if item.name == "MMA4Z00-NS-FLT")  # at servers, two ports each
    assert 2 * flat == 4096
    assert not bill.missing


def test_a_splitter_in_a_cage_of_one_port_is_one_link() -> None:
    """A SN5400 has a cage for every port: nothing there carries two links, and none costs two."""
    cabling = cable(place(weft.load("superpod:su=1,server=dgx-h100+ConnectX-7-EN,switch=SN5400")))
    bill = make_bill(cabling, read_prices())
    media = [Medium(medium) for medium in cabling.fabric.links.medium[cabling.link].tolist()]
    low = sum(item.total.low_usd for item in bill.items if item.kind not in ("switch", "adapter"))
    assert low == sum(PER_LINK[medium][0] for medium in media)


def test_a_switch_that_nobody_sells_is_priced_by_the_port_and_said_to_be_none() -> None:
    (switch,) = of("fat-tree:hosts=8,radix=16").of_kind("switch")
    assert (switch.name, switch.count) == ("16-port NDR switch", 1)
    assert switch.total == Band(low_usd=16 * 500, high_usd=16 * 1_000)
    assert switch.note == "not a product: a QM9700 has 64 ports; priced per port"
    assert bill_of(weft.load("fat-tree:hosts=8,radix=16"), read_prices()).items[0].power_w == 747 * 16 / 64


def test_the_port_that_a_switch_shows_for_sharp_makes_it_no_other_switch() -> None:
    fabric = weft.load("star:hosts=2,radix=65")
    assert [item.name for item in bill_of(fabric, read_prices()).of_kind("switch")] == ["QM9700"]


def test_a_fabric_whose_switches_have_no_price_is_not_cheap() -> None:
    """Omni-Path: no document has a price, so there is no sum to compare with others."""
    bill = of("star:hosts=2,server=host-opa100")
    assert not bill.complete
    assert [str(item) for item in bill.missing] == ["1 × 100SWE48", "2 × 100HFA016"]
    assert bill.report()["without_price"] == ["1 × 100SWE48", "2 × 100HFA016"]


def test_two_ports_of_a_dual_port_card_are_one_card() -> None:
    (adapters,) = of("fat-tree:hosts=3,server=dgx-h100+ConnectX-7-2P").of_kind("adapter")
    assert (adapters.name, adapters.count) == ("ConnectX-7-2P", 12)  # 24 ports
    assert adapters.price == read_prices().of(catalog.adapter("ConnectX-7-2P"))


def test_a_cable_that_was_pulled_is_not_paid_for() -> None:
    fabric = faults.remove_link(weft.load("superpod:su=1"), "leaf1/64")
    assert bill_of(fabric, read_prices()).links == 511


def test_power_is_that_of_switches_and_of_both_ends_of_each_cable(unit: Cabling) -> None:
    """747 W a switch, 8 W an end of optics; ends in servers are drawn there, and a server's own figure has them."""
    bill = make_bill(unit, read_prices())
    ends_w = [unit.parts[part].power_w or 0 for part in unit.part.tolist()]
    assert max(ends_w) == 8
    to_servers = unit.racks.tier[unit.low_box] == 0
    assert bill.power_w == pytest.approx(12 * 747 + 2 * sum(ends_w))
    assert bill.inside_w == pytest.approx(sum(w for w, inside in zip(ends_w, to_servers, strict=True) if inside))
    assert bill.cluster_w == pytest.approx(32 * 10_200 + bill.power_w - bill.inside_w)
    assert {item.name for item in bill.powerless} == {part.name for part in unit.parts if part.power_w is None}


def test_only_cables_draw_power_inside_servers_and_fibres_draw_none(unit: Cabling) -> None:
    bill = make_bill(unit, read_prices())
    assert {item.inside_w for item in bill.items if item.kind in ("switch", "fibre")} == {0}
    assert {item.power_w for item in bill.items if item.kind == "fibre"} == {0}


def test_servers_are_sold_with_their_cards(unit: Cabling, tmp_path: Path) -> None:
    path = tmp_path / "quotes.toml"
    path.write_text('dgx-h100 = { usd = [250_000, 300_000], source = "an offer", date = 2026-11-02 }')
    prices = read_prices(path)
    bill = make_bill(unit, prices)
    cards = bill.of_kind("adapter")[0].total
    assert bill.cluster is not None
    assert bill.cluster.low_usd == bill.low_usd - cards.low_usd + 32 * 250_000
    other = bill_of(weft.load("superpod:su=1,server=dgx-h100+ConnectX-8"), prices)  # not those that it is sold with
    assert other.cluster is not None
    assert other.cluster.high_usd == other.high_usd + other.servers[0].count * 300_000
    roce = bill_of(weft.load("superpod:su=1,server=dgx-h100+ConnectX-7-EN,switch=SN5400"), prices)  # the same cards
    assert roce.cluster is not None
    assert roce.cluster.low_usd == roce.low_usd - roce.of_kind("adapter")[0].total.low_usd + 32 * 250_000
    assert roce.count("adapter") == 256  # in the fabric's own sum


def test_more_cards_than_servers_are_sold_with_are_bought(unit: Cabling) -> None:
    bill = make_bill(unit, read_prices())
    fewer = replace(bill, servers=(replace(bill.servers[0], count=30),))
    card = bill.of_kind("adapter")[0].price
    assert card is not None
    assert fewer.beside.low_usd == bill.beside.low_usd + 2 * 8 * card.low_usd


def test_cards_sold_with_servers_are_deducted_once(unit: Cabling) -> None:
    """A VPI card has two entries: where a fabric has lines of both, only as many as the servers bring are free."""
    bill = make_bill(unit, read_prices())
    (ethernet,) = (read_prices().of(catalog.adapter("ConnectX-7-EN")),)
    assert ethernet is not None
    (card,) = [item for item in bill.items if item.kind == "adapter"]
    both = replace(bill, items=(*bill.items, replace(card, name="ConnectX-7-EN", price=ethernet)))
    assert both.beside.low_usd == bill.beside.low_usd + 256 * ethernet.low_usd


def test_a_connectx_8_with_two_ethernet_ports_is_the_card_that_a_dgx_b300_is_sold_with() -> None:
    fabric = weft.load("superpod:su=1,server=dgx-b300+ConnectX-8-EN,servers=4,leaves=4,switch=SN5600")
    bill = bill_of(fabric, read_prices())
    (cards,) = bill.of_kind("adapter")
    assert (bill.links - 4 * 64, cards.name, cards.count) == (4 * 16, "ConnectX-8-EN", 4 * 8)
    assert bill.beside.low_usd == bill.low_usd - cards.total.low_usd


def test_a_plain_server_has_no_cards_in_its_price() -> None:
    bill = of("star:hosts=2")
    assert bill.cluster is not None
    assert bill.cluster.low_usd == bill.low_usd + 2 * 9_000
    assert of("star:hosts=2,server=host-hdr").cluster is None  # it has no price


def test_the_prices_of_servers_are_in_no_sum_of_a_fabric(unit: Cabling) -> None:
    bill = make_bill(unit, read_prices())
    assert bill.total == sum((item.total for item in bill.items), Band(low_usd=0, high_usd=0))
    assert "dgx" not in to_csv(bill)


def test_the_csv_adds_up_to_the_bill(unit: Cabling) -> None:
    bill = make_bill(unit, read_prices())
    rows = list(csv.DictReader(io.StringIO(to_csv(bill))))
    assert sum(float(row["low_usd"]) for row in rows) == bill.low_usd
    assert sum(float(row["power_w"] or 0) for row in rows) == bill.power_w
    assert {row["order"] for row in rows if row["kind"] == "cable"} == {
        part.part for part in unit.parts if not part.transceivers
    }
    assert all(row["source"] and row["date"] and row["weak"] == "True" for row in rows)
    missing = to_csv(of("star:hosts=2,server=host-opa100")).splitlines()[1]
    assert missing.startswith("switch,100SWE48,,,1,,,")


def test_the_published_estimate_for_1024_gpus_stands_beside_the_bill() -> None:
    """yobitel.com: 48 QM9700, switches 0.55 to 0.75 million USD, optics 1.2 to 1.6 million.

    Weft takes its switches from a table with Ethernet's beside it, 2 to 6 times as much; 40 of 2,048 links are copper.
    """
    bill = of("superpod:su=4")
    (switches,) = bill.of_kind("switch")
    assert switches.count == 48
    assert 2 < switches.total.low_usd / 0.75e6 < switches.total.high_usd / 0.55e6 < 6
    fibres = bill.count("fibre")
    assert fibres == 2048 - 40
    optics = [item.total for item in bill.items if item.kind == "transceiver"]
    assert sum(optic.low_usd for optic in optics) == pytest.approx(1.2e6 * fibres / 2048, rel=0.01)
    assert sum(optic.high_usd for optic in optics) == pytest.approx(1.6e6 * fibres / 2048, rel=0.01)
    assert len(weft.load("superpod:su=4").of_kind(NodeKind.GPU)) == bill.gpus == 1024


PRICE = Price(low_usd=10.0, high_usd=20.0, source="an offer", date=datetime.date(2026, 11, 2))
SWITCH = Item(kind="switch", name="a switch", count=2, price=PRICE, power_w=100.0)
SERVER = Item(kind="server", name="a server", count=3, price=PRICE, power_w=500.0)


def test_an_empty_bill_has_no_price_per_gpu_and_no_cluster() -> None:
    bill = Bill(items=())
    assert (bill.gpus, bill.links, bill.power_w) == (0, 0, 0)
    assert (bill.total, bill.per_gpu) == (Band(low_usd=0.0, high_usd=0.0), None)
    assert (bill.cluster, bill.cluster_w) == (None, None)


def test_a_cluster_adds_the_price_and_power_of_every_kind_of_server() -> None:
    bill = Bill(items=(SWITCH,), servers=(SERVER, replace(SERVER, name="another", count=1)), gpus=4)
    assert bill.per_gpu == Band(low_usd=5.0, high_usd=10.0)
    assert bill.cluster == Band(low_usd=60.0, high_usd=120.0)
    assert bill.cluster_w == 2 * 500 + 100


@pytest.mark.parametrize("unknown", [0, 1])
def test_a_cluster_with_one_kind_of_server_of_unknown_price_or_power_has_none(unknown: int) -> None:
    servers = [SERVER, SERVER]
    servers[unknown] = replace(SERVER, price=None, power_w=None)
    bill = Bill(items=(SWITCH,), servers=tuple(servers))
    assert (bill.cluster, bill.cluster_w) == (None, None)


@pytest.mark.parametrize(
    ("kind", "complete"), [("switch", False), ("adapter", False), ("cable", True), ("fibre", True)]
)
def test_a_bill_without_the_price_of_a_switch_or_an_adapter_is_incomplete(kind: str, complete: bool) -> None:
    bill = Bill(items=(SWITCH, replace(SWITCH, kind=kind, name="b", price=None)), servers=(SERVER,), gpus=2)
    assert [item.name for item in bill.missing] == ["b"]
    assert bill.complete is complete
    assert (bill.per_gpu is not None, bill.cluster is not None) == (complete, complete)


def test_an_adapter_of_unknown_power_is_not_listed_as_powerless() -> None:
    """The power of a server includes its adapters."""
    bill = Bill(items=tuple(replace(SWITCH, kind=kind, name=kind, power_w=None) for kind in ("adapter", "cable")))
    assert [item.name for item in bill.powerless] == ["cable"]
    assert bill.power_w == 0


def test_lines_of_a_kind_add_the_counts_of_equal_parts_only() -> None:
    other = replace(PRICE, low_usd=11.0)
    bill = Bill(items=(SWITCH, replace(SWITCH, count=5), replace(SWITCH, price=other)))
    assert [(line.count, line.price) for line in bill.of_kind("switch")] == [(7, PRICE), (2, other)]
    assert (bill.count("switch"), bill.count("cable")) == (9, 0)


def test_parts_of_unknown_model_are_named_so() -> None:
    fabric = weft.load("star:hosts=2")
    bill = bill_of(replace(fabric, models=("",) * len(fabric.models)), read_prices())
    assert [(item.name, item.count) for item in (*bill.items[:2], *bill.servers)] == [
        ("switch of unknown model", 1),
        ("adapter of unknown model", 2),
        ("server of unknown model", 2),
    ]
    assert not bill.complete


def test_cables_of_unknown_power_add_none(unit: Cabling) -> None:
    parts = tuple(msgspec.structs.replace(part, power_w=None) for part in unit.parts)
    bill = make_bill(replace(unit, parts=parts), read_prices())
    assert (bill.power_w, bill.inside_w) == (12 * 747, 0)
