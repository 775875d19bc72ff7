"""Where ranks are."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.collectives.ranks import place
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
    fabric = faults.remove_link(weft.load("superpod:su=1,servers=3"), "dgx2/mlx5_0/1")
    with pytest.raises(ConfigError, match=r"dgx1 has 8 adapters .* dgx2 has 7"):
        place(fabric)
