"""The counts of `weft show`."""

from __future__ import annotations

from pathlib import Path

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.summary import summarise

# Two chips of a director, on a leaf board and on a spine board, and a switch of its own on the same chip.
DIRECTOR = """\
vendid=0x2c9
devid=0xd2f0
switchguid=0x10
Switch 41 "S-0000000000000010" # "MF0;dir1:MCS8500/L01/U1" enhanced port 0 lid 1 lmc 0
[1] "S-0000000000000012"[1] # "MF0;leaf1:MQM8700/U1" lid 3 4xHDR
[21] "S-0000000000000011"[1] # "MF0;dir1:MCS8500/S01/U1" lid 2 4xHDR

vendid=0x2c9
devid=0xd2f0
switchguid=0x11
Switch 41 "S-0000000000000011" # "MF0;dir1:MCS8500/S01/U1" base port 0 lid 2 lmc 0
[1] "S-0000000000000010"[21] # "MF0;dir1:MCS8500/L01/U1" lid 1 4xHDR

vendid=0x2c9
devid=0xd2f0
switchguid=0x12
Switch 41 "S-0000000000000012" # "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 3 lmc 0
[1] "S-0000000000000010"[1] # "MF0;dir1:MCS8500/L01/U1" lid 1 4xHDR
[2] "H-0000000000000020"[1] # "h1 mlx5_0" lid 4 4xHDR

vendid=0x2c9
devid=0x101b
caguid=0x20
Ca 1 "H-0000000000000020" # "h1 mlx5_0"
[1] "S-0000000000000012"[2] # lid 4 lmc 0 "MF0;leaf1:MQM8700/U1" lid 3 4xHDR
"""


def test_the_chips_of_a_director_go_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "director.txt").write_text(DIRECTOR)
    fabric = weft.load(str(tmp_path / "director.txt"))
    assert {node.name: node.model for node in fabric.switches} == {
        "dir1-L01-U1": "CS8500",
        "dir1-S01-U1": "CS8500",
        "leaf1": "QM8700",
    }


def test_the_port_of_an_aggregation_node_is_never_free() -> None:
    """40 of 41 ports are on the front; for an unknown model all are."""
    builder = FabricBuilder("ports")
    leaf, bare = builder.add_nodes(NodeKind.SWITCH, ["leaf", "bare"], n_ports=41, model="QM8700")
    (unknown,) = builder.add_nodes(NodeKind.SWITCH, ["unknown"], n_ports=41)
    agents = builder.add_nodes(NodeKind.AGGREGATION, ["leaf/sharp"], n_ports=1)
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2", "h3"], n_ports=1)
    builder.add_links(leaf, 41, agents, 1, "HDR")
    builder.add_links([leaf, bare, unknown], 1, hosts, 1, "HDR")
    (tier,) = summarise(builder.build()).tiers
    assert tier.free_ports == 39 + 39 + 40
