"""Times of collectives: closed forms, and orders that hold for all constants."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.choose import choose
from weft.collectives.nccl.cluster import Cluster, Processor, from_server
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.estimate import PAIRWISE, Estimate, estimate
from weft.collectives.nccl.ideal import TcpNetwork, ideal_networks
from weft.collectives.nccl.measure import measure
from weft.collectives.nccl.network import Network, Networks, Pattern
from weft.collectives.nccl.pairs import channels_per_peer
from weft.collectives.nccl.refit import with_constant
from weft.collectives.nccl.times import times
from weft.collectives.ranks import place
from weft.errors import ConfigError, UnknownName
from weft.routing.route import route

SIZES = [1 << power for power in range(35)]
SERVERS = ("dgx-a100", "dgx-h100", "dgx-b200")


def network(step_us: float = 1.6, adapter_gbyte_s: float = 49.0) -> Networks:
    return dict.fromkeys(Pattern, Network(step_us=step_us, adapter_gbyte_s=adapter_gbyte_s))


def rows_that_are_on(cluster: Cluster, collective: Collective) -> list[tuple[Algorithm, Protocol]]:
    return [(row.algorithm, row.protocol) for row in choose(cluster, collective, 1).rows if not row.off]


@given(
    server=st.sampled_from(SERVERS),
    nodes=st.integers(1, 40),
    collective=st.sampled_from(Collective),
    size=st.integers(1, 1 << 34),
)
def test_parts_add_up_and_none_is_negative(server: str, nodes: int, collective: Collective, size: int):
    result = estimate(from_server(server, nodes=nodes), collective, size)
    assert result.time_us == pytest.approx(sum(result.parts.values()))
    assert min(result.parts.values()) >= 0
    assert result.bound in ("adapters", "NVLink", "channels", "proxies")
    assert (result.algorithm is None) == (collective in PAIRWISE)


@pytest.mark.parametrize("sharp", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 4, 9])
@pytest.mark.parametrize("server", SERVERS)
def test_more_bytes_never_take_less_time(server: str, nodes: int, sharp: bool):
    """The number of channels is fixed; NCCL's own choice of algorithm and channels may lose a little where it
    changes, and more where SHARP comes late: NCCL takes LL between nodes for faster than published runs show it."""
    cluster = from_server(server, nodes=nodes, sharp=sharp)
    for collective in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.BROADCAST):
        for algorithm, protocol in rows_that_are_on(cluster, collective):
            assert_rising(
                [
                    estimate(cluster, collective, size, algorithm=algorithm, protocol=protocol, channels=16)
                    for size in SIZES
                ]
            )
    for collective in Collective:
        assert_rising(
            [estimate(cluster, collective, size) for size in SIZES],
            loss=0.0 if collective in PAIRWISE else 0.35 if sharp else 0.06,
        )


def assert_rising(found: list[Estimate], loss: float = 0.0) -> None:
    for less, more in itertools.pairwise(found):
        assert more.time_us >= less.time_us * (1 - loss), f"{more.name} on {more.cluster}: {more.size_bytes}"


@pytest.mark.parametrize("size", [8, 1 << 20, 64 << 20, 1 << 30])
@pytest.mark.parametrize("algorithm", [Algorithm.RING, Algorithm.TREE, Algorithm.NVLS_TREE])
def test_more_nodes_never_take_less_time(algorithm: Algorithm, size: int):
    """NVLS trees have smaller chunks from four nodes on, so that three may be slower: powers of two are compared."""
    counts = (2, 4, 8, 16, 32) if algorithm == Algorithm.NVLS_TREE else range(2, 20)
    result = [
        estimate(
            from_server("dgx-h100", nodes=nodes),
            Collective.ALL_REDUCE,
            size,
            algorithm=algorithm,
            protocol=Protocol.SIMPLE,
            channels=16,
        ).time_us
        for nodes in counts
    ]
    assert result == sorted(result)


@given(
    nodes=st.integers(2, 64),
    size=st.sampled_from(SIZES),
    collective=st.sampled_from([Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER]),
)
def test_no_more_leaves_a_node_than_its_adapters_carry(nodes: int, size: int, collective: Collective):
    """A ring sends the bus bandwidth out of every node; two nodes' tree sends all bytes once, more nodes' twice."""
    cluster = from_server("dgx-h100", nodes=nodes)
    all_gbyte_s = 8 * 49.06
    for algorithm, protocol in rows_that_are_on(cluster, collective):
        result = estimate(cluster, collective, size, algorithm=algorithm, protocol=protocol)
        leaving = result.bus_gbyte_s
        if algorithm != Algorithm.RING:
            leaving = result.algo_gbyte_s * (1 if nodes == 2 else 2)
        assert leaving <= all_gbyte_s, result.name


@pytest.mark.parametrize("nodes", [2, 8])
@pytest.mark.parametrize("collective", [one for one in Collective if one != Collective.BARRIER])
def test_one_gpu_in_a_server_has_its_adapters_rate_and_latency(nodes: int, collective: Collective):
    """No more than perftest has of the line, and near it at the end; no less than a small message takes."""
    cluster = Cluster(sm=90, gpus=1, nodes=nodes, nics=1, nic_gbit_s=400)
    result = ideal_networks(cluster)[Pattern.RING]
    pairs = collective in PAIRWISE
    for algorithm, protocol in [(None, None)] if pairs else rows_that_are_on(cluster, collective):
        small, large = (
            estimate(cluster, collective, size, algorithm=algorithm, protocol=protocol) for size in (8 * nodes, 8 << 30)
        )
        assert small.time_us > result.step_us
        assert large.bus_gbyte_s < result.adapter_gbyte_s
        if algorithm in (None, Algorithm.RING) and protocol != Protocol.LL:
            assert large.bus_gbyte_s > 0.8 * result.adapter_gbyte_s


def test_nvlink_bounds_a_node():
    result = estimate(from_server("dgx-h100", nodes=1, nvls=False), Collective.ALL_REDUCE, 16 << 30)
    assert result.bound == "NVLink"
    assert 350 < result.bus_gbyte_s < 371


@pytest.mark.parametrize("nodes", [2, 3, 4, 16])
@pytest.mark.parametrize(("nic_gbit_s", "bound"), [(100, "adapters"), (400, "proxies")])
def test_all_to_all_has_n_over_n_minus_1_of_a_gpus_network(nodes: int, nic_gbit_s: float, bound: str):
    """An author of NCCL in nccl-tests issue 130; exactly, of g GPUs in a node, (g n - 1) / (g (n - 1))."""
    cluster = Cluster(sm=90, gpus=8, nodes=nodes, nics=8, nic_gbit_s=nic_gbit_s)
    each = nic_gbit_s / 8 * 0.985
    proxy = times().pairs.chunk_bytes / 3 / 1000  # three posts of 1 us for each chunk
    result = estimate(cluster, Collective.ALL_TO_ALL, 64 << 30, networks=network(adapter_gbyte_s=nic_gbit_s / 8))
    assert result.bound == bound
    assert result.bus_gbyte_s == pytest.approx(nodes / (nodes - 1) * min(each, proxy), rel=0.07)
    assert result.bus_gbyte_s == pytest.approx((8 * nodes - 1) / (8 * (nodes - 1)) * min(each, proxy), rel=0.002)


def test_a_longer_network_step_counts_as_often_as_data_crosses():
    """Data cross the network twice around a ring of two nodes, from behind a node's first GPU; up and down a tree of
    eight nodes, six times."""
    ring, tree = (from_server("dgx-h100", nodes=nodes) for nodes in (2, 8))
    for cluster, collective, algorithm, crossings in (
        (ring, Collective.ALL_GATHER, Algorithm.RING, 2),
        (tree, Collective.ALL_REDUCE, Algorithm.TREE, 6),
    ):
        near, far = (
            estimate(cluster, collective, 8, algorithm=algorithm, protocol=Protocol.LL, networks=network(step_us))
            for step_us in (1.6, 11.6)
        )
        assert far.time_us - near.time_us == pytest.approx(10 * crossings)


def test_nccls_latencies_are_unchanged_on_the_network_that_they_hold_for():
    """But for the start of LL and its steps over NVLink, which depend on the generation."""
    cluster, hopper = from_server("dgx-h100", nodes=2), times().of_sm(90)
    result = estimate(cluster, Collective.ALL_REDUCE, 8, networks=network(times().network.reference_step_us))
    row, latency = choose(cluster, Collective.ALL_REDUCE, 8).row, constants().latency_us
    start_us = hopper.ll_launch_us - latency.base[Algorithm.TREE][0]
    inside_us = 2 * 7 * latency.nvlink[Algorithm.TREE][0] * (hopper.ll_hop - 1)
    assert result.parts["launch"] + result.parts["steps"] == pytest.approx(row.latency_us + start_us + inside_us)


@pytest.mark.parametrize(("collective", "steps"), [(Collective.ALL_GATHER, 1), (Collective.ALL_REDUCE, 2)])
def test_a_ring_in_a_server_copies_its_own_part_while_nvlink_is_idle(collective, steps):
    """Each of two GPUs sends one part and copies one; each of eight copies one for seven or fourteen that it sends."""
    for gpus in (2, 8):
        cluster, size = Cluster(sm=90, gpus=gpus, nodes=1), 8 << 30
        ring = estimate(cluster, collective, size, algorithm=Algorithm.RING, protocol=Protocol.SIMPLE)
        block_gbyte_s = max(constants().of_sm(90).tree_channel_gbyte_s)
        local_us = size / gpus / (ring.channels * block_gbyte_s) / 1000
        last_us = (1 << 20) / block_gbyte_s / 1000  # a slice, half of a chunk, leaves the buffer last
        assert ring.parts["pipeline"] == pytest.approx(local_us + last_us)
        line_us = steps * (gpus - 1) / gpus * size / cluster.nvlink_gbyte_s / 1000
        assert ring.parts["data"] == pytest.approx(line_us / times().bandwidth.nvlink)


def test_an_all_to_all_in_a_server_copies_the_part_of_its_own_gpu():
    """Half of the bytes with two GPUs, an eighth with eight; thread blocks copy it, and the last chunk of a peer."""
    for gpus in (2, 8):
        size = 8 << 30
        pairs = estimate(Cluster(sm=90, gpus=gpus, nodes=1), Collective.ALL_TO_ALL, size)
        block_gbyte_s = max(constants().of_sm(90).tree_channel_gbyte_s)
        own_us = size / gpus / pairs.channels / block_gbyte_s / 1000
        assert pairs.parts["pipeline"] == pytest.approx(own_us + times().chunk["ring"].most / block_gbyte_s / 1000)


def test_rings_with_ll_start_later_than_trees_on_ampere():
    ampere = times().of_sm(80)
    assert (ampere.ll_launch_us, ampere.ll_hop) > (ampere.tree_ll_launch_us, ampere.tree_ll_hop)
    ring = estimate(Cluster(sm=80, gpus=8, nodes=1), Collective.ALL_GATHER, 8)
    assert ring.parts["launch"] == ampere.ll_launch_us
    tree = estimate(from_server("dgx-a100", nodes=2), Collective.ALL_REDUCE, 8, algorithm=Algorithm.TREE)
    assert tree.parts["launch"] == ampere.tree_ll_launch_us


def test_a_step_of_a_ring_waits_longer_on_ampere_and_one_of_a_line_does_not():
    for collective, ratio in ((Collective.ALL_REDUCE, times().of_sm(80).ring_hop), (Collective.BROADCAST, 1.0)):
        ampere, hopper = (
            estimate(Cluster(sm=sm, gpus=8, nodes=1), collective, 8, algorithm=Algorithm.RING, protocol=Protocol.SIMPLE)
            for sm in (80, 90)
        )
        assert ampere.parts["steps"] == pytest.approx(ratio * hopper.parts["steps"])


def test_amd_posts_to_adapters_slower_but_not_to_the_kernel():
    intel, amd = (
        Cluster(sm=80, gpus=8, nodes=2, nics=1, nic_gbit_s=200, processor=item)
        for item in (Processor.INTEL, Processor.AMD)
    )
    kernel = dict.fromkeys(Pattern, TcpNetwork(step_us=35.0, adapter_gbyte_s=1.7))
    for networks, times_slower in ((network(), 2), (kernel, 1)):
        slow, fast = (
            estimate(item, Collective.ALL_REDUCE, 8, networks=networks, algorithm=Algorithm.TREE).parts["steps"]
            for item in (amd, intel)
        )
        inside_us = 2 * 7 * 0.6 * times().of_sm(80).tree_ll_hop
        assert slow - inside_us == pytest.approx(times_slower * (fast - inside_us), rel=0.01)


@pytest.mark.parametrize("protocol", [Protocol.LL128, Protocol.SIMPLE])
def test_more_channels_help_a_ring_until_the_adapters_are_full(protocol: Protocol):
    cluster = from_server("dgx-h100", nodes=4)
    few, some, every, more = (
        estimate(
            cluster, Collective.ALL_REDUCE, 8 << 30, algorithm=Algorithm.RING, protocol=protocol, channels=channels
        )
        for channels in (2, 4, 24, 48)
    )
    assert (few.bound, some.bound, every.bound, more.bound) == ("channels", "channels", "adapters", "adapters")
    assert few.parts["data"] == pytest.approx(2 * some.parts["data"])
    assert every.time_us == more.time_us


def test_a_ring_between_nodes_passes_on_half_of_what_a_channel_takes_and_gives():
    """16 channels of half of 41.4 GB/s do not fill eight adapters of 400 Gb/s; 24 do, and 16 fill those of 200 Gb/s."""

    def ring(server: str, channels: int | None = None):
        cluster = from_server(server, nodes=4)
        return estimate(cluster, Collective.ALL_REDUCE, 16 << 30, algorithm=Algorithm.RING, channels=channels)

    result = ring("dgx-h100")
    assert (result.channels, result.bound) == (16, "channels")
    assert result.bus_gbyte_s == pytest.approx(16 * 41.4 / 2, rel=0.02)
    more = ring("dgx-h100", channels=24)
    assert more.bound == "adapters"
    assert more.bus_gbyte_s == pytest.approx(8 * 49.0 * times().bandwidth.adapter, rel=0.02)
    older = ring("dgx-a100")
    assert older.bus_gbyte_s == pytest.approx(16 * 24 / 2, rel=0.02)


def test_a_tree_between_nodes_waits_for_chunks_that_its_gpus_pass_on():
    """A chunk goes through seven GPUs up and down, at half of what a channel takes and gives."""
    cluster = from_server("dgx-h100", nodes=2)
    size_bytes = 16 * (512 << 10)  # a chunk for each channel
    tree = {"algorithm": Algorithm.TREE, "protocol": Protocol.SIMPLE, "channels": 16}
    faster = with_constant(times(), "bandwidth.relay", 1.0)
    slow, fast = (
        estimate(cluster, Collective.ALL_REDUCE, size_bytes, fitted=fitted, **tree) for fitted in (times(), faster)
    )
    assert slow.time_us - fast.time_us == pytest.approx(14 * (512 << 10) / 41.4 / 1000)


@pytest.mark.parametrize("nodes", [1, 2])
def test_ll_starts_later_on_several_channels(nodes):
    """From one thread block to more a kernel starts a fifth later, whatever the number of nodes."""
    cluster = from_server("dgx-h100", nodes=nodes)
    ring = {"algorithm": Algorithm.RING, "protocol": Protocol.LL}
    one, two, eight = (
        estimate(cluster, Collective.ALL_GATHER, 1 << 20, channels=channels, **ring).parts["launch"]
        for channels in (1, 2, 8)
    )
    assert two == eight == pytest.approx(1.2 * one)


def test_a_tree_is_no_faster_than_nvlink():
    """Seven hops of eight GPUs, up and down: a GPU sends 7/4 of all bytes."""
    result = estimate(
        from_server("dgx-h100", nodes=2),
        Collective.ALL_REDUCE,
        8 << 30,
        algorithm=Algorithm.TREE,
        protocol=Protocol.SIMPLE,
        channels=64,
    )
    assert result.bound == "NVLink"
    nvlink_gbyte_s = 18 * 20.6 * times().bandwidth.nvlink
    assert result.size_bytes / result.parts["data"] / 1000 == pytest.approx(nvlink_gbyte_s / (7 / 4))


def test_a_tree_of_single_gpus_uses_all_channels():
    cluster = Cluster(sm=80, gpus=1, nodes=8, nics=1, nic_gbit_s=200)
    item, four = (
        estimate(
            cluster,
            Collective.ALL_REDUCE,
            1 << 30,
            algorithm=Algorithm.TREE,
            protocol=Protocol.SIMPLE,
            channels=channels,
        )
        for channels in (1, 4)
    )
    assert (item.bound, four.bound) == ("channels", "adapters")


def test_waits_hide_where_the_adapters_are_slower():
    """Eight nodes: what an NVLS tree takes for more data is what its adapters take, up and down."""
    cluster = from_server("dgx-h100", nodes=8)
    less, more = (
        estimate(cluster, Collective.ALL_REDUCE, size, algorithm=Algorithm.NVLS_TREE) for size in (4 << 30, 8 << 30)
    )
    adapters_gbyte_s = 8 * ideal_networks(cluster)[Pattern.TREE].adapter_gbyte_s * times().bandwidth.adapter
    assert (4 << 30) / (more.time_us - less.time_us) / 1000 == pytest.approx(adapters_gbyte_s / 2)


def test_nvls_has_the_bus_bandwidth_of_eight_gpus_in_a_rack():
    result = {
        gpus: estimate(
            Cluster(sm=100, gpus=gpus, nodes=1), Collective.ALL_REDUCE, 64 << 30, algorithm=Algorithm.NVLS
        ).bus_gbyte_s
        for gpus in (4, 8, 72)
    }
    assert result[4] < 0.8 * result[8]
    assert result[72] == pytest.approx(result[8], rel=0.1)


def test_ll_of_little_data_is_as_slow_as_the_few_channels_that_carry_it():
    cluster = from_server("dgx-h100", nodes=1)
    small, large = (estimate(cluster, Collective.ALL_REDUCE, size, protocol=Protocol.LL) for size in (8, 32 << 10))
    assert small.channels == large.channels == 1
    assert large.time_us > small.time_us + 4


@pytest.mark.parametrize("collective", [Collective.SEND_RECV, Collective.GATHER, Collective.SCATTER])
@pytest.mark.parametrize(("processor", "chunk_us"), [(Processor.INTEL, 3.0), (Processor.AMD, 6.0)])
def test_one_pair_is_as_slow_as_the_proxy_that_posts_its_chunks(
    collective: Collective, processor: Processor, chunk_us: float
):
    """A send, a receive and a flush for every 128 KiB."""
    cluster = replace(from_server("dgx-h100", nodes=2), processor=processor)
    result = estimate(cluster, collective, 8 << 30)
    assert result.bound == "proxies"
    away = 1.0 if collective == Collective.SEND_RECV else 8 / 16
    assert result.size_bytes * away / result.parts["data"] == pytest.approx(times().pairs.chunk_bytes / chunk_us)
    assert estimate(cluster, collective, 8 << 30, chunk_bytes=512 << 10).bound == "adapters"


def test_a_pair_has_the_channels_that_nccl_gives_it():
    """Since 2.29 channels follow the bandwidth, 14 Gbyte/s each, as many as serve all peers in one round; before, at
    most two.
    """
    result = {
        (nodes, version): channels_per_peer(replace(from_server("dgx-h100", nodes=nodes), nccl=version), 16)
        for nodes in (2, 4, 8, 64)
        for version in ("", "2.28", "2.19")
    }
    assert [result[nodes, ""] for nodes in (2, 4, 8, 64)] == [4, 4, 2, 1]
    assert [result[nodes, "2.28"] for nodes in (2, 4, 8, 64)] == [2, 2, 1, 1]
    assert [result[nodes, "2.19"] for nodes in (2, 4, 8, 64)] == [2, 2, 2, 2]
    many = estimate(from_server("dgx-h100", nodes=64), Collective.SEND_RECV, 8 << 30)
    assert (many.bound, many.bus_gbyte_s) == ("channels", pytest.approx(14, rel=0.01))


@pytest.mark.parametrize("nodes", [1, 2])
def test_fewer_channels_slow_pairs(nodes: int):
    cluster = from_server("dgx-h100", nodes=nodes)
    for collective in (Collective.ALL_TO_ALL, Collective.SEND_RECV):
        item, all_of_them = (estimate(cluster, collective, 1 << 30, channels=channels) for channels in (1, None))
        assert (item.bound, item.channels) == ("channels", 1)
        assert item.time_us > 1.5 * all_of_them.time_us
        assert all_of_them.channels == (32 if nodes == 1 else 16)


def test_a_chunk_waits_for_every_gpu_in_turn_and_longer_on_blackwell():
    """Two sizes with chunks of 128 KiB: what a round takes beyond its data."""
    waits_us = {}
    for sm, gpus in ((90, 4), (90, 8), (100, 8)):
        cluster, chunk_bytes = Cluster(sm=sm, gpus=gpus, nodes=1), times().chunk["nvls"].most
        lanes = gpus * estimate(cluster, Collective.ALL_REDUCE, 1 << 35, algorithm=Algorithm.NVLS).channels
        less, more = (
            estimate(cluster, Collective.ALL_REDUCE, rounds * lanes * chunk_bytes, algorithm=Algorithm.NVLS)
            for rounds in (100, 200)
        )
        waits_us[sm, gpus] = (more.parts["pipeline"] - less.parts["pipeline"]) / 100
    assert waits_us[90, 8] == pytest.approx(times().pipeline.meeting_us)
    assert waits_us[90, 4] == pytest.approx(waits_us[90, 8] / 2)
    assert waits_us[100, 8] == pytest.approx(waits_us[90, 8] * times().pipeline.blackwell_hop)


def test_a_round_that_is_not_full_waits_as_a_full_one():
    """A chunk of 64 KiB on each of 24 channels for eight GPUs is 12 MiB: 128 MiB are ten rounds and a part."""
    wait_us = times().pipeline.meeting_us * times().pipeline.blackwell_hop
    full, partly = (
        estimate(Cluster(sm=100, gpus=8, nodes=1), Collective.ALL_REDUCE, size << 20, algorithm=Algorithm.NVLS)
        for size in (120, 128)
    )
    assert partly.parts["pipeline"] - full.parts["pipeline"] == pytest.approx(wait_us)


def ring_us(ranks: int, steps: int, step_us: float, chunk_us: float) -> float:
    """Return the time of a ring through two nodes: a chunk takes no time inside, and a step and its data between."""
    arrived = [0.0] * ranks  # of the chunk that a rank passes on next
    free = [0.0] * ranks
    for _ in range(steps):
        sent = list(arrived)
        for rank in range(ranks):
            crosses = rank % (ranks // 2) == ranks // 2 - 1
            start = max(sent[rank], free[rank])
            free[rank] = start + chunk_us * crosses
            arrived[(rank + 1) % ranks] = free[rank] + step_us * crosses
    return max(arrived)


@pytest.mark.parametrize(("collective", "steps"), [(Collective.ALL_GATHER, 15), (Collective.ALL_REDUCE, 30)])
@pytest.mark.parametrize("size", [1 << 20, 16 << 20, 64 << 20, 128 << 20, 1 << 30])
def test_long_steps_of_a_ring_hide_behind_the_chunks_of_other_gpus(collective: Collective, steps: int, size: int):
    """GPUDirect-TCPX on two servers beside a ring that is run step by step."""
    cluster = Cluster(sm=90, gpus=8, nics=4, nic_gbit_s=200, nodes=2)
    networks = ideal_networks(cluster, network="roce", transport="tcpx", cloud=True)
    nothing, result = (
        estimate(cluster, collective, each, networks=networks, algorithm=Algorithm.RING) for each in (1, size)
    )
    step_us = times().plugin["tcpx"].step_us
    short_us = nothing.time_us - -(-steps // 8) * step_us
    expected_us = short_us + ring_us(16, steps, step_us, result.parts["data"] / steps)
    assert result.time_us == pytest.approx(expected_us, rel=0.03)


def test_a_step_over_nvlink_is_longer_on_blackwell():
    hopper, blackwell = (
        estimate(Cluster(sm=sm, gpus=8, nodes=1), Collective.ALL_REDUCE, 8, algorithm=Algorithm.RING).parts["steps"]
        for sm in (90, 100)
    )
    assert blackwell == pytest.approx(times().pipeline.blackwell_hop * hopper)


@pytest.mark.parametrize(("sm", "protocol", "longer_us"), [(80, "ll", 5.0), (90, "ll", 1.0), (90, "simple", 3.0)])
def test_posts_of_amds_processors_are_longer(sm: int, protocol: str, longer_us: float):
    """Up and down a tree of two nodes: with Ampere each step is twice as long, later each post 1 us; and it is said."""
    intel, amd = (
        estimate(
            Cluster(sm=sm, gpus=8, nodes=2, nics=8, nic_gbit_s=200, processor=processor),
            Collective.ALL_REDUCE,
            8,
            algorithm=Algorithm.TREE,
            protocol=Protocol(protocol),
        )
        for processor in (Processor.INTEL, Processor.AMD)
    )
    assert amd.parts["steps"] - intel.parts["steps"] == pytest.approx(2 * longer_us)
    assert "in doubt: AMD" in amd.explain()
    assert not intel.doubts


def test_a_processor_relays_ll_flag_by_flag():
    """4 KiB through one of 16 channels, of which NCCL says 39 Gbyte/s together, at both crossings of two nodes."""
    cluster = from_server("dgx-h100", nodes=2)
    result = estimate(cluster, Collective.ALL_REDUCE, 4096, algorithm=Algorithm.TREE, protocol=Protocol.LL)
    assert result.channels == 1
    assert result.parts["pipeline"] == pytest.approx(2 * 4096 * 16 / 39_000, abs=0.1)


def test_plugins_set_steps_chunks_and_protocols():
    """EFA's step is what its plugin's tuner says, 20 us, and TCPXO's that of TCP; EFA with A100s is Simple only."""
    cluster = from_server("dgx-h100", nodes=2)
    result = {
        name: ideal_networks(cluster, network="roce", transport=name, cloud=True) for name in ("", "srd", "tcpxo")
    }
    steps = {name: networks[Pattern.RING].step_us for name, networks in result.items()}
    assert steps == {
        "": pytest.approx(18, abs=0.3),
        "srd": pytest.approx(20, abs=0.3),
        "tcpxo": pytest.approx(35, abs=0.5),
    }
    own, efa = (
        estimate(cluster, Collective.ALL_REDUCE, 16 << 30, networks=result[name], algorithm=Algorithm.NVLS_TREE)
        for name in ("", "srd")
    )
    assert efa.parts["pipeline"] < own.parts["pipeline"] / 2
    assert (efa.transport, own.transport) == ("srd", "")
    assert estimate(cluster, Collective.SEND_RECV, 1 << 30, networks=result["srd"]).bound == "adapters"
    old = from_server("dgx-a100", nodes=2)
    networks = ideal_networks(old, network="roce", transport="srd")
    for collective in (Collective.ALL_REDUCE, Collective.ALL_TO_ALL):
        assert estimate(old, collective, 8, networks=networks).protocol == Protocol.SIMPLE
        assert estimate(cluster, collective, 8, networks=result["srd"]).protocol == Protocol.LL
    with pytest.raises(UnknownName, match="srd"):
        ideal_networks(cluster, network="roce", transport="sdr")


