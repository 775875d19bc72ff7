"""Storage and management networks: ports, places, cables and bills."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.link_layers import link_layers
from weft.fabric.prices import read_prices
from weft.plan.networks import CONTROLLERS, Network, _fill, plan_compute, plan_management, plan_storage
from weft.plan.plan import Plan, make_plan
from weft.plan.request import Request
from weft.plan.site import Wishes
from weft.plan.size import size


@pytest.fixture(scope="module")
def plan() -> Plan:
    wishes = Wishes(storage="ndr:8", management="eth-100-tcp")
    return make_plan(size(Request(gpus=512)), wishes=wishes)


@pytest.fixture(scope="module")
def storage(plan: Plan) -> Network:
    return plan.site.networks[0]


@pytest.fixture(scope="module")
def management(plan: Plan) -> Network:
    return plan.site.networks[1]


def test_storage_joins_two_ports_of_each_server(storage: Network) -> None:
    """64 DGX H100 with two ports each and eight storage servers: 144 ports on five leaves and four spines."""
    names = storage.cabling.fabric.nodes.name
    assert {"dgx1/mlx5_1", "dgx1/mlx5_2", "dgx64/mlx5_2", "storage8/port2", "storage-leaf5"} <= set(names)
    assert len(storage.cabling.fabric.of_kind(NodeKind.HCA)) == 64 * 2 + 8 * 2
    assert storage.switches == 9
    assert len(storage.cabling) == 144 + 5 * 32


def test_servers_stay_and_new_boxes_stand_in_new_racks(plan: Plan, storage: Network) -> None:
    racks, whole = storage.racks, plan.racks
    n = len(whole.boxes)
    assert racks.boxes[:n] == whole.boxes
    assert (racks.rack[:n] == whole.rack).all()
    assert (racks.rack[n:] >= len(whole.names)).all()
    assert len(set(racks.names)) == len(racks.names)
    filled = np.zeros((len(racks.names), racks.room.rack_u + 1), int)
    for box in range(n, len(racks.boxes)):
        filled[racks.rack[box], racks.u[box] : racks.u[box] + racks.height_u[box]] += 1
    assert filled.max() == 1


def test_a_cable_is_as_long_as_its_way_to_the_new_racks(storage: Network) -> None:
    cabling, racks = storage.cabling, storage.racks
    room = racks.room
    low, high = racks.rack[cabling.low_box], racks.rack[cabling.high_box]
    least_m = np.abs(racks.row[low] - racks.row[high]) * room.row_pitch_m
    assert (cabling.length_m >= least_m).all()
    assert (racks.row[high] > racks.row[low])[racks.tier[cabling.low_box] == 0].any()


def test_cards_belong_to_servers_and_storage_servers_are_listed(storage: Network) -> None:
    assert storage.bill.count("adapter") == 0
    assert storage.bill.count("switch") == storage.switches
    assert [str(item) for item in storage.bill.servers] == ["8 × storage server"]


def test_every_controller_has_a_port(plan: Plan, storage: Network, management: Network) -> None:
    """Servers, switches of all networks, storage servers and PDUs; 48 to a switch of their row."""
    pdus = sum(supply.pdus for supply in plan.site.supplies)
    boxes = len(plan.racks.boxes) + 8 + storage.switches + management.switches
    count = {item.name: item.count for item in management.bill.items}
    controllers = count["Cat 6 cable"]
    assert boxes + pdus - controllers in (0, *range(1, 13))  # PDUs of the management network's own racks
    assert count["management switch of 48 × 1GbE"] >= -(-controllers // CONTROLLERS)
    ends = Counter(name.partition("/")[2][:6] for name in management.cabling.fabric.nodes.name)
    assert ends["manage"] == 64
    assert ends["uplink"] == 2 * count["management switch of 48 × 1GbE"]


@pytest.mark.parametrize(
    ("height_u", "gap_u", "power_w", "rack", "u"),
    [
        ([1, 1, 2, 1], 0, 0.0, [0, 0, 0, 1], [1, 2, 3, 1]),
        ([1, 4, 1], 0, 0.0, [0, 1, 2], [1, 1, 1]),
        ([1, 1, 1], 1, 0.0, [0, 0, 1], [1, 3, 1]),
        ([1, 1, 1], 0, 50.0, [0, 0, 1], [1, 2, 1]),
        ([1, 1], 0, 200.0, [0, 1], [1, 1]),  # more than any rack has: a rack for each
    ],
)
def test_new_racks_are_filled_from_the_bottom_to_their_height_and_power(height_u, gap_u, power_w, rack, u) -> None:
    """Racks of 4 units and 100 W."""
    boxes = len(height_u)
    racks, units = _fill(np.array(height_u), np.full(boxes, gap_u), np.full(boxes, power_w), 4, 100.0)
    assert (racks.tolist(), units.tolist()) == (rack, u)


def test_more_storage_servers_never_need_fewer_parts(plan: Plan) -> None:
    ndr, prices = catalog.interconnect("ndr"), read_prices()
    networks = [plan_storage(plan.racks, ndr, servers=n, prices=prices) for n in (1, 8, 30)]
    assert [n.switches for n in networks] == sorted(n.switches for n in networks)
    assert [len(n.cabling) for n in networks] == sorted(len(n.cabling) for n in networks)


def test_a_management_network_alone_has_the_plan_s_boxes(plan: Plan) -> None:
    alone = plan_management(plan.racks, catalog.interconnect("eth-100-tcp"), prices=read_prices())
    assert alone.racks.boxes[: len(plan.racks.boxes)] == plan.racks.boxes
    assert alone.report()["racks"] == 1


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"storage": "ndr"}, "such as ndr:16"),
        ({"storage": "ndr:0"}, "a number of storage servers"),
        ({"storage": "nrd:4"}, "ndr"),
        ({"management": "eth-100"}, "eth-100-tcp"),
    ],
)
def test_wrong_wishes_are_refused(wishes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_plan(size(Request(gpus=64)), wishes=Wishes(**wishes))  # type: ignore[arg-type]


def test_a_network_of_too_small_switches_is_named_with_a_way_out(plan: Plan) -> None:
    """65,536 storage servers have 131,072 ports, more than a tree of 64-port switches."""
    message = r"storage network of ndr: fat-tree: .*do not fit.*\n  Give --storage-fabric a fabric with more ports"
    with pytest.raises(ConfigError, match=message):
        plan_storage(plan.racks, catalog.interconnect("ndr"), servers=65_536, prices=read_prices())


def test_switches_are_counted_by_model_over_all_networks(plan: Plan) -> None:
    compute = int((plan.racks.tier > 0).sum())
    storage, management = (network.switches for network in plan.site.networks)
    assert plan.switch_kinds == {
        "QM9700": {"compute": compute, "storage": storage},
        "SN2700": {"management": management},
    }


def test_ethernet_storage_beside_infiniband_is_a_second_kind_and_beside_roce_the_same() -> None:
    two = make_plan(size(Request(gpus=64)), wishes=Wishes(storage="roce-400:2")).switch_kinds
    one = make_plan(size(Request(gpus=64, fabric="roce-400")), wishes=Wishes(storage="roce-400:2")).switch_kinds
    assert list(two) == ["QM9700", "SN5400"]
    assert [list(of) for of in one.values()] == [["compute", "storage"]]


@pytest.mark.parametrize(
    ("card", "layers"),
    [
        ("ConnectX-7-2P", ["InfiniBand", "Ethernet"]),
        ("ConnectX-3", ["InfiniBand", "Ethernet"]),
        ("ConnectX-6-Dx", ["Ethernet"]),
        ("Pollara-400", ["Ethernet"]),
    ],
)
def test_cards_have_the_link_layers_of_all_their_entries(card: str, layers: list[str]) -> None:
    assert link_layers(catalog.adapter(card)) == layers


def test_compute_ports_and_storage_servers_share_one_tree(plan: Plan) -> None:
    alone, shared = (
        plan_compute(plan.racks, catalog.interconnect("ndr"), storage_servers=n, prices=read_prices()) for n in (0, 8)
    )
    ends = [len(network.cabling.racks.fabric.of_kind(NodeKind.HCA)) for network in (alone, shared)]
    assert ends == [512, 528]
    assert shared.new_racks >= alone.new_racks
