"""What no prediction may do, whatever the cluster: properties that sweeps over the catalog found broken once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.collectives.cluster import Cluster, from_server
from weft.collectives.estimate import estimate
from weft.collectives.ideal import ideal_networks
from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.network import Networks

MIB = 1 << 20


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


@pytest.mark.parametrize("collective", [Collective.ALL_GATHER, Collective.REDUCE_SCATTER])
def test_each_level_of_pat_waits_for_all_that_a_network_takes_more(collective: Collective) -> None:
    cluster = Cluster(sm=90, gpus=1, nodes=16, nics=1, nic_gbit_s=200)
    networks = ideal_networks(cluster)
    far, near = (
        estimate(cluster, collective, MIB, networks=one, algorithm=Algorithm.PAT).time_us
        for one in (slower(networks, step_us=30), networks)
    )
    assert far - near == pytest.approx(4 * 30)