@pytest.mark.parametrize("collective", [Collective.SEND_RECV, Collective.ALL_TO_ALL])
def test_a_receiver_fetches_messages_that_are_too_long_to_be_sent_at_once(collective: Collective):
    """The request and the data cross the network once more each."""
    cluster = from_server("dgx-h100", nodes=2)
    efa = ideal_networks(cluster, network="roce", transport="srd")[Pattern.PAIRS]
    at_once, fetched = (
        estimate(cluster, collective, 1 << 20, networks={Pattern.PAIRS: replace(efa, eager_bytes=most)})
        for most in (1 << 30, 0)
    )
    assert fetched.parts["steps"] - at_once.parts["steps"] == pytest.approx(2 * efa.step_us)


@pytest.mark.parametrize("algorithm", [Algorithm.RING, Algorithm.TREE])
def test_flags_take_their_share_of_slow_adapters(algorithm: Algorithm):
    """LL sends four bytes of flag with four of data, LL128 eight with 120."""
    found = {
        protocol: estimate(
            from_server("dgx-h100", nodes=2),
            Collective.ALL_REDUCE,
            1 << 30,
            networks=network(adapter_gbyte_s=0.5),
            algorithm=algorithm,
            protocol=protocol,
        )
        for protocol in Protocol
    }
    assert {result.bound for result in found.values()} == {"adapters"}
    data_us = {protocol: result.parts["data"] for protocol, result in found.items()}
    assert data_us[Protocol.LL] == pytest.approx(2 * data_us[Protocol.SIMPLE])
    assert data_us[Protocol.LL128] == pytest.approx(128 / 120 * data_us[Protocol.SIMPLE])


