"""Plans from Python take the options of the command."""

from __future__ import annotations

import weft


def test_hosts_of_ufm_get_the_place_of_a_server():
    plain, managed = (weft.plan(gpus=64, ufm_hosts=ufm).size.fabric.servers for ufm in (False, True))
    assert [name for name in managed if name not in plain] == ["ufm1", "ufm2"]
