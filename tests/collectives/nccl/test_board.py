"""Servers without NVSwitches: channels as in NCCL's own search, and their shared lanes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import weft
from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.band import band_of
from weft.collectives.nccl.board import board_of
from weft.collectives.nccl.cluster import Cluster, from_fabric, from_server
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.graphs import Graph, search
from weft.collectives.nccl.times import times
from weft.collectives.nccl.tuning import table
from weft.collectives.ranks import place
from weft.collectives.run import run_program
from weft.collectives.schedules.writers import program
from weft.errors import ConfigError
from weft.fabric import catalog, faults
from weft.fabric.nvlink import join_nvlinks
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.training.communication import Ideal
from weft.training.parallel import Layout

JUDGED = [
    line.split()
    for line in (Path(__file__).parent / "nccl_boards.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
MIB = 1 << 20


@pytest.mark.parametrize("line", JUDGED, ids=lambda line: f"{line[0]}-{line[1]}")
def test_channels_are_those_that_nccl_finds(line: list[str]) -> None:
    server, nodes, *figures = line
    result = search(from_server(server, nodes=int(nodes)))
    messages = [
        Graph(int(channels), float(intra), float(inter)) for channels, intra, inter in (figures[:3], figures[3:])
    ]
    assert [result.ring, result.tree] == messages


def test_over_pcie_there_is_no_ll128_no_nvls_and_steps_are_pcie_s() -> None:
    cards, board = (from_server(name, nodes=1) for name in ("rtx-pro-6000-8", "hgx-h100-4"))
    off = {row.name: row.off for row in table(cards, search(cards), Collective.ALL_REDUCE)}
    assert off["Ring/LL128"] == "GPUs joined by PCIe"
    assert off["NVLS/Simple"] == "no NVSwitch"
    on = {row.name: row.off for row in table(board, search(board), Collective.ALL_REDUCE)}
    assert on["Ring/LL128"] == ""
    assert on["NVLS/Simple"] == "no NVSwitch"
    slow, fast = (estimate(item, Collective.ALL_REDUCE, 8).parts["steps"] for item in (cards, board))
    assert slow / 14 > fast / 6  # out of 2(g-1) steps


@pytest.mark.parametrize(
    ("server", "gpus", "gbyte_s"),
    [
        ("rtx-pro-6000-8", 8, 22),  # between processors
        ("rtx-pro-6000-8", 4, 40),  # through one, Intel's: 6/5 of a slot's 48
        ("rtx-pro-6000-8", 2, 48),
        ("ovx-l40s", 4, 24),  # below one PCIe switch
        ("rtx-4090-8", 8, 16),
        ("mgx-h100-nvl", 2, 12 * 20.6),  # a bridge
    ],
)
def test_a_ring_has_what_its_slowest_lane_has(server: str, gpus: int, gbyte_s: float) -> None:
    item = replace(from_server(server, nodes=1), gpus=gpus)
    assert item.board is not None
    assert item.board.ring_gbyte_s(gpus, item.link_gbyte_s) == pytest.approx(gbyte_s)


@pytest.mark.parametrize("server", ["ovx-l40s", "rtx-pro-6000-8", "rtx-4090-8"])
def test_the_way_between_two_gpus_begins_in_the_slot_of_one_and_ends_in_that_of_the_other(server: str) -> None:
    template = catalog.server(server)
    gpus = range(template.gpus)
    ways = board_of(template, gpus, {}).ways
    up = [{ways[gpu][other][0][0] for other in gpus if other != gpu} for gpu in gpus]
    down = [{ways[other][gpu][-1][0] for other in gpus if other != gpu} for gpu in gpus]
    assert all(len(lanes) == 1 for lanes in up + down)
    assert len(set.union(*up, *down)) == 2 * template.gpus
    lengths = [[len(way) for way in row] for row in ways]
    assert lengths == [list(row) for row in zip(*lengths, strict=True)]


def test_cards_that_may_not_talk_below_their_switch_share_its_way_up(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("like: ovx-l40s\ngpu: RTX-4090\n")
    for server, gbyte_s in (("ovx-l40s", 24), (str(own), 48 / 4 / 1.2)):
        item = replace(from_server(server, nodes=1), gpus=4)
        assert item.board is not None
        assert item.board.ring_gbyte_s(4, 0) == pytest.approx(gbyte_s)


def test_all_to_all_is_bound_by_what_crosses_and_one_peer_by_its_pair() -> None:
    cards, board = (from_server(name, nodes=1) for name in ("ovx-l40s", "hgx-a100-4"))
    size = 1 << 30
    # Four of each GPU's eight parts cross to the other processor: 4 × 4/8 of the size over 22 GB/s.
    assert estimate(cards, Collective.ALL_TO_ALL, size).time_us == pytest.approx(size * 2 / 22e3, rel=0.01)
    assert estimate(cards, Collective.ALL_TO_ALL, size).bound == "PCIe"
    assert estimate(cards, Collective.SEND_RECV, size).time_us == pytest.approx(size / 22e3, rel=0.01)
    one_peer = estimate(board, Collective.SEND_RECV, size).bus_gbyte_s
    assert one_peer == pytest.approx(4 * 20 * times().pairs.nvlink, rel=0.01)
    data_us = estimate(board, Collective.ALL_TO_ALL, size).parts["data"]
    assert 3 / 4 * size / data_us / 1000 == pytest.approx(3 * one_peer, rel=0.01)


def test_over_pcie_nobody_goes_to_the_adapter_of_another_gpu() -> None:
    """No PXN: the PCIe slots carry what is for the own node, and what the adapters send."""
    size = 1 << 30
    four, two = (
        estimate(from_server(f"rtx-pro-6000-8+{rails}rails", nodes=2), Collective.ALL_TO_ALL, size) for rails in (4, 2)
    )
    inside_us = size * 7 / 16 / 9.625e3
    posted_us = size / 2 * 2 * 3 / 131_072  # two GPUs share an adapter, whose thread needs 3 us for a chunk
    assert four.time_us == pytest.approx(inside_us + posted_us, rel=0.02)
    assert two.time_us == pytest.approx(inside_us + 2 * posted_us, rel=0.02)
    for server, pxn in (("rtx-4090-8", False), ("mgx-h100-nvl", False), ("hgx-a100-4", True)):
        assert place(join_nvlinks(weft.load(f"star:hosts=2,server={server}"))).pxn is pxn


@pytest.mark.parametrize("server", ["rtx-pro-6000-8", "hgx-h100-4"])
def test_the_closed_form_is_near_what_the_engines_run(server: str) -> None:
    """A ring in one server, where only data counts. Of a mesh one ring in one direction has the links of a pair."""
    fabric = route(weft.load(f"star:hosts=2,server={server}"), RoutingOptions(adaptive=True)).fabric
    ranks = place(join_nvlinks(fabric), fabric.servers[:1])
    run = run_program(program("all_reduce", "ring", nodes=1, gpus=ranks.per_server), ranks, 256 * MIB)
    cluster = from_fabric(fabric, fabric.servers[:1])
    assert cluster.board is not None
    ring = cluster.board.ring_gbyte_s(cluster.gpus, cluster.link_gbyte_s)
    assert run.bus_gbyte_s == pytest.approx(ring, rel=0.06)


def test_groups_that_work_at_once_share_the_link_between_processors() -> None:
    cluster = from_server("rtx-pro-6000-8", nodes=1)
    whole, halves = (
        Ideal(cluster, Layout(gpus=8, global_batch=8, seq=2048, tp=tp)).time_s("dp", Collective.ALL_GATHER, 1 << 30)
        for tp in (1, 4)
    )
    # One ring of eight; or four of two, each of which crosses: half of the bytes over a quarter of the link.
    assert halves / whole == pytest.approx((1 / 2 * 4) / (7 / 8), rel=0.02)


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.ALL_GATHER])
def test_only_channels_between_servers_use_both_directions_of_the_link_between_processors(
    collective: Collective,
) -> None:
    """NCCL lays all channels of one server in one order; between servers they cross the processors each way in turn.

    So over PCIe a large broadcast takes longer in one server than over two, whose channels carry as many bytes.
    """
    data_us = [
        estimate(from_server("rtx-pro-6000-8", nodes=nodes), collective, 1 << 30).parts["data"] for nodes in (1, 2)
    ]
    factors = [collective.bus_factor(8 * nodes) for nodes in (1, 2)]
    gbyte_s = [factor * (1 << 30) / us / 1000 for factor, us in zip(factors, data_us, strict=True)]
    assert gbyte_s == pytest.approx([22, 44], rel=0.01)


def test_a_lost_nvlink_is_one_of_the_weakest_gpu() -> None:
    fabric = weft.load("star:hosts=2,server=hgx-a100-4")
    hurt = from_fabric(faults.remove_link(fabric, "hgx2/gpu0/1"))
    assert from_fabric(fabric).nvlink_gbyte_s == 12 * 20
    assert (hurt.nvlink_gbyte_s, hurt.pair_gbyte_s) == (11 * 20, 3 * 20)


def test_nccl_s_search_that_finds_nothing_takes_one_slow_channel_and_times_go_by_lanes(tmp_path: Path) -> None:
    """Blackwell's speeds end at 18 GB/s, and NCCL counts 16 between two EPYC."""
    own = tmp_path / "own.yaml"
    chip = "{model: EPYC, arch: x86_64, vendor: AuthenticAMD, family_id: 175, model_id: 17}"
    own.write_text(f"like: rtx-pro-6000-8\ncpu: {chip}\n")
    cluster = from_server(str(own), nodes=1)
    assert search(cluster).ring == Graph(1, 0.1, 0.1)
    result = estimate(cluster, Collective.ALL_REDUCE, 1 << 30, algorithm=Algorithm.RING, protocol=Protocol.SIMPLE)
    assert result.bus_gbyte_s == pytest.approx(16, rel=0.01)


