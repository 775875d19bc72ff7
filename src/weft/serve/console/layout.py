"""Positions of nodes in the console's drawing: one row for each tier, hosts below their leaf.

    y   spines spread over the width, one row for each tier
        leaves in a row, each above a block of its hosts
        hosts, a few columns wide

Adapters of a server are drawn side by side, even if they connect to different leaves (rails): servers that share leaves
are drawn in rows below them.

If switches of one tier are connected to each other, as in a torus or a dragonfly, a row would hide their links: these
switches are drawn on a circle with their hosts outside.
"""

from __future__ import annotations

import hashlib

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.views import Node
from weft.ids import Guid

_ASPECT = 2.0  # width to height of the drawing
_LEAST_PITCH = 0.8  # least distance of rows of hosts, in widths of a host
_RING_STEP = 1.0
_ROW_UNITS = 72  # adapters and gaps in a row of servers, for one row; grows with the number of rows
_LEAST_ROW_PITCH = 3.0  # distance of rows of servers, in widths of an adapter; leaves room for names

Floats = NDArray[np.float64]


class Nodes(msgspec.Struct, kw_only=True):
    """The nodes of a drawing, as columns."""

    name: list[str]
    kind: list[str]  # switch, hca, ...
    tier: list[int]  # 0: hosts; -1: no path to a host
    x: list[float]
    y: list[float]  # upwards
    guid: list[str]
    model: list[str]
    server: list[str]  # name of its server; "": none


class Links(msgspec.Struct, kw_only=True):
    """The network links of a drawing, as columns: node indices and port numbers of both ends."""

    a: list[int]
    a_port: list[int]
    b: list[int]
    b_port: list[int]
    label: list[str]  # 4xNDR
    gbit_s: list[float]


class FabricOut(msgspec.Struct, kw_only=True):
    """A drawing of a fabric."""

    revision: str
    spec: str
    nodes: Nodes
    links: Links


def draw(fabric: Fabric, name: str = "") -> FabricOut:
    """Draw a fabric. Equal cabling gives an equal revision. `name`: shown instead of the spec."""
    nodes, links = _nodes(fabric), _links(fabric)
    digest = hashlib.blake2b(msgspec.json.encode((nodes, links)), digest_size=8).hexdigest()
    return FabricOut(revision=digest, spec=name or fabric.spec, nodes=nodes, links=links)


def drawn_links(fabric: Fabric) -> NDArray[np.int64]:
    """Return the indices of the drawn links, in order."""
    return np.flatnonzero(fabric.network_links)


def _nodes(fabric: Fabric) -> Nodes:
    tier = levels(fabric)
    x, y = place(fabric, tier)
    views = [fabric.node(index) for index in range(len(fabric.nodes))]
    return Nodes(
        name=list(fabric.nodes.name),
        kind=[node.kind.name.lower() for node in views],
        tier=tier.tolist(),
        x=np.round(x, 3).tolist(),
        y=np.round(y, 3).tolist(),
        guid=[str(Guid(guid)) for guid in fabric.nodes.guid.tolist()],
        model=[node.model or "" for node in views],
        server=[_server(node) for node in views],
    )


def _server(node: Node) -> str:
    """Return the server of an adapter; in a discovered fabric from its name: dgx1/mlx5_0 is in dgx1."""
    if node.server is not None:
        return node.server.name
    name, slash, _ = node.name.partition("/")
    return name if slash and node.kind == NodeKind.HCA else ""


def _links(fabric: Fabric) -> Links:
    chosen = [fabric.link(int(index)) for index in drawn_links(fabric)]
    return Links(
        a=[link.a.node.index for link in chosen],
        a_port=[link.a.number for link in chosen],
        b=[link.b.node.index for link in chosen],
        b_port=[link.b.number for link in chosen],
        label=[link.label for link in chosen],
        gbit_s=[float(link.rate_gbit_s) for link in chosen],
    )


def place(fabric: Fabric, tier: NDArray[np.int16]) -> tuple[Floats, Floats]:
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    is_switch = fabric.nodes.kind == NodeKind.SWITCH
    leaves = np.flatnonzero(is_switch & (tier == 1))
    leaf_of = _leaf_of(tier, a, b, len(tier))
    if (is_switch[a] & is_switch[b] & (tier[a] == tier[b]) & (a != b)).any():
        return _ring(tier, leaves, leaf_of)
    servers = _servers(fabric, leaf_of)
    if max(map(len, servers), default=0) > 1:
        return _server_rows(tier, leaves, leaf_of, servers)
    return _tiers(tier, leaves, leaf_of)


