"""Routes of planes that differ, and of several subnets: each is routed by itself, with LIDs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.fabric.tables import Tables


def merge_tables(fabric: Fabric, members: Sequence[NDArray[np.bool_]], parts: Sequence[Tables]) -> Tables:
    """Return the tables of a fabric from those of its planes or subnets, whose nodes are masks of the whole."""
    tables, groups = fabric.tables.like(), 0
    if any("addresses" in vars(part) for part in parts):
        tables.addresses = np.zeros(len(fabric.ports), np.int32)
    if any(part.subnet is not None for part in parts):
        tables.subnet = np.zeros(len(fabric.ports), np.int32)
    switches = np.flatnonzero(tables.switch_row >= 0)
    width = max(part.lft.shape[1] for part in parts)
    shape = (len(switches), width)
    tables.lft = np.full(shape, parts[0].no_route, parts[0].lft.dtype)
    if any("path_sl" in vars(part) for part in parts):
        tables.path_sl = np.zeros(shape, np.uint8)
    if any("ar_group" in vars(part) for part in parts):
        tables.ar_group = np.full(shape, -1, np.int32)
        tables.ar_ports = np.concatenate([part.ar_ports for part in parts])
    for keep, part in zip(members, parts, strict=True):
        rows = tables.switch_row[np.flatnonzero(keep & (tables.switch_row >= 0))]
        existing: dict[str, Any] = vars(part)
        for name in ("lft", "path_sl"):
            if name in existing:
                getattr(tables, name)[rows, : existing[name].shape[1]] = existing[name]
        if "ar_group" in existing:
            shifted = np.where(part.ar_group >= 0, part.ar_group + groups, -1)
            tables.ar_group[rows, : shifted.shape[1]] = shifted
        groups += len(part.ar_ports)
        slots = np.flatnonzero(keep[fabric.ports.node])
        numbered = part.lid > 0
        tables.lid[slots[numbered]] = part.lid[numbered]
        tables.set_lmc(slots[numbered], part.lmc[numbered])
        if tables.subnet is not None and part.subnet is not None:
            tables.subnet[slots] = np.maximum(tables.subnet[slots], part.subnet)
        _merge_lanes(tables, part, np.flatnonzero(keep))
    return tables


def _merge_lanes(tables: Tables, part: Tables, nodes: NDArray[np.intp]) -> None:
    """Copy the SL to VL tables of a part; an adapter or router in several parts keeps those of the last."""
    if "sl2vl" not in vars(part):
        return
    counts = np.diff(np.append(part.first_pair, len(part.sl2vl)))
    ends = np.cumsum(counts)
    rows = np.repeat(tables.first_pair[nodes] - ends + counts, counts) + np.arange(int(ends[-1]))
    tables.sl2vl[rows] = part.sl2vl
