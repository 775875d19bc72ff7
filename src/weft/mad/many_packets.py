"""Very many data packets: what `packets.carry` does with one, for rows of bytes at a time, by a kernel.

    fates = carry_many(devices, slots, rows)      rows: uint8[n, bytes] as Packet.pack or weft.wire.bulk make them
    fates.reason == Reason.ARRIVED                which arrived, at fates.end on fates.vl

Counters, violations and traps are those of one packet after the other. What a kernel does not carry goes by `carry`:
raw and malformed packets, those for QP 0, from a port that is not Active; those with a global route header, if there
are routers; all, while some cable errs or has a tap.
Packets to groups have as many fates as copies, and are refused here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.fabric.forwarding import Reason
from weft.fabric.kernels.forwarding import Arrays, Walks, arrays, walk_all
from weft.ids import Lid
from weft.mad import packets
from weft.mad.devices import Devices
from weft.wire.bulk import Rows, column
from weft.wire.crc import ICRC_BYTES, VCRC_BYTES
from weft.wire.fields import Bits
from weft.wire.headers import BTH, GRH, LNH, LRH

_CHUNK = 1 << 16  # packets whose paths are kept at the same time: 20 MB


@dataclass(frozen=True, slots=True, eq=False)
class DeliveryResults:
    """The results of many packets: the slot where each ended, the VL of its last link, and the `Reason`."""

    end: NDArray[np.int64]
    vl: NDArray[np.int64]
    reason: NDArray[np.int64]


def carry_many(devices: Devices, slots: NDArray[np.int64], rows: Rows) -> DeliveryResults:
    """Carry packets that leave adapter ports, or port 0 of switches; see the module."""
    if (column(rows, LRH.dlid) >= Lid.FIRST_MULTICAST).any():
        raise ConfigError("packets to groups are not carried many at a time: send each by `packets.carry`")
    results = DeliveryResults(*(np.zeros(len(rows), np.int64) for _ in range(3)))
    plain = _plain(devices, slots, rows)
    plane = arrays(devices.fabric)
    for begin in range(0, len(rows), _CHUNK):
        at = begin + np.flatnonzero(plain[begin : begin + _CHUNK])
        _carry_plain(devices, plane, slots[at], rows[at], results, at)
    for row in np.flatnonzero(~plain).tolist():
        result = packets.carry(devices, int(slots[row]), rows[row].tobytes())
        drop = result.dropped[0] if result.dropped else None
        results.end[row] = drop.slot if drop else result.delivered[0]
        results.reason[row] = drop.reason if drop else Reason.ARRIVED
        results.vl[row] = result.vls[0] if result.vls else 0
    return results


def _plain(devices: Devices, slots: NDArray[np.int64], rows: Rows) -> NDArray[np.bool_]:
    """Return which packets the kernel can carry."""
    length = 4 * column(rows, LRH.pkt_len) + VCRC_BYTES
    following = column(rows, LRH.lnh)
    headers = np.where(following == LNH.GRH, LRH.size + GRH.size, LRH.size) + BTH.size + ICRC_BYTES + VCRC_BYTES
    plain: NDArray[np.bool_] = (length == rows.shape[1]) & (column(rows, LRH.lver) == 0) & (headers <= rows.shape[1])
    plain &= np.isin(following, (LNH.BTH,) if devices.routers.nodes else (LNH.BTH, LNH.GRH))
    plain &= np.array([devices.is_active(slot) for slot in range(len(devices.cable))])[slots]
    plain[plain] = _of_bth(rows[plain], BTH.dest_qp) > 0
    plain &= not devices.erring and devices.tap is None
    return plain


def _of_bth(rows: Rows, field: Bits) -> NDArray[np.int64]:
    is_global = column(rows, LRH.lnh) == LNH.GRH
    values = np.empty(len(rows), np.int64)
    for some, base in ((~is_global, LRH.size), (is_global, LRH.size + GRH.size)):
        values[some] = column(rows[some], field, base)
    return values


def _carry_plain(
    devices: Devices,
    plane: Arrays,
    slots: NDArray[np.int64],
    rows: Rows,
    results: DeliveryResults,
    at: NDArray[np.int64],
) -> None:
    words, sl = column(rows, LRH.pkt_len).astype(np.int64), column(rows, LRH.sl).astype(np.int64)
    dlid, p_key = column(rows, LRH.dlid).astype(np.int64), _of_bth(rows, BTH.p_key)
    walks = walk_all(plane, np.column_stack((slots, dlid, sl, p_key, 4 * words)))
    results.end[at], results.reason[at] = walks.end, walks.reason
    last = np.maximum(walks.hops - 1, 0)
    results.vl[at] = np.where(walks.hops > 0, walks.vls[np.arange(len(last)), last], 0)
    _count(devices, walks, words, sl)
    _count_drops(devices, walks, rows)


def _count(devices: Devices, walks: Walks, words: NDArray[np.int64], sl: NDArray[np.int64]) -> None:
    """Count packets and words at both ends of every hop."""
    packet, hop = np.nonzero(np.arange(walks.out.shape[1]) < walks.hops[:, None])
    out, counters = walks.out[packet, hop], devices.fabric.counters
    far = devices.fabric.ports.peer[out]
    for slots, names, detail in (
        (out, ("PORT_XMIT_PKTS", "PORT_UNICAST_XMIT_PKTS", "PORT_XMIT_DATA_WORDS"), "port_xmit_data_sl"),
        (far, ("PORT_RCV_PKTS", "PORT_UNICAST_RCV_PKTS", "PORT_RCV_DATA_WORDS"), "port_rcv_data_sl"),
    ):
        count = np.bincount(slots, minlength=len(counters))
        carried = np.bincount(slots, words[packet], minlength=len(counters)).astype(np.int64)
        for name, more in zip(names, (count, count, carried), strict=True):
            counters[:, Counter[name]] += more
        each, inverse = np.unique(slots.astype(np.int64) << 4 | sl[packet], return_inverse=True)
        for code, more in zip(each.tolist(), np.bincount(inverse, words[packet]).astype(int).tolist(), strict=True):
            devices.details[code >> 4, detail, code & 15] += more


def _count_drops(devices: Devices, walks: Walks, rows: Rows) -> None:
    """Count drops by port and reason; of each group only the first packet may send a trap."""
    dropped = np.flatnonzero(walks.reason != Reason.ARRIVED)
    _, first, count = np.unique(walks.end[dropped] << 8 | walks.reason[dropped], return_index=True, return_counts=True)
    for row, many in sorted(zip(dropped[first].tolist(), count.tolist(), strict=True)):
        slot, reason = int(walks.end[row]), Reason(int(walks.reason[row]))
        packets.count_drops(devices, slot, reason, rows[row].tobytes(), many)
