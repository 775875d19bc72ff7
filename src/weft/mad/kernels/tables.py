"""Get and Set of the tables of a subnet manager as kernels: what `mad.sma_tables` does, where it refuses nothing.

An array without rows is a table that was not used yet, or that cannot be written: Python handles it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from weft.fabric.tables import NO_ROUTE, PKEY_ENTRIES, SERVICE_LEVELS, VL_ARBITRATION_ENTRIES
from weft.jit import handler, part
from weft.mad.power_up import LINEAR_FDB_CAP, MULTICAST_FDB_CAP, SWITCH_PARTITION_CAP
from weft.wire.smp import ALL_INPUTS

Array = np.ndarray[Any, Any]
NONE = -1
MOST_HOPS = 64


class Mark(IntEnum):
    """The indexes of `State.marks`: the first three are inputs of the kernel, the others outputs."""

    MAY_SET = 0
    PLAIN_ROUTING = 1  # no switch routes adaptively: a forwarding table is just that
    PLAIN_GUIDS = 2  # no port has alias GUIDs
    LIDS_CHANGED = 3  # or forwarding tables: ways by LID are to be forgotten
    MADS = 4  # that were answered


class State(NamedTuple):
    """The arrays of a subnet, by node, by slot, and the tables; see `Devices` and `Tables`."""

    first: Array  # int32[node]
    last_port: Array  # int32[node]
    is_switch: Array  # bool[node]
    row: Array  # int32[node]
    first_pair: Array  # int64[node]
    ports_with_0: Array  # int32[node]
    node_info: Array  # uint8[node, 64], and so the next two
    node_description: Array
    switch_info: Array
    node_of: Array  # int32[slot]
    cable: Array  # int32[slot], NONE where nothing is plugged in
    guid: Array  # uint8[slot, 8], as MADs have it
    port_info: Array  # uint8[slot, 64]
    risky: Array  # bool[slot]: its cable may lose what crosses it
    fdr10: Array  # uint8[slot, 3]
    sent: Array  # int64[slot]
    received: Array
    pkey: Array  # uint16[slot, index]
    vl_arbitration: Array  # uint8[slot, table, entry, 2]
    sl2vl: Array  # uint8[row, sl]
    lft: Array  # uint8[switch, lid]
    mft: Array  # uint16[switch, mlid, mask]
    marks: Array  # int64[Mark]
    out: Array  # int32[hop]: the slots by which the SMP at hand leaves


DATA_BYTES = 64
_LIDS = 64  # in a block of the linear forwarding table
_GROUPS = _KEYS = _ENTRIES = 32  # in a block of the others
_PLAIN_ROUTING, _LIDS_CHANGED = int(Mark.PLAIN_ROUTING), int(Mark.LIDS_CHANGED)


@part
def two(b, at):
    """Return the number in two bytes."""
    return np.int64(b[at]) << 8 | np.int64(b[at + 1])


@part
def port_slot(s, node, arrived, port):
    """Return the slot of a port by number; 0 of an adapter is the port of arrival. NONE if there is no such port."""
    if not port and not s.is_switch[node]:
        return arrived
    return s.first[node] + port if port <= s.last_port[node] else NONE


@handler
def p_keys(s, node, slot, modifier, b, at, is_set):
    switch, first = s.is_switch[node], (modifier & 0xFFFF) * _KEYS
    requested = port_slot(s, node, slot, modifier >> 16 if switch else 0)
    if requested == NONE or first >= (SWITCH_PARTITION_CAP if switch else PKEY_ENTRIES) or not len(s.pkey):
        return False
    for i in range(_KEYS):
        if is_set:
            s.pkey[requested, first + i] = two(b, at + 2 * i)
        else:
            b[at + 2 * i], b[at + 2 * i + 1] = s.pkey[requested, first + i] >> 8, s.pkey[requested, first + i] & 0xFF
    return True


@handler
def sl2vl(s, node, slot, modifier, b, at, is_set):
    into, out, row = modifier >> 8 & 0xFF, modifier & 0xFF, s.first_pair[node]
    last, step = len(s.sl2vl), len(s.sl2vl)  # rows that are set: one
    if not len(s.sl2vl):
        return False
    if not s.is_switch[node]:
        row += slot - s.first[node]
    elif into > s.last_port[node] or out > s.last_port[node]:
        return False
    elif is_set and modifier & ALL_INPUTS:
        last = row + s.ports_with_0[node] ** 2
        step, row = s.ports_with_0[node], row + out
    else:
        row += into * s.ports_with_0[node] + out
    for i in range(SERVICE_LEVELS // 2):
        if is_set:
            s.sl2vl[row:last:step, 2 * i] = b[at + i] >> 4
            s.sl2vl[row:last:step, 2 * i + 1] = b[at + i] & 0x0F
        else:
            b[at + i] = s.sl2vl[row, 2 * i] << 4 | s.sl2vl[row, 2 * i + 1]
    if not is_set:
        b[at + SERVICE_LEVELS // 2 : at + DATA_BYTES] = 0
    return True


@handler
def vl_arbitration(s, node, slot, modifier, b, at, is_set):
    block = modifier >> 16
    requested = port_slot(s, node, slot, modifier & 0xFF if s.is_switch[node] else 0)
    if requested == NONE or not 1 <= block <= 4 or not len(s.vl_arbitration):
        return False
    table, first = (block - 1) // 2, (block - 1) % 2 * (VL_ARBITRATION_ENTRIES // 2)
    for i in range(_ENTRIES):
        if is_set:
            s.vl_arbitration[requested, table, first + i, 0] = b[at + 2 * i] & 0x0F
            s.vl_arbitration[requested, table, first + i, 1] = b[at + 2 * i + 1]
        else:
            b[at + 2 * i] = s.vl_arbitration[requested, table, first + i, 0]
            b[at + 2 * i + 1] = s.vl_arbitration[requested, table, first + i, 1]
    return True


@handler
def linear_forwarding(s, node, modifier, b, at, is_set):
    first, row, lids = modifier * _LIDS, s.row[node], s.lft.shape[1]
    if not s.is_switch[node] or first >= LINEAR_FDB_CAP or not len(s.lft):
        return False
    if is_set:
        if first + _LIDS > lids or not s.marks[_PLAIN_ROUTING]:
            return False
        s.marks[_LIDS_CHANGED] = 1
        for i in range(_LIDS):
            s.lft[row, first + i] = b[at + i]
    else:
        for i in range(_LIDS):
            b[at + i] = s.lft[row, first + i] if first + i < lids else NO_ROUTE
    return True


@handler
def multicast_forwarding(s, node, modifier, b, at, is_set):
    first, position, row = (modifier & 0x1FF) * _GROUPS, modifier >> 28, s.row[node]
    if not s.is_switch[node] or first >= MULTICAST_FDB_CAP or position > s.last_port[node] // 16:
        return False
    if first + _GROUPS > s.mft.shape[1] or not len(s.mft):
        return False
    for i in range(_GROUPS):
        if is_set:
            s.mft[row, first + i, position] = two(b, at + 2 * i)
        else:
            b[at + 2 * i] = s.mft[row, first + i, position] >> 8
            b[at + 2 * i + 1] = s.mft[row, first + i, position] & 0xFF
    return True
