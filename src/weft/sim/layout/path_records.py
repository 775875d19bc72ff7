"""The path parameters of senders: from the path records of their hosts, or else from the tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import ANY
from weft.sim.adaptive import POLICIES
from weft.sim.engine import Options
from weft.sim.layout.records import Records, distinct_rows
from weft.sim.layout.wiring import Wiring
from weft.sim.traffic import PATH_SL

_LONGEST_BYTES = 1 << 30  # packet size limit; the options have their own


def lid_offsets(wiring: Wiring, messages: Records, options: Options) -> NDArray[np.int64]:
    """Return the LID of the receiver that each message uses, counted from its first one ([message]).

    With paths by LMC the messages of a pair of ports take turns, and each pair begins with a random LID.
    """
    offset = np.zeros(len(messages), np.int64)
    if not POLICIES[str(options.paths)].by_lid:
        return offset
    if not wiring.fabric.tables.lmc.any():
        raise ConfigError(
            f"--paths {options.paths} needs several LIDs for each port, and {wiring.fabric.spec} has one: "
            "route with --lmc"
        )
    _, pair = distinct_rows(np.column_stack((messages.src, messages.dst)))
    order = np.argsort(pair, kind="stable")
    count = np.bincount(pair)
    begin = np.random.default_rng(options.seed).integers(1 << 16, size=len(count))
    offset[order] = begin[pair[order]] + np.arange(len(pair)) - (np.cumsum(count) - count)[pair[order]]
    lmc: NDArray[np.int64] = wiring.fabric.tables.lmc[wiring.slot[messages.dst]].astype(np.int64)
    return offset & ((1 << lmc) - 1)


def path_records(
    wiring: Wiring, sl_options: NDArray[np.int8], src: NDArray[np.int32], dlid: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return SL, P_Key, MTU and rate of each message from its port to its LID; an SL in the traffic takes precedence.

    Without path records these are the SL of the routing engine, the P_Key at index 0 of the port, no MTU limit and
    the rate of
    the port.
    """
    tables, slot = wiring.fabric.tables, wiring.slot[src]
    sl, mtu_bytes = np.zeros(len(sl_options), np.int64), np.full(len(sl_options), _LONGEST_BYTES)
    rate_gbit_s = np.full(len(sl_options), np.inf)
    p_key = tables.pkey[slot, 0].astype(np.int64) if "pkey" in vars(tables) else np.full(len(sl_options), ANY)
    if "path_sl" in vars(tables):
        leaf = wiring.ports.owner[wiring.ports.peer[src]]
        sl = np.where(leaf >= 0, tables.path_sl[leaf, np.where(dlid < tables.path_sl.shape[1], dlid, 0)], 0)
    if tables.paths is not None:
        record = tables.paths.find(slot, dlid)
        if (unknown := record < 0).any():
            row = int(np.flatnonzero(unknown)[0])
            raise ConfigError(
                f"{wiring.name(int(src[row]))} has no path record for LID {dlid[row]} from the subnet administrator; "
                "check that both are in one partition (`weft exec HOST saquery -p` lists all paths)"
            )
        sl, p_key, mtu_bytes = (
            column[record].astype(np.int64) for column in (tables.paths.sl, tables.paths.p_key, tables.paths.mtu_bytes)
        )
        rate_gbit_s = tables.paths.rate_gbit_s[record]
    return np.where(sl_options == PATH_SL, sl, sl_options), p_key, mtu_bytes, rate_gbit_s
