"""What senders take for their path: as their hosts were told by a subnet administrator, or else as tables say."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import ANY
from weft.ids import Lid
from weft.sim.layout.wiring import Wiring
from weft.sim.traffic import PATH_SL

_LONGEST_BYTES = 1 << 30  # of a packet: the options limit it


def told_paths(
    wiring: Wiring, given: NDArray[np.int8], src: NDArray[np.int32], dlid: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """[message] -> SL, P_Key, MTU and rate from this port to this LID, as its host was told; no SL if one was given.

    Who was told nothing takes what the routing engine says, the P_Key at index 0 of the port, the longest packets and
    the rate of the port.
    """
    tables, slot = wiring.fabric.tables, wiring.slot[src]
    sl, mtu_bytes = np.zeros(len(given), np.int64), np.full(len(given), _LONGEST_BYTES)
    rate_gbit_s = np.full(len(given), np.inf)
    p_key = tables.pkey[slot, 0].astype(np.int64) if "pkey" in vars(tables) else np.full(len(given), ANY)
    if "path_sl" in vars(tables):
        leaf = wiring.ports.owner[wiring.ports.peer[src]]
        sl = np.where(leaf >= 0, tables.path_sl[leaf, np.where(dlid < Lid.FIRST_MULTICAST, dlid, 0)], 0)
    if tables.paths is not None:
        told = tables.paths.find(slot, dlid)
        if (unknown := told < 0).any():
            row = int(np.flatnonzero(unknown)[0])
            raise ConfigError(
                f"{wiring.name(int(src[row]))} knows no path to LID {dlid[row]}: the subnet administrator has none; "
                "are they in one partition? `weft exec HOST saquery -p` shows all"
            )
        sl, p_key, mtu_bytes = (
            column[told].astype(np.int64) for column in (tables.paths.sl, tables.paths.p_key, tables.paths.mtu_bytes)
        )
        rate_gbit_s = tables.paths.rate_gbit_s[told]
    return np.where(given == PATH_SL, sl, given), p_key, mtu_bytes, rate_gbit_s
