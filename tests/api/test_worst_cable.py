"""Which single cable hurts all-reduce most: the program of docs/python.md against its physics and lower layers."""

from __future__ import annotations

import pytest
from tests.documents import find_block

import weft
from weft.collectives.kinds import Collective
from weft.collectives.nccl.bench import Settings, Sizes, run
from weft.collectives.ranks import place
from weft.fabric import faults
from weft.routing.engine import Options
from weft.routing.route import route

SPEC = "fat-tree:hosts=3,server=hgx-h100-4nic,radix=8"  # 4 adapters for each server, 2 cables to each of 2 spines


@pytest.fixture(scope="module")
def rows():
    fabric = weft.load(SPEC)
    times = {str(cable): weft.time(fabric.without(cable), "all_reduce", "1G") for cable in fabric.cables}
    return {"": weft.time(fabric, "all_reduce", "1G")} | times


def test_every_cable_costs_what_its_bandwidth_was(rows):
    """An adapter is a quarter of a server's bandwidth; a cable between switches is half of a spine's to its leaf."""
    whole_us = rows[""].estimate.parts["data"]
    assert len(rows) == 1 + 24
    for cable, row in rows.items():
        if not cable:
            continue
        expected = 2 if cable.startswith("leaf") else 4 / 3
        assert row.estimate.parts["data"] / whole_us == pytest.approx(expected, rel=1e-3), cable


@pytest.mark.parametrize("name", ["leaf1/5", "hgx2/mlx5_4/1"])
def test_time_equals_the_lower_layers(rows, name):
    fabric = faults.remove_link(weft.load(SPEC), name)
    ranks = place(route(fabric, Options(adaptive=True)).fabric)
    sizes = Sizes(min_bytes=1 << 30, max_bytes=1 << 30)
    expected = run(ranks, Settings(collective=Collective.ALL_REDUCE, sizes=sizes, prove=False)).rows[0].time_us
    (cable,) = (str(cable) for cable in weft.load(SPEC).cables if name in (str(cable.a), str(cable.b)))
    assert rows[cable].time_us == expected


def test_the_program_has_at_most_ten_lines():
    block = find_block("docs/python.md", "fabric.cables")
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
