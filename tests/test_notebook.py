"""What an interactive session shows: short lines, names after a dot, DataFrames."""

from __future__ import annotations

import weft
from weft.routing.route import route
from weft.sim import patterns
from weft.sim.packet.engine import PacketEngine


def test_a_dot_and_a_tab_show_what_there_is():
    assert {"load", "Fabric", "__version__"} <= set(dir(weft))


def test_columns_are_one_line_and_become_a_frame():
    fabric = weft.load("star:hosts=16")
    for columns in (fabric.nodes, fabric.ports, fabric.links):
        assert len(repr(columns)) < 200
        frame = columns.to_pandas()
        assert len(frame) == len(columns)
    assert list(fabric.nodes.to_pandas()["name"]) == list(fabric.nodes.name)


def test_a_result_is_one_line_and_becomes_a_frame():
    fabric = route(weft.load("star:hosts=4")).fabric
    result = PacketEngine().run(fabric, patterns.shift(fabric, by=1, size_bytes=4096))
    assert "4 of 4 messages" in repr(result)
    frame = result.to_pandas()
    assert list(frame["src"]) == ["h1/1", "h2/1", "h3/1", "h4/1"]
    assert (frame["finish_ps"] > frame["start_ps"]).all()
