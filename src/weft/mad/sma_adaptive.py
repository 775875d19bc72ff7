"""Implement NVIDIA's attributes for adaptive routing: the groups of ports from which the engines of `sim` choose.

A switch keeps groups of ports, by number, and for each LID a group or a port. While AdaptiveRoutingInfo has it enabled,
`tables.ar_group` and `tables.ar_ports` of the fabric are as set by MADs; while it is disabled, the forwarding table
alone decides. A Set of the plain forwarding table turns it off, or is refused if `no_fallback` is set, as that
bit is understood. See `weft.wire.adaptive` for how sure all this is.

Which switches have it: those that NodeInfo shows as an InfiniBand switch of the catalog, SX6036 to Q3400, which all do.
Topologies built from a radix and a speed say that they are such a model, so they have it too. A switch of a dump that
the catalog does not know answers that it does not support the attribute.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.fabric.rates import Technology, speed
from weft.fabric.tables import NO_ROUTE
from weft.mad import sma_tables
from weft.mad.devices import Adaptive, Devices
from weft.mad.power_up import LINEAR_FDB_CAP
from weft.wire.adaptive import GROUPS_PER_BLOCK, LIDS_PER_BLOCK, MASK_BYTES, AdaptiveRoutingInfo, LidState
from weft.wire.mad import Status

GROUP_CAP = 2048  # the 1,024 blocks of two that NVIDIA's OpenSM counts
_NUMBERS = 1 << 12  # that fit into an entry
_DATA, _END = 64, 128
_NOT_FOUND = int(Status.INVALID_FIELD)
_NOT_HERE = int(Status.METHOD_ATTRIBUTE_NOT_SUPPORTED)
_STATIC = int(LidState.STATIC) << 12
_LFT_BLOCK = 64
_ON, _TOP, _STRICT = AdaptiveRoutingInfo.enabled, AdaptiveRoutingInfo.group_top, AdaptiveRoutingInfo.no_fallback
_SETTABLE = (_ON, _TOP, _STRICT, AdaptiveRoutingInfo.ageing_time_us)
_POWER_UP = AdaptiveRoutingInfo.pack(
    global_groups=1, group_table_cap=1, group_cap=GROUP_CAP, sub_groups_supported=1, version_cap=2
)


@lru_cache(maxsize=1024)
def _has_it(vendor_id: int, device_id: int) -> bool:
    """Return whether a device is an InfiniBand switch of the catalog."""
    adaptive = catalog.by_device_id(vendor_id, device_id)
    return isinstance(adaptive, catalog.Switch) and speed(adaptive.speed).technology == Technology.INFINIBAND


def _adaptive(devices: Devices, node: int) -> Adaptive | None:
    """Return the adaptive routing state of a node; None if it has none. Number existing groups in their order."""
    adaptive = devices.adaptive.get(node)
    if adaptive is None:
        nodes, tables = devices.fabric.nodes, devices.tables
        if not devices.is_switch[node] or not _has_it(int(nodes.vendor_id[node]), int(nodes.device_id[node])):
            return None
        adaptive = devices.adaptive[node] = Adaptive(bytearray(_POWER_UP), np.full(_NUMBERS, -1, np.int32))
        if "ar_group" in vars(tables):
            _take_over(adaptive, tables.ar_group[devices.row[node]], tables.ar_ports)
    more = devices.tables.lft.shape[1] - len(adaptive.code)
    if more:
        adaptive.code = np.pad(adaptive.code, (0, more), constant_values=_STATIC)
    return adaptive


def _take_over(adaptive: Adaptive, of_lid: NDArray[np.int32], ports: NDArray[np.bool_]) -> None:
    rows, number = np.unique(of_lid, return_inverse=True)
    first = int(np.searchsorted(rows, 0))  # behind the -1 of LIDs that have no group
    rows = rows[first : first + GROUP_CAP]
    grouped = (number >= first) & (number < first + len(rows))
    adaptive.code = np.where(grouped, int(LidState.FREE) << 12 | number - first, _STATIC).astype(np.uint16)
    for group, row in enumerate(rows.tolist()):
        adaptive.row[group] = row
        adaptive.mask[group] = np.packbits(ports[row], bitorder="little").tobytes()[::-1]
    if len(rows):
        _ON.set(adaptive.info, 1)
        _TOP.set(adaptive.info, len(rows) - 1)


def _show(devices: Devices, node: int, adaptive: Adaptive, lids: slice = slice(None)) -> None:
    """Bring the fabric's tables to what the switch does now."""
    tables = devices.tables
    if not _ON.get(adaptive.info):
        if "ar_group" in vars(tables):
            tables.ar_group[devices.row[node], lids] = -1
        return
    code = adaptive.code[lids]
    group = code & _NUMBERS - 1
    chosen = (code >> 12 != LidState.STATIC) & (group <= _TOP.get(adaptive.info))
    tables.ar_group[devices.row[node], lids] = np.where(chosen, adaptive.row[group], -1)


# -- AdaptiveRoutingInfo ----------------------------------------------------------------------------------------------


def get_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    adaptive = _adaptive(devices, node)
    if adaptive is None:
        return _NOT_HERE
    smp[_DATA:_END] = adaptive.info.ljust(_END - _DATA, b"\0")
    return 0


