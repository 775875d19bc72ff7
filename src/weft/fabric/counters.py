"""Port counters of the performance management agents.

One array for the whole fabric, so that the agents, the engines and the monitor count in the same place. They do not
saturate here; the agent limits them to the width of the requested attribute.
"""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray


class Counter(enum.IntEnum):
    """The columns of a fabric's counter array. Names from PortCounters and PortCountersExtended."""

    SYMBOL_ERROR = 0
    LINK_ERROR_RECOVERY = 1
    LINK_DOWNED = 2
    PORT_RCV_ERRORS = 3
    PORT_RCV_REMOTE_PHYSICAL_ERRORS = 4
    PORT_RCV_SWITCH_RELAY_ERRORS = 5
    PORT_XMIT_DISCARDS = 6
    PORT_XMIT_CONSTRAINT_ERRORS = 7
    PORT_RCV_CONSTRAINT_ERRORS = 8
    LOCAL_LINK_INTEGRITY_ERRORS = 9
    EXCESSIVE_BUFFER_OVERRUN_ERRORS = 10
    VL15_DROPPED = 11
    PORT_XMIT_DATA_WORDS = 12
    PORT_RCV_DATA_WORDS = 13
    PORT_XMIT_PKTS = 14
    PORT_RCV_PKTS = 15
    PORT_UNICAST_XMIT_PKTS = 16
    PORT_UNICAST_RCV_PKTS = 17
    PORT_MULTICAST_XMIT_PKTS = 18
    PORT_MULTICAST_RCV_PKTS = 19
    PORT_XMIT_WAIT = 20


class FecCounter(enum.IntEnum):
    """The columns of the counters of forward error correction, after one column per lane for corrected symbols."""

    CORRECTED_BLOCKS = 12
    UNCORRECTED_BLOCKS = 13
    CORRECTED_SYMBOLS = 14


def new_fec_counters(n_ports: int) -> NDArray[np.int64]:
    """Return int64[port, lane | FecCounter], all zero."""
    return np.zeros((n_ports, max(FecCounter) + 1), np.int64)


def new_counters(n_ports: int) -> NDArray[np.int64]:
    """Return int64[port, Counter], all zero."""
    return np.zeros((n_ports, len(Counter)), np.int64)
