"""Very many GPUs, rail by rail."""

from __future__ import annotations

import pytest

import weft
from weft.collectives.kinds import Collective
from weft.collectives.rails import run_by_rails, split
from weft.collectives.ranks import place
from weft.collectives.run import run_program
from weft.collectives.schedules.writers import program
from weft.errors import ConfigError
from weft.fabric import faults
from weft.fabric.nvlink import join_nvlinks
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route

POD = "superpod:su=2,servers=36"


@pytest.mark.parametrize("collective", [Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER])
def test_rails_apart_take_as_long_as_all_together(collective):
    fabric = weft.load("superpod:su=1,servers=4")
    apart = run_by_rails(fabric, collective, 1 << 24)
    ranks = place(join_nvlinks(route(fabric, RoutingOptions(adaptive=True)).fabric))
    together = run_program(program(collective, "hierarchical", nodes=4, gpus=8), ranks, 1 << 24)
    assert apart.time_ps == pytest.approx(together.time_ps, rel=0.002)
    assert len(apart.rails) == 8


def test_a_rail_has_its_adapters_its_leaves_and_their_way_up():
    rails = list(split(place(weft.load(POD))))
    assert len(rails) == 8
    for number, rail in enumerate(rails, 1):
        names = {node.name for node in rail.fabric.switches}
        assert {name for name in names if name.startswith("leaf")} == {f"leaf{number}", f"leaf{number + 8}"}
        assert len(rail.fabric.hcas) == len(rail.servers) == 36


def test_the_slowest_rail_counts():
    fabric = weft.load("superpod:su=1,servers=4")
    slow = faults.slow(fabric, "dgx2/mlx5_4/1", "4xHDR")  # rail 3
    timing = run_by_rails(slow, Collective.ALL_REDUCE, 1 << 28)
    times_ps = [rail.time_ps for rail in timing.rails]
    assert max(times_ps) == times_ps[2] > 1.9 * min(times_ps)
    assert timing.time_ps == times_ps[2] + timing.inside.time_ps


def test_a_server_that_lost_nvlinks_counts():
    fabric = weft.load("superpod:su=1,servers=3")
    hurt = fabric
    for port in (1, 2, 3):
        hurt = faults.remove_link(hurt, f"dgx3/gpu5/{port}")
    whole, part = (run_by_rails(item, Collective.ALL_REDUCE, 1 << 28).inside for item in (fabric, hurt))
    assert part.time_ps == pytest.approx(whole.time_ps * 18 / 15, rel=0.02)


def test_plain_hosts_are_rails_without_an_inside():
    timing = run_by_rails(weft.load("star:hosts=4"), Collective.ALL_REDUCE, 1 << 27)
    assert timing.inside is None
    assert timing.bus_gbyte_s == pytest.approx(49, rel=0.02)


def test_fabric_without_rails_is_refused():
    with pytest.raises(ConfigError, match="alone"):
        run_by_rails(weft.load("superpod:su=1,servers=1"), Collective.ALL_REDUCE, 1 << 20)
    fabric = weft.load("superpod:su=1,servers=2")
    for server in ("dgx1", "dgx2"):
        fabric = faults.remove_link(fabric, f"{server}/mlx5_0/1")
    with pytest.raises(ConfigError, match="8 ranks and 7 adapters"):
        run_by_rails(fabric, Collective.ALL_REDUCE, 1 << 20)
