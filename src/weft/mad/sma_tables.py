"""Get and Set of the tables that a subnet manager fills: they are the fabric's own arrays.

An index that a node does not have is answered with an invalid field; a Set answers with what now stands.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.tables import NO_ROUTE, PKEY_ENTRIES, VL_ARBITRATION_ENTRIES, Tables
from weft.mad.devices import NONE, Devices
from weft.mad.power_up import LINEAR_FDB_CAP, MULTICAST_FDB_CAP, SWITCH_PARTITION_CAP
from weft.wire.mad import Status
from weft.wire.smp import ALL_INPUTS

_DATA, _END = 64, 128
_BLANK = bytes(64)
_BLOCK = 64  # LIDs in a block of the linear forwarding table
_GROUPS = 32  # MLIDs in a block of the multicast forwarding table
_NOT_FOUND = int(Status.INVALID_FIELD)
_NOT_HERE = int(Status.METHOD_ATTRIBUTE_NOT_SUPPORTED)
_NO_ROUTES = bytes([NO_ROUTE]) * _BLOCK


# -- P_Keys -----------------------------------------------------------------------------------------------------------


def _pkey_place(devices: Devices, node: int, slot: int, modifier: int) -> tuple[int, int]:
    """Return slot and first entry of a block of 32; NONE if there is none."""
    switch, first = devices.is_switch[node], (modifier & 0xFFFF) * 32
    requested = devices.port_slot(node, slot, modifier >> 16 if switch else 0)
    return (requested, first) if first < (SWITCH_PARTITION_CAP if switch else PKEY_ENTRIES) else (NONE, 0)


def get_pkeys(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    requested, first = _pkey_place(devices, node, slot, modifier)
    if requested == NONE:
        smp[_DATA:_END] = _BLANK
        return _NOT_FOUND
    smp[_DATA:_END] = devices.tables.pkey[requested, first : first + 32].astype(">u2").tobytes()
    return 0


def set_pkeys(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    requested, first = _pkey_place(devices, node, slot, modifier)
    if requested == NONE:
        return _NOT_FOUND
    devices.tables.pkey[requested, first : first + 32] = np.frombuffer(smp, ">u2", 32, _DATA)
    return 0


# -- SL to VL and VL arbitration --------------------------------------------------------------------------------------


def _sl2vl_row(devices: Devices, node: int, slot: int, modifier: int) -> int:
    """Return the row of `tables.sl2vl`; NONE if there is none."""
    into, out, last = modifier >> 8 & 0xFF, modifier & 0xFF, devices.last_port[node]
    first = devices.first_pair[node]
    if not devices.is_switch[node]:
        return first + devices.number(slot)
    if into > last or out > last:
        return NONE
    return first + into * devices.ports_with_0[node] + out


def get_sl2vl(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    row = _sl2vl_row(devices, node, slot, modifier)
    smp[_DATA:_END] = _BLANK
    if row == NONE:
        return _NOT_FOUND
    vl = devices.tables.sl2vl[row]
    smp[_DATA : _DATA + 8] = (vl[0::2] << 4 | vl[1::2]).tobytes()
    return 0


_HIGH, _LOW = bytes(b >> 4 for b in range(256)), bytes(b & 15 for b in range(256))


def set_sl2vl(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    row = _sl2vl_row(devices, node, slot, modifier)
    if row == NONE:
        return _NOT_FOUND
    pairs, vl = smp[_DATA : _DATA + 8], bytearray(16)
    vl[0::2], vl[1::2] = pairs.translate(_HIGH), pairs.translate(_LOW)
    rows, ports = [row], devices.ports_with_0[node]
    if modifier & ALL_INPUTS and devices.is_switch[node]:
        first = devices.first_pair[node] + (modifier & 0xFF)
        rows = [first + into * ports for into in range(ports)]
    for row in rows:
        devices.view("sl2vl")[16 * row : 16 * row + 16] = vl
    return 0


def _vlarb_place(devices: Devices, node: int, slot: int, modifier: int) -> tuple[int, int, int]:
    """Return slot, 0 low or 1 high, first entry; blocks 1 and 2 are the low table, 3 and 4 the high one."""
    block = modifier >> 16
    requested = devices.port_slot(node, slot, modifier & 0xFF if devices.is_switch[node] else 0)
    if requested == NONE or not 1 <= block <= 4:
        return NONE, 0, 0
    return requested, (block - 1) // 2, (block - 1) % 2 * (VL_ARBITRATION_ENTRIES // 2)


def get_vlarb(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    requested, table, first = _vlarb_place(devices, node, slot, modifier)
    if requested == NONE:
        smp[_DATA:_END] = _BLANK
        return _NOT_FOUND
    smp[_DATA:_END] = devices.tables.vl_arbitration[requested, table, first : first + 32].tobytes()
    return 0


def set_vlarb(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    requested, table, first = _vlarb_place(devices, node, slot, modifier)
    if requested == NONE:
        return _NOT_FOUND
    entries = np.frombuffer(smp, np.uint8, 64, _DATA).reshape(32, 2)
    devices.tables.vl_arbitration[requested, table, first : first + 32] = entries & (0x0F, 0xFF)
    return 0


# -- forwarding -------------------------------------------------------------------------------------------------------


def get_lft(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    first, tables = modifier * _BLOCK, devices.tables
    if not devices.is_switch[node]:
        return _NOT_HERE
    if first >= LINEAR_FDB_CAP:
        return _NOT_FOUND
    entries = tables.lft[devices.row[node], first : first + _BLOCK].tobytes()
    smp[_DATA:_END] = entries + _NO_ROUTES[len(entries) :]
    return 0


def set_lft(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    tables, first = devices.tables, modifier * _BLOCK
    if not devices.is_switch[node]:
        return _NOT_HERE
    if first >= LINEAR_FDB_CAP:
        return _NOT_FOUND
    lids = tables.lft.shape[1]
    if first + _BLOCK > lids:
        lids = _with_lids(tables, first + _BLOCK)
    at = devices.row[node] * lids + first
    devices.view("lft")[at : at + _BLOCK] = smp[_DATA:_END]
    if devices.lid_paths:
        devices.forget_lid_paths()
    return 0


def _with_lids(tables: Tables, lids: int) -> int:
    """Grow the tables to more LIDs, by half at least so that it happens rarely; return the new size."""
    more = max(lids, 3 * tables.lft.shape[1] // 2 // _BLOCK * _BLOCK) - tables.lft.shape[1]
    for name, blank in (("lft", NO_ROUTE), ("path_sl", 0), ("ar_group", -1)):
        if name in vars(tables):  # the others take their columns from `lft` when they wake
            setattr(tables, name, np.pad(getattr(tables, name), ((0, 0), (0, more)), constant_values=blank))
    return int(tables.lft.shape[1])


def _mft_place(devices: Devices, node: int, modifier: int) -> tuple[int, int, int]:
    """Return row, first MLID, and which 16 ports; NONE if there is none."""
    first, position = (modifier & 0x1FF) * _GROUPS, modifier >> 28
    if first >= MULTICAST_FDB_CAP or position > devices.last_port[node] // 16:
        return NONE, 0, 0
    return devices.row[node], first, position


def get_mft(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if not devices.is_switch[node]:
        return _NOT_HERE
    row, first, position = _mft_place(devices, node, modifier)
    smp[_DATA:_END] = _BLANK
    if row == NONE:
        return _NOT_FOUND
    entries = devices.tables.mft[row, first : first + _GROUPS, position].astype(">u2").tobytes()
    smp[_DATA : _DATA + len(entries)] = entries
    return 0


def set_mft(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    if not devices.is_switch[node]:
        return _NOT_HERE
    row, first, position = _mft_place(devices, node, modifier)
    if row == NONE:
        return _NOT_FOUND
    tables = devices.tables
    if first + _GROUPS > tables.mft.shape[1]:
        tables.mft = np.pad(tables.mft, ((0, 0), (0, first + _GROUPS - tables.mft.shape[1]), (0, 0)))
    tables.mft[row, first : first + _GROUPS, position] = np.frombuffer(smp, ">u2", _GROUPS, _DATA)
    return 0
