"""A fabric as a graph for other programs: GraphML and JSON. Written, not read.

JSON is the node-link form that d3-force takes as it is and networkx reads with `node_link_graph(data, edges="links")`:

    {"weft": "0.1.0", "spec": "star:2", "directed": false, "multigraph": true, "graph": {},
     "nodes": [{"id": "leaf1", "kind": "switch", "ports": 64, "guid": "0x0002c90300000100", ...}, ...],
     "links": [{"source": "h1", "target": "leaf1", "key": 0, "source_port": "h1/1", "target_port": "leaf1/1",
                "label": "4xNDR", "rate_gbit_s": 400.0, ...}, ...]}

`key` numbers the links of the file, so that parallel links stay distinct; ports have full names, because an undirected
graph does not keep which end was the source. GraphML has the same attributes; networkx, Gephi, yEd and igraph read it.
Unknown values (a model, a length, a LID) are omitted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds
from weft.ids import Guid
from weft.version import __version__

# Characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_GRAPHML_TYPES = {str: "string", int: "long", float: "double"}


def to_json(fabric: Fabric) -> str:
    head = {"weft": __version__, "spec": fabric.spec, "directed": False, "multigraph": True, "graph": {}}
    nodes = ",\n".join(f"  {json.dumps(row)}" for row in node_rows(fabric))
    links = ",\n".join(f"  {json.dumps(row)}" for row in link_rows(fabric))
    return f'{json.dumps(head)[:-1]},\n "nodes": [\n{nodes}\n ],\n "links": [\n{links}\n ]}}\n'


def to_graphml(fabric: Fabric) -> str:
    keys: dict[tuple[str, str], tuple[str, str]] = {}  # (node or edge, attribute) -> (id, type)

    def data(owner: str, row: dict[str, Any]) -> str:
        cells = []
        for name, value in row.items():
            key = keys.setdefault((owner, name), (f"d{len(keys)}", _GRAPHML_TYPES[type(value)]))
            cells.append(f'<data key="{key[0]}">{_text(value) if isinstance(value, str) else value}</data>')
        return "".join(cells)

    body = []
    for row in node_rows(fabric):
        name = _attribute(row.pop("id"))
        body.append(f"    <node id={name}>{data('node', row)}</node>")
    for row in link_rows(fabric):
        source, target, key = _attribute(row.pop("source")), _attribute(row.pop("target")), row.pop("key")
        body.append(f'    <edge id="e{key}" source={source} target={target}>{data("edge", row)}</edge>')
    declared = [
        f'  <key id="{id_}" for="{owner}" attr.name="{name}" attr.type="{type_}"/>'
        for (owner, name), (id_, type_) in keys.items()
    ]
    return "\n".join(
        [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
            f"  <!-- weft {__version__}: {re.sub('-(?=-)', '- ', _text(fabric.spec))} -->",
            *declared,
            '  <graph edgedefault="undirected">',
            *body,
            "  </graph>",
            "</graphml>\n",
        ]
    )


def node_rows(fabric: Fabric) -> Iterator[dict[str, Any]]:
    """Yield the attributes of each node."""
    nodes = fabric.nodes
    own_port = (nodes.kind != NodeKind.SWITCH).astype(int).clip(max=nodes.n_ports)  # a switch's LID is at port 0
    columns = zip(
        nodes.name,
        nodes.kind.tolist(),
        nodes.description,
        nodes.n_ports.tolist(),
        nodes.guid.tolist(),
        fabric.tables.lid[fabric.first_port + own_port].tolist(),
        nodes.model.tolist(),
        nodes.server.tolist(),
        nodes.group.tolist(),
        levels(fabric).tolist(),
        strict=True,
    )
    for name, kind, description, ports, guid, lid, model, server, group, level in columns:
        row: dict[str, Any] = {
            "id": name,
            "kind": NodeKind(kind).name.lower(),
            "description": description,
            "ports": ports,
            "guid": str(Guid(guid)),
            "lid": lid or None,
            "model": fabric.models[model] if model >= 0 else None,
            "server": fabric.servers[server] if server >= 0 else None,
            "group": fabric.groups[group] if group >= 0 else None,
            "level": level if level >= 0 else None,
        }
        yield _without_none(row)


def link_rows(fabric: Fabric) -> Iterator[dict[str, Any]]:
    """Yield the attributes of each link."""
    links, number = fabric.links, fabric.ports.number
    a_node, b_node = fabric.link_nodes
    columns = zip(
        a_node.tolist(),
        b_node.tolist(),
        number[links.a].tolist(),
        number[links.b].tolist(),
        links.speed.tolist(),
        links.width.tolist(),
        fabric.link_rate_gbit_s.tolist(),
        links.medium.tolist(),
        links.length_m.tolist(),
        links.bit_error_rate.tolist(),
        strict=True,
    )
    name, lines = fabric.nodes.name, speeds()
    for key, (a, b, a_port, b_port, speed, width, rate_gbit_s, medium, length_m, bit_error_rate) in enumerate(columns):
        row: dict[str, Any] = {
            "source": name[a],
            "target": name[b],
            "key": key,
            "source_port": f"{name[a]}/{a_port}",
            "target_port": f"{name[b]}/{b_port}",
            "label": lines[speed].label(width),
            "technology": lines[speed].technology.value,
            "rate_gbit_s": rate_gbit_s,
            "medium": Medium(medium).name.lower() if medium != Medium.UNKNOWN else None,
            "length_m": round(length_m, 3) if length_m else None,
            "bit_error_rate": bit_error_rate or None,
        }
        yield _without_none(row)


def _without_none(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _text(value: str) -> str:
    return escape(_NOT_XML.sub(_spell, value))


def _attribute(value: str) -> str:
    return quoteattr(_NOT_XML.sub(_spell, value))


def _spell(character: re.Match[str]) -> str:
    return f"\\x{ord(character[0]):02x}"
