from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.fabric.topologies import star


def test_host_n_is_in_port_n():
    fabric = star(16)
    assert [port.peer.name for port in fabric["leaf1"].ports[:16]] == [f"h{n}/1" for n in range(1, 17)]
    assert len(fabric.links) == 16


def test_the_rails_of_a_server_are_in_adjacent_ports():
    fabric = star(2, server="dgx-h100")
    owners = [port.peer.node.server.name for port in fabric["leaf1"].ports[:16]]
    assert owners == ["dgx1"] * 8 + ["dgx2"] * 8
    assert fabric["leaf1/1"].peer.name == "dgx1/mlx5_0/1"


def test_a_star_is_as_large_as_its_switch():
    assert len(star(40, switch="QM8700").hcas) == 40
    with pytest.raises(ConfigError, match=r"41 ports, QM8700 has 40: use fat-tree:hosts=41"):
        star(41, switch="QM8700")
