"""Places of ranks."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.collectives.interconnect import template_of
from weft.collectives.ranks import adapters_by_host, place, subset
from weft.errors import ConfigError, UnknownName
from weft.fabric import faults
from weft.fabric.nvlink import join_nvlinks


def test_ranks_go_through_the_adapter_that_the_server_names_for_their_gpu():
    fabric = weft.load("superpod:su=1,servers=3")
    ranks = place(fabric)
    assert (len(ranks), ranks.per_server, ranks.rails) == (24, 8, 8)
    assert fabric.port(int(ranks.port[9])).name == "dgx2/mlx5_3/1"
    assert (ranks.server == np.repeat([0, 1, 2], 8)).all()
    assert (ranks.nvlink < 0).all(), "nobody joined the NVLinks"


def test_hosts_of_ufm_beside_the_servers_have_no_ranks():
    fabric = weft.load("superpod:su=1,servers=3,server=dgx-h100+4rails,leaves=1,ufm=2")
    ranks = place(fabric)
    assert (ranks.servers, ranks.rails) == (("dgx1", "dgx2", "dgx3"), 4)
    assert ranks.rail_of.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert template_of(fabric).name == "dgx-h100+4rails"


@pytest.mark.parametrize(
    "spec", ["star:hosts=5", "superpod:su=1,servers=3", "superpod:su=1,servers=3,server=dgx-h100+4rails,leaves=1,ufm=2"]
)
def test_adapters_by_host_are_those_of_the_ranks(spec):
    fabric = weft.load(spec)
    ranks = place(fabric)
    result = adapters_by_host(fabric)
    assert tuple(result) == ranks.servers
    assert [node for nodes in result.values() for node in nodes] == fabric.ports.node[ranks.port].tolist()


def test_hosts_that_are_not_alike_have_the_ranks_of_each():
    fabric = faults.remove_link(weft.load("superpod:su=1,servers=2"), "dgx1/mlx5_0/1")
    result = adapters_by_host(fabric)
    assert [fabric.nodes.name[node] for node in result["dgx1"][:3]] == ["dgx1/mlx5_3", "dgx1/mlx5_3", "dgx1/mlx5_4"]
    assert len(result["dgx1"]) == len(result["dgx2"]) == 8


def test_joined_gpus_have_a_port_of_their_own():
    fabric = join_nvlinks(weft.load("superpod:su=1,servers=2"))
    ranks = place(fabric)
    assert fabric.port(int(ranks.nvlink[11])).name == "dgx2/gpu3/1"
    assert ranks.rails == 8, "GPUs are no adapters"


def test_gpus_share_the_rails_that_are_left():
    fabric = weft.load("superpod:su=1,servers=2")
    for server in ("dgx1", "dgx2"):
        fabric = faults.remove_link(fabric, f"{server}/mlx5_0/1")
    ranks = place(fabric)
    assert ranks.rails == 7
    assert ranks.rail_of.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_a_rail_that_one_server_lacks_is_used_by_none():
    fabric = faults.remove_link(weft.load("superpod:su=1,servers=3"), "dgx2/mlx5_4/1")
    ranks = place(fabric)
    names = [[fabric.port(slot).name.split("/")[1] for slot in row] for row in ranks.adapters.tolist()]
    assert names[0] == names[1] == names[2]
    assert (ranks.rails, len(ranks), "mlx5_4" in names[0]) == (7, 24, False)


def test_servers_that_lack_different_rails_use_as_many_each():
    fabric = weft.load("superpod:su=1,servers=3")
    for cable in ("dgx2/mlx5_4/1", "dgx3/mlx5_0/1"):
        fabric = faults.remove_link(fabric, cable)
    assert place(fabric).adapters.shape == (3, 7)


def test_plain_hosts_have_one_rank_each():
    ranks = place(weft.load("star:hosts=5"), ["h2", "h4"])
    assert (len(ranks), ranks.per_server, ranks.servers) == (2, 1, ("h2", "h4"))


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (["dgx9"], UnknownName, "dgx9"),
        (["dgx1", "dgx1"], ConfigError, "twice"),
        ([], ConfigError, "at least one server"),
    ],
)
def test_servers_that_cannot_be_are_refused(names, error, words):
    with pytest.raises(error, match=words):
        place(weft.load("superpod:su=1,servers=2"), names)


def test_servers_that_differ_are_refused_by_name():
    fabric = faults.kill(weft.load("superpod:su=1,servers=3"), "dgx2/gpu3")
    with pytest.raises(ConfigError, match=r"dgx1 has 8 GPUs, dgx2 has 7"):
        place(fabric)


def test_some_ranks_keep_their_ports():
    ranks = place(join_nvlinks(weft.load("superpod:su=1,servers=4")))
    rail = subset(ranks, (25, 1, 9, 17))  # GPU 1 of every server, in any order
    assert (rail.servers, rail.per_server, rail.rails) == (("dgx1", "dgx2", "dgx3", "dgx4"), 1, 1)
    assert (rail.port == ranks.port[[1, 9, 17, 25]]).all()
    half = subset(ranks, (*range(4, 8), *range(20, 24)))
    assert (half.servers, half.per_server, half.rails) == (("dgx1", "dgx3"), 4, 4)
    assert (half.nvlink == ranks.nvlink[[4, 5, 6, 7, 20, 21, 22, 23]]).all()


def test_some_ranks_on_other_rails_keep_their_ports_too():
    ranks = place(weft.load("superpod:su=1,servers=2"))
    assert (subset(ranks, (3, 12)).port == ranks.port[[3, 12]]).all()


def test_some_ranks_that_share_rails_share_them_still():
    fabric = faults.remove_link(weft.load("superpod:su=1,servers=1"), "dgx1/mlx5_0/1")
    ranks = place(fabric)
    assert (subset(ranks, (0, 1, 2)).port == ranks.port[:3]).all()
    assert subset(ranks, (0, 1, 2)).rails == len(np.unique(ranks.port[:3]))


def test_unequal_shares_of_servers_are_refused():
    with pytest.raises(ConfigError, match="a group of 3 ranks has 2 on dgx1 and 1 on dgx2"):
        subset(place(weft.load("superpod:su=1,servers=2")), (0, 1, 8))
