"""The records that all engines share: ports, messages, queue pairs, hosts; and the few numbers that go with them."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Records = Any  # a recarray: its fields read as attributes, compiled and interpreted

NONE = -1
BLOCK_BYTES = 64  # credits are counted in blocks
LINE_BYTES = 64  # of the cache


class Flow(enum.IntEnum):
    """Who may send."""

    CREDITS = 0
    PAUSE = 1
    DROP = 2


class Selection(enum.IntEnum):
    """Who decides by which port a packet leaves a switch: the forwarding table, or a policy."""

    TABLE = 0
    BY_FLOW = 1
    BY_PACKET = 2


# What a port is, and what happens to it seldom; what every packet touches of it is the packet engine's PORT.
PLUG = np.dtype(
    [
        ("peer", np.int32),
        ("owner", np.int32),  # row of the forwarding tables; of a host -1 - host
        ("wire_line", np.int16),
        ("rate", np.int16),
        ("arbitration", np.int16),  # row of the VL arbitration tables
        ("cut_through", np.int8),
        ("wakes", np.int8),  # a PORT_READY is on the agenda
        ("wait_since_ps", np.int64),
        ("wait_ps", np.int64),
        ("clean_bytes", np.int64),  # that still arrive before the next bit error
        ("bytes_per_error", np.float64),  # mean; 0 on a good cable
        ("corrupted", np.int32),
        ("dropped", np.int32),
        ("marked", np.int32),
        ("pauses", np.int32),
        ("high_at", np.int16),  # where the VL arbiter stands in its tables
        ("low_at", np.int16),
        ("high_left", np.int32),
        ("low_left", np.int32),
        ("high_spent_bytes", np.int32),
    ],
    align=True,
)
MESSAGE = np.dtype(
    [
        ("src", np.int32),  # port
        ("dst", np.int32),
        ("dlid", np.int32),
        ("slid", np.int32),  # where acknowledgements go
        ("qp", np.int32),
        ("packets", np.int32),
        ("sent", np.int32),
        ("received", np.int32),
        ("first_psn", np.int32),
        ("full", np.int16),  # size of all packets but the first and the last
        ("first", np.int16),  # size of the first packet
        ("last", np.int16),
        ("sl", np.int8),
        ("back_sl", np.int8),  # of its acknowledgements: their path may take another
        ("waits_for", np.int32),  # messages not yet delivered
        ("retransmitted", np.int32),
        ("next", np.int32),  # of its queue pair
        ("branch", np.int32),  # to a group: where the tree of its copies begins, else NONE
        ("branches", np.int32),  # of that tree
        ("bytes", np.int64),
        ("lead_ps", np.int64),  # from its start until its first packet can leave
        ("delay_ps", np.int64),
        ("free_ps", np.int64),  # when the last of those it waits for was delivered
        ("start_ps", np.int64),
        ("ready_ps", np.int64),
        ("finish_ps", np.int64),
        ("acked_ps", np.int64),
    ],
    align=True,
)
QP = np.dtype(
    [
        ("queue", np.int32),  # where its packets leave
        ("dst", np.int32),  # port
        ("host", np.int32),
        ("flow", np.int32),  # what ECMP hashes
        ("next", np.int32),  # in the ring
        ("state", np.int8),
        ("acked", np.int8),  # reliable: acknowledged and retransmitted
        ("ordered", np.int8),  # a gap is a loss: go back N
        ("nak_sent", np.int8),
        ("rate_timer", np.int8),  # a RATE is on the agenda
        ("slowed", np.int8),  # its path is slower than its port: it never sends at full speed
        ("sl", np.int8),
        ("unsent", np.int32),  # first message with packets to send
        ("oldest", np.int32),  # first message not acknowledged
        ("last", np.int32),  # message
        ("outstanding", np.int32),  # messages sent and not acknowledged
        ("window", np.int32),  # of them, at most
        ("given_psn", np.int32),  # to messages
        ("expected_psn", np.int32),  # at the receiver
        ("acked_psn", np.int32),  # all before have arrived
        ("lost", np.int32),  # packets that the network lost, unknown to the sender
        ("lost_tail", np.int32),
        ("again", np.int32),  # packets known to be lost, to be sent again
        ("again_tail", np.int32),
        ("posted_ps", np.int64),  # when the last message posted is ready: none overtakes it
        ("clock_ps", np.int64),  # the next message cannot start before
        ("paced_ps", np.int64),  # the next packet cannot leave before
        ("gap_ps", np.int64),  # between messages
        ("setup_ps", np.int64),  # of reading a message from memory
        ("ps_per_kib", np.int64),  # of reading it
        ("deadline_ps", np.int64),  # to hear from the other end
        ("timer_ps", np.int64),  # when the TIMEOUT on the agenda rings, NONE
        ("pace_ps_per_kib", np.int64),  # of its rate limit, in TCP of copying; 0: as fast as the port
        ("packet_ps", np.int64),  # TCP: of its processor, for each packet sent
        ("receive_packet_ps", np.int64),  # TCP: of the other processor, for each packet received
        ("receive_clock_ps", np.int64),
        ("line_ps_per_kib", np.int64),  # the port, or the path if that is slower
        ("notified_ps", np.int64),  # when the receiver last said that there is congestion
        ("alpha", np.float64),  # DCQCN: estimate of congestion
        ("rate", np.float64),  # part of the line
        ("target", np.float64),  # DCQCN: of the rate
        ("step_ps", np.int64),  # between two steps back up
        ("rate_due_ps", np.int64),  # when the rate rises next
        ("paced_bytes", np.int64),  # DCQCN: sent since the byte counter last ran out
        ("byte_rounds", np.int32),  # DCQCN: times that it ran out since the last cut
        ("rounds", np.int32),  # DCQCN: increases since the last cut; IB: index in the congestion control table
        ("ccti_increase", np.int32),  # IB: of that index, for each notification
        ("ccti_min", np.int32),  # IB: the lowest
        ("newly_acked", np.int32),  # packets, by the acknowledgement that has just come
        ("in_flight", np.int32),  # TCP: packets
        ("window_packets", np.float64),  # TCP: congestion window
        ("threshold", np.float64),  # TCP: where slow start ends
        ("recover_psn", np.int32),  # TCP: one cut for each window
        ("arrived", np.int32),  # TCP: packets received in all
        ("counted", np.int32),  # TCP: of them known to the sender, modulo 2^15
        ("unacked", np.int32),  # TCP: packets received since the last acknowledgement
        ("backoff", np.int32),  # timeouts in a row
    ],
    align=True,
)
HOST = np.dtype(
    [
        ("port", np.int32),
        ("ack_line", np.int32),
        ("clock_ps", np.int64),  # memory can give the next packet then
        ("ps_per_kib", np.int64),  # of the way from memory, where it is slower than the port; else 0
        ("receive_clock_ps", np.int64),
        ("receive_ps_per_kib", np.int64),  # of the way to memory, where it is slower than the port; else 0
        ("receive_ps", np.int64),  # from the last packet until the program knows
    ],
    align=True,
)


def records(n: int, dtype: np.dtype[Any]) -> Records:
    """`n` zeroed records, from the start of a cache line."""
    space = np.zeros(n * dtype.itemsize + LINE_BYTES, np.uint8)
    begin = -space.ctypes.data % LINE_BYTES
    return space[begin : begin + n * dtype.itemsize].view(dtype).view(np.recarray)


def distinct_rows(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The rows that differ, in order, and which of them each is: np.unique(axis=0) takes 3 to 16 times as long."""
    order = np.lexsort(rows.T[::-1])
    sorted_rows = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (sorted_rows[1:] != sorted_rows[:-1]).any(axis=1)
    which = np.empty(len(rows), np.int64)
    which[order] = np.cumsum(new) - 1
    return sorted_rows[new], which
