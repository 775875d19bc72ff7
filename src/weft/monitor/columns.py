"""The columns of a reading, and the attribute fields that they come from.

    values, valid = read(PortCountersExtended, rows)      int64[row, field], bool[row, field]
    columns_of(PortCountersExtended)                      the columns of these fields

By the standard, counters stop at their largest value, so a counter at that value is not valid.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.wire.bulk import column
from weft.wire.fields import Field
from weft.wire.format import Format
from weft.wire.perf import (
    PortExtendedSpeedsCounters,
    PortRcvErrorDetails,
    PortXmitDiscardDetails,
)

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Column(IntEnum):
    """The columns; the first are those of `weft.fabric.counters.Counter`, by name and number."""

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
    QP1_DROPPED = 21
    LOCAL_PHYSICAL = 22  # PortRcvErrors by cause, this and the next two
    MALFORMED = 23
    BUFFER_OVERRUN = 24
    DLID_MAPPING = 25  # PortRcvSwitchRelayErrors by cause, this and the next two
    VL_MAPPING = 26
    LOOPING = 27
    INACTIVE_DISCARDS = 28  # PortXmitDiscards by cause, this and the next three
    NEIGHBOR_MTU_DISCARDS = 29
    LIFETIME_DISCARDS = 30
    HOQ_LIFETIME_DISCARDS = 31
    FEC_CORRECTED = 32  # blocks, of all lanes together
    FEC_UNCORRECTED = 33


C = Column
_FIELDS = {  # fields whose name differs from their column
    "symbol_error_counter": C.SYMBOL_ERROR,
    "link_error_recovery_counter": C.LINK_ERROR_RECOVERY,
    "link_downed_counter": C.LINK_DOWNED,
    "port_xmit_data": C.PORT_XMIT_DATA_WORDS,
    "port_rcv_data": C.PORT_RCV_DATA_WORDS,
    "port_local_physical_errors": C.LOCAL_PHYSICAL,
    "port_malformed_packet_errors": C.MALFORMED,
    "port_buffer_overrun_errors": C.BUFFER_OVERRUN,
    "port_dlid_mapping_errors": C.DLID_MAPPING,
    "port_vl_mapping_errors": C.VL_MAPPING,
    "port_looping_errors": C.LOOPING,
    "port_inactive_discards": C.INACTIVE_DISCARDS,
    "port_neighbor_mtu_discards": C.NEIGHBOR_MTU_DISCARDS,
    "port_sw_lifetime_limit_discards": C.LIFETIME_DISCARDS,
    "port_sw_hoq_lifetime_limit_discards": C.HOQ_LIFETIME_DISCARDS,
}
TRAFFIC = slice(C.PORT_XMIT_DATA_WORDS, C.PORT_XMIT_WAIT)  # data and packets: 64 bits with PortCountersExtended
CAUSES: dict[
    type[Format], tuple[Column, ...]
] = {  # attributes with counts by cause, and the counters that are their sums
    PortRcvErrorDetails: (C.PORT_RCV_ERRORS, C.PORT_RCV_SWITCH_RELAY_ERRORS),
    PortXmitDiscardDetails: (C.PORT_XMIT_DISCARDS,),
}
PHYSICAL = (C.SYMBOL_ERROR, C.LINK_ERROR_RECOVERY, C.LINK_DOWNED, C.PORT_RCV_ERRORS)  # possible effects of a bad cable


@cache
def columns_of(form: type[Format]) -> Counts:
    return np.array([number for number, _ in _counters(form)], np.int64)


def rows_with(flags: Flags) -> Flags:
    """Return which rows have the flag in any column."""
    return np.asarray(flags.any(axis=1), np.bool_)


def read(form: type[Format], rows: NDArray[np.uint8]) -> tuple[Counts, Flags]:
    """Return the counters in rows of this attribute, in the order of `columns_of`, and which are valid."""
    fields = [field for _, field in _counters(form)]
    values = np.stack([column(rows, field) for field in fields], axis=1)
    most = np.array([min((1 << field.width) - 1, (1 << 63) - 1) for field in fields], np.uint64)
    valid: Flags = values < most
    return np.where(valid, values, 0).astype(np.int64), valid


def read_fec(rows: NDArray[np.uint8], has_rs_fec: Flags) -> tuple[Counts, Flags]:
    """Return FEC_CORRECTED and FEC_UNCORRECTED from rows of PortExtendedSpeedsCounters, summed over lanes if needed."""
    form = PortExtendedSpeedsCounters.fields
    values, valid = np.zeros((len(rows), 2), np.int64), np.ones((len(rows), 2), np.bool_)
    for i, kind in enumerate(("correctable", "uncorrectable")):
        lanes = form[f"fec_{kind}_block_ctr_lane"]
        of_lanes = rows[:, lanes.bit // 8 : (lanes.bit + lanes.width) // 8].copy().view(">u4").astype(np.int64)
        of_port = column(rows, form[f"port_fec_{kind}_block_ctr"]).astype(np.int64)[:, None]
        for ports, counts in ((has_rs_fec, of_port), (~has_rs_fec, of_lanes)):
            values[ports, i] = counts[ports].sum(axis=1)
            valid[ports, i] = (counts[ports] < (1 << 32) - 1).all(axis=1)
    return values, valid


@cache
def _counters(form: type[Format]) -> list[tuple[Column, Field[Any]]]:
    members = _FIELDS | {name.lower(): member for name, member in Column.__members__.items()}
    return [(members[name], field) for name, field in form.fields.items() if name in members]
