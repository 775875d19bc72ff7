"""Read the tables of a subnet from its devices, over any carrier, for `prove_isolation`.

    fabric = read_fabric(carrier)

Only Gets are sent. A table that a device does not return counts as empty: no route, no P_Key, lane 0.
"""

from __future__ import annotations

import numpy as np

from weft.fabric.model import Fabric
from weft.fabric.tables import ATTRIBUTE_BYTES
from weft.mad.carrier import Carrier
from weft.mad.walk import walk
from weft.sm.discovery.known import BLOCK, carried_over
from weft.sm.discovery.view import View, make_view, ranges
from weft.sm.pkey.table_upload import read_pkeys
from weft.sm.sender import Sender
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import SmpAttribute, SwitchInfo


def read_fabric(carrier: Carrier) -> Fabric:
    """Read the subnet of the carrier's port: cables, PortInfo, forwarding tables, SL to VL and P_Keys."""
    view, sender = make_view(walk(carrier)), Sender(carrier)
    tables = view.fabric.tables
    tables.port_info[:] = view.port_info
    tables.switch_info[:] = np.pad(view.switch_info, ((0, 0), (0, ATTRIBUTE_BYTES - view.switch_info.shape[1])))
    tables_read = carried_over(None, view)
    read_pkeys(sender, view, tables_read, np.unique(np.concatenate((view.end_ports, view.plugged))))
    tables.pkey = tables_read.tables.pkey
    _read_routes(sender, view)
    _read_lanes(sender, view)
    return view.fabric


def _read_routes(sender: Sender, view: View) -> None:
    switches = np.flatnonzero(view.is_switch)
    top = column(view.switch_info[switches], SwitchInfo.linear_fdb_top).astype(np.int64)
    blocks = np.minimum(top, view.fabric.tables.lft.shape[1] - 1) // BLOCK + 1
    owner, number = np.repeat(np.arange(len(switches)), blocks), ranges(np.zeros_like(blocks), blocks)
    data, came = sender.get(view.to_nodes(switches[owner]), SmpAttribute.LINEAR_FORWARDING_TABLE, number)
    lft = view.fabric.tables.lft
    row = view.fabric.tables.switch_row[switches[owner]]
    for at in np.flatnonzero(came).tolist():
        first = int(number[at]) * BLOCK
        room = min(BLOCK, lft.shape[1] - first)
        lft[row[at], first : first + room] = data[at, :room]


def _read_lanes(sender: Sender, view: View) -> None:
    """Read the SL to VL tables of Active ports: for each pair of ports of a switch, for each port of an adapter."""
    fabric, tables = view.fabric, view.fabric.tables
    active = np.flatnonzero(column(view.port_info, PortInfo.port_state) == PortState.ACTIVE)
    node, number = fabric.ports.node[active], fabric.ports.number[active].astype(np.int64)
    first = np.flatnonzero(np.diff(node, prepend=-1))
    count = np.diff(np.append(first, len(active)))
    of_switch = view.is_switch[node]
    came_in = ranges(np.repeat(first, count)[of_switch], np.repeat(count, count)[of_switch])  # for each output port
    out = np.repeat(np.flatnonzero(of_switch), np.repeat(count, count)[of_switch])
    single = np.flatnonzero(~of_switch)
    at = np.concatenate((active[out], active[single]))
    modifier = np.concatenate((number[came_in] << 8 | number[out], np.zeros(len(single), np.int64)))
    width = fabric.nodes.n_ports.astype(np.int64) + 1
    rows = tables.first_pair[fabric.ports.node[at]] + fabric.ports.number[at]
    rows[: len(out)] += number[came_in] * width[node[out]]
    data, came = sender.get(view.to_ports(at), SmpAttribute.SL_TO_VL_MAPPING_TABLE, modifier)
    vls = data[came, :8]
    tables.sl2vl[rows[came]] = np.stack((vls >> 4, vls & 15), axis=2).reshape(len(vls), -1)
