"""Fabrics by name: their parts and rules exist and fit together."""

from __future__ import annotations

import pytest

import weft
from weft.errors import UnknownName
from weft.fabric import catalog
from weft.fabric.rates import parse_label
from weft.sim.engine import Network, Paths
from weft.sim.layout.rules import RULES


@pytest.mark.parametrize("wire", catalog.interconnects(), ids=lambda wire: wire.name)
def test_switch_adapter_and_rules_of_a_fabric_speak_its_speed(wire: catalog.Interconnect) -> None:
    line = parse_label(wire.speed)
    switch, per_port = catalog.switch(wire.switch).line, catalog.adapter(wire.adapter).line
    assert per_port == line
    assert switch[0].rate_gbit_s(switch[1]) % line[0].rate_gbit_s(line[1]) == 0  # whole, or a cage is split
    assert RULES[Network(wire.network)].technology is line[0].technology
    assert Paths(wire.paths)
    card = catalog.adapter(wire.adapter)
    assert card.ports == 1 or card.all_ports  # a rail is a card, or each of its ports


@pytest.mark.parametrize("wire", [one for one in catalog.interconnects() if one.transport], ids=lambda wire: wire.name)
def test_unknown_properties_of_a_transport_have_a_note(wire: catalog.Interconnect) -> None:
    words = ("not modelled", "not published", "no published", "headlines only")
    assert any(word in wire.note for word in words) or wire.note.startswith("as ")


def test_fabrics_are_found_by_name_and_unknown_ones_suggest_near_ones() -> None:
    assert catalog.interconnect("NDR").switch == "QM9700"
    assert catalog.find("roce-400") is catalog.interconnect("roce-400")
    with pytest.raises(UnknownName, match="there is no fabric in the catalog 'roce400'; did you mean roce-400"):
        catalog.interconnect("roce400")


def test_a_server_takes_another_card_in_every_rail() -> None:
    box = catalog.server("DGX-H100+connectx-6")
    assert (box.name, box.rails, box.gpus) == ("dgx-h100+ConnectX-6", 8, 8)
    assert box.adapter.speed == "HDR"
    assert catalog.server("dgx-h100+ConnectX-7") is catalog.server("dgx-h100")
    with pytest.raises(UnknownName, match="adapter in the catalog 'ConnectX-66'"):
        catalog.server("dgx-h100+ConnectX-66")


@pytest.mark.parametrize(
    ("template", "card", "speaks"),
    [
        ("dgx-h100", "ConnectX-8", "16xPCIe5"),  # the card could do PCIe 6
        ("dgx-h100", "ConnectX-5", "16xPCIe3"),  # the slot could do PCIe 5
        ("dgx-a100", "ConnectX-7", "16xPCIe4"),
        ("dgx-h100", "ConnectX-7-2P", "8xPCIe5"),  # half of the card's lanes
        ("host", "ConnectX-8", "16xPCIe6"),  # nothing is known of its slots
    ],
)
def test_a_card_runs_at_the_slower_of_card_and_slot(template: str, card: str, speaks: str) -> None:
    assert catalog.server(template).slot(catalog.adapter(card)) == speaks


def test_the_slower_slot_is_in_the_fabric() -> None:
    fabric = weft.load("star:hosts=2,server=dgx-h100+ConnectX-8,switch=Q3400")
    link = fabric["dgx1/mlx5_0/2"].link
    assert link is not None
    assert link.label == "16xPCIe5"
    assert fabric["dgx1/mlx5_0/1"].link.label == "4xXDR"
