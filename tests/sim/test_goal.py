"""Traffic as GOAL: read back, it takes the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft
from weft.collectives.traffic import collective_traffic
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.routing.route import route
from weft.sim import patterns
from weft.sim.engine import Options
from weft.sim.files import read_traffic, write_traffic
from weft.sim.packet.engine import PacketEngine
from weft.sim.perftest import prepare
from weft.sim.traffic import Operation, Traffic
from weft.training.traces.read import read
from weft.training.traces.replay import replay

SPEC = "fat-tree:hosts=8,radix=4"


def routed() -> Fabric:
    return route(weft.load(SPEC)).fabric


@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling"])
def test_a_collective_read_back_takes_the_same_time(tmp_path: Path, algorithm: str):
    fabric = prepare(weft.load(SPEC))
    traffic = collective_traffic(fabric, "all_reduce", algorithm, 64_000)
    write_traffic(tmp_path / "job.goal", fabric, traffic)
    again = replay(read([str(tmp_path / "job.goal")]), fabric, engine="packet")
    assert round(again.total_s * 1e12) == PacketEngine().run(fabric, traffic, Options()).last_arrival_ps


def test_start_times_and_delays_become_calculations(tmp_path: Path):
    fabric = routed()
    traffic = Traffic.of(
        fabric,
        [("h1", "h2", 4096), ("h2", "h3", 10), ("h2", "h1", 7)],
        start_ps=[5_000_000, 0, 0],
        delay_ps=[0, 2_000, 0],
        after=[[], [0], [1]],
    )
    write_traffic(tmp_path / "job.goal", fabric, traffic)
    assert (tmp_path / "job.goal").read_text().splitlines()[:14] == [
        "num_ranks 8",
        "rank 0 {",
        "m0: send 4096b to 1 tag 0",
        "d0: calc 5000",
        "m2: recv 7b from 1 tag 2",
        "m0 requires d0",
        "}",
        "rank 1 {",
        "m0: recv 4096b from 0 tag 0",
        "m1: send 10b to 2 tag 1",
        "d1: calc 2",
        "m2: send 7b to 0 tag 2",
        "m1 requires d1",
        "d1 requires m0",
    ]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({"operation": Operation.READ}, "no RDMA reads"),
        ({"outstanding": 2}, "no limit of outstanding"),
        ({"after": [[], [0]]}, "waits for message 0 between other hosts"),
    ],
)
def test_traffic_that_goal_cannot_express_is_refused(tmp_path: Path, columns: dict[str, object], rule: str):
    fabric = routed()
    traffic = Traffic.of(fabric, [("h1", "h2", 9), ("h3", "h4", 9)], **columns)
    with pytest.raises(ConfigError, match=rule):
        write_traffic(tmp_path / "job.goal", fabric, traffic)


def test_goal_is_written_and_not_read_by_sim(tmp_path: Path):
    fabric = routed()
    write_traffic(tmp_path / "job.goal", fabric, patterns.permutation(fabric))
    with pytest.raises(ConfigError, match="not a traffic file"):
        read_traffic(tmp_path / "job.goal", fabric)
