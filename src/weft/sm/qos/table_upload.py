"""SL to VL tables and VL arbitration: chosen by QoS and the routing engine, written where they differ.

Without QoS, and with an engine that needs one lane, nothing is written: all traffic is on SL 0, which every device
maps to VL 0 after power-up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.tables import Tables
from weft.sm.conf.qos_options import Qos
from weft.sm.discovery.known import Known
from weft.sm.discovery.view import View
from weft.sm.port_info import link_limits
from weft.sm.qos.tables import fill_qos
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo
from weft.wire.smp import SmpAttribute, SwitchInfo

_BLOCK = 32  # entries of VL arbitration in a MAD


def choose_vl_tables(qos: Qos | None, view: View, max_op_vls: int) -> tuple[str, ...]:
    """Fill the tables of the view; returns what is worth a line in a log."""
    _, vls = link_limits(view, max_op_vls)
    return fill_qos(
        view.fabric.tables,
        view.fabric,
        qos,
        operational_vls=vls.astype(np.uint8),
        vlarb_high_cap=column(view.port_info, PortInfo.vl_arbitration_high_cap).astype(np.uint8),
        vlarb_low_cap=column(view.port_info, PortInfo.vl_arbitration_low_cap).astype(np.uint8),
    )


def upload_vl_tables(sender: Sender, view: View, known: Known) -> list[str]:
    """Write what differs; returns what refused."""
    awake = vars(view.fabric.tables)
    refused = np.zeros(len(view.fabric.ports), bool)
    if "sl2vl" in awake:
        _upload_sl2vl(sender, view, known, refused)
    if "vl_arbitration" in awake:
        _upload_arbitration(sender, view, known, refused)
    known.vl_tables[:] = "sl2vl" in awake
    known.vl_tables[view.fabric.ports.node[refused]] = False
    return [view.name(slot) for slot in np.flatnonzero(refused).tolist()]


def _upload_sl2vl(sender: Sender, view: View, known: Known, refused: NDArray[np.bool_]) -> None:
    row, slot, modifier = _sl2vl_rows(view)
    wanted, there = view.fabric.tables.sl2vl, known.tables.sl2vl
    due = (wanted[row] != there[row]).any(axis=1) | ~known.vl_tables[view.fabric.ports.node[slot]]
    row, slot, modifier = row[due], slot[due], modifier[due]
    data = np.zeros((len(row), 64), np.uint8)
    data[:, :8] = wanted[row, 0::2] << 4 | wanted[row, 1::2]
    _, took = sender.set(view.to_ports(slot), SmpAttribute.SL_TO_VL_MAPPING_TABLE, modifier, data)
    there[row[took]] = wanted[row[took]]
    refused[slot[~took]] = True


def _sl2vl_rows(view: View) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.int64]]:
    """Rows in use, with the slot that each is of (the one by which packets leave), and the modifier of its MAD.

    A switch has one for each pair of ports in use, from port 0 too, and to it where that is an enhanced one; an adapter
    one for each port in use.
    """
    fabric = view.fabric
    ports, tables = fabric.ports, fabric.tables
    used = np.zeros(len(ports), bool)
    used[view.plugged] = used[view.end_ports] = True
    adapters = np.flatnonzero(used & ~view.is_switch[ports.node])
    rows = [tables.first_pair[ports.node[adapters]] + ports.number[adapters]]
    slots, modifiers = [adapters], [np.zeros(len(adapters), np.int64)]
    enhanced = _is_enhanced(view)
    for node in np.flatnonzero(view.is_switch).tolist():
        first, last = int(fabric.first_port[node]), int(fabric.nodes.n_ports[node])
        numbers = np.flatnonzero(used[first : first + last + 1])
        into, out = (grid.ravel() for grid in np.meshgrid(numbers, numbers, indexing="ij"))
        pair = ((into != out) | (into == 0)) & ((out > 0) | enhanced[node])
        into, out = into[pair], out[pair]
        rows.append(tables.first_pair[node] + into * (last + 1) + out)
        slots.append(first + out)
        modifiers.append(into << 8 | out)
    return np.concatenate(rows), np.concatenate(slots), np.concatenate(modifiers)


def _upload_arbitration(sender: Sender, view: View, known: Known, refused: NDArray[np.bool_]) -> None:
    slots = np.union1d(view.plugged, view.end_ports)
    ports = view.fabric.ports
    slots = slots[(ports.number[slots] > 0) | _is_enhanced(view)[ports.node[slots]]]
    room = _room(view, slots)
    slot, block = (grid[room] for grid in np.broadcast_arrays(slots[:, None], np.arange(4)[None, :]))
    wanted, there = _blocks(view.fabric.tables), _blocks(known.tables)
    due = (wanted[slot, block] != there[slot, block]).any(axis=1) | ~known.vl_tables[view.fabric.ports.node[slot]]
    slot, block = slot[due], block[due]
    number = view.fabric.ports.number[slot].astype(np.int64)
    port = np.where(view.is_switch[view.fabric.ports.node[slot]], number, 0)
    data = wanted[slot, block]
    _, took = sender.set(view.to_ports(slot), SmpAttribute.VL_ARBITRATION_TABLE, (block + 1) << 16 | port, data)
    there[slot[took], block[took]] = data[took]
    refused[slot[~took]] = True


def _is_enhanced(view: View) -> NDArray[np.bool_]:
    """[node] -> is it a switch whose port 0 has lanes? A base one has none, and no tables for them."""
    return np.asarray(column(view.switch_info, SwitchInfo.enhanced_port_0) > 0, bool)


def _room(view: View, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
    """bool[slot, block] -> does the port have that block? Two of the low table, two of the high one."""
    low = column(view.port_info[slots], PortInfo.vl_arbitration_low_cap).astype(np.int64)
    high = column(view.port_info[slots], PortInfo.vl_arbitration_high_cap).astype(np.int64)
    return np.stack((low > 0, low > _BLOCK, high > 0, high > _BLOCK), axis=1)


def _blocks(tables: Tables) -> NDArray[np.uint8]:
    """uint8[slot, block, 64]: low, low, high, high."""
    return tables.vl_arbitration.reshape(len(tables.vl_arbitration), 4, 2 * _BLOCK)
