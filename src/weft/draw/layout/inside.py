"""An open server: adapters on top, where the cables arrive, then PCIe and CPUs, GPUs, NVSwitches."""

from __future__ import annotations

import numpy as np

from weft.draw.layout.painter import Painter
from weft.draw.parts import Parts
from weft.draw.scene import Box, Role, fit
from weft.fabric.files.hostlist import natural
from weft.fabric.kinds import NodeKind

_ROWS = (
    (NodeKind.HCA, NodeKind.ROUTER, NodeKind.AGGREGATION),
    (NodeKind.PCIE_SWITCH, NodeKind.CPU),
    (NodeKind.GPU,),
    (NodeKind.NVSWITCH,),
)
_ROLES = {
    NodeKind.PCIE_SWITCH: Role.PCIE,
    NodeKind.CPU: Role.CPU,
    NodeKind.GPU: Role.GPU,
    NodeKind.NVSWITCH: Role.NVSWITCH,
}
_MOST_SERVERS = 4
_PITCH, _HEIGHT, _GAP = 50.0, 22.0, 44.0


def size(parts: Parts, hosts: list[int]) -> tuple[float, float] | None:
    """Return width and height that fit all of these servers; None if they are many or contain no devices."""
    layouts = [_rows(parts, host) for host in hosts] if len(hosts) <= _MOST_SERVERS else []
    if not any(len(rows) > 1 for rows in layouts):
        return None
    widest = max(len(row) for rows in layouts for row in rows)
    tallest = max(len(rows) for rows in layouts)
    below = (
        0.6 * _GAP
        if any(_has_bottom_wires(parts, host, rows) for host, rows in zip(hosts, layouts, strict=True))
        else 0.0
    )
    return widest * _PITCH + 16, tallest * _HEIGHT + (tallest - 1) * _GAP + 40 + below


def _has_bottom_wires(parts: Parts, host: int, rows: list[list[int]]) -> bool:
    """Return whether wires join devices of the lowest row, as direct NVLinks do; they are drawn below it."""
    a, b = (end[list(parts.inner_links[host])] for end in parts.fabric.link_nodes)
    return bool((np.isin(a, rows[-1]) & np.isin(b, rows[-1])).any()) if rows else False


def draw_server(painter: Painter, host: int, x: float, y: float, width: float, height: float) -> None:
    """Draw an open server with its top at y."""
    parts, canvas = painter.parts, painter.canvas
    rows = _rows(parts, host)
    frame = Box(x=x, y=y + height / 2, width=width, height=height, role=Role.FRAME, title=parts.names[host])
    painter.box[host] = canvas.box(frame)
    canvas.text(x, y + height - 12, fit(parts.names[host], 12, width), 12)
    box, place = {}, {}
    for r, row in enumerate(rows):
        pitch = (width - 12) / len(row)
        for i, node in enumerate(row):
            place[node] = (x - (width - 12) / 2 + (i + 0.5) * pitch, y + 8 + _HEIGHT / 2 + r * (_HEIGHT + _GAP))
            box[node] = _device(painter, node, *place[node], min(pitch - 4, 64.0))
    _wires(painter, host, box, place)
    fabric = parts.fabric
    for link in painter.cables.get(host, []):
        ends = [int(end[link]) for end in fabric.link_nodes]
        node = next(n for n in ends if n in box)
        painter.feet[link] = (place[node][0], place[node][1] - _HEIGHT / 2)
        painter.foot_box[link] = box[node]


def _rows(parts: Parts, host: int) -> list[list[int]]:
    """Return the nodes by row: adapters by name, other devices in the order of the adapters that they serve."""
    nodes = parts.fabric.nodes
    rows = [[node for node in parts.nodes[host] if nodes.kind[node] in kinds] for kinds in _ROWS]
    rows[0].sort(key=lambda node: natural(nodes.name[node]))
    adapters = {node: i for i, node in enumerate(rows[0])}
    served: dict[int, list[int]] = {node: [] for node in rows[1]}
    beside: dict[int, list[int]] = {node: [] for node in rows[1]}
    for a, b in zip(*(end[list(parts.inner_links[host])].tolist() for end in parts.fabric.link_nodes), strict=True):
        for near, far in ((a, b), (b, a)):
            if near in served and far in adapters:
                served[near].append(adapters[far])
            elif near in served and far in served:
                beside[near].append(far)
    for node in [other for other in rows[1] if not served[other]]:  # place it among the devices connected to it
        served[node] = [adapter for other in beside[node] for adapter in served[other]]
    rows[1].sort(key=lambda node: sum(served[node]) / len(served[node]) if served[node] else 0.0)
    return [row for row in rows if row]


def _device(painter: Painter, node: int, x: float, y: float, width: float) -> int:
    fabric = painter.parts.fabric
    kind = NodeKind(fabric.nodes.kind[node])
    name = fabric.nodes.name[node]
    model = fabric.node(node).model
    box = Box(
        x=x,
        y=y,
        width=width,
        height=_HEIGHT,
        role=_ROLES.get(kind, Role.HCA),
        title=f"{name}\n{model}" if model else name,
        nodes=(node,),
    )
    painter.canvas.text(x, y, fit(name.rpartition("/")[2], 9, width), 9)
    return painter.canvas.box(box)


def _wires(painter: Painter, host: int, box: dict[int, int], place: dict[int, tuple[float, float]]) -> None:
    links = np.array(painter.parts.inner_links[host], np.int64)
    a, b = (end[links] for end in painter.parts.fabric.link_nodes)
    bundles = painter.wires.bundles(links, a, b)
    names = painter.parts.fabric.nodes.name
    lowest = max(y for _, y in place.values())
    width = max(x for x, _ in place.values()) - min(x for x, _ in place.values())
    for bundle in bundles:
        low, high = sorted((bundle.a, bundle.b), key=lambda node: -place[node][1])
        (x0, y0), (x1, y1) = place[low], place[high]
        side = 1 if y0 == y1 == lowest else -1  # side of its box that a wire leaves: below, or above
        start, depth = (x0, y0 + side * _HEIGHT / 2), _GAP * 0.7
        if side > 0:  # the longer, the deeper
            depth = _GAP * (0.3 + 1.2 * abs(x1 - x0) / width)
        bow = (x0 + x1) / 2, start[1] + side * depth
        points = (start, (x1, y1 + _HEIGHT / 2)) if y0 != y1 else (start, bow, (x1, start[1]))
        ends = (box[low], box[high])
        painter.line(bundle, points, 2 * len(bundles), ends, (names[low], names[high]))
