"""A file format: on each line a cable, its two ends and its speed. A switch has /port behind its name, a host has not.

# cables
h1 leaf1/1 4xNDR
leaf1/33 spine1/1 4xNDR
"""

from __future__ import annotations

import re
from pathlib import Path

from weft.errors import FileError
from weft.fabric.build import FabricBuilder
from weft.fabric.files import Format
from weft.fabric.files.text import read_text
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric

CABLES = Format(
    name="cables",
    description="on each line a cable: two ends and the speed",
    suffixes=(".cables",),
    reads=True,
    module=__name__,  # with `read` and `to_text`
    content=re.compile(r"\A# cables\n"),
)
_LINE = re.compile(r"(?P<a>[^\s/]+)(/(?P<a_port>\d+))? (?P<b>[^\s/]+)(/(?P<b_port>\d+))? (?P<speed>\S+)")


def read(path: Path) -> Fabric:
    cables = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if line and not line.startswith("#"):
            match = _LINE.fullmatch(line)
            if match is None:
                raise FileError(path, number, line, "a cable, such as h1 leaf1/1 4xNDR")
            cables.append(match)
    ports: dict[str, int] = {}  # [node] -> highest port
    switches = set()
    for cable in cables:
        for end in ("a", "b"):
            name, port = cable[end], cable[f"{end}_port"]
            ports[name] = max(ports.get(name, 1), int(port or 1))
            switches |= {name} if port else set()
    builder = FabricBuilder(str(path))
    node = {}
    for name, n_ports in ports.items():
        kind = NodeKind.SWITCH if name in switches else NodeKind.HCA
        (node[name],) = builder.add_nodes(kind, [name], n_ports=n_ports)
    for cable in cables:
        ends = [(node[cable[end]], int(cable[f"{end}_port"] or 1)) for end in ("a", "b")]
        builder.add_links(*ends[0], *ends[1], cable["speed"])
    return builder.build()


def to_text(fabric: Fabric) -> str:
    lines = ["# cables"]
    for link in fabric.all_links():
        ends = [end.name if end.node.kind is NodeKind.SWITCH else end.node.name for end in (link.a, link.b)]
        lines.append(f"{ends[0]} {ends[1]} {link.label}")
    return "\n".join(lines) + "\n"


ENTRY_POINTS = {"weft.files": {"cables": CABLES}}  # for weft --plugin cables.py; a package has them in pyproject.toml
