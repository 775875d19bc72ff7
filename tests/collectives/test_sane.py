"""What no prediction may do, whatever the cluster: properties that sweeps over the catalog found broken once."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import pytest

from weft.collectives.cluster import Cluster, from_server
from weft.collectives.constants import constants
from weft.collectives.estimate import estimate
from weft.collectives.ideal import ideal_networks
from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.network import Networks
from weft.collectives.spread import spread
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.units import gbyte_s

MIB = 1 << 20
SERVERS = {from_server(one.name, nodes=2): one.name for one in catalog.servers() if one.gpus}.values()  # unlike others
RAIL = "ReduceScatter_RailA2A_LsaLD"


def slower(networks: Networks, *, step_us: float = 0.0, rate: float = 1.0) -> Networks:
    return {
        pattern: replace(one, step_us=one.step_us + step_us, adapter_gbyte_s=one.adapter_gbyte_s * rate)
        for pattern, one in networks.items()
    }


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
def test_a_slow_wire_holds_the_first_chunk_of_a_line_once_for_each_crossing(collective: Collective) -> None:
    """And not at every GPU: inside a node it goes on at NVLink's speed."""
    cluster = from_server("dgx-a100", nodes=8)
    networks = ideal_networks(cluster)
    asked = {"algorithm": Algorithm.RING, "protocol": Protocol.SIMPLE, "channels": 16}
    whole = estimate(cluster, collective, 8 * MIB, networks=networks, **asked)  # one chunk for each channel
    tenth = estimate(cluster, collective, 8 * MIB, networks=slower(networks, rate=0.1), **asked)
    wire_us = 8 * MIB / (8 * next(iter(networks.values())).adapter_gbyte_s * 0.985) / 1000
    assert tenth.time_us - whole.time_us == pytest.approx(9 * 7 * wire_us, rel=1e-6)


def test_a_line_of_ll128_passes_on_what_comes_over_a_wire() -> None:
    """The slower of GPU and wire counts for each crossing, and before the first one the GPU."""
    cluster = from_server("dgx-a100", nodes=8)
    networks, asked = ideal_networks(cluster), {"protocol": Protocol.LL128, "channels": 16}
    slow = slower(networks, rate=0.1)
    parts = estimate(cluster, Collective.BROADCAST, 4 * MIB, networks=slow, **asked).parts
    wire_us = parts["data"]  # one chunk for each channel
    first_us = estimate(cluster, Collective.BROADCAST, 4 * MIB, networks=networks, **asked).parts["data"]
    assert parts["pipeline"] == pytest.approx(first_us + 6 * wire_us, rel=1e-6)


@pytest.mark.parametrize("collective", [Collective.ALL_GATHER, Collective.REDUCE_SCATTER])
def test_each_level_of_pat_waits_for_all_that_a_network_takes_more(collective: Collective) -> None:
    cluster = Cluster(sm=90, gpus=1, nodes=16, nics=1, nic_gbit_s=200)
    networks = ideal_networks(cluster)
    far, near = (
        estimate(cluster, collective, MIB, networks=one, algorithm=Algorithm.PAT).time_us
        for one in (slower(networks, step_us=30), networks)
    )
    assert far - near == pytest.approx(4 * 30)


@pytest.mark.parametrize("nodes", [1, 2, 64])
@pytest.mark.parametrize("server", SERVERS)
def test_no_time_is_endless_falls_or_beats_the_wires(server: str, nodes: int) -> None:
    """Within one algorithm, protocol and number of channels. An all_reduce between two nodes may send once each way."""
    cluster = from_server(server, nodes=nodes)
    wires_gbyte_s = cluster.nics * gbyte_s(cluster.nic_gbit_s) * nodes / max(1, nodes - 1)
    for collective in (one for one in Collective if one.nccl):
        before = None
        for size_bytes in (8, 8 << 10, MIB, 2 * MIB, 64 * MIB, 1 << 30, 16 << 30):
            made = estimate(cluster, collective, size_bytes)
            band, about = spread(made), f"{collective} of {size_bytes} bytes: {made}"
            assert all(isfinite(us) and us >= 0 for us in made.parts.values()), about
            assert 0 < band.low_us < made.time_us < band.high_us, about
            if nodes > 1 and collective != Collective.ALL_REDUCE:
                assert made.bus_gbyte_s < wires_gbyte_s, about
            if before is not None and (before.name, before.channels) == (made.name, made.channels):
                assert made.time_us > before.time_us, about
            before = made


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


def test_a_processor_reads_the_flags_of_a_ring_once() -> None:
    """With LL it relays what it reads: in a ring where every step crosses, that is all the time that data takes."""
    cluster = Cluster(sm=90, gpus=1, nodes=8, nics=1, nic_gbit_s=400)
    asked = {"algorithm": Algorithm.RING, "protocol": Protocol.LL, "channels": 4}
    made = estimate(cluster, Collective.ALL_REDUCE, MIB, **asked)
    channel_gbyte_s = constants().generation["volta"].ll_gbyte_s[1] / 16
    read_us = 14 * MIB / 8 / 4 / channel_gbyte_s / 1000
    assert made.parts["pipeline"] + made.parts["data"] == pytest.approx(read_us)
