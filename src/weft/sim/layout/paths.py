"""Before the clock starts: does every pair have a way, and on which VLs?"""

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
    """Follow a packet of each of these messages, and back; refuse, by name, where one ends before its time."""
    fabric = wiring.fabric
    messages, mtu_bytes = posting.messages[rows], posting.mtu_bytes[rows]
    forth = (messages.src, messages.dst, messages.sl, posting.p_key[rows], mtu_bytes)
    back = (messages.dst, messages.src, messages.back_sl, posting.back_p_key[rows], mtu_bytes)
    both = np.concatenate([np.array(way, np.int64) for way in (forth, back)], axis=1).T
    ways, _ = distinct_rows(both[both[:, 0] != both[:, 1]])  # what is for a group has no one receiver
    src, dst = wiring.slot[ways[:, 0]], wiring.slot[ways[:, 1]]
    dlid = fabric.tables.lid[dst].astype(np.int64)
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
        here, there, place = (fabric.port(int(slot)).name for slot in slots)
        raise ConfigError(
            f"no route: a packet from {here} to {there} ends at {place}: {Reason(int(ends.reason[row])).text}. "
            "`weft check` shows all that do not arrive"
        )
    if options.network is Network.ROCE_V1 and options.routed:
        _check_subnets(wiring, messages)


def _check_subnets(wiring: Wiring, messages: Records) -> None:
    """RoCEv1 between switches that route IP: only below one leaf."""
    leaf = wiring.ports.owner[wiring.ports.peer]
    apart = np.flatnonzero(leaf[messages.src] != leaf[messages.dst])
    if len(apart):
        src, dst = (wiring.name(int(messages[side][apart[0]])) for side in ("src", "dst"))
        raise ConfigError(
            f"RoCEv1 cannot go from {src} to {dst}: it is a bare Ethernet frame without IP, and the switches are "
            f"routers (routed). Use network roce, which is RoCEv2 and has IP, or switches that do not route"
        )


def count_vls(wiring: Wiring, levels: NDArray[np.int64]) -> int:
    """As many data VLs as these service levels can come to use."""
    tables = wiring.fabric.tables
    if "sl2vl" not in vars(tables):
        return 1
    vls = tables.sl2vl[:, np.unique(levels)]
    data = vls[vls < MANAGEMENT_VL]
    return int(data.max(initial=0)) + 1


def host_vls(wiring: Wiring, n_vls: int) -> NDArray[np.int32]:
    """[host, sl] -> the VL by which an adapter sends."""
    ports = wiring.host_ports
    if n_vls == 1:
        return np.zeros((len(ports), 16), np.int32)
    tables, slots = wiring.fabric.tables, wiring.slot[ports]
    rows = tables.first_pair[wiring.fabric.ports.node[slots]] + wiring.fabric.ports.number[slots]
    vls = tables.sl2vl[rows].astype(np.int32)
    return np.where(vls < n_vls, vls, 0)


def arbitration(wiring: Wiring, n_vls: int, packet_bytes: int) -> tuple[NDArray[np.int64], Any, Any, NDArray[np.int64]]:
    """[port] -> row; [row, low | high, entry] -> VL and weight; [row] -> limit of high priority in bytes, -1 none.

    A port whose tables nobody filled gives every VL a packet in turn.
    """
    tables = wiring.fabric.tables
    turns = np.zeros((2, 64, 2), np.int64)
    turns[0, :n_vls, 0], turns[0, :n_vls, 1] = np.arange(n_vls), min(-(-packet_bytes // 64), 255)
    if n_vls == 1 or "vl_arbitration" not in vars(tables):
        rows, row_of = turns[None], np.zeros(len(wiring.slot), np.int64)
        limits = np.zeros(1, np.int64)
    else:
        given = tables.vl_arbitration[wiring.slot]
        empty = (given[..., 1] == 0).all(axis=(1, 2))
        given[empty] = turns
        words = given.reshape(len(given), -1).view(np.int64)  # equal where all bytes are
        keys, row_of = distinct_rows(np.column_stack((words, tables.vl_high_limit[wiring.slot])))
        rows = np.ascontiguousarray(keys[:, :-1]).view(np.uint8).reshape(-1, 2, 64, 2).astype(np.int64)
        limits = keys[:, -1]
    vl, weight = _packed(rows, n_vls)
    _refuse_forgotten_vls(wiring, row_of, vl, weight, n_vls)
    return row_of, vl, weight, np.where(limits == 255, NONE, limits * 4096)


def _packed(rows: NDArray[np.int64], n_vls: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Entries with a weight, and a VL of this run, moved to the front of each table."""
    vl, weight = np.zeros(rows.shape[:3], np.int32), np.zeros(rows.shape[:3], np.int32)
    for row, side in np.ndindex(*rows.shape[:2]):
        kept = rows[row, side][(rows[row, side, :, 1] > 0) & (rows[row, side, :, 0] < n_vls)]
        vl[row, side, : len(kept)], weight[row, side, : len(kept)] = kept[:, 0], kept[:, 1]
    return vl, weight


def _refuse_forgotten_vls(
    wiring: Wiring, row_of: NDArray[np.int64], vl: NDArray[np.int32], weight: NDArray[np.int32], n_vls: int
) -> None:
    for row in range(len(vl)):
        served = set(vl[row][weight[row] > 0].tolist())
        if forgotten := set(range(n_vls)) - served:
            port = wiring.name(int(np.flatnonzero(row_of == row)[0]))
            raise ConfigError(
                f"VL {min(forgotten)} of {port} is in no arbitration table: what waits there would never be sent. "
                f"Give it a weight in vl_arbitration"
            )