def test_a_slower_network_slows_what_it_carries():
    cluster = from_server("dgx-h100", nodes=4)
    for collective in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.ALL_TO_ALL, Collective.SEND_RECV):
        fast, slow = (
            estimate(cluster, collective, 1 << 30, networks=network(adapter_gbyte_s=rate)) for rate in (49.0, 5.0)
        )
        assert slow.bound == "adapters"
        assert slow.time_us > 2 * fast.time_us


def test_tcp_is_as_slow_as_the_threads_that_copy():
    cluster = from_server("dgx-h100", nodes=2)
    result = ideal_networks(cluster, network="tcp")[Pattern.RING]
    assert result.adapter_gbyte_s == pytest.approx(2 * 15 / 8 / 2)  # two connections, a thread for both directions
    assert result.step_us > 30


def test_a_network_without_flaws_is_what_the_engine_measures():
    ideal = ideal_networks(Cluster(sm=90, gpus=1, nodes=2, nics=1, nic_gbit_s=400))[Pattern.RING]
    result = measure(place(route(weft.load("star:hosts=2")).fabric), patterns=[Pattern.RING]).networks[Pattern.RING]
    assert ideal.adapter_gbyte_s == pytest.approx(result.adapter_gbyte_s, rel=0.01)
    assert ideal.step_us == pytest.approx(result.step_us, rel=0.1)
    assert ideal.step_us == pytest.approx(times().network.reference_step_us, rel=0.1)


