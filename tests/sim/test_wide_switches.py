"""Traffic through Ethernet switches with more ports than a byte counts."""

from __future__ import annotations

import pytest

import weft
from weft.fabric.model import Fabric
from weft.sim.engine import Network, Options, Paths
from weft.sim.engines import ENGINES
from weft.sim.traffic import Traffic

STAR = "star:hosts=300,radix=300,server=host+Thor-Ultra,switch=THU-64x800"
TREE = "fat-tree:hosts=600,server=host+ConnectX-6-Dx,switch=THU-64x800,breakout=8"


def arrival_ps(fabric: Fabric, engine: str, messages: list[tuple[str, str, int]], **options: object) -> int:
    given = Options(network=Network.ROCE, **options)  # type: ignore[arg-type]
    return ENGINES[engine].run(fabric, Traffic.of(fabric, messages), given).last_arrival_ps


@pytest.mark.parametrize("engine", ["packet", "flow"])
def test_a_message_takes_as_long_to_port_255_and_beyond_as_to_port_2(engine: str) -> None:
    fabric = weft.route(weft.load(STAR)).fabric
    near, *far = (
        arrival_ps(fabric, engine, [("h1", name, 1 << 20)], paths=Paths.TABLE)
        for name in ("h2", "h255", "h256", "h300")
    )
    assert far == [near] * 3


def test_packets_of_a_shift_leave_by_all_uplinks_of_a_wide_leaf() -> None:
    """Hosts of leaf 1 send to leaf 2: with tables one flow on each link, so no message waits for another."""
    fabric = weft.route(weft.load(TREE)).fabric
    shift = [(f"h{i}", f"h{i + 256}", 1 << 16) for i in range(1, 257)]
    alone = arrival_ps(fabric, "packet", shift[:1], paths=Paths.TABLE)
    assert arrival_ps(fabric, "packet", shift, paths=Paths.TABLE) == alone
