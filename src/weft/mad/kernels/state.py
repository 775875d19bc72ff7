"""Hold the state for the agents' kernels: arrays of `Devices` and of the fabric's tables.

An array without rows is a table that was not used yet, or that cannot be written: Python handles it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

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