def test_the_cloud_costs_on_ethernet_only():
    cluster = from_server("dgx-h100", nodes=2)
    for kind, more_us in (("infiniband", 0.0), ("roce", times().network.cloud_ethernet_us)):
        bare, cloud = (
            ideal_networks(cluster, network=kind, cloud=item)[Pattern.TREE].step_us for item in (False, True)
        )
        assert cloud - bare == pytest.approx(more_us)


def test_chunks_are_nccls():
    """calcCollChunking: NVLS on 16 channels and 8 heads; a tree of 8 nodes with LL128, 512 KiB to a channel."""
    nvls = times().chunk["nvls"]
    result = [nvls.of(size << 20, 128) for size in (4, 8, 63, 64, 1023, 1024)]
    assert result == [16_384, 32_768, 32_768, 65_536, 65_536, 131_072]
    assert times().chunk["tree-ll128"].of(8 << 20, 16, (1 + 3 + 0.8) / 8) == 36_000


def test_a_barrier_is_an_all_reduce_of_one_number():
    cluster = from_server("dgx-h100", nodes=2)
    barrier = estimate(cluster, Collective.BARRIER, 0)
    assert barrier.time_us == estimate(cluster, Collective.ALL_REDUCE, 4).time_us
    assert barrier.bus_gbyte_s == 0


