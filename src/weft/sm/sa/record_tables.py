"""Arrays of records, as bytes, for some nodes of a subnet, with the ports of each record; and queries of them."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import NO_ROUTE, PKEY_ENTRIES, SERVICE_LEVELS
from weft.sm.sa.context import Context
from weft.wire.bulk import column, fill, pack_rows
from weft.wire.fields import Bits
from weft.wire.format import Format
from weft.wire.port_info import PortInfo
from weft.wire.sa import (
    GuidInfoRecord,
    LinearForwardingTableRecord,
    LinkRecord,
    MulticastForwardingTableRecord,
    NodeRecord,
    PKeyTableRecord,
    PortInfoRecord,
    SLtoVLMappingTableRecord,
    SMInfoRecord,
    SwitchInfoRecord,
    VLArbitrationTableRecord,
)
from weft.wire.sa_query import component_mask, covered_bits
from weft.wire.smp import NodeInfo, SMInfo, SMState, SwitchInfo

Rows = NDArray[np.uint8]


@lru_cache(maxsize=1000)  # masks come from outside
def _covered(form: type[Format], mask: int) -> tuple[NDArray[np.intp], Rows]:
    """Return the bytes of a record that a mask covers, and which of their bits."""
    bits = np.frombuffer(covered_bits(form, mask).to_bytes(form.size, "big"), np.uint8)
    at = np.flatnonzero(bits)
    return at, bits[at]


def matching(form: type[Format], rows: Rows, query: bytes, mask: int) -> NDArray[np.intp]:
    """Return the indices of records that equal the query in all components of the mask."""
    at, bits = _covered(form, mask)
    if not len(at):
        return np.arange(len(rows))
    expected = np.frombuffer(query, np.uint8)[at] & bits
    matches = np.flatnonzero(rows[:, at[0]] & bits[0] == expected[0])  # one byte alone leaves few
    same: NDArray[np.bool_] = (rows[np.ix_(matches, at)] & bits == expected).all(axis=1)
    return matches[same]


@lru_cache(maxsize=256)
def bit_of(form: type[Format], name: str) -> int:
    """Return the bit of a component in the mask."""
    return component_mask(form, name)


def without_component(form: type[Format], mask: int, name: str) -> int:
    """Return the mask without a component."""
    return mask & ~bit_of(form, name)


def has_component(form: type[Format], mask: int, name: str) -> bool:
    return bool(mask & bit_of(form, name))


def bits_set(rows: Rows, field: Bits, query: bytes, base: int = 0) -> NDArray[np.bool_]:
    """Return [row] -> whether all bits set in this field of the query are set in the row."""
    at = slice(base + field.bit // 8, base + (field.bit + field.width) // 8)
    required = np.frombuffer(query[at], np.uint8)
    same: NDArray[np.bool_] = (rows[:, at] & required == required).all(axis=1)
    return same


Nodes = NDArray[np.intp] | None  # None: all
Slots = NDArray[np.intp]
_LFT_BLOCK, _MFT_BLOCK, _GUID_BLOCK, _P_KEY_BLOCK = 64, 32, 8, 32
_VL_BLOCKS = 4  # arbitration blocks: two of the low table, two of the high one


class Table(NamedTuple):
    rows: Rows
    slots: Slots  # [row, n]


def _of(slots: Slots, nodes: Nodes, sa: Context) -> Slots:
    """Return the slots of some nodes."""
    return slots if nodes is None else slots[np.isin(sa.view.fabric.ports.node[slots], nodes)]


def _repeated(slots: Slots, count: NDArray[np.int64]) -> tuple[Slots, NDArray[np.int64]]:
    """Repeat each slot by its count, and return 0, 1, 2 ... within each."""
    inner = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(slots, count), inner


def _ports(sa: Context, nodes: Nodes) -> Slots:
    """Return all ports of switches, and ports of other nodes that have a LID."""
    return _of(np.flatnonzero(sa.directory.lid > 0), nodes, sa)


def _switches(sa: Context, nodes: Nodes) -> Slots:
    """Return port 0 of switches that have a LID."""
    view, ends = sa.view, sa.directory.ends
    return _of(ends[view.is_switch[view.fabric.ports.node[ends]]], nodes, sa)


def node_records(sa: Context, nodes: Nodes = None) -> Table:
    view = sa.view
    fabric, slots = view.fabric, _of(sa.directory.ends, nodes, sa)
    node = fabric.ports.node[slots]
    rows = pack_rows(NodeRecord, len(slots), lid=sa.directory.lid[slots])
    at = NodeRecord.node_info.bit // 8
    rows[:, at : at + NodeInfo.size] = view.node_info[node]
    fill(rows, NodeInfo.port_guid, fabric.ports.guid[slots], at)
    fill(rows, NodeInfo.local_port_num, fabric.ports.number[slots], at)
    at = NodeRecord.node_description.bit // 8
    names = np.array([text.encode()[:64] for text in fabric.nodes.description], "S64")
    rows[:, at : at + 64] = names[node].view(np.uint8).reshape(-1, 64)
    return Table(rows, slots[:, None])


def port_info_records(sa: Context, nodes: Nodes = None) -> Table:
    view, slots = sa.view, _ports(sa, nodes)
    slots = slots[view.port_info[slots].any(axis=1)]
    lid, number = sa.directory.lid[slots], view.fabric.ports.number[slots]
    rows = pack_rows(PortInfoRecord, len(slots), endport_lid=lid, port_num=number)
    at = PortInfoRecord.port_info.bit // 8
    rows[:, at : at + PortInfo.size] = view.port_info[slots]
    return Table(rows, slots[:, None])


def link_records(sa: Context, nodes: Nodes = None) -> Table:
    """Return two records for each cable, one from either end."""
    lid, ports = sa.directory.lid, sa.view.fabric.ports
    begin = sa.view.plugged
    end = ports.peer[begin].astype(np.intp)
    has_lids = (lid[begin] > 0) & (lid[end] > 0)
    begin, end = begin[has_lids], end[has_lids]
    rows = pack_rows(
        LinkRecord,
        len(begin),
        from_lid=lid[begin],
        from_port=ports.number[begin],
        to_port=ports.number[end],
        to_lid=lid[end],
    )
    return Table(rows, np.stack((begin, end), axis=1))


def switch_info_records(sa: Context, nodes: Nodes = None) -> Table:
    view, slots = sa.view, _switches(sa, nodes)
    node = view.fabric.ports.node[slots]
    rows = pack_rows(SwitchInfoRecord, len(slots), lid=sa.directory.lid[slots])
    at = SwitchInfoRecord.switch_info.bit // 8
    rows[:, at : at + SwitchInfo.size] = view.switch_info[node]
    contents = sa.state.known
    if contents is not None:  # read before the sweep wrote
        top = np.where(
            contents.top[node] > 0, contents.top[node], column(rows, SwitchInfo.linear_fdb_top, at).astype(np.int64)
        )
        fill(rows, SwitchInfo.linear_fdb_top, top, at)
        fill(rows, SwitchInfo.port_state_change, 0, at)
    return Table(rows, slots[:, None])


def sm_info_records(sa: Context, nodes: Nodes = None) -> Table:
    """Return the records of this manager and of the others."""
    view, directory, state = sa.view, sa.directory, sa.state
    own = SMInfo(
        guid=int(view.fabric.ports.guid[view.own_slot]),
        act_count=state.sender.mads & 0xFFFF_FFFF,
        priority=state.options.sm_priority,
        sm_state=SMState.MASTER,
    )
    managers = [SMInfoRecord(lid=int(directory.lid[view.own_slot]), sm_info=own), *sa.other_managers]
    slots = np.array([directory.slot_at(manager.lid) for manager in managers], np.intp)
    rows = np.frombuffer(b"".join(manager.raw for manager in managers), np.uint8).reshape(
        len(managers), SMInfoRecord.size
    )
    return Table(rows[slots >= 0], slots[slots >= 0, None])


def guid_info_records(sa: Context, nodes: Nodes = None) -> Table:
    """Return the GUIDs of each port with a LID: its own, and the alias that names its LID (`alias_gids`)."""
    view, slots = sa.view, _of(sa.directory.ends, nodes, sa)
    capacity = column(view.port_info[slots], PortInfo.guid_cap).astype(np.int64)
    slots, block = _repeated(slots, -(-capacity // _GUID_BLOCK))
    rows = pack_rows(GuidInfoRecord, len(slots), lid=sa.directory.lid[slots], block_num=block)
    at, first = GuidInfoRecord.guid_info.bit // 8, block == 0
    rows[first, at : at + 8] = view.fabric.ports.guid[slots[first]].astype(">u8").view(np.uint8).reshape(-1, 8)
    if sa.state.known is not None:
        aliases = sa.state.known.alias_lid[slots[first]]
        rows[first, at + 8 : at + 16] = aliases.astype(">u8").view(np.uint8).reshape(-1, 8)
    return Table(rows, slots[:, None])


# -- tables in devices: what they hold after the sweep -----------------------------------------------------------------


def forwarding_records(sa: Context, nodes: Nodes = None) -> Table:
    fabric, slots = sa.view.fabric, _switches(sa, nodes)
    lft = fabric.tables.lft
    blocks = -(-lft.shape[1] // _LFT_BLOCK)
    slots, block = _repeated(slots, np.full(len(slots), blocks, np.int64))
    of = np.zeros((len(slots) // max(blocks, 1), blocks * _LFT_BLOCK), np.uint8)
    of[:] = NO_ROUTE
    of[:, : lft.shape[1]] = lft[fabric.tables.switch_row[fabric.ports.node[slots[::blocks]]]]
    rows = pack_rows(LinearForwardingTableRecord, len(slots), lid=sa.directory.lid[slots], block_num=block)
    rows[:, -_LFT_BLOCK:] = of.reshape(-1, _LFT_BLOCK)
    return Table(rows, slots[:, None])


def multicast_records(sa: Context, nodes: Nodes = None) -> Table:
    fabric, slots = sa.view.fabric, _switches(sa, nodes)
    mft = fabric.tables.mft if "mft" in vars(fabric.tables) else np.zeros((len(fabric.nodes), 0, 1), np.uint16)
    groups, positions = mft.shape[1:]
    blocks = -(-groups // _MFT_BLOCK)
    slots, inner = _repeated(slots, np.full(len(slots), blocks * positions, np.int64))
    block, position = np.divmod(inner, positions)
    row = fabric.tables.switch_row[fabric.ports.node[slots]]
    mlid = block[:, None] * _MFT_BLOCK + np.arange(_MFT_BLOCK)
    masks = np.zeros(mlid.shape, ">u2")
    if groups:
        entries = mft[row[:, None], np.minimum(mlid, groups - 1), position[:, None]]
        masks[:] = np.where(mlid < groups, entries, 0)
    rows = pack_rows(
        MulticastForwardingTableRecord,
        len(slots),
        lid=sa.directory.lid[slots],
        position=position,
        block_num=block,
    )
    rows[:, -2 * _MFT_BLOCK :] = masks.view(np.uint8)
    return Table(rows, slots[:, None])


def sl2vl_records(sa: Context, nodes: Nodes = None) -> Table:
    """Return a record for each pair of a switch's ports, by the output port; for other nodes one for each port."""
    view, slots = sa.view, _ports(sa, nodes)
    fabric, number = view.fabric, view.fabric.ports.number[slots].astype(np.int64)
    node = fabric.ports.node[slots]
    of_switch = view.is_switch[node]
    ports = fabric.nodes.n_ports[node].astype(np.int64) + 1
    repeated, into = _repeated(np.arange(len(slots)), np.where(of_switch, ports, 1))
    slots, number, of_switch = slots[repeated], number[repeated], of_switch[repeated]
    pair = fabric.tables.first_pair[node][repeated] + into * ports[repeated] + number
    rows = pack_rows(
        SLtoVLMappingTableRecord,
        len(slots),
        lid=sa.directory.lid[slots],
        input_port_num=into,
        output_port_num=np.where(of_switch, number, 0),
    )
    if "sl2vl" in vars(fabric.tables):
        lanes = fabric.tables.sl2vl[pair]
        rows[:, -SERVICE_LEVELS // 2 :] = lanes[:, 0::2] << 4 | lanes[:, 1::2]
    return Table(rows, slots[:, None])


def arbitration_records(sa: Context, nodes: Nodes = None) -> Table:
    fabric, slots = sa.view.fabric, _ports(sa, nodes)
    slots, block = _repeated(slots, np.full(len(slots), _VL_BLOCKS, np.int64))
    rows = pack_rows(
        VLArbitrationTableRecord,
        len(slots),
        lid=sa.directory.lid[slots],
        output_port_num=fabric.ports.number[slots],
        block_num=block + 1,
    )
    if "vl_arbitration" in vars(fabric.tables):
        size = rows.shape[1] - VLArbitrationTableRecord.table.bit // 8
        rows[:, -size:] = fabric.tables.vl_arbitration[slots].reshape(len(slots), _VL_BLOCKS, size)[
            np.arange(len(slots)), block
        ]
    return Table(rows, slots[:, None])


def p_key_records(sa: Context, nodes: Nodes = None) -> Table:
    """Return all blocks that a port has."""
    view, slots = sa.view, _ports(sa, nodes)
    fabric, node = view.fabric, view.fabric.ports.node[slots]
    inner = ~view.is_switch[node] | (fabric.ports.number[slots] == 0)
    of_node = column(view.node_info[node], NodeInfo.partition_cap)
    of_switch = column(view.switch_info[node], SwitchInfo.partition_enforcement_cap)
    capacity = np.minimum(np.where(inner, of_node, of_switch).astype(np.int64), PKEY_ENTRIES)
    slots, block = _repeated(slots, -(-capacity // _P_KEY_BLOCK))
    number = fabric.ports.number[slots]
    lid = sa.directory.lid[slots]
    rows = pack_rows(PKeyTableRecord, len(slots), lid=lid, block_num=block, port_num=number)
    keys = fabric.tables.pkey[slots].reshape(len(slots), -1, _P_KEY_BLOCK)[np.arange(len(slots)), block]
    rows[:, -2 * _P_KEY_BLOCK :] = keys.astype(">u2").view(np.uint8)
    return Table(rows, slots[:, None])


def count_sl2vl(sa: Context, nodes: Nodes = None) -> int:
    """Return the largest possible number of records of these nodes."""
    view = sa.view
    of = slice(None) if nodes is None else nodes
    ports = view.fabric.nodes.n_ports[of].astype(np.int64) + 1
    return int(np.where(view.is_switch[of], ports**2, ports).sum())
