"""Servers from templates of the catalog: adapters, GPUs, NVLink, PCIe; many boxes at a time.

          cpu0                     cpu1            PCIe: a tree below each socket
         /  | \\                   /  | \\
    pcie0   |  pcie1          pcie2   |  pcie3     NVLink: every GPU to every NVSwitch, or GPUs to each other
    / | \\   mlx5_1            ...     mlx5_7
gpu0 gpu1 mlx5_0, ...                              network: port 1 of each mlx5

The ports of a node are numbered: network first, NVLink next, PCIe last. So port 1 of an adapter is the one that every
tool expects, and `Fabric.network_ports` is the number of ports that such a tool should see. The two sockets are not
joined here: each adapter sits in the tree of the GPUs that it serves, and GPUs that communicate over PCIe are in
`weft.fabric.boards`. A template that is a single adapter is a plain host: the node has the server's own name, and no
PCIe side.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.fabric import catalog
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import Medium, NodeKind


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServerNodes:
    """The adapters of the servers that were added; topologies cable their port 1."""

    template: catalog.Server
    compute: NDArray[np.int32]  # [server, rail] -> HCA node
    storage: NDArray[np.int32]  # [server, n] -> HCA node


def add_servers(
    builder: FabricBuilder, template: str, names: Sequence[str], *, group: ArrayLike = -1, wired: bool = True
) -> ServerNodes:
    """Add servers of one template with all their devices and, if `wired`, the links between these.

    `group` is one for all servers, or one for each.
    """
    kind = catalog.server(template)
    drawing = _Drawing(kind)
    nodes = _add_nodes(builder, drawing.parts, names, np.broadcast_to(np.asarray(group, np.int32), len(names)))
    for speed, wires in drawing.wires.items() if wired else ():
        a, a_port, b, b_port = np.array(wires).T
        builder.add_links(nodes[:, a], a_port, nodes[:, b], b_port, speed, medium=Medium.BOARD)
    rails, stores = len(kind.compute), len(kind.storage)
    return ServerNodes(template=kind, compute=nodes[:, :rails], storage=nodes[:, rails : rails + stores])


@dataclass(slots=True, kw_only=True)
class _Part:
    """A device of a template. Parts of the board have the server's name as their model."""

    name: str
    kind: NodeKind
    model: str
    vendor_id: int = 0
    device_id: int = 0
    pcie: str = ""  # label of its port towards the CPU
    n_ports: int = 0  # so far


def _parts(template: catalog.Server) -> Iterator[_Part]:
    """Yield all devices: compute adapters first, then storage."""
    own, stores = template.compute_adapter, template.storage_adapter
    for model, devices in ((own, template.compute), (stores, template.storage), (own, template.spare)):
        for name in devices:
            card = catalog.adapter(model)
            yield _part(name, NodeKind.HCA, card, template.slot(card), n_ports=1)
    for number in range(template.gpus):
        gpu = catalog.gpu(template.gpu)
        yield _part(f"gpu{number}", NodeKind.GPU, gpu, gpu.pcie)
    for number in range(len(template.nvlink_spread)):
        yield _Part(name=f"nvswitch{number}", kind=NodeKind.NVSWITCH, model=template.name)
    for number in range(template.pcie_switches):
        yield _Part(name=f"pcie{number}", kind=NodeKind.PCIE_SWITCH, model=template.name, pcie=template.pcie)
    for number in range(template.cpus):
        yield _Part(name=f"cpu{number}", kind=NodeKind.CPU, model=template.name)


def _part(name: str, kind: NodeKind, entry: catalog.Adapter | catalog.Gpu, pcie: str, n_ports: int = 0) -> _Part:
    return _Part(
        name=name,
        kind=kind,
        model=entry.name,
        vendor_id=entry.vendor_id,
        device_id=entry.device_id,
        pcie=pcie,
        n_ports=n_ports,
    )


class _Drawing:
    """A server of a template: its parts, and the wires between their ports."""

    def __init__(self, template: catalog.Server) -> None:
        self.parts = list(_parts(template))
        self.wires: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)  # speed -> part, port, part, port
        self._index = {part.name: i for i, part in enumerate(self.parts)}
        for gpu in range(template.gpus):
            for switch, links in enumerate(template.nvlink_spread):
                for _ in range(links):
                    self._plug(f"gpu{gpu}", f"nvswitch{switch}", catalog.gpu(template.gpu).nvlink)
        for a, b, links in template.nvlink_pairs:
            for _ in range(links):
                self._plug(a, b, catalog.gpu(template.gpu).nvlink)
        for above, below in template.pcie_tree.items():
            for name in below:
                self._plug(above, name, self.parts[self._index[name]].pcie)

    def _plug(self, a: str, b: str, speed: str) -> None:
        """Add a wire between the next free ports of two parts."""
        ends: list[int] = []
        for index in (self._index[a], self._index[b]):
            self.parts[index].n_ports += 1
            ends += (index, self.parts[index].n_ports)
        self.wires[speed].append((ends[0], ends[1], ends[2], ends[3]))


def _add_nodes(
    builder: FabricBuilder, parts: Sequence[_Part], names: Sequence[str], group: NDArray[np.int32]
) -> NDArray[np.int32]:
    """Add the nodes of all servers; return int32[server, part] -> node."""
    servers = builder.add_servers(names)
    nodes = []
    for (kind, model), same in groupby(parts, key=lambda part: (part.kind, part.model)):
        run = list(same)
        added = builder.add_nodes(
            kind,
            # A plain host, whose only part is an adapter, has the server's own name.
            [server if len(parts) == 1 else f"{server}/{part.name}" for server in names for part in run],
            descriptions=[f"{server} {part.name}" for server in names for part in run],
            n_ports=np.tile([part.n_ports for part in run], len(names)),
            model=model,
            vendor_id=run[0].vendor_id,
            device_id=run[0].device_id,
            server=np.repeat(servers, len(run)),
            group=np.repeat(group, len(run)),
        )
        nodes.append(added.reshape(len(names), len(run)))
    return np.concatenate(nodes, axis=1)
