"""`weft.fabric.forwarding` for many packets at a time, on a running fabric or on one that has only tables.

Unset tables have no rows: without PortInfo every cabled port is Active and accepts the longest packet, without SL to VL
all packets use VL 0, without P_Keys all ports are in the default partition.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.fabric.forwarding import (
    ACTIVE,
    ANY,
    CHECKS,
    DATA_VLS,
    FULL,
    HEADERS_BYTES,
    MTU,
    NONE,
    P_KEYS_IN,
    P_KEYS_OUT,
    STATE,
    VLS,
    Reason,
)
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.ids import Lid, PKey, p_keys_match
from weft.jit import lean_kernel, part
from weft.jit.references import by_reference

_DEFAULT, _FIRST_MULTICAST = int(PKey.DEFAULT), int(Lid.FIRST_MULTICAST)
_GOES_ON, _ARRIVED, _INACTIVE, _TOO_LONG = (int(Reason[n]) for n in ("GOES_ON", "ARRIVED", "INACTIVE", "TOO_LONG"))
_NO_VL, _NO_RELAY, _NO_ROUTE, _BACK = (int(Reason[n]) for n in ("NO_VL", "NO_RELAY", "NO_ROUTE", "TURNS_BACK"))
_LOOP, _NOT_MINE, _INBOUND, _OUTBOUND = (int(Reason[n]) for n in ("LOOP", "NOT_MINE", "INBOUND", "OUTBOUND"))
_P_KEY = int(Reason.P_KEY)
_PARTITION = int(FULL) - 1
_FULL = int(FULL)
MOST_HOPS = 64
_match = part(p_keys_match)


class Arrays(NamedTuple):
    """A fabric as arrays for kernels."""

    node: NDArray[np.int32]  # [slot]
    peer: NDArray[np.int32]  # [slot], NONE if not cabled
    lid: NDArray[np.int32]  # [slot]
    lmc: NDArray[np.uint8]  # [slot]
    first: NDArray[np.int64]  # [node] -> slot
    last_port: NDArray[np.int64]  # [node]
    ports_with_0: NDArray[np.int64]  # [node]
    row: NDArray[np.int32]  # [node] -> row of the forwarding table, NONE for an adapter
    first_pair: NDArray[np.int64]  # [node]
    lft: NDArray[np.uint8]
    sl2vl: NDArray[np.uint8]
    pkey: NDArray[np.uint16]
    port_info: NDArray[np.uint8]
    switch_info: NDArray[np.uint8]


def arrays(fabric: Fabric) -> Arrays:
    """Return the arrays of a fabric with its current tables."""
    tables, existing, runs = fabric.tables, vars(fabric.tables), fabric.tables.runs

    def table(name: str, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        return np.ascontiguousarray(existing[name]) if name in existing else np.zeros(shape, dtype)

    return Arrays(  # copies: a fabric's own are read-only, and numba would compile again for them
        node=fabric.ports.node.copy(),
        peer=fabric.ports.peer.copy(),
        lid=tables.lid.astype(np.int32),
        lmc=tables.lmc.copy(),
        first=fabric.first_port.astype(np.int64),
        last_port=(fabric.network_ports if runs else fabric.nodes.n_ports).astype(np.int64),
        ports_with_0=fabric.nodes.n_ports.astype(np.int64) + 1,
        row=np.where(fabric.nodes.kind == NodeKind.SWITCH, tables.switch_row, NONE).astype(np.int32),
        first_pair=tables.first_pair.astype(np.int64),
        lft=table("lft", (0, 0), np.uint8),
        sl2vl=table("sl2vl", (0, 0), np.uint8),
        pkey=table("pkey", (0, 0), np.uint16),
        port_info=tables.port_info if runs else np.zeros((0, 0), np.uint8),
        switch_info=table("switch_info", (0, 0), np.uint8),
    )


@part
def _matches(a, slot, p_key):
    """Return whether a P_Key of the port has the same partition and not both are limited."""
    if len(a.pkey) == 0:
        return _match(_DEFAULT, p_key)
    matched = False
    for i in range(a.pkey.shape[1]):
        matched |= _match(np.int64(a.pkey[slot, i]), p_key)
    return matched


@part
def _may_use(a, slot, p_key):
    """Return whether the port holds the P_Key, or the full one of its partition."""
    if p_key & _PARTITION == 0:
        return False
    allowed = False
    for i in range(a.pkey.shape[1]):
        allowed |= a.pkey[slot, i] == p_key or a.pkey[slot, i] == p_key | _FULL
    return allowed


@part
def _checks(a, slot, bit):
    return len(a.port_info) > 0 and a.port_info[slot, CHECKS] & bit != 0


@part
def _leave(a, at, out, sl, size_bytes):
    node = a.node[out]
    ran = len(a.port_info) > 0
    if a.peer[out] == NONE or (ran and a.port_info[out, STATE] & 0x0F != ACTIVE):
        return out, 0, _INACTIVE
    vl = 0
    if len(a.sl2vl):
        row = a.first_pair[node] + out - a.first[node]
        if a.row[node] >= 0:
            row += (at - a.first[node]) * a.ports_with_0[node]
        vl = np.int64(a.sl2vl[row, sl])
    if vl >= (DATA_VLS[a.port_info[out, VLS] >> 4] if ran else 15):
        return (at, 0, _NO_RELAY) if a.row[node] >= 0 else (out, 0, _NO_VL)
    if ran and size_bytes > (128 << np.int64(a.port_info[out, MTU] >> 4)) + HEADERS_BYTES:
        return out, 0, _TOO_LONG
    return out, vl, _GOES_ON


@part
def next_hop(a, at, sends, dlid, sl, p_key, size_bytes):
    """Return slot, VL and reason as `forwarding.next_hop` does, for packets that are neither SMPs nor raw."""
    node = a.node[at]
    row = np.int64(a.row[node])
    if row >= 0 and not sends and p_key != ANY and _checks(a, at, P_KEYS_IN) and not _may_use(a, at, p_key):
        return at, 0, _INBOUND
    own = a.first[node] if row >= 0 else at
    if 0 < a.lid[own] <= dlid < a.lid[own] + (1 << a.lmc[own]):
        return own, 0, (_ARRIVED if p_key == ANY or _matches(a, own, p_key) else _P_KEY)
    if row < 0:
        if not sends:
            return at, 0, _NOT_MINE
        return _leave(a, at, at, sl, size_bytes)
    top = a.lft.shape[1] - 1
    if len(a.switch_info):
        top = min(top, np.int64(a.switch_info[node, 6]) << 8 | a.switch_info[node, 7])
    unicast = dlid < _FIRST_MULTICAST or len(a.switch_info) == 0  # a fabric that is not running may have addresses
    port = np.int64(a.lft[row, dlid]) if 0 < dlid <= top and unicast else 0
    out = a.first[node] + port
    if not 0 < port <= a.last_port[node]:
        return at, 0, _NO_ROUTE
    if out == at:
        return at, 0, _BACK
    if p_key != ANY and _checks(a, out, P_KEYS_OUT) and not _matches(a, out, p_key):
        return out, 0, _OUTBOUND
    return _leave(a, at, out, sl, size_bytes)


@part
def walk(a, slot, dlid, sl, p_key, size_bytes, out, vls):
    """Write slots and VLs of one path to `out` and `vls`; return the number of hops, the end, and the reason."""
    at, sends, hops = np.int64(slot), True, 0
    while True:
        leaves, vl, reason = next_hop(a, at, sends, dlid, sl, p_key, size_bytes)
        if reason != _GOES_ON:
            return hops, leaves, reason
        if hops == len(out):
            return hops, leaves, _LOOP
        for i in range(hops):
            if out[i] == leaves:
                return hops, leaves, _LOOP
        out[hops], vls[hops] = leaves, vl
        hops += 1
        at, sends = np.int64(a.peer[leaves]), False


@lean_kernel
def walk_many(a, packets, ends, out, vls):
    """Follow each row of `packets`: slot, DLID, SL, P_Key, bytes. `ends`: hops, slot and reason of each.

    `out` and `vls` keep the paths of the last rows that they have room for.
    """
    a = by_reference(a)
    for i in range(len(packets)):
        slot, dlid, sl, p_key, size_bytes = packets[i]
        at = i % len(out)
        hops, end, reason = walk(a, slot, dlid, sl, p_key, size_bytes, out[at], vls[at])
        ends[i, 0], ends[i, 1], ends[i, 2] = hops, end, reason


class Walks(NamedTuple):
    """The paths of many packets: number of hops, end and `Reason` of each; its output slots, and its VLs."""

    hops: NDArray[np.int64]
    end: NDArray[np.int64]
    reason: NDArray[np.int64]
    out: NDArray[np.int32]
    vls: NDArray[np.int8]


def walk_all(a: Arrays, packets: NDArray[np.int64], *, paths: bool = True) -> Walks:
    """Follow int64[packet, slot | DLID | SL | P_Key | bytes]; return their paths, or only how they end."""
    ends = np.zeros((len(packets), 3), np.int64)
    rows = len(packets) if paths else 1
    out, vls = np.full((rows, MOST_HOPS), NONE, np.int32), np.zeros((rows, MOST_HOPS), np.int8)
    walk_many(a, packets, ends, out, vls)
    return Walks(ends[:, 0], ends[:, 1], ends[:, 2], out, vls)
