r"""GPUs as hosts: the NVLinks of a server as one more network, which the engines of `weft.sim` run like the others.

    gpu0  gpu1 ... gpu7        gpu0  gpu1 ... gpu7
     |  \  |  \     |  \      |     |        |       a GPU's one link has the rate of all its NVLinks, and
    four NVSwitches              one switch            one switch stands for all: they spread evenly

Every server is a subnet of its own, with LIDs of its own from 1 on: GPUs of two servers may have the same one, and no
packet of one comes to the other but through the adapters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.columns import LinkColumns
from weft.fabric.kinds import Medium, NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.tables import NO_ROUTE, Tables


def join_nvlinks(fabric: Fabric) -> Fabric:
    """The same fabric, its GPUs hosts of their server's NVLink network; without NVLinks, the fabric itself."""
    nvlinks = np.flatnonzero(fabric.links_of(Technology.NVLINK))
    kind = fabric.nodes.kind
    if not len(nvlinks) or not (kind == NodeKind.GPU).any():
        return fabric
    gpu, switch = _ends(fabric, nvlinks)
    gpus, first, whose = np.unique(gpu, return_index=True, return_inverse=True)
    servers, place = _places(fabric.nodes.server[gpus])
    heads = np.full(len(servers), len(kind))
    np.minimum.at(heads, np.searchsorted(servers, fabric.nodes.server[gpu]), switch)
    keep = (kind != NodeKind.NVSWITCH) | np.isin(np.arange(len(kind)), heads)
    bare = fabric.subset(keep, ~fabric.links_of(Technology.NVLINK))
    now = np.cumsum(keep) - 1  # [node] -> its number from here on
    gpus, heads = now[gpus], now[heads]
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
    made = Fabric.assemble(
        fabric.spec,
        replace(bare.nodes, kind=kinds),
        _join(bare.links, one_each),
        bare.ports.guid,
        bare.models,
        bare.servers,
        bare.groups,
    )
    _fill(made.tables, bare, one_each.a, at_head, place)
    return replace(made, counters=bare.counters, changes=(*fabric.changes, "joined the NVLinks of each GPU"))


def _ends(fabric: Fabric, nvlinks: NDArray[np.intp]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """GPU and NVSwitch of each."""
    a, b = (ends[nvlinks] for ends in fabric.link_nodes)
    swapped = fabric.nodes.kind[a] != NodeKind.GPU
    gpu, switch = np.where(swapped, b, a), np.where(swapped, a, b)
    direct = np.flatnonzero(fabric.nodes.kind[switch] != NodeKind.NVSWITCH)
    if len(direct):
        raise ConfigError(
            f"{fabric.link(int(nvlinks[direct[0]]))} joins GPUs directly: only NVLinks over NVSwitches can be run"
        )
    return gpu, switch


def _places(server: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Servers, and [GPU] -> its number in its server, from 1 on. GPUs come in the order of their nodes."""
    servers, of = np.unique(server, return_inverse=True)
    order = np.argsort(of, kind="stable")
    begin = np.searchsorted(of[order], np.arange(len(servers)))
    place = np.empty(len(server), np.int64)
    place[order] = np.arange(len(server)) - begin[of[order]] + 1
    return servers, place


def _join(one: LinkColumns, other: LinkColumns) -> LinkColumns:
    names = LinkColumns.__dataclass_fields__
    return LinkColumns(**{name: np.concatenate((getattr(one, name), getattr(other, name))) for name in names})


def _fill(
    tables: Tables, bare: Fabric, slots: NDArray[np.int32], heads: NDArray[np.int64], place: NDArray[np.int64]
) -> None:
    """The tables of the network as they were, and those of the new switches."""
    old = bare.tables
    awake = vars(old)
    tables.port_info = old.port_info.copy()
    tables.lid[slots] = place
    was = np.flatnonzero(old.switch_row >= 0)
    rows = tables.switch_row[was]
    for name in ("lft", "path_sl", "ar_group"):
        if name in awake or name == "lft":
            filled = np.full_like(getattr(tables, name), NO_ROUTE if name == "lft" else 0 if name == "path_sl" else -1)
            if name in awake:
                filled[rows, : awake[name].shape[1]] = awake[name][old.switch_row[was]]
            setattr(tables, name, filled)
    tables.lft[tables.switch_row[heads], place] = place
    for name in ("vl_arbitration", "pkey", "ar_ports"):
        if name in awake:
            setattr(tables, name, awake[name])
    if "sl2vl" in awake:
        kept = np.flatnonzero((tables.switch_row >= 0) == (old.switch_row >= 0))
        n_rows = np.diff(np.append(old.first_pair, len(old.sl2vl)))[kept]
        tables.sl2vl[_spans(tables.first_pair[kept], n_rows)] = old.sl2vl[_spans(old.first_pair[kept], n_rows)]


def _spans(first: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """All numbers of ranges that begin at `first`."""
    ends = np.cumsum(count)
    return np.repeat(first - ends + count, count) + np.arange(int(ends[-1]))
