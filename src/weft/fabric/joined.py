"""Fabrics whose GPUs are hosts: which links of servers are run, and the tables of the network beside them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.tables import NO_ROUTE, Tables


def joined_links(fabric: Fabric) -> NDArray[np.bool_]:
    """[link] -> is it one of a server that GPUs talk over: NVLink or PCIe, with a switch that `join_nvlinks` made?"""
    a, b = fabric.link_nodes
    kind = fabric.nodes.kind
    at_switch: NDArray[np.bool_] = (kind[a] == NodeKind.SWITCH) | (kind[b] == NodeKind.SWITCH)
    return fabric.links_of(Technology.NVLINK, Technology.PCIE) & at_switch


def talks_over_pcie(fabric: Fabric) -> bool:
    """Do some GPUs of a server have no NVLink between them?"""
    return bool((joined_links(fabric) & fabric.links_of(Technology.PCIE)).any())


def carry_over(tables: Tables, old: Tables, slots: NDArray[np.int32], lids: NDArray[np.int64]) -> None:
    """The tables of the network as they were, in those of a fabric with new switches; GPUs at these slots have LIDs.

    Nodes have the same numbers as before, new ones stand behind them.
    """
    awake = vars(old)
    tables.port_info[: len(old.port_info)] = old.port_info
    tables.lid[slots] = lids
    was = np.flatnonzero(old.switch_row >= 0)
    rows = tables.switch_row[was]
    for name in ("lft", "path_sl", "ar_group"):
        if name in awake or name == "lft":
            filled = np.full_like(getattr(tables, name), NO_ROUTE if name == "lft" else 0 if name == "path_sl" else -1)
            if name in awake:
                filled[rows, : awake[name].shape[1]] = awake[name][old.switch_row[was]]
            setattr(tables, name, filled)
    for name in ("vl_arbitration", "pkey"):
        if name in awake:
            getattr(tables, name)[: len(awake[name])] = awake[name]
    if "ar_ports" in awake:
        tables.ar_ports = awake["ar_ports"]
    if "sl2vl" in awake:
        kept = np.flatnonzero((tables.switch_row[: len(old.switch_row)] >= 0) == (old.switch_row >= 0))
        n_rows = np.diff(np.append(old.first_pair, len(old.sl2vl)))[kept]
        tables.sl2vl[_spans(tables.first_pair[kept], n_rows)] = old.sl2vl[_spans(old.first_pair[kept], n_rows)]


def _spans(first: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """All numbers of ranges that begin at `first`."""
    ends = np.cumsum(count)
    return np.repeat(first - ends + count, count) + np.arange(int(ends[-1]))
