"""GPUs without NVSwitches as hosts: over PCIe, and over NVLinks from GPU to GPU."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

import weft
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.nvlink import join_nvlinks
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.flow.engine import FlowEngine
from weft.sim.packet.engine import PacketEngine
from weft.sim.traffic import Traffic

SLOT_GBYTE_S = 48.0  # PCIe 5 with 16 lanes, by NCCL's count
NVLINK_GBYTE_S = 25 * (1 - 0.178)  # one NVLink4, what rings were measured to have
PAIR_GBYTE_S = 25 * (1 - 0.217)  # one NVLink3


def joined(server: str) -> weft.Fabric:
    return join_nvlinks(route(weft.load(f"star:hosts=2,server={server}"), RoutingOptions(adaptive=True)).fabric)


def slot(fabric: weft.Fabric, name: str) -> int:
    return int(fabric.first_port[fabric.node_index[name]]) + 1


def gbyte_s(fabric: weft.Fabric, *pairs: tuple[int, int], size_bytes: int = 1 << 28) -> float:
    """Return the rate of each pair of GPUs of the first server, all at once."""
    ends = [[slot(fabric, f"{fabric.servers[0]}/gpu{gpu}") for gpu in end] for end in zip(*pairs, strict=True)]
    result = FlowEngine().run(fabric, Traffic.make(ends[0], ends[1], size_bytes, qp=range(len(pairs))))
    return size_bytes * 1000 / result.last_arrival_ps


@pytest.fixture(scope="module")
def cards() -> weft.Fabric:
    return joined("rtx-pro-6000-8")


def test_cards_below_one_switch_have_their_slots_and_two_processors_the_link_between(cards: weft.Fabric) -> None:
    assert gbyte_s(cards, (0, 1)) == pytest.approx(SLOT_GBYTE_S, rel=0.03)
    assert gbyte_s(cards, (0, 2)) == pytest.approx(SLOT_GBYTE_S, rel=0.03)
    assert gbyte_s(cards, (0, 4)) == pytest.approx(22, rel=0.03)  # Sapphire Rapids, as NCCL counts newer ones too


def test_all_columns_of_a_joined_fabric_are_equally_long(cards: weft.Fabric) -> None:
    for columns in (cards.nodes, cards.ports, cards.links):
        lengths = {column.name: len(getattr(columns, column.name)) for column in fields(columns)}
        assert set(lengths.values()) == {len(columns)}, lengths


def test_cards_share_their_switch_s_way_up_and_not_the_switch(cards: weft.Fabric) -> None:
    assert gbyte_s(cards, (0, 2), (1, 3)) == pytest.approx(SLOT_GBYTE_S / 2, rel=0.03)
    assert gbyte_s(cards, (0, 1), (2, 3)) == pytest.approx(SLOT_GBYTE_S, rel=0.03)
    assert gbyte_s(cards, *((gpu, gpu + 4) for gpu in range(4))) == pytest.approx(22 / 4, rel=0.03)


def test_gpus_that_nvlinks_join_have_those_of_the_pair_and_all_of_them_to_all() -> None:
    board = joined("hgx-a100-4")
    assert gbyte_s(board, (0, 3)) == pytest.approx(4 * PAIR_GBYTE_S, rel=0.03)
    assert gbyte_s(board, (0, 1), (0, 2), (0, 3)) == pytest.approx(4 * PAIR_GBYTE_S, rel=0.03)


def test_a_bridge_joins_two_and_others_go_over_pcie() -> None:
    bridged = joined("mgx-h100-nvl")
    assert gbyte_s(bridged, (0, 1)) == pytest.approx(12 * NVLINK_GBYTE_S, rel=0.03)
    assert gbyte_s(bridged, (0, 2)) == pytest.approx(SLOT_GBYTE_S, rel=0.03)


def test_no_way_goes_through_a_third_gpu(tmp_path: Path) -> None:
    """Bridges between processors: gpu0 to gpu5 would be shorter and faster over gpu4's bridge."""
    own = tmp_path / "own.yaml"
    pairs = ", ".join(f"[gpu{gpu}, gpu{gpu + 4}, 12]" for gpu in range(4))
    own.write_text(f"like: mgx-h100-nvl\nnvlink_pairs: [{pairs}]\n")
    crossed = joined(str(own))
    assert gbyte_s(crossed, (0, 4)) == pytest.approx(12 * NVLINK_GBYTE_S, rel=0.03)
    assert gbyte_s(crossed, (0, 5)) == pytest.approx(22, rel=0.03)


def test_a_lost_nvlink_is_missing_between_its_two_gpus_alone() -> None:
    whole = route(weft.load("star:hosts=2,server=hgx-a100-4"), RoutingOptions(adaptive=True)).fabric
    hurt = join_nvlinks(faults.remove_link(whole, "hgx1/gpu0/1"))  # one of those to gpu1
    assert gbyte_s(hurt, (0, 1)) == pytest.approx(3 * PAIR_GBYTE_S, rel=0.03)
    assert gbyte_s(hurt, (0, 2)) == pytest.approx(4 * PAIR_GBYTE_S, rel=0.03)


@pytest.mark.parametrize("server", ["rtx-pro-6000-8", "hgx-h100-4", "rtx-4090-8"])
def test_the_network_is_as_before_and_packets_agree_with_flows(server: str) -> None:
    fabric = route(weft.load(f"star:hosts=2,server={server}"), RoutingOptions(adaptive=True)).fabric
    result = join_nvlinks(fabric)
    item, other = (fabric.find_server(name).hcas[0].name for name in fabric.servers)
    times = {
        engine.run(of, Traffic.make([slot(of, item)], [slot(of, other)], 100_000)).last_arrival_ps
        for engine in (FlowEngine(), PacketEngine())
        for of in (fabric, result)
    }
    assert len(times) <= 2  # one for each engine
    inside = Traffic.make(
        [slot(result, f"{result.servers[0]}/gpu0")], [slot(result, f"{result.servers[0]}/gpu3")], 1 << 20
    )
    flow, packet = (engine.run(result, inside).last_arrival_ps for engine in (FlowEngine(), PacketEngine()))
    assert packet == pytest.approx(flow, rel=0.05)


def test_geforce_below_a_pcie_switch_is_refused_by_engines(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("like: rtx-pro-6000-8\ngpu: RTX-4090\n")
    fabric = weft.load(f"star:hosts=2,server={own}")
    with pytest.raises(ConfigError, match=r"server1/gpu0 is a RTX-4090 below a PCIe switch: .* host memory"):
        join_nvlinks(fabric)


def test_gpus_of_one_server_with_no_way_between_them_are_named() -> None:
    fabric = weft.load("star:hosts=2,server=ovx-l40s")
    with pytest.raises(ConfigError, match="ovx2/gpu3 has neither NVLink nor PCIe"):
        join_nvlinks(faults.remove_link(fabric, "ovx2/gpu3/1"))
