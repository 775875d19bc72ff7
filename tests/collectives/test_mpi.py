"""MPI's all-reduce between servers: rounds for few bytes, the line for many."""

from __future__ import annotations

import pytest

from weft.collectives.mpi import all_reduce_us
from weft.collectives.network import Network, Pattern

NETWORKS = dict.fromkeys(Pattern, Network(step_us=2.0, adapter_gbyte_s=50.0))


def reduce_us(nodes: int, size_bytes: int, nics: int = 1) -> float:
    return all_reduce_us(NETWORKS, nodes=nodes, nics=nics, size_bytes=size_bytes)


def test_a_number_takes_a_message_for_each_round():
    assert reduce_us(32, 8) == pytest.approx(5 * 2.0, rel=1e-3)
    assert reduce_us(33, 8) == pytest.approx(6 * 2.0, rel=1e-3)


def test_many_bytes_go_almost_twice_over_every_adapter():
    assert reduce_us(32, 1 << 30) == pytest.approx(2 * 31 / 32 * (1 << 30) / 50e3, rel=0.01)
    assert reduce_us(32, 1 << 30, nics=8) == pytest.approx(reduce_us(32, 1 << 30) / 8, rel=0.05)


def test_one_server_waits_for_nobody():
    assert reduce_us(1, 8) == 0