def set_info(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    adaptive = _adaptive(devices, node)
    if adaptive is None:
        return _NOT_HERE
    status = 0
    if _TOP.get(smp, _DATA) >= GROUP_CAP:
        status = _NOT_FOUND
    else:
        for field in _SETTABLE:
            field.set(adaptive.info, field.get(smp, _DATA))
        _show(devices, node, adaptive)
    return status | get_info(devices, node, slot, modifier, smp)


# -- AdaptiveRoutingGroupTable ----------------------------------------------------------------------------------------


def get_groups(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    adaptive, first = _adaptive(devices, node), modifier * GROUPS_PER_BLOCK
    if adaptive is None:
        return _NOT_HERE
    if first >= GROUP_CAP:  # another table, or a private one, is a modifier beyond all blocks
        return _NOT_FOUND
    masks = (adaptive.mask.get(group, bytes(MASK_BYTES)) for group in range(first, first + GROUPS_PER_BLOCK))
    smp[_DATA:_END] = b"".join(masks)
    return 0


def set_groups(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    adaptive, first = _adaptive(devices, node), modifier * GROUPS_PER_BLOCK
    if adaptive is None:
        return _NOT_HERE
    if first >= GROUP_CAP:
        return _NOT_FOUND
    moved = False
    for group in range(first, first + GROUPS_PER_BLOCK):
        begin = _DATA + (group - first) * MASK_BYTES
        adaptive.mask[group] = mask = bytes(smp[begin : begin + MASK_BYTES])
        row = _row_of(devices, mask, devices.last_port[node])
        moved |= row != adaptive.row[group]
        adaptive.row[group] = row
    if moved and _ON.get(adaptive.info):
        _show(devices, node, adaptive)
    return 0


def _row_of(devices: Devices, mask: bytes, last_port: int) -> int:
    """Return the row of `ar_ports` with exactly these existing ports; -1 if there are none."""
    ports = np.zeros(NO_ROUTE + 1, np.bool_)
    named = np.unpackbits(np.frombuffer(mask[::-1], np.uint8), bitorder="little")
    ports[1 : last_port + 1] = named[1 : last_port + 1]
    if not ports.any():
        return -1
    tables, key = devices.tables, ports.tobytes()
    cached_ports, rows = devices.port_groups
    if cached_ports is not tables.ar_ports:
        rows = {ports_of_row.tobytes(): row for row, ports_of_row in enumerate(tables.ar_ports)}
    if key not in rows:
        rows[key] = len(tables.ar_ports)
        tables.ar_ports = np.concatenate((tables.ar_ports, ports[None]))
    devices.port_groups = tables.ar_ports, rows
    return rows[key]


# -- forwarding -------------------------------------------------------------------------------------------------------


def get_lft(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    adaptive, first = _adaptive(devices, node), modifier * LIDS_PER_BLOCK
    if adaptive is None:
        return _NOT_HERE
    if first >= LINEAR_FDB_CAP:
        return _NOT_FOUND
    code = np.full(LIDS_PER_BLOCK, _STATIC, np.uint16)
    ports = np.full(LIDS_PER_BLOCK, NO_ROUTE, np.uint8)
    codes = adaptive.code[first : first + LIDS_PER_BLOCK]
    code[: len(codes)] = codes
    ports[: len(codes)] = devices.tables.lft[devices.row[node], first : first + LIDS_PER_BLOCK]
    entries = np.frombuffer(smp, np.uint8, _END - _DATA, _DATA).reshape(LIDS_PER_BLOCK, 4)
    group = np.where(code == _STATIC, ports, code & _NUMBERS - 1)
    entries[:, 0], entries[:, 1] = code >> 12 << 6, ports
    entries[:, 2], entries[:, 3] = group >> 8, group & 0xFF
    return 0


def set_adaptive_lft(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Set the group of each LID, and its port, which goes into the linear forwarding table."""
    adaptive, first = _adaptive(devices, node), modifier * LIDS_PER_BLOCK
    if adaptive is None:
        return _NOT_HERE
    if first >= LINEAR_FDB_CAP:
        return _NOT_FOUND
    entries = np.frombuffer(smp, np.uint8, _END - _DATA, _DATA).reshape(LIDS_PER_BLOCK, 4).astype(np.uint16)
    plain, begin = bytearray(_END), _DATA + first % _LFT_BLOCK
    sma_tables.get_lft(devices, node, slot, first // _LFT_BLOCK, plain)
    plain[begin : begin + LIDS_PER_BLOCK] = entries[:, 1].astype(np.uint8).tobytes()
    sma_tables.set_lft(devices, node, slot, first // _LFT_BLOCK, plain)
    adaptive = _adaptive(devices, node) or adaptive  # there may be more LIDs now
    state = entries[:, 0] >> 6
    code = np.where(state == LidState.STATIC, _STATIC, state << 12 | entries[:, 2] << 8 & 0xF00 | entries[:, 3])
    lids = slice(first, first + LIDS_PER_BLOCK)
    adaptive.code[lids] = code
    if _ON.get(adaptive.info):
        _show(devices, node, adaptive, lids)
    return get_lft(devices, node, slot, modifier, smp)


def set_lft(devices: Devices, node: int, slot: int, modifier: int, smp: bytearray) -> int:
    """Set a block of the linear forwarding table: its LIDs lose their groups, and the switch routes by it alone."""
    adaptive = _adaptive(devices, node) if node in devices.adaptive or "ar_group" in vars(devices.tables) else None
    if adaptive is not None and _ON.get(adaptive.info) and _STRICT.get(adaptive.info):
        return _NOT_FOUND
    status = sma_tables.set_lft(devices, node, slot, modifier, smp)
    if adaptive is not None and not status:
        first = modifier * _LFT_BLOCK
        adaptive.code[first : first + _LFT_BLOCK] = _STATIC
        if _ON.get(adaptive.info):
            _ON.set(adaptive.info, 0)
            _show(devices, node, adaptive)
    return status
