"""SL to VL tables and VL arbitration: chosen by QoS and the routing engine, written where they differ.

Without QoS, and with an engine that needs one lane, nothing is written: all traffic is on SL 0, which every device
maps to VL 0 after power-up.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import Tables
from weft.sm.conf.qos_options import Qos
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View, ranges
from weft.sm.port_info import link_limits
from weft.sm.qos.tables import fill_qos, weight_notes
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.smp import ALL_INPUTS, SmpAttribute, SwitchInfo

_BLOCK = 32  # entries of VL arbitration in a MAD
_Rows = tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.int64]]


def choose_vl_tables(qos: Qos | None, view: View, max_op_vls: int) -> tuple[str, ...]:
    """Fill the tables of the view; returns what is worth a line in a log."""
    _, vls = link_limits(view, max_op_vls)
    notes = () if qos is None else weight_notes(qos)
    return notes + fill_qos(
        view.fabric.tables,
        view.fabric,
        qos,
        operational_vls=vls.astype(np.uint8),
        vlarb_high_cap=column(view.port_info, PortInfo.vl_arbitration_high_cap).astype(np.uint8),
        vlarb_low_cap=column(view.port_info, PortInfo.vl_arbitration_low_cap).astype(np.uint8),
    )


def upload_vl_tables(sender: Sender, view: View, contents: Known) -> list[str]:
    """Write what differs; returns what refused."""
    awake = vars(view.fabric.tables)
    refused = np.zeros(len(view.fabric.ports), bool)
    if "sl2vl" in awake:
        _upload_sl2vl(sender, view, contents, refused)
    if "vl_arbitration" in awake:
        _upload_arbitration(sender, view, contents, refused)
    contents.vl_tables[:] = "sl2vl" in awake
    contents.vl_tables[view.fabric.ports.node[refused]] = False
    return [view.name(slot) for slot in np.flatnonzero(refused).tolist()]


def _upload_sl2vl(sender: Sender, view: View, contents: Known, refused: NDArray[np.bool_]) -> None:
    row, slot, modifier = (np.concatenate(column) for column in zip(*_sl2vl_rows(view, contents), strict=True))
    expected, current = view.fabric.tables.sl2vl, contents.tables.sl2vl
    data = np.zeros((len(row), 64), np.uint8)
    data[:, :8] = expected[row, 0::2] << 4 | expected[row, 1::2]
    _, took = sender.set(view.to_ports(slot), SmpAttribute.SL_TO_VL_MAPPING_TABLE, modifier, data)
    current[row[took]] = expected[row[took]]
    for_all = took & (modifier & ALL_INPUTS > 0)
    ports = view.fabric.nodes.n_ports[view.fabric.ports.node[slot[for_all]]].astype(np.int64) + 1
    rows = np.repeat(row[for_all], ports) + ranges(np.zeros_like(ports), ports) * np.repeat(ports, ports)
    current[rows] = expected[rows]
    refused[slot[~took]] = True


def _sl2vl_rows(view: View, contents: Known) -> Iterator[_Rows]:
    """Yield rows that differ, with the slot by which packets leave, and the modifier of the MAD.

    A switch has one for each pair of ports in use, from port 0 too, and to it where that is an enhanced one; an adapter
    one for each port in use. Where rows do not depend on where packets come from, and the switch can, one MAD is for
    all inputs: 65 for a switch of 64 ports, not 4,096.
    """
    fabric = view.fabric
    ports, tables = fabric.ports, fabric.tables
    used = np.zeros(len(ports), bool)
    used[view.plugged] = used[view.end_ports] = True
    slot = np.flatnonzero(used & ~view.is_switch[ports.node])
    row = tables.first_pair[ports.node[slot]] + ports.number[slot]
    due = (tables.sl2vl[row] != contents.tables.sl2vl[row]).any(axis=1) | ~contents.vl_tables[ports.node[slot]]
    yield row[due], slot[due], np.zeros(int(due.sum()), np.int64)
    enhanced = _is_enhanced(view)
    for_all = column(view.switch_info, SwitchInfo.optimized_sl_to_vl_mapping_programming) & 1 > 0
    for node in np.flatnonzero(view.is_switch).tolist():
        first, size = int(fabric.first_port[node]), int(fabric.nodes.n_ports[node]) + 1
        numbers = used[first : first + size]
        pairs = numbers[:, None] & numbers & ~np.eye(size, dtype=bool)
        pairs[0, 0] = True
        pairs[:, 0] &= enhanced[node]
        at = slice(int(tables.first_pair[node]), int(tables.first_pair[node]) + size**2)
        expected, current = (source.sl2vl[at].reshape(size, size, -1) for source in (tables, contents.tables))
        pairs &= (expected != current).any(axis=2) | ~contents.vl_tables[node]
        alike = (expected == expected[0]).all(axis=(0, 2)) & pairs.any(axis=0) & for_all[node]
        pairs[:, alike] = False
        out = np.flatnonzero(alike)
        yield at.start + out, first + out, ALL_INPUTS | out
        into, out = np.nonzero(pairs)
        yield at.start + into * size + out, first + out, into << 8 | out


def _upload_arbitration(sender: Sender, view: View, contents: Known, refused: NDArray[np.bool_]) -> None:
    slots = np.union1d(view.plugged, view.end_ports)
    ports = view.fabric.ports
    slots = slots[(ports.number[slots] > 0) | _is_enhanced(view)[ports.node[slots]]]
    room = _room(view, slots)
    slot, block = (grid[room] for grid in np.broadcast_arrays(slots[:, None], np.arange(4)[None, :]))
    expected, current = _blocks(view.fabric.tables), _blocks(contents.tables)
    due = (expected[slot, block] != current[slot, block]).any(axis=1) | ~contents.vl_tables[
        view.fabric.ports.node[slot]
    ]
    slot, block = slot[due], block[due]
    number = view.fabric.ports.number[slot].astype(np.int64)
    port = np.where(view.is_switch[view.fabric.ports.node[slot]], number, 0)
    data = expected[slot, block]
    _, took = sender.set(view.to_ports(slot), SmpAttribute.VL_ARBITRATION_TABLE, (block + 1) << 16 | port, data)
    current[slot[took], block[took]] = data[took]
    refused[slot[~took]] = True


def _is_enhanced(view: View) -> NDArray[np.bool_]:
    """Return [node] -> whether it is a switch with an enhanced port 0. A base port 0 has no lanes and no tables."""
    return np.asarray(column(view.switch_info, SwitchInfo.enhanced_port_0) > 0, bool)


def _room(view: View, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return bool[slot, block] -> whether the port has that block: two low, two high."""
    low = column(view.port_info[slots], PortInfo.vl_arbitration_low_cap).astype(np.int64)
    high = column(view.port_info[slots], PortInfo.vl_arbitration_high_cap).astype(np.int64)
    return np.stack((low > 0, low > _BLOCK, high > 0, high > _BLOCK), axis=1)


def _blocks(tables: Tables) -> NDArray[np.uint8]:
    """Return uint8[slot, block, 64]: low, low, high, high."""
    return tables.vl_arbitration.reshape(len(tables.vl_arbitration), 4, 2 * _BLOCK)