def test_an_algorithm_that_is_off_names_those_that_are_on():
    with pytest.raises(ConfigError, match=r"NVLSTree is off .* on are Tree/LL, .*Ring/Simple"):
        estimate(from_server("dgx-a100", nodes=2), Collective.ALL_REDUCE, 8, algorithm=Algorithm.NVLS_TREE)
    with pytest.raises(ConfigError, match=r"all_to_all is sends between pairs.* no Ring"):
        estimate(from_server("dgx-a100", nodes=2), Collective.ALL_TO_ALL, 8, algorithm=Algorithm.RING)


def test_unknown_case_is_refused():
    cluster = from_server("dgx-h100", nodes=2)
    with pytest.raises(ConfigError, match="needs ring"):
        estimate(cluster, Collective.ALL_GATHER, 8, networks={Pattern.TREE: network()[Pattern.TREE]})
    with pytest.raises(ConfigError, match="the least is 1"):
        estimate(cluster, Collective.ALL_GATHER, 0)
    with pytest.raises(ConfigError, match="two nodes or more"):
        ideal_networks(from_server("dgx-h100", nodes=1))
    with pytest.raises(UnknownName, match="did you mean"):
        ideal_networks(cluster, network="infinband")


def test_explanations_say_what_limits():
    text = estimate(from_server("dgx-h100", nodes=8), Collective.ALL_REDUCE, 8 << 30).explain()
    assert "Ring/Simple on 16 channels" in text
    assert "bound by channels" in text