def _servers(fabric: Fabric, leaf_of: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the adapters of each server that connect to a leaf; a host without a server counts as one."""
    by_server: dict[str, list[int]] = {}
    for node in np.flatnonzero(leaf_of >= 0).tolist():
        view = fabric.node(node)
        by_server.setdefault(_server(view) or view.name, []).append(node)
    return [np.array(adapters) for adapters in by_server.values()]


def _leaf_of(tier: NDArray[np.int16], a: NDArray[np.int32], b: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """Return the first leaf that each node connects to; -1: none."""
    leaf = np.full(n, -1, np.int64)
    for near, far in ((b, a), (a, b)):
        plugged = (tier[near] == 0) & (tier[far] == 1)
        leaf[near[plugged][::-1]] = far[plugged][::-1]  # the first of several is kept
    return leaf


def _blocks(leaves: NDArray[np.int64], leaf_of: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the indices of the hosts of each leaf."""
    order = np.argsort(leaf_of, kind="stable")
    first, end = np.searchsorted(leaf_of[order], leaves), np.searchsorted(leaf_of[order], leaves, side="right")
    return [order[begin:stop] for begin, stop in zip(first.tolist(), end.tolist(), strict=True)]


def _tiers(tier: NDArray[np.int16], leaves: NDArray[np.int64], leaf_of: NDArray[np.int64]) -> tuple[Floats, Floats]:
    blocks = _blocks(leaves, leaf_of)
    most = max(map(len, blocks), default=1) or 1
    columns = next(
        (wide for wide in range(1, most) if _pitch(len(leaves), wide, most) >= _LEAST_PITCH), max(1, int(most**0.5))
    )
    width = max(len(leaves), 1) * (columns + 1)
    pitch = max(_pitch(len(leaves), columns, most), _LEAST_PITCH)
    x, y = np.zeros(len(tier)), np.zeros(len(tier))
    for number, (leaf, hosts) in enumerate(zip(leaves.tolist(), blocks, strict=True)):
        left, at = number * (columns + 1), np.arange(len(hosts))
        x[leaf] = left + (columns - 1) / 2
        x[hosts], y[hosts] = left + at % columns, -pitch * (1 + at // columns)
    _raise_tiers(x, y, tier, leaf_of, width, pitch, -(-most // columns))
    return x, y


def _server_rows(
    tier: NDArray[np.int16],
    leaves: NDArray[np.int64],
    leaf_of: NDArray[np.int64],
    servers: list[NDArray[np.int64]],
) -> tuple[Floats, Floats]:
    """Place leaves that share servers together, above rows of these servers."""
    groups = _leaf_groups(leaves, leaf_of, servers)
    wide = max(map(len, servers)) + 1  # a server and a gap
    most = max(len(inside) for _, inside in groups)
    rows = min(max(1, round((len(servers) * wide / _ROW_UNITS) ** 0.5)), most)
    widths = [max(-(-len(inside) // rows) * wide, 2 * len(above)) for above, inside in groups]
    width = sum(widths)
    pitch = max(width / _ASPECT / 2 / rows, _LEAST_ROW_PITCH)
    x, y, left = np.zeros(len(tier)), np.zeros(len(tier)), 0.0
    for (above, inside), own_width in zip(groups, widths, strict=True):
        x[above] = left + (np.arange(len(above)) + 0.5) * own_width / len(above) - 1
        across = -(-len(inside) // rows)
        for number, adapters in enumerate(inside):
            x[adapters] = left + (number % across) * own_width / across + np.arange(len(adapters))
            y[adapters] = -pitch * (1 + number // across)
        left += own_width
    _raise_tiers(x, y, tier, leaf_of, width, pitch, rows)
    return x, y


def _leaf_groups(
    leaves: NDArray[np.int64], leaf_of: NDArray[np.int64], servers: list[NDArray[np.int64]]
) -> list[tuple[NDArray[np.int64], list[NDArray[np.int64]]]]:
    """Return groups of leaves that servers connect, in order, each with these servers."""
    root = {leaf: leaf for leaf in leaves.tolist()}

    def find(leaf: int) -> int:
        while root[leaf] != leaf:
            leaf = root[leaf]
        return leaf

    for adapters in servers:
        first, *rest = sorted({find(leaf) for leaf in leaf_of[adapters].tolist()})
        root.update(dict.fromkeys(rest, first))
    groups: dict[int, tuple[list[int], list[NDArray[np.int64]]]] = {}
    for leaf in leaves.tolist():
        groups.setdefault(find(leaf), ([], []))[0].append(leaf)
    for adapters in servers:
        groups[find(int(leaf_of[adapters[0]]))][1].append(adapters)
    return [(np.array(above), inside) for above, inside in groups.values()]


def _raise_tiers(
    x: Floats,
    y: Floats,
    tier: NDArray[np.int16],
    leaf_of: NDArray[np.int64],
    width: float,
    pitch: float,
    rows: int,
) -> None:
    """Place spines and cores above the leaves, and nodes that reach no leaf below the hosts."""
    top = int(tier.max(initial=1))
    rise = max(width / _ASPECT / 2 / max(top, 1), 2 * pitch)
    for level in range(2, top + 1):
        row = np.flatnonzero(tier == level)
        x[row] = (np.arange(len(row)) + 0.5) * width / max(len(row), 1) - 1
        y[row] = rise * (level - 1)
    lost = np.flatnonzero((tier < 0) | ((tier == 0) & (leaf_of < 0)))
    at = np.arange(len(lost))
    across = max(int(width), 1)
    x[lost], y[lost] = at % across, -pitch * (3 + rows + at // across)


def _pitch(leaves: int, columns: int, most: int) -> float:
    """Return the distance of rows of hosts, if they take half of the height."""
    return leaves * (columns + 1) / _ASPECT / 2 / -(-most // columns)


def _ring(tier: NDArray[np.int16], leaves: NDArray[np.int64], leaf_of: NDArray[np.int64]) -> tuple[Floats, Floats]:
    blocks = _blocks(leaves, leaf_of)
    radius = max(len(leaves) * _RING_STEP / 2, 4.0)
    x, y = np.zeros(len(tier)), np.zeros(len(tier))
    for number, (leaf, hosts) in enumerate(zip(leaves.tolist(), blocks, strict=True)):
        angle = np.pi / 2 - 2 * np.pi * number / len(leaves)
        x[leaf], y[leaf] = radius * np.cos(angle), radius * np.sin(angle)
        out = radius + _RING_STEP * (1 + np.arange(len(hosts)))
        x[hosts], y[hosts] = out * np.cos(angle), out * np.sin(angle)
    inner = np.flatnonzero(tier > 1)
    turn = 2 * np.pi * np.arange(len(inner)) / max(len(inner), 1)
    x[inner], y[inner] = radius / 2 * np.cos(turn), radius / 2 * np.sin(turn)
    return x, y
