"""Output of an interactive session: short lines, completed names, DataFrames, pictures and tables in a cell."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from base64 import b64decode

import weft
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
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
    result = PacketEngine().run(fabric, patterns.shift(fabric, distance=1, size_bytes=4096))
    assert "4 of 4 messages" in repr(result)
    frame = result.to_pandas()
    assert list(frame["src"]) == ["h1/1", "h2/1", "h3/1", "h4/1"]
    assert (frame["finish_ps"] > frame["start_ps"]).all()


def cell(shown) -> ET.Element:
    """Return the notebook's representation."""
    return ET.fromstring(f"<div>{shown._repr_html_()}</div>")


def picture(of: ET.Element) -> set[str | None]:
    """Return the texts in the picture of a cell."""
    kind, data = of.find("img").get("src").split(",")
    assert kind == "data:image/svg+xml;base64"
    return {text.text for text in ET.fromstring(b64decode(data)).iter("{http://www.w3.org/2000/svg}text")}


def test_a_fabric_is_a_picture_in_a_cell():
    fabric = weft.load("fat-tree:hosts=32,radix=16")
    assert set(fabric.nodes.name) <= picture(cell(fabric))


def test_a_large_fabric_is_a_summary_in_a_cell():
    output = weft.load("fat-tree:hosts=1024")._repr_html_()
    assert len(output) < 2000
    assert "<td>HCA</td><td>1,024</td>" in output
    assert "<td>leaf - spine</td><td>1,024</td><td>4xNDR, 400 Gbit/s</td>" in output


def test_a_result_is_its_figures_and_busy_cables_in_a_cell():
    fabric = route(weft.load("star:hosts=4")).fabric
    result = PacketEngine().run(fabric, patterns.shift(fabric, distance=1, size_bytes=4096))
    output = cell(result)
    assert "star:hosts=4: shift by 1 (seed 1)" in picture(output)
    rows = dict([cell.text for cell in row] for row in output.find("table").iter("tr"))
    assert rows["star:hosts=4"] == "shift by 1: 4 messages of 4 KiB"
    assert rows["messages"] == "4 of 4 delivered, 16 KiB in all"


def test_columns_are_their_first_rows_in_a_cell():
    fabric = weft.load("star:hosts=16")
    output = cell(fabric.nodes)
    rows = [[cell.text for cell in row] for row in output.iter("tr")]
    assert len(rows) == 1 + 10
    assert [row[0] for row in rows[:3]] == ["name", "h1", "h2"]
    assert output.find("p").text == "7 more: to_pandas()"


def test_names_in_a_cell_are_escaped():
    builder = FabricBuilder("<b>")
    builder.add_nodes(NodeKind.SWITCH, ["<script>", "\udc80"], n_ports=1)
    fabric = builder.build()
    assert [row[0].text for row in cell(fabric.nodes).find("table").iter("tr")] == ["name", "<script>", "?"]
    fabric._repr_html_().encode()
