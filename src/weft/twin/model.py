"""The model of a running subnet, read by MADs: cabling, PortInfo, forwarding tables and P_Keys.

    model = Model(carrier)
    fabric = model.refresh()

Every MAD is a Get. A refresh walks the whole subnet, so the cabling is always that of a fresh discovery. It reads the
tables of new and restarted nodes, and of a share of the others: in large fabrics all are read in a few refreshes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.fabric.model import Fabric
from weft.mad.carrier import Carrier
from weft.mad.walk import walk
from weft.sm.discovery.known import Known, carried_over
from weft.sm.discovery.view import View, make_view
from weft.sm.pkey.table_upload import read_pkeys
from weft.sm.sender import Sender
from weft.sm.ucast.forwarding import read_forwarding
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo

_AT_ONCE = 2048  # nodes whose tables are read at every refresh


class Model:
    """A model that every refresh makes equal to the subnet."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._known: Known | None = None
        self._turn = 0

    def refresh(self) -> Fabric:
        """Read the subnet, and return it with its tables."""
        view = make_view(walk(self._carrier))
        known = carried_over(self._known, view)
        tables, sender = view.fabric.tables, Sender(self._carrier)
        tables.port_info[:] = view.port_info
        due = self._due(view)
        known.routes[due] = False
        read_forwarding(sender, view, known)
        slots = np.union1d(view.end_ports, _enforcing_ports(view))
        read_pkeys(sender, view, known, slots[due[view.fabric.ports.node[slots]] | ~known.keys[slots]])
        tables.lft, tables.pkey = known.tables.lft, known.tables.pkey
        self._known = known
        return view.fabric

    def _due(self, view: View) -> NDArray[np.bool_]:
        """Return the nodes whose tables are read in this turn."""
        nodes = len(view.fabric.nodes)
        turns = -(-nodes // _AT_ONCE)
        self._turn = (self._turn + 1) % turns
        due: NDArray[np.bool_] = np.arange(nodes) % turns == self._turn
        return due


def _enforcing_ports(view: View) -> NDArray[np.intp]:
    """Return the ports of switches that check the P_Keys of packets."""
    fields = (PortInfo.partition_enforcement_inbound, PortInfo.partition_enforcement_outbound)
    checks = np.any([column(view.port_info[view.plugged], field) > 0 for field in fields], axis=0)
    slots: NDArray[np.intp] = view.plugged[checks & view.is_switch[view.fabric.ports.node[view.plugged]]]
    return slots
