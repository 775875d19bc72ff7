r"""GPUs without NVSwitches as hosts: over the PCIe of their server, and over NVLinks from GPU to GPU.

    gpu0   gpu1  mlx5_0        gpu0   gpu1            gpu0 ---- gpu1       a switch for each GPU that has NVLinks,
       \   |   /                  \   |                 | \    / |         between which its pairs are links; and one
        pcie0        =>           pcie0 --.             |  \  /  |         for each PCIe switch and processor, those
          |                         |     cpu1          |  /  \  |         joined too, where some GPUs have no NVLink
         cpu0                      cpu0 --'             | /    \ |         between them
                                                      gpu2 ---- gpu3

Adapters keep their own way to memory (`weft.sim`): what they read and write does not meet here what GPUs send to each
other. A way never goes through a third GPU.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.columns import LinkColumns, NodeColumns
from weft.fabric.joined import carry_over
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, speed, speeds
from weft.fabric.timing import GPU_PORTS, PCIE_SWITCH, PROCESSOR, timings

_INSIDE = (NodeKind.GPU, NodeKind.PCIE_SWITCH, NodeKind.CPU)
_LANE = "PCIe3"  # the link between processors is modelled with the number of these lanes nearest to its rate
_Links = tuple[tuple[int, int, int, int], ...]  # from, to, speed, width; nodes by their index in the server


def join_boards(fabric: Fabric) -> Fabric:
    """Return the fabric with every GPU a host, or the fabric itself if it has no GPUs to join."""
    boxes = list(_boxes(fabric))
    if not boxes:
        return fabric
    kinds = fabric.nodes.kind.copy()
    gpus = np.array([box.nodes[gpu] for box in boxes for gpu in box.shape.gpus])
    kinds[gpus] = NodeKind.HCA
    a, b = fabric.link_nodes
    bare = fabric.subset(keep_links=~(np.isin(a, gpus) | np.isin(b, gpus)))
    models = tuple(dict.fromkeys((*bare.models, GPU_PORTS, PCIE_SWITCH, PROCESSOR)))
    nodes = replace(bare.nodes, kind=kinds).stacked(_new_nodes(bare, boxes, models))
    slots = nodes.n_ports.astype(np.int64) + 1
    first_port = np.cumsum(slots) - slots
    ports = np.arange(int(slots[len(bare.nodes) :].sum()), dtype=np.uint64)
    joined = Fabric.assemble(
        fabric.spec,
        nodes,
        bare.links.stacked(_new_links(len(bare.nodes), boxes, first_port)),
        np.concatenate((bare.ports.guid, ports)),
        models,
        bare.servers,
        bare.groups,
    )
    joined.counters[: len(bare.counters)] = bare.counters
    lids = np.concatenate([np.arange(1, len(box.shape.gpus) + 1) for box in boxes])
    carry_over(joined.tables, bare.tables, (first_port[gpus] + 1).astype(np.int32), lids)
    at = len(bare.nodes)
    for box in boxes:
        rows = joined.tables.switch_row[at : at + len(box.shape.switches)]
        joined.tables.lft[rows, 1 : len(box.shape.gpus) + 1] = box.shape.routes
        at += len(box.shape.switches)
    return replace(
        joined,
        changes=(*fabric.changes, "joined the GPUs of each server over PCIe and direct NVLinks"),
        planes=fabric.planes,
        expanded=fabric.expanded,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Box:
    """A server, and its nodes in the order of its shape."""

    name: str
    server: int
    nodes: Sequence[int]
    shape: _Shape


@dataclass(slots=True, kw_only=True, eq=False)
class _Shape:
    """The new switches of a server and the links between them. Servers of the same shape share one."""

    gpus: list[int]  # indices in the server
    switches: list[tuple[str, str]] = field(default_factory=list)  # model, name in the server
    n_ports: list[int] = field(default_factory=list)  # of each
    # switch or ~GPU, port; twice; speed, width
    wires: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    routes: Any = None  # uint8[switch, GPU] -> port

    def add(self, model: str, name: str) -> int:
        self.switches.append((model, name))
        self.n_ports.append(0)
        return len(self.switches) - 1

    def plug(self, a: int, b: int, line: int, width: int) -> None:
        """Add a link between two switches; `~gpu` is the first port of a GPU."""
        ends = []
        for end in (a, b):
            if end >= 0:
                self.n_ports[end] += 1
            ends += [end, self.n_ports[end] if end >= 0 else 1]
        self.wires.append((ends[0], ends[1], ends[2], ends[3], line, width))


def _boxes(fabric: Fabric) -> Iterator[_Box]:
    kind, server = fabric.nodes.kind, fabric.nodes.server
    with_gpus = np.unique(server[(kind == NodeKind.GPU) & (server >= 0)])
    inside = np.flatnonzero(np.isin(kind, _INSIDE) & np.isin(server, with_gpus))
    inside = inside[np.argsort(server[inside], kind="stable")]
    a, b = fabric.link_nodes
    links = np.flatnonzero(np.isin(kind[a], _INSIDE) & np.isin(kind[b], _INSIDE) & np.isin(server[a], with_gpus))
    links = links[np.argsort(server[a[links]], kind="stable")]
    shapes: dict[Any, _Shape] = {}
    for number in with_gpus.tolist():
        nodes = inside[slice(*np.searchsorted(server[inside], (number, number + 1)))].tolist()
        own = links[slice(*np.searchsorted(server[a[links]], (number, number + 1)))]
        place = {node: at for at, node in enumerate(nodes)}
        wires: _Links = tuple(
            (place[start], place[end], int(fabric.links.speed[link]), int(fabric.links.width[link]))
            for start, end, link in zip(a[own].tolist(), b[own].tolist(), own.tolist(), strict=True)
        )
        parts = tuple((int(kind[node]), fabric.node(node).model) for node in nodes)
        if sum(part == NodeKind.GPU for part, _ in parts) == 1:
            continue  # a single GPU has no peer
        names = [fabric.nodes.name[node].rpartition("/")[2] for node in nodes]
        if (parts, wires) not in shapes:
            shapes[parts, wires] = _shape(fabric.servers[number], parts, names, wires)
        yield _Box(name=fabric.servers[number], server=number, nodes=nodes, shape=shapes[parts, wires])


def _shape(server: str, parts: tuple[tuple[int, str], ...], names: list[str], links: _Links) -> _Shape:
    gpus = [at for at, (kind, _) in enumerate(parts) if kind == NodeKind.GPU]
    shape = _Shape(gpus=gpus)
    technology = [speed.technology for speed in speeds()]
    pairs: Counter[tuple[int, int]] = Counter()
    line = 0
    for start, end, line_of, width in links:
        if technology[line_of] is Technology.NVLINK:
            pairs[min(start, end), max(start, end)] += width
            line = line_of
    tree = [link for link in links if technology[link[2]] is Technology.PCIE]
    at: dict[int, int] = {}  # index -> switch; of GPUs only those with NVLinks
    for gpu in gpus:
        width = sum(count for pair, count in pairs.items() if gpu in pair)
        if width:
            at[gpu] = shape.add(GPU_PORTS, f"{names[gpu]}/nvlinks")
            shape.plug(~gpu, at[gpu], line, width)
    for (start, end), width in pairs.items():
        shape.plug(at[start], at[end], line, width)
    if any(pair not in pairs for pair in combinations(gpus, 2)):
        _add_tree(server, shape, parts, names, tree, at)
    shape.routes = _routes(server, shape, names)
    return shape


def _add_tree(
    server: str,
    shape: _Shape,
    parts: tuple[tuple[int, str], ...],
    names: list[str],
    tree: list[tuple[int, int, int, int]],
    at: dict[int, int],
) -> None:
    """Add PCIe switches, the processors above them, and the links between processors."""
    cpus = [place for place, (kind, _) in enumerate(parts) if kind == NodeKind.CPU]
    for place, (kind, model) in enumerate(parts):
        if kind != NodeKind.GPU:
            at[place] = shape.add(PROCESSOR if kind == NodeKind.CPU else PCIE_SWITCH, f"{names[place]}/root")
        elif not catalog.gpu(model).p2p and any(
            place in ends[:2] and NodeKind.PCIE_SWITCH in (parts[ends[0]][0], parts[ends[1]][0]) for ends in tree
        ):
            raise ConfigError(
                f"{server}/{names[place]} is a {model} below a PCIe switch: it reaches its neighbours through host "
                f"memory, which engines cannot simulate; use `weft nccl` without --engine"
            )
    for start, end, line, width in tree:
        ends = [at.get(end, ~end) if parts[end][0] == NodeKind.GPU else at[end] for end in (start, end)]
        shape.plug(ends[0], ends[1], line, width)
    lane = speed(_LANE)
    whole = lane.rate_gbit_s(1) / 8 * (1 - timings().of_line(_LANE).overhead)
    for start, end in combinations(cpus, 2):
        box = catalog.server(parts[start][1]) if catalog.is_server(parts[start][1]) else None
        shape.plug(at[start], at[end], lane.index, max(1, round(timings().socket.of(box) / whole)))


def _routes(server: str, shape: _Shape, names: list[str]) -> Any:
    """Return uint8[switch, GPU] -> port: the route with the fewest switches, never through a third GPU."""
    beside: dict[int, list[tuple[int, int]]] = {}  # switch or ~GPU -> its neighbours, and the port there
    for start, port, end, other_port, _, _ in shape.wires:
        beside.setdefault(start, []).append((end, other_port))
        beside.setdefault(end, []).append((start, port))
    routes = np.full((len(shape.switches), len(shape.gpus)), 255, np.uint8)
    for column, gpu in enumerate(shape.gpus):
        waiting, reached = deque([~gpu]), {~gpu}
        while waiting:
            at = waiting.popleft()
            own = at == ~gpu or (~gpu, 1) in beside[at]
            for near, port in beside.get(at, ()) if own or shape.switches[at][0] != GPU_PORTS else ():
                if near >= 0 and near not in reached:
                    routes[near, column] = port
                    reached.add(near)
                    waiting.append(near)
        attached = {near for other in shape.gpus if other != gpu for near, _ in beside.get(~other, ())}
        lost = attached - reached
        if lost or ~gpu not in beside:
            raise ConfigError(f"{server}/{names[gpu]} has neither NVLink nor PCIe to the other GPUs of its server")
    return routes


def _new_nodes(fabric: Fabric, boxes: Sequence[_Box], models: tuple[str, ...]) -> NodeColumns:
    whose = [(box, model, name, ports) for box in boxes for (model, name), ports in _switches(box.shape)]
    n = len(whose)
    names = tuple(f"{box.name}/{name}" for box, _, name, _ in whose)
    return NodeColumns(
        name=names,
        description=names,
        kind=np.full(n, NodeKind.SWITCH, np.int8),
        guid=np.arange(1, n + 1, dtype=np.uint64),
        system_guid=np.arange(1, n + 1, dtype=np.uint64),
        vendor_id=np.zeros(n, np.int32),
        device_id=np.zeros(n, np.int32),
        model=np.array([models.index(model) for _, model, _, _ in whose], np.int16),
        server=np.array([box.server for box, _, _, _ in whose], np.int32),
        group=np.array([fabric.nodes.group[box.nodes[0]] for box, _, _, _ in whose], np.int32),
        n_ports=np.array([ports for _, _, _, ports in whose], np.int16),
        enhanced_port_0=np.zeros(n, bool),
    )


def _switches(shape: _Shape) -> Iterator[tuple[tuple[str, str], int]]:
    return zip(shape.switches, shape.n_ports, strict=True)


def _new_links(first: int, boxes: Sequence[_Box], first_port: Any) -> LinkColumns:
    """Return the new links; `first` is the index of the first new node."""
    ends: list[tuple[int, int]] = []
    lines: list[tuple[int, int]] = []
    for box in boxes:
        for start, port, end, other_port, line, width in box.shape.wires:
            nodes = [first + index if index >= 0 else box.nodes[~index] for index in (start, end)]
            ends.append((int(first_port[nodes[0]]) + port, int(first_port[nodes[1]]) + other_port))
            lines.append((line, width))
        first += len(box.shape.switches)
    n, slots, speeds_widths = len(ends), np.array(ends, np.int32), np.array(lines, np.int8)
    return LinkColumns(
        a=slots[:, 0],
        b=slots[:, 1],
        speed=speeds_widths[:, 0],
        width=speeds_widths[:, 1],
        medium=np.full(n, Medium.BOARD, np.int8),
        length_m=np.zeros(n, np.float32),
        bit_error_rate=np.zeros(n),
        good_end=np.zeros(n, np.int8),
    )
