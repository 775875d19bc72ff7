"""The P_Key tables of the ports of a subnet, read with MADs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.mad.carrier import Carrier
from weft.mad.walk import walk
from weft.sm.discovery.known import carried_over
from weft.sm.discovery.view import View, make_view
from weft.sm.pkey.partitions import DEFAULT_P_KEY
from weft.sm.pkey.table_upload import read_pkeys
from weft.sm.pkey.tables import FULL
from weft.sm.sender import Sender
from weft.tenants.partitions import Partition
from weft.wire.bulk import column
from weft.wire.port_info import PortInfo

_PARTITION = 0x7FFF


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PortTables:
    """The P_Key tables of a subnet."""

    view: View
    ends: NDArray[np.intp]  # slots of connected ports of adapters and routers
    p_keys: NDArray[np.uint16]  # [slot, index], of `ends` and of switch ports that enforce partitions

    def differences(
        self, partitions: Iterable[Partition], theirs: frozenset[int], default_is_full: bool | None
    ) -> list[str]:
        """Return a line for each present port whose table differs from the partitions.

        P_Keys in `theirs` are ignored; so is Default if `default_is_full` is None (the operator has rules for it).
        """
        at = dict(zip(self.view.fabric.ports.guid[self.ends].tolist(), self.ends.tolist(), strict=True))
        first = dict.fromkeys(at.values(), DEFAULT_P_KEY)
        expected = {slot: set[int]() for slot in at.values()}
        for partition in partitions:
            for guid, member in partition.members.items():
                if guid in at:
                    expected[at[guid]].add(partition.p_key | FULL * member.full)
                    first[at[guid]] = partition.p_key if member.index0 else first[at[guid]]
        if default_is_full is None:
            theirs |= {DEFAULT_P_KEY}
        else:
            master = self._master()
            for slot, keys in expected.items():
                keys.add(DEFAULT_P_KEY | FULL * (default_is_full or slot == master))
        return [
            text
            for slot, keys in expected.items()
            for text in (self._row(slot, keys, first[slot], theirs), self._check(slot, keys, theirs))
            if text
        ]

    def _master(self) -> int:
        """Return the slot of the master subnet manager's port; -1 if it is not among `ends`."""
        lid = int(column(self.view.port_info[self.view.own_slot][None], PortInfo.master_sm_lid)[0])
        matches = self.ends[column(self.view.port_info[self.ends], PortInfo.lid) == lid]
        return int(matches[0]) if lid and len(matches) else -1

    def _row(self, slot: int, keys: set[int], first: int, theirs: frozenset[int]) -> str:
        held = int(self.p_keys[slot, 0]) & _PARTITION
        if held != first and (first != DEFAULT_P_KEY or held not in theirs):
            return f"{self.view.name(slot)} has {held:#06x} at index 0, not {first:#06x}"
        return self._compared(slot, keys, theirs)

    def _check(self, slot: int, keys: set[int], theirs: frozenset[int]) -> str:
        """Compare the table of the switch port of an end port, if it enforces partitions."""
        peer = int(self.view.fabric.ports.peer[slot])
        return self._compared(peer, keys, theirs) if self.p_keys[peer].any() else ""

    def _compared(self, slot: int, keys: set[int], theirs: frozenset[int]) -> str:
        held = {key for key in self.p_keys[slot].tolist() if key and key & _PARTITION not in theirs}
        lacks, more = (" and ".join(f"{key:#06x}" for key in sorted(some)) for some in (keys - held, held - keys))
        text = " and ".join(f"{word} {some}" for word, some in (("lacks", lacks), ("still has", more)) if some)
        return f"{self.view.name(slot)} {text}" if text else ""


def discover(carrier: Carrier) -> View:
    """Discover the subnet, with the LIDs that the ports have now."""
    view = make_view(walk(carrier))
    view.fabric.tables.lid[:] = column(view.port_info, PortInfo.lid)
    return view


def read_port_tables(carrier: Carrier) -> PortTables:
    """Read the P_Key tables of all end ports, and of the switch ports that enforce them."""
    view = discover(carrier)
    ports = view.fabric.ports
    ends = view.end_ports[~view.is_switch[ports.node[view.end_ports]]]
    peers = ports.peer[ends].astype(np.intp)
    checks = column(view.port_info[peers], PortInfo.partition_enforcement_inbound) > 0
    checks |= column(view.port_info[peers], PortInfo.partition_enforcement_outbound) > 0
    tables_read = carried_over(None, view)
    read_pkeys(
        Sender(carrier), view, tables_read, np.concatenate((ends, peers[checks & view.is_switch[ports.node[peers]]]))
    )
    return PortTables(
        view=view, ends=ends, p_keys=np.where(tables_read.keys[:, None], tables_read.tables.pkey, np.uint16(0))
    )
