"""Names of ports for SIM_HOST."""

from __future__ import annotations

import pytest

from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.lab.places import Places
from weft.mad.power_up import switch_on


@pytest.mark.parametrize(("length", "is_whole"), [(31, True), (32, False)])
def test_a_name_that_sim_host_would_cut_is_replaced_by_the_guid(length, is_whole):
    builder, name = FabricBuilder("long names"), "h" * length
    switch = builder.add_nodes(NodeKind.SWITCH, ["leaf1"], n_ports=2)
    builder.add_links(builder.add_nodes(NodeKind.HCA, [name, "h2"], n_ports=1), 1, switch, [1, 2], "NDR")
    fabric = builder.build()
    places = Places(switch_on(fabric))
    slot = fabric[f"{name}/1"].slot
    guid = int(fabric.nodes.guid[fabric.node_index[name]])
    assert places.sim_host(slot) == (name if is_whole else f"0x{guid:x}/1")
    assert places.find(places.sim_host(slot)) == slot
