r"""GPUs as hosts: the NVLinks of a server as one more network, which the engines of `weft.sim` run like the others.

    gpu0  gpu1 ... gpu7        gpu0  gpu1 ... gpu7
     |  \  |  \     |  \      |     |        |       a GPU's one link has the rate of all its NVLinks, and
    four NVSwitches              one switch            one switch stands for all: they spread evenly

GPUs without NVSwitches, joined by PCIe or from GPU to GPU, are in `weft.fabric.boards`.

Every server is a subnet of its own, with LIDs of its own from 1 on: GPUs of two servers may have the same one, and no
packet of one comes to the other but through the adapters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.fabric.boards import join_boards
from weft.fabric.columns import LinkColumns
from weft.fabric.joined import carry_over
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology


def join_nvlinks(fabric: Fabric) -> Fabric:
    """Return the fabric with its GPUs as hosts of a network in their server; without GPUs, the fabric itself."""
    return join_boards(_join_over_switches(fabric))


def _join_over_switches(fabric: Fabric) -> Fabric:
    gpu, switch, nvlinks = _ends(fabric)
    kind = fabric.nodes.kind
    if not len(nvlinks):
        return fabric
    gpus, first, whose = np.unique(gpu, return_index=True, return_inverse=True)
    servers, place = _places(fabric.nodes.server[gpus])
    heads = np.full(len(servers), len(kind))
    np.minimum.at(heads, np.searchsorted(servers, fabric.nodes.server[gpu]), switch)
    keep = (kind != NodeKind.NVSWITCH) | np.isin(np.arange(len(kind)), heads)
    dropped = np.zeros(len(fabric.links), bool)
    dropped[nvlinks] = True
    bare = fabric.subset(keep, ~dropped)
    new_index = np.cumsum(keep) - 1  # [node] -> its new index
    gpus, heads = new_index[gpus], new_index[heads]
    at_head = heads[np.searchsorted(servers, bare.nodes.server[gpus])]
    one_each = LinkColumns(
        a=(bare.first_port[gpus] + 1).astype(np.int32),
        b=(bare.first_port[at_head] + place).astype(np.int32),
        speed=fabric.links.speed[nvlinks[first]],
        width=np.bincount(whose, fabric.links.width[nvlinks]).astype(np.int8),
        medium=np.full(len(gpus), Medium.BOARD, np.int8),
        length_m=np.zeros(len(gpus), np.float32),
        bit_error_rate=np.zeros(len(gpus)),
        good_end=np.zeros(len(gpus), np.int8),
    )
    kinds = bare.nodes.kind.copy()
    kinds[gpus], kinds[heads] = NodeKind.HCA, NodeKind.SWITCH
    joined = Fabric.assemble(
        fabric.spec,
        replace(bare.nodes, kind=kinds),
        bare.links.stacked(one_each),
        bare.ports.guid,
        bare.models,
        bare.servers,
        bare.groups,
    )
    carry_over(joined.tables, bare.tables, one_each.a, place)
    joined.tables.lft[joined.tables.switch_row[at_head], place] = place
    return replace(
        joined,
        counters=bare.counters,
        changes=(*fabric.changes, "joined the NVLinks of each GPU"),
        planes=fabric.planes,
        expanded=fabric.expanded,
    )


def _ends(fabric: Fabric) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.intp]]:
    """Return GPU, NVSwitch and link index of each NVLink between the two."""
    nvlinks = np.flatnonzero(fabric.links_of(Technology.NVLINK))
    a, b = (ends[nvlinks] for ends in fabric.link_nodes)
    swapped = fabric.nodes.kind[a] != NodeKind.GPU
    gpu, switch = np.where(swapped, b, a), np.where(swapped, a, b)
    is_pair = (fabric.nodes.kind[gpu] == NodeKind.GPU) & (fabric.nodes.kind[switch] == NodeKind.NVSWITCH)
    return gpu[is_pair], switch[is_pair], nvlinks[is_pair]


def _places(server: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the servers, and the number of each GPU in its server, from 1 up in the order of the nodes."""
    servers, of = np.unique(server, return_inverse=True)
    order = np.argsort(of, kind="stable")
    begin = np.searchsorted(of[order], np.arange(len(servers)))
    place = np.empty(len(server), np.int64)
    place[order] = np.arange(len(server)) - begin[of[order]] + 1
    return servers, place
