"""Fabrics whose GPUs are hosts: the server links that are simulated, and the tables of the network around them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.tables import Tables


def joined_links(fabric: Fabric) -> NDArray[np.bool_]:
    """Return a mask of the server links that GPUs use: NVLink or PCIe, at a switch that `join_nvlinks` added."""
    a, b = fabric.link_nodes
    kind = fabric.nodes.kind
    at_switch: NDArray[np.bool_] = (kind[a] == NodeKind.SWITCH) | (kind[b] == NodeKind.SWITCH)
    return fabric.links_of(Technology.NVLINK, Technology.PCIE) & at_switch


def talks_over_pcie(fabric: Fabric) -> bool:
    """Return whether some GPUs of a server have no NVLink between them."""
    return bool((joined_links(fabric) & fabric.links_of(Technology.PCIE)).any())


def carry_over(tables: Tables, old: Tables, slots: NDArray[np.int32], lids: NDArray[np.int64]) -> None:
    """Copy the tables of the network into those of a fabric with new switches; GPUs at these slots get LIDs.

    Existing nodes keep their indices; new nodes follow them.
    """
    existing = vars(old)
    tables.port_info[: len(old.port_info)] = old.port_info
    tables.lid[slots] = lids
    old_switches = np.flatnonzero(old.switch_row >= 0)
    rows = tables.switch_row[old_switches]
    for name in ("lft", "path_sl", "ar_group"):
        if name in existing or name == "lft":
            nothing = tables.no_route if name == "lft" else 0 if name == "path_sl" else -1
            filled = np.full_like(getattr(tables, name), nothing)
            if name in existing:
                filled[rows, : existing[name].shape[1]] = existing[name][old.switch_row[old_switches]]
            setattr(tables, name, filled)
    for name in ("vl_arbitration", "pkey"):
        if name in existing:
            getattr(tables, name)[: len(existing[name])] = existing[name]
    if "ar_ports" in existing:
        tables.ar_ports = existing["ar_ports"]
    if "sl2vl" in existing:
        unchanged = np.flatnonzero((tables.switch_row[: len(old.switch_row)] >= 0) == (old.switch_row >= 0))
        n_rows = np.diff(np.append(old.first_pair, len(old.sl2vl)))[unchanged]
        new_rows, old_rows = (_spans(each.first_pair[unchanged], n_rows) for each in (tables, old))
        tables.sl2vl[new_rows] = old.sl2vl[old_rows]


def _spans(first: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return all indices of ranges that begin at `first`."""
    ends = np.cumsum(count)
    return np.repeat(first - ends + count, count) + np.arange(int(ends[-1]))
