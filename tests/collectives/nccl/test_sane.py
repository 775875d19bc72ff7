"""Properties of every prediction on every cluster, which sweeps over the catalog found violated once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import isfinite

import pytest

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.band import band_of
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.graphs import search
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.network import Networks
from weft.collectives.nccl.tuning import table
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.units import gbyte_s

MIB = 1 << 20
SERVERS = {from_server(one.name, nodes=2): one.name for one in catalog.servers() if one.gpus}.values()  # unlike others
RAIL = "ReduceScatter_RailA2A_LsaLD"


def slower(networks: Networks, *, step_us: float = 0.0, rate: float = 1.0) -> Networks:
    return {
        pattern: replace(item, step_us=item.step_us + step_us, adapter_gbyte_s=item.adapter_gbyte_s * rate)
        for pattern, item in networks.items()
    }


@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
def test_a_slow_wire_counts_once_in_a_line(collective: Collective, protocol: Protocol) -> None:
    """Calls follow each other, so that chunks are on all wires at once."""
    cluster = from_server("dgx-a100", nodes=8)
    networks = ideal_networks(cluster)
    requests = {"algorithm": Algorithm.RING, "protocol": protocol, "channels": 16}
    tenth, twentieth = (
        estimate(cluster, collective, 8 * MIB, networks=slower(networks, rate=rate), **requests) for rate in (0.1, 0.05)
    )
    assert tenth.bound == twentieth.bound == "adapters"
    assert twentieth.time_us - tenth.time_us == pytest.approx(tenth.parts["data"], rel=1e-6)


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
@pytest.mark.parametrize("server", ["dgx-a100", "dgx-h100", "dgx-b200"])
def test_a_line_in_one_server_is_not_slower_than_over_two(server: str, collective: Collective) -> None:
    """But where NVLink is the limit: over two servers an eighth of a GPU's chunks leaves through an adapter instead."""
    for shift in range(10, 31):
        item, two = (estimate(from_server(server, nodes=nodes), collective, 1 << shift) for nodes in (1, 2))
        assert item.time_us <= two.time_us * (8 / 7 if item.bound == "NVLink" and shift >= 28 else 1), 1 << shift


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 2), (1, 8), (8, 1), (8, 2), (8, 8)])
def test_twice_the_bytes_take_at_most_twice_the_time_with_the_same_protocol(gpus: int, nodes: int) -> None:
    cluster = Cluster(sm=90, gpus=gpus, nodes=nodes, nics=gpus, nic_gbit_s=400)
    graphs = search(cluster)
    for collective in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.BROADCAST, Collective.REDUCE):
        for row in (row for row in table(cluster, graphs, collective) if not row.off):
            requests = {"algorithm": row.algorithm, "protocol": row.protocol, "graphs": graphs}
            times_us = [estimate(cluster, collective, 1 << shift, **requests).time_us for shift in range(10, 31)]
            assert all(after <= 2.001 * before for before, after in pairwise(times_us)), row.name


@pytest.mark.parametrize("collective", [Collective.ALL_GATHER, Collective.REDUCE_SCATTER])
def test_each_level_of_pat_waits_for_all_that_a_network_takes_more(collective: Collective) -> None:
    cluster = Cluster(sm=90, gpus=1, nodes=16, nics=1, nic_gbit_s=200)
    networks = ideal_networks(cluster)
    far, near = (
        estimate(cluster, collective, MIB, networks=item, algorithm=Algorithm.PAT).time_us
        for item in (slower(networks, step_us=30), networks)
    )
    assert far - near == pytest.approx(4 * 30)


@pytest.mark.parametrize("nodes", [1, 2, 64])
@pytest.mark.parametrize("server", SERVERS)
def test_no_time_is_endless_falls_or_beats_the_wires(server: str, nodes: int) -> None:
    """Within one algorithm, protocol and number of channels. An all_reduce between two nodes may send once each way."""
    cluster = from_server(server, nodes=nodes)
    wires_gbyte_s = cluster.nics * gbyte_s(cluster.nic_gbit_s) * nodes / max(1, nodes - 1)
    for collective in (item for item in Collective if item.nccl):
        before = None
        for size_bytes in (8, 8 << 10, MIB, 2 * MIB, 64 * MIB, 1 << 30, 16 << 30):
            result = estimate(cluster, collective, size_bytes)
            band, about = band_of(result), f"{collective} of {size_bytes} bytes: {result}"
            assert all(isfinite(us) and us >= 0 for us in result.parts.values()), about
            assert 0 < band.low < 1 < band.high, about
            if nodes > 1 and collective != Collective.ALL_REDUCE:
                assert result.bus_gbyte_s < wires_gbyte_s, about
            if before is not None and (before.name, before.channels) == (result.name, result.channels):
                assert result.time_us > before.time_us, about
            before = result


def test_adding_in_the_switches_gains_nothing_from_more_than_eight_gpus_with_windows_either() -> None:
    eight, rack = (
        estimate(replace(from_server("gb200-nvl72", nodes=1), gpus=gpus, windows=True), Collective.ALL_REDUCE, 16 << 30)
        for gpus in (8, 72)
    )
    assert eight.kernel == rack.kernel == "AllReduce_RSxLDMC_AGxSTMC"
    assert rack.bus_gbyte_s == pytest.approx(eight.bus_gbyte_s, rel=0.01)


def test_symmetric_kernels_between_nodes_are_for_adapters_that_gpus_talk_to() -> None:
    cluster = replace(from_server("rtx-4090-8", nodes=4), gpus=1, board=None, windows=True)
    assert estimate(cluster, Collective.REDUCE_SCATTER, MIB).kernel == RAIL
    assert isfinite(estimate(cluster, Collective.REDUCE_SCATTER, MIB).time_us)
    over_tcp = ideal_networks(cluster, network="tcp")
    assert not estimate(cluster, Collective.REDUCE_SCATTER, MIB, networks=over_tcp).kernel
    with pytest.raises(ConfigError, match=f"NCCL_SYM_KERNEL={RAIL}.*adapters over TCP"):
        estimate(replace(cluster, sym_kernel=RAIL), Collective.REDUCE_SCATTER, MIB, networks=over_tcp)


def test_a_thread_reads_the_flags_of_a_ring_once() -> None:
    """A thread relays LL data as it reads them: in a ring where every step crosses nodes, this is the whole time
    of the data. NCCL's figure is that of the eight threads of a node with eight GPUs.
    """
    cluster = Cluster(sm=90, gpus=1, nodes=2, nics=1, nic_gbit_s=400)
    requests = {"algorithm": Algorithm.RING, "protocol": Protocol.LL, "channels": 4}
    result = estimate(cluster, Collective.ALL_REDUCE, MIB // 8, **requests)
    thread_gbyte_s = constants().generation["volta"].ll_gbyte_s[1] / 8
    read_us = 2 * MIB / 8 / 2 / thread_gbyte_s / 1000
    assert result.parts["pipeline"] + result.parts["data"] == pytest.approx(read_us)
