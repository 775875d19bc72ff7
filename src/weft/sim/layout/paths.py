"""Check that every pair has a path, and lay out the VLs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import HEADERS_BYTES, MANAGEMENT_VL, Reason
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.sim.engine import Network, Options
from weft.sim.layout.posting import Posting
from weft.sim.layout.records import NONE, Records, distinct_rows
from weft.sim.layout.wiring import Wiring


def check_paths(
    wiring: Wiring, posting: Posting, options: Options, rows: NDArray[np.int64] | slice = slice(None)
) -> None:
    """Follow a packet of each message and its acknowledgement. Raise ConfigError if one does not arrive."""
    fabric = wiring.fabric
    messages, mtu_bytes = posting.messages, posting.mtu_bytes[rows]
    src, dst, sl, back_sl, dlid, slid = (
        messages[name][rows] for name in ("src", "dst", "sl", "back_sl", "dlid", "slid")
    )
    forth = (src, dst, sl, posting.p_key[rows], mtu_bytes, dlid)
    back = (dst, src, back_sl, posting.back_p_key[rows], mtu_bytes, slid)
    both = np.concatenate([np.array(way, np.int64) for way in (forth, back)], axis=1).T
    ways, _ = distinct_rows(both[both[:, 0] != both[:, 1]])  # multicast has no single receiver
    src, dst = wiring.slot[ways[:, 0]], wiring.slot[ways[:, 1]]
    dlid = ways[:, 5]
    beyond = fabric.ports.peer[src] != dst  # a switch is between them
    if beyond.any() and "lft" not in vars(fabric.tables):
        raise ConfigError(
            f"{fabric.spec} has no forwarding tables: route it with weft.routing.route.route(fabric), "
            f"or `weft route --dump` and load OpenSM's"
        )
    if (missing := beyond & (dlid == 0)).any():
        name = fabric.port(int(dst[missing][0])).name
        raise ConfigError(f"{name} has no LID, so no packet can be addressed to it: route the fabric first")
    packets = np.column_stack((src, dlid, ways[:, 2:4], ways[:, 4] + HEADERS_BYTES, dst))[dlid > 0]
    ends = walk_all(arrays(fabric), np.ascontiguousarray(packets[:, :5]), paths=False)
    if (lost := ends.reason != Reason.ARRIVED).any():
        row = int(np.flatnonzero(lost)[0])
        slots = (packets[row, 0], packets[row, 5], ends.end[row])
        src_name, dst_name, end_name = (fabric.port(int(slot)).name for slot in slots)
        raise ConfigError(
            f"no route: a packet from {src_name} to {dst_name} ends at {end_name}: "
            f"{Reason(int(ends.reason[row])).text}. "
            "`weft check` lists all pairs without a route"
        )
    if options.network is Network.ROCE_V1 and options.routed:
        _check_subnets(wiring, messages)


def _check_subnets(wiring: Wiring, messages: Records) -> None:
    """Refuse RoCEv1 between subnets: with routing switches it works only below one leaf."""
    leaf = wiring.ports.owner[wiring.ports.peer]
    apart = np.flatnonzero(leaf[messages.src] != leaf[messages.dst])
    if len(apart):
        src, dst = (wiring.name(int(messages[side][apart[0]])) for side in ("src", "dst"))
        raise ConfigError(
            f"RoCEv1 cannot go from {src} to {dst}: it has no IP header, and the switches are IP routers "
            f"(Options.routed). Use --network roce (RoCEv2), or switches that do not route"
        )


def count_vls(wiring: Wiring, levels: NDArray[np.int64]) -> int:
    """Return the number of data VLs that these service levels can use."""
    tables = wiring.fabric.tables
    if "sl2vl" not in vars(tables):
        return 1
    vls = tables.sl2vl[:, np.unique(levels)]
    data = vls[vls < MANAGEMENT_VL]
    return int(data.max(initial=0)) + 1


def host_vls(wiring: Wiring, n_vls: int) -> NDArray[np.int32]:
    """Return the VL on which an adapter sends ([host, sl])."""
    ports = wiring.host_ports
    if n_vls == 1:
        return np.zeros((len(ports), 16), np.int32)
    tables, slots = wiring.fabric.tables, wiring.slot[ports]
    rows = tables.first_pair[wiring.fabric.ports.node[slots]] + wiring.fabric.ports.number[slots]
    vls = tables.sl2vl[rows].astype(np.int32)
    return np.where(vls < n_vls, vls, 0)


def arbitration(wiring: Wiring, n_vls: int, packet_bytes: int) -> tuple[NDArray[np.int64], Any, Any, NDArray[np.int64]]:
    """Return the VL arbitration: [port] -> row; [row, low | high, entry] -> VL and weight; [row] -> high limit in
    bytes.

    The limit is -1 if there is none. A port with empty tables sends one packet of each VL in turn.
    """
    tables = wiring.fabric.tables
    turns = np.zeros((2, 64, 2), np.int64)
    turns[0, :n_vls, 0], turns[0, :n_vls, 1] = np.arange(n_vls), min(-(-packet_bytes // 64), 255)
    if n_vls == 1 or "vl_arbitration" not in vars(tables):
        rows, row_of = turns[None], np.zeros(len(wiring.slot), np.int64)
        limits = np.zeros(1, np.int64)
    else:
        weights = tables.vl_arbitration[wiring.slot]
        empty = (weights[..., 1] == 0).all(axis=(1, 2))
        weights[empty] = turns
        words = weights.reshape(len(weights), -1).view(np.int64)  # equal if all bytes are
        keys, row_of = distinct_rows(np.column_stack((words, tables.vl_high_limit[wiring.slot])))
        rows = np.ascontiguousarray(keys[:, :-1]).view(np.uint8).reshape(-1, 2, 64, 2).astype(np.int64)
        limits = keys[:, -1]
    vl, weight = _packed(rows, n_vls)
    _refuse_unserved_vls(wiring, row_of, vl, weight, n_vls)
    return row_of, vl, weight, np.where(limits == 255, NONE, limits * 4096)


def _packed(rows: NDArray[np.int64], n_vls: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Move entries with a weight and a VL of this run to the front of each table."""
    vl, weight = np.zeros(rows.shape[:3], np.int32), np.zeros(rows.shape[:3], np.int32)
    for row, side in np.ndindex(*rows.shape[:2]):
        entries = rows[row, side][(rows[row, side, :, 1] > 0) & (rows[row, side, :, 0] < n_vls)]
        vl[row, side, : len(entries)], weight[row, side, : len(entries)] = entries[:, 0], entries[:, 1]
    return vl, weight


def _refuse_unserved_vls(
    wiring: Wiring, row_of: NDArray[np.int64], vl: NDArray[np.int32], weight: NDArray[np.int32], n_vls: int
) -> None:
    for row in range(len(vl)):
        served = set(vl[row][weight[row] > 0].tolist())
        if unserved := set(range(n_vls)) - served:
            port = wiring.name(int(np.flatnonzero(row_of == row)[0]))
            raise ConfigError(
                f"VL {min(unserved)} of {port} is in no arbitration table, so its packets would never be sent. "
                f"Give it a weight in vl_arbitration"
            )
