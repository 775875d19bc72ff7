"""Traffic: columns that agree, names that mean ports."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError, UnknownName
from weft.sim.traffic import PATH_SL, Operation, Traffic, Transport, find_host_port
from weft.sim.under_load import UnderLoad, line_gbit_s


@pytest.fixture(scope="module")
def star() -> weft.Fabric:
    return weft.load("star:hosts=4")


@pytest.fixture(scope="module")
def superpod() -> weft.Fabric:
    return weft.load("superpod:su=1,servers=2")


def test_one_value_stands_for_all_messages(star):
    traffic = Traffic.of(star, [("h1", "h2", 10), ("h3", "h2", 20)], sl=3)
    assert len(traffic) == 2
    assert traffic.total_bytes == 30
    assert traffic.sl.tolist() == [3, 3]
    assert traffic.start_ps.tolist() == [0, 0]
    assert set(traffic.operation.tolist()) == {Operation.WRITE}
    assert set(traffic.transport.tolist()) == {Transport.RC}


def test_the_service_level_is_that_of_the_path_unless_given(star):
    assert Traffic.of(star, [("h1", "h2", 10)]).sl.tolist() == [PATH_SL]


def test_dependencies_as_lists_and_as_arrays_are_the_same():
    lists = Traffic.make([0, 1, 2], [1, 2, 0], 8, after=[[], [0], [0, 1]])
    arrays = Traffic.make([0, 1, 2], [1, 2, 0], 8, after=(np.array([0, 0, 1, 3]), np.array([0, 0, 1], np.int32)))
    assert lists.after_first.tolist() == arrays.after_first.tolist() == [0, 0, 1, 3]
    assert lists.after.tolist() == arrays.after.tolist() == [0, 0, 1]


def test_a_server_an_adapter_and_a_port_mean_the_same_port(superpod):
    slots = {find_host_port(superpod, name) for name in ("dgx1", "dgx1/mlx5_0", "dgx1/mlx5_0/1")}
    assert len(slots) == 1
    assert superpod.port(slots.pop()).name == "dgx1/mlx5_0/1"


def test_other_rails_have_their_own_ports(superpod):
    assert find_host_port(superpod, "dgx1/mlx5_3") != find_host_port(superpod, "dgx1/mlx5_4")


@pytest.mark.parametrize("name", ["leaf1", "leaf1/1", "dgx1/gpu0"])
def test_only_adapters_can_send(superpod, name):
    with pytest.raises(ConfigError, match=f"{name} cannot send or receive"):
        find_host_port(superpod, name)


def test_an_unknown_name_is_refused_with_near_ones(star):
    with pytest.raises(UnknownName, match="did you mean h4"):
        find_host_port(star, "h44")


@pytest.mark.parametrize("bulk", [[], ["h3"], ["h3", "h4"]])
def test_bulk_senders_fill_the_cable_of_the_receiver_until_the_last_message(star, bulk):
    case = UnderLoad(receiver="h1", ranks=["h2"], bulk=bulk, messages=9, size_bytes=64, sl=1, bulk_sl=2)
    traffic = case.traffic(star, "under load")
    assert set(traffic.src.tolist()) == {find_host_port(star, name) for name in ["h2", *bulk]}
    assert (traffic.size_bytes[:9].tolist(), set(traffic.sl[9:].tolist())) == ([64] * 9, {2} if bulk else set())
    full_ps = traffic.size_bytes[9:].sum() * 8_000 / line_gbit_s(star, "h1")
    assert (full_ps > traffic.start_ps.max()) == bool(bulk)
