"""The state of a subnet as its kernels see it. Import this when they are wanted: it loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.mad.devices import Devices
from weft.mad.kernels.answer import answer_one as answer_one
from weft.mad.kernels.tables import MOST_HOPS, Array, Mark, State
from weft.mad.subnet import Subnet

_TABLES = ("pkey", "vl_arbitration", "sl2vl", "lft", "mft")
_ASLEEP: dict[str, Array] = {
    "pkey": np.zeros((0, 0), np.uint16),
    "vl_arbitration": np.zeros((0, 0, 0, 0), np.uint8),
    "sl2vl": np.zeros((0, 0), np.uint8),
    "lft": np.zeros((0, 0), np.uint8),
    "mft": np.zeros((0, 0, 0), np.uint16),
}


class FastPathState:
    """The arrays of a subnet that kernels may use; `state` is built again when a table has grown or was allocated."""

    def __init__(self, subnet: Subnet) -> None:
        self.subnet = subnet
        self.marks = np.zeros(len(Mark), np.int64)
        self._risky = np.zeros(len(subnet.devices.cable), np.bool_)
        self._risks: set[int] = set()  # input of `_risky`
        self._fixed = _fixed(subnet.devices) | {
            "marks": self.marks,
            "out": np.zeros(MOST_HOPS, np.int32),
            "risky": self._risky,
        }
        self._tables: list[Array | None] = []
        self._state: State | None = None

    def is_plain(self) -> bool:
        """Return whether kernels may answer: no node is off."""
        return not self.subnet.devices.dead

    def state(self) -> State:
        """Return the arrays for the next kernel call; valid until the subnet changes."""
        devices, tables = self.subnet.devices, vars(self.subnet.devices.tables)
        if self._risks is not devices.risky:  # a cable became bad, or good
            self._risks, self._risky[:] = devices.risky, False
            self._risky[list(devices.risky)] = True
        self.marks[:] = 0
        self.marks[Mark.MAY_SET] = self.subnet.may_set()
        self.marks[Mark.PLAIN_ROUTING] = not devices.adaptive and "ar_group" not in tables
        self.marks[Mark.PLAIN_GUIDS] = not devices.alias_guids
        now = [tables.get(name) for name in _TABLES]
        if self._state is None or any(new is not old for new, old in zip(now, self._tables, strict=True)):
            self._tables = now
            arrays = {name: _table(devices, name, table) for name, table in zip(_TABLES, now, strict=True)}
            self._state = State(**self._fixed, **arrays)
        return self._state

    def settle(self) -> None:
        """Apply the effects of a kernel call that the kernel cannot apply itself."""
        self.subnet.mads += int(self.marks[Mark.MADS])
        if self.marks[Mark.LIDS_CHANGED]:
            self.subnet.devices.forget_lid_paths()
        self.marks[Mark.MADS] = self.marks[Mark.LIDS_CHANGED] = 0


def _fixed(devices: Devices) -> dict[str, Array]:
    """Return the arrays that stay at the same address as long as the devices exist."""
    fabric = devices.fabric
    is_switch = np.array(devices.is_switch, np.bool_)
    guid = np.where(is_switch[fabric.ports.node], fabric.nodes.guid[fabric.ports.node], fabric.ports.guid)
    numbers = ("first", "last_port", "row", "ports_with_0", "node_of", "cable")
    return {name: np.array(getattr(devices, name), np.int32) for name in numbers} | {
        "is_switch": is_switch,
        "first_pair": np.array(devices.first_pair, np.int64),
        "node_info": devices.node_infos,
        "node_description": devices.node_descriptions,
        "switch_info": devices.tables.switch_info,
        "guid": guid.astype(">u8").view(np.uint8).reshape(-1, 8),
        "port_info": devices.tables.port_info,
        "fdr10": devices.tables.fdr10,
        "sent": np.frombuffer(devices.sent, np.int64),
        "received": np.frombuffer(devices.received, np.int64),
    }


def _table(devices: Devices, name: str, table: Any) -> Array:
    """Return a contiguous table; an empty one if it is not allocated, or has a type that kernels do not support."""
    if table is None:
        return _ASLEEP[name]
    devices.view(name)  # puts it into one piece if it is not
    array: Array = getattr(devices.tables, name)
    asleep = _ASLEEP.get(name, array)
    return array if array.dtype == asleep.dtype and array.ndim == asleep.ndim else asleep