def test_bands_are_wide_and_say_that_nobody_published_such_servers() -> None:
    recorded = band_of(estimate(from_server("dgx-h100", nodes=2), Collective.ALL_REDUCE, MIB))
    for server, nodes, name in (
        ("ovx-l40s", 2, "PCIe servers over InfiniBand"),
        ("hgx-a100-4", 1, "one server with NVLinks from GPU to GPU"),
    ):
        result = band_of(estimate(from_server(server, nodes=nodes), Collective.ALL_REDUCE, MIB))
        assert f"no published run of {name}" in result.far
        assert result.high > recorded.high


def test_pcie_that_nobody_described_still_wants_nccl_s_log() -> None:
    with pytest.raises(ConfigError, match=r"from_server\('ovx-l40s', nodes=1\)"):
        search(Cluster(sm=89, gpus=8, nodes=1, nvlinks=0))


def test_a_template_that_does_not_say_its_processor_has_one_of_its_time_and_says_so(tmp_path: Path) -> None:
    """The PCIe slots tell its generation: NCCL's slowest link between processors is not assumed."""
    whole = "gpu: RTX-PRO-6000\ngpus: 4\ncpus: 2\npcie: 16xPCIe5\nheight_u: 4\npower_w: 4000\n"
    whole += "compute: [mlx5_0]\ncompute_adapter: ConnectX-7\n"
    whole += "pcie_tree: {cpu0: [gpu0, gpu1, mlx5_0], cpu1: [gpu2, gpu3]}\n"
    chip = "cpu: {model: x, arch: x86_64, vendor: GenuineIntel, family_id: 6, model_id: 143}\n"
    (tmp_path / "silent.yaml").write_text(whole)
    (tmp_path / "said.yaml").write_text(whole + chip)
    silent, output = (
        estimate(from_server(str(tmp_path / name), nodes=1), Collective.ALL_REDUCE, 1 << 30)
        for name in ("silent.yaml", "said.yaml")
    )
    assert silent.time_us == output.time_us
    assert [why for why in silent.doubts if "does not say its processors" in why]
    assert not output.doubts
