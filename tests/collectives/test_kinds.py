"""The names of collectives."""

from __future__ import annotations

import pytest

from weft.collectives.kinds import Collective, collective
from weft.errors import UnknownName


@pytest.mark.parametrize("one", Collective)
def test_every_name_of_a_collective_finds_it(one: Collective) -> None:
    assert collective(one) == collective(one.mpi) == collective(f"{one}_perf") == one
    assert not one.nccl or collective(one.nccl) == one


def test_names_differ() -> None:
    assert len({item.mpi for item in Collective}) == len(Collective)
    assert len({item.nccl for item in Collective}) == len(Collective)


def test_an_unknown_name_suggests_near_ones() -> None:
    with pytest.raises(UnknownName, match="all_reduce"):
        collective("all_reduse")


def test_bus_factors_are_those_of_nccl_tests() -> None:
    """doc/PERFORMANCE.md of nccl-tests; a bus bandwidth does not depend on the number of ranks."""
    eight = {item: item.bus_factor(8) for item in Collective}
    assert eight[Collective.ALL_REDUCE] == 14 / 8
    assert {eight[Collective.ALL_GATHER], eight[Collective.REDUCE_SCATTER], eight[Collective.ALL_TO_ALL]} == {7 / 8}
    assert {eight[Collective.BROADCAST], eight[Collective.REDUCE], eight[Collective.SEND_RECV]} == {1}
    assert eight[Collective.BARRIER] == 0
