"""The records that all engines share (ports, messages, queue pairs, hosts) and their constants."""

from __future__ import annotations

import enum
import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

Records = Any  # a recarray: its fields read as attributes, compiled and interpreted

NONE = -1
BLOCK_BYTES = 64  # credits are counted in blocks
LINE_BYTES = 64  # cache line
HUGE_PAGE_BYTES = 2 << 20
LARGE_BYTES = 256 << 10  # arrays for which huge pages pay off
FILL_RECORDS = 2048  # of a few hundred bytes: half of an L2 cache


class FlowControl(enum.IntEnum):
    """The flow control of a network: when a port may send."""

    CREDITS = 0
    PAUSE = 1
    DROP = 2
    TRIM = 3  # a full queue leaves only the header of a packet, or, without trimming, drops it


class Selection(enum.IntEnum):
    """The way in which a switch selects the output port of a packet: by the forwarding table, or by a policy."""

    TABLE = 0
    DETOUR = 1  # by the forwarding table, for some packets to an intermediate switch first
    BY_FLOW = 2
    BY_PACKET = 3


def whole_lines(fields: list[tuple[str, type]]) -> np.dtype[Any]:
    """Return the dtype of a record that is extended to whole cache lines."""
    packed = np.dtype(fields, align=True)
    places: dict[str, Any] = dict(packed.fields or {})
    layout = {
        "names": list(places),
        "formats": [place[0] for place in places.values()],
        "offsets": [place[1] for place in places.values()],
        "itemsize": -(-packed.itemsize // LINE_BYTES) * LINE_BYTES,
    }
    return np.dtype(layout, align=True)  # type: ignore[call-overload, no-any-return]


# The fixed properties and rare events of a port; fields used by every packet are in the packet engine's PORT.
PLUG = np.dtype(
    [
        ("peer", np.int32),
        ("owner", np.int32),  # row of the forwarding tables; for a host -1 - host
        ("wire_line", np.int16),
        ("rate", np.int16),
        ("cut_through", np.int8),
        ("wakes", np.int8),  # a PORT_READY is on the agenda
        ("down", np.int8),  # the cable loses every packet now
        ("wait_since_ps", np.int64),
        ("wait_ps", np.int64),
        ("clean_bytes", np.int64),  # bytes until the next bit error
        ("retry_ps", np.int64),  # link-level retry: round trip of the cable; 0: none
        ("next_ps", np.int64),  # and the next packet can arrive only then
        ("bytes_per_error", np.float64),  # mean; 0 on a good cable
        ("corrupted", np.int32),
        ("dropped", np.int32),
        ("trimmed", np.int32),
        ("marked", np.int32),
        ("pauses", np.int32),
    ],
    align=True,
)
MESSAGE = np.dtype(
    [
        # The first cache line has the fields that every packet uses.
        ("bytes", np.int64),
        ("ready_ps", np.int64),
        ("packets", np.int32),
        ("sent", np.int32),
        ("received", np.int32),
        ("first_psn", np.int32),
        ("src", np.int32),  # port
        ("dlid", np.int32),
        ("slid", np.int32),  # destination of acknowledgements
        ("qp", np.int32),
        ("next", np.int32),  # in its queue pair
        ("branch", np.int32),  # multicast: root of the tree of its copies, else NONE
        ("full", np.int16),  # size of all packets but the first and the last
        ("first", np.int16),  # size of the first packet
        ("last", np.int16),
        ("sl", np.int8),
        ("back_sl", np.int8),  # SL of its acknowledgements, whose path may differ
        ("dst", np.int32),
        ("waits_for", np.int32),  # messages not yet delivered
        ("retransmitted", np.int32),
        ("branches", np.int32),  # size of the tree of its copies
        ("lead_ps", np.int64),  # from its start until its first packet can leave
        ("delay_ps", np.int64),
        ("free_ps", np.int64),  # when the last message it waits for was delivered
        ("start_ps", np.int64),
        ("finish_ps", np.int64),
        ("acked_ps", np.int64),
    ],
    align=True,
)
QP = whole_lines(
    [
        # Two cache lines with what every packet sent uses, and one with what every packet received uses.
        ("clock_ps", np.int64),  # the next message cannot start before
        ("paced_ps", np.int64),  # the next packet cannot leave before
        ("pace_ps_per_kib", np.int64),  # rate limit, or copying in TCP; 0: port speed
        ("window_bytes", np.float64),  # on the wire, of controls that see each acknowledgement; 0: no limit
        ("queue", np.int32),  # output queue of its packets
        ("next", np.int32),  # in the ring
        ("unsent", np.int32),  # first message with packets to send
        ("outstanding", np.int32),  # messages sent and not acknowledged
        ("window", np.int32),  # limit of `outstanding`
        ("host", np.int32),
        ("in_flight", np.int32),  # packets; kept for TCP and for controls that see each acknowledgement
        ("state", np.int8),
        ("acked", np.int8),  # reliable: acknowledged and retransmitted
        ("ordered", np.int8),  # a gap is a loss: go back N
        ("slowed", np.int8),  # its path is slower than its port: it never sends at full speed
        ("deadline_ps", np.int64),  # for an acknowledgement from the other end
        ("timer_ps", np.int64),  # when the TIMEOUT on the agenda expires, NONE
        ("gap_ps", np.int64),  # between messages
        ("setup_ps", np.int64),  # time to start reading a message from memory
        ("ps_per_kib", np.int64),  # time to read it
        ("packet_ps", np.int64),  # TCP: processor time per packet sent
        ("paced_bytes", np.int64),  # DCQCN: bytes since the byte counter last expired
        ("oldest", np.int32),  # first message not acknowledged
        ("last", np.int32),  # message
        ("expected_psn", np.int32),  # at the receiver
        ("arrived", np.int32),  # packets received in total
        ("counted", np.int32),  # of those, known to the sender, modulo 2^15
        ("acked_psn", np.int32),  # all earlier packets have arrived
        ("given_psn", np.int32),  # next PSN to assign to a message
        ("dst", np.int32),  # port
        ("flow", np.int32),  # input of the ECMP hash
        ("lost", np.int32),  # packets that the network lost, unknown to the sender
        ("again", np.int32),  # packets known to be lost, to be sent again
        ("notified_ps", np.int64),  # when the receiver last reported congestion
        ("nak_sent", np.int8),
        ("rate_timer", np.int8),  # a RATE is on the agenda
        ("sl", np.int8),
        ("line_ps_per_kib", np.int64),  # the port, or the path if slower
        ("rate", np.float64),  # share of the line rate
        ("lost_tail", np.int32),
        ("again_tail", np.int32),
        ("posted_ps", np.int64),  # when the last posted message is ready; none overtakes it
        ("receive_packet_ps", np.int64),  # TCP: processor time per packet received
        ("receive_clock_ps", np.int64),
        ("alpha", np.float64),  # DCQCN: estimate of congestion
        ("target", np.float64),  # DCQCN: target of the rate
        ("step_ps", np.int64),  # between two steps back up
        ("rate_due_ps", np.int64),  # when the rate rises next
        ("byte_rounds", np.int32),  # DCQCN: expirations since the last cut
        ("rounds", np.int32),  # DCQCN: increases since the last cut; IB: index in the congestion control table
        ("ccti_increase", np.int32),  # IB: added to that index for each notification
        ("ccti_min", np.int32),  # IB: lowest index
        ("newly_acked", np.int32),  # packets acknowledged by the latest acknowledgement
        ("window_packets", np.float64),  # TCP: congestion window
        ("rtt_ps", np.int64),  # the next four belong to the latest acknowledgement, for such controls
        ("packet_bytes", np.int32),  # of a full packet, on the wire
        ("ack_psn", np.int32),  # the packet that it acknowledges
        ("sent_psn", np.int32),  # the next new packet
        ("ecn_echo", np.int8),  # the acknowledged packet was marked
        ("cause", np.int8),  # UET: of the call of its congestion control, and the next two with it
        ("acked_bytes", np.int64),  # that have arrived, or of the packet that was trimmed or lost
        ("flight_bytes", np.int64),
        ("threshold", np.float64),  # TCP: where slow start ends
        ("recover_psn", np.int32),  # TCP: one cut per window
        ("unacked", np.int32),  # TCP: packets received since the last acknowledgement
        ("unacked_message", np.int32),  # TCP: message of the latest of those
        ("quick_acks", np.int32),  # TCP: packets that are still acknowledged at once
        ("ack_timer", np.int8),  # TCP: a DELAYED_ACK is on the agenda
        ("ack_due_ps", np.int64),  # TCP: when those packets are acknowledged at the latest
        ("backoff", np.int32),  # timeouts in a row
    ]
)
HOST = np.dtype(
    [
        ("port", np.int32),
        ("ack_line", np.int32),
        ("clock_ps", np.int64),  # when memory can supply the next packet
        ("ps_per_kib", np.int64),  # path from memory if slower than the port; else 0
        ("receive_clock_ps", np.int64),
        ("receive_ps_per_kib", np.int64),  # path to memory if slower than the port; else 0
        ("receive_ps", np.int64),  # from the last packet until the program is notified
    ],
    align=True,
)


def records(n: int, dtype: np.dtype[Any]) -> Records:
    """Return `n` zeroed records, aligned to a cache line."""
    return rows_of_bytes(n, dtype.itemsize).reshape(-1).view(dtype).view(np.recarray)


def rows_of_bytes(n: int, length: int) -> NDArray[np.uint8]:
    """Return `n` rows of so many zero bytes; the first is aligned to a cache line.

    Large arrays are in huge pages where the system has them: events touch rows at random, each in another page. The
    mapping is private, because Linux gives shared ones huge pages only if `shmem_enabled` says so, and not by default.
    """
    unit = LINE_BYTES
    if n * length >= LARGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory = mmap.mmap(-1, n * length + 2 * HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        memory.madvise(mmap.MADV_HUGEPAGE)
        space, unit = np.frombuffer(memory, np.uint8), HUGE_PAGE_BYTES
    else:
        space = np.zeros(n * length + LINE_BYTES, np.uint8)
    begin = -space.ctypes.data % unit
    return space[begin : begin + n * length].reshape(n, length)


def records_in_rows(rows: NDArray[np.uint8], begin: int, dtype: np.dtype[Any]) -> Records:
    """Return the records that begin at a byte of each row. The rows are longer than a record."""
    return rows[:, begin : begin + dtype.itemsize].view(dtype)[:, 0].view(np.recarray)


def distinct_rows(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct rows in order, and the index of each row among them, as np.unique(axis=0) does.

    Rows of whole numbers whose ranges fit into 63 bits together are sorted by one key, others column by column.
    """
    key = _row_key(rows)
    if key is not None:
        order = np.argsort(key)
        sorted_key, new = key[order], np.ones(len(rows), bool)
        new[1:] = sorted_key[1:] != sorted_key[:-1]
        index = np.empty(len(rows), np.int64)
        index[order] = np.cumsum(new) - 1
        return rows[order[new]], index
    order = np.lexsort(rows.T[::-1])
    sorted_rows = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (sorted_rows[1:] != sorted_rows[:-1]).any(axis=1)
    index = np.empty(len(rows), np.int64)
    index[order] = np.cumsum(new) - 1
    return sorted_rows[new], index


def _row_key(rows: NDArray[Any]) -> NDArray[np.int64] | None:
    """Return one number for each row, in the order of the rows; None if the columns need more than 63 bits."""
    if not len(rows) or not np.issubdtype(rows.dtype, np.integer):
        return None
    least, most = rows.min(axis=0), rows.max(axis=0)
    spans = [int(high) - int(low) + 1 for low, high in zip(least, most, strict=True)]
    if math.prod(spans) >= 1 << 63:
        return None
    key = np.zeros(len(rows), np.int64)
    for column, low, span in zip(rows.T, least, spans, strict=True):
        if span > 1:
            key *= span
            key += column.astype(np.int64) - low.astype(np.int64)  # exact for unsigned columns, too
    return key


def fill(to: Records, **columns: Any) -> None:
    """Set fields of records to a column or a number, some records at a time, so that each cache line is read once."""
    fields = [(np.asarray(to[name]), np.broadcast_to(column, len(to))) for name, column in columns.items()]
    for begin in range(0, len(to), FILL_RECORDS):
        rows = slice(begin, begin + FILL_RECORDS)
        for field, column in fields:
            field[rows] = column[rows]
