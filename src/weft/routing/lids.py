"""Assign LIDs to ports: switches at port 0, adapters at each cabled port.

Existing LIDs are kept; the others get the lowest free ones, adapters first, in the order of the nodes, so that the
hosts of a leaf are adjacent in its tables. A port with LMC takes an aligned block of 2**LMC.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.ids import Lid


def assign_lids(fabric: Fabric, lmc: int = 0) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Return LID and LMC by port slot, 0 if it needs none. A fabric with a different LMC is numbered again."""
    if not 0 <= lmc <= 7:
        raise ConfigError(f"--lmc must be 0 to 7, got {lmc}")
    hosts, switches = ports_with_lids(fabric)
    lid, lmcs = np.zeros(len(fabric.ports), np.int32), np.zeros(len(fabric.ports), np.uint8)
    lmcs[hosts] = lmc
    slots = np.concatenate((hosts, switches))
    if (fabric.tables.lmc[hosts] == lmc).all():
        lid[slots] = fabric.tables.lid[slots]
    missing = slots[lid[slots] == 0]
    if len(missing):
        lid[missing] = _free_blocks(lid, lmcs, missing, _address_limit(fabric, lmcs[slots]))
    return lid, lmcs


def ports_with_lids(fabric: Fabric) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the slots of adapter ports on the network, and of port 0 of switches."""
    ports = fabric.ports
    kind = fabric.nodes.kind[ports.node]
    plugged = ports.peer >= 0
    plugged[plugged] = fabric.network_links[ports.link[plugged]]
    adapters = np.isin(kind, (NodeKind.HCA, NodeKind.AGGREGATION, NodeKind.ROUTER))
    return np.flatnonzero(adapters & plugged), np.flatnonzero((kind == NodeKind.SWITCH) & (ports.number == 0))


def _address_limit(fabric: Fabric, lmcs: NDArray[np.uint8]) -> int:
    """Return the end of the unicast LIDs; Ethernet has none, and tables with addresses get as many as they need."""
    has_lids = "addresses" not in vars(fabric.tables)
    if has_lids and not fabric.links_of(Technology.ETHERNET)[fabric.network_links].all():
        return Lid.FIRST_MULTICAST
    needed = 2 * int((1 << lmcs.astype(np.int64)).sum())  # with gaps between blocks
    return max(Lid.FIRST_MULTICAST, -(-needed // 128) * 128)


def _free_blocks(
    lid: NDArray[np.int32], lmcs: NDArray[np.uint8], missing: NDArray[np.intp], limit: int
) -> NDArray[np.int32]:
    used = np.zeros(limit + 128, bool)
    used[0] = True
    for slot in np.flatnonzero(lid).tolist():
        used[lid[slot] : lid[slot] + (1 << lmcs[slot])] = True
    lids = np.empty(len(missing), np.int32)
    for size in np.unique(1 << lmcs[missing].astype(np.int64))[::-1].tolist():
        mine = np.flatnonzero(1 << lmcs[missing].astype(np.int64) == size)
        free = np.flatnonzero(~used[:limit].reshape(-1, size).any(axis=1)) * size
        if len(free) < len(mine):
            raise ConfigError(
                f"this fabric needs more LIDs than the {Lid.FIRST_MULTICAST - 1:,} that a subnet has: "
                f"{len(missing):,} ports need one, in blocks of up to {size}; use a smaller --lmc, fewer ports or "
                "several subnets (Ethernet has no such limit: speed=400GbE)"
            )
        lids[mine] = free[: len(mine)]
        for first in lids[mine].tolist():
            used[first : first + size] = True
    return lids
