"""Places of ranks, their variables, and the traffic of their hosts; no lab runs."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError, SubnetError
from weft.jobs.job import JobEnvironment, difference, variables
from weft.jobs.placement import Placement, place
from weft.lab.rank_hosts import PortCounts, RankHost

HOSTS = [
    RankHost(name=name, address=f"10.0.0.{i}", adapters=("mlx5_0", "mlx5_1"), states=("Active",) * 2)
    for i, name in enumerate(("h1", "h2"), 1)
]


def places(placement: Placement) -> list[tuple[int, int, str, str]]:
    return [(each.rank, each.local_rank, each.host, each.adapter) for each in placement.places]


def test_ranks_fill_hosts_in_order():
    assert places(place(HOSTS, 3)) == [(0, 0, "h1", "mlx5_0"), (1, 1, "h1", "mlx5_1"), (2, 0, "h2", "mlx5_0")]
    assert len(place(HOSTS, 4).places) == 4


def test_ranks_of_a_host_share_its_adapters_in_turn():
    placement = place(HOSTS, 4, per_host=3, chosen=["h2", "h1"])
    adapters = [("h2", "mlx5_0"), ("h2", "mlx5_1"), ("h2", "mlx5_0"), ("h1", "mlx5_0")]
    assert [(host, adapter) for _, _, host, adapter in places(placement)] == adapters
    assert (placement.address, placement.hosts, placement.on("h2"), placement.on("h1")) == (
        "10.0.0.2",
        ["h2", "h1"],
        3,
        1,
    )


def test_too_many_ranks_are_refused_with_the_number_per_host_that_fits():
    with pytest.raises(ConfigError, match=r"-n 5: 2 hosts have room for 4 ranks, one per GPU.*--per-host 3$"):
        place(HOSTS, 5)
    with pytest.raises(ConfigError, match=r"2 hosts have room for 2 ranks, 1 per host.*--per-host 2$"):
        place(HOSTS, 4, per_host=1)


@pytest.mark.parametrize(("state", "why"), [("Down", "its cable is broken"), ("Initialize", "no subnet manager")])
def test_a_port_that_is_not_active_stops_only_the_rank_that_needs_it(state, why):
    second = RankHost(name="h2", address="10.0.0.2", adapters=("mlx5_0", "mlx5_1"), states=("Active", state))
    assert len(place([HOSTS[0], second], 3).places) == 3
    with pytest.raises(SubnetError, match=f"rank 3 cannot run: the port of mlx5_1 on h2 is {state}: {why}"):
        place([HOSTS[0], second], 4)


def test_a_rank_gets_the_variables_of_torchrun_and_one_thread_only_beside_other_ranks(monkeypatch):
    for name in ("OMP_NUM_THREADS", "PYTHONUNBUFFERED", "UCX_TLS"):
        monkeypatch.delenv(name, raising=False)
    job = JobEnvironment(name="job", store="/run/store", port=4711)
    alone, beside = (variables(p.places[-1], p, job, {"HOME": "/root"}) for p in (place(HOSTS, 1), place(HOSTS, 3)))
    expected = {
        "HOME": "/root",
        "RANK": "2",
        "WORLD_SIZE": "3",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4711",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "NCCL_IB_HCA": "=mlx5_0:1",
        "OMP_NUM_THREADS": "1",
    }
    assert beside | expected == beside
    assert (alone["WORLD_SIZE"], "OMP_NUM_THREADS" in alone) == ("1", False)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    three = place(HOSTS, 3)
    assert "OMP_NUM_THREADS" not in variables(three.places[0], three, job, {})


def test_a_counter_that_was_reset_counts_from_the_reset():
    def port(*values: int) -> PortCounts:
        names = ("sent_bytes", "received_bytes", "sent_packets", "received_packets")
        return PortCounts(port="h1/1", **dict(zip(names, values, strict=True)))

    before, after = [port(100, 100, 7, 9), port(1, 2, 3, 4)], [port(150, 60, 7, 10), port(2, 4, 6, 8)]
    counts = difference(place(HOSTS, 2), {"h1": before}, {"h1": after})["h1"]
    assert counts.ports == (port(50, 60, 0, 1), port(1, 2, 3, 4))
    assert (counts.ranks, counts.sent_bytes, counts.received_bytes) == (2, 51, 62)
    assert (counts.sent_packets, counts.received_packets) == (3, 5)
