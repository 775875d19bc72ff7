"""The records that all engines share (ports, messages, queue pairs, hosts) and their constants."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Records = Any  # a recarray: its fields read as attributes, compiled and interpreted

NONE = -1
BLOCK_BYTES = 64  # credits are counted in blocks
LINE_BYTES = 64  # cache line


class FlowControl(enum.IntEnum):
    """The flow control of a network: when a port may send."""

    CREDITS = 0
    PAUSE = 1
    DROP = 2


class Selection(enum.IntEnum):
    """The way in which a switch selects the output port of a packet: by the forwarding table, or by a policy."""

    TABLE = 0
    DETOUR = 1  # by the forwarding table, for some packets to an intermediate switch first
    BY_FLOW = 2
    BY_PACKET = 3


# The fixed properties and rare events of a port; fields used by every packet are in the packet engine's PORT.
PLUG = np.dtype(
    [
        ("peer", np.int32),
        ("owner", np.int32),  # row of the forwarding tables; for a host -1 - host
        ("wire_line", np.int16),
        ("rate", np.int16),
        ("arbitration", np.int16),  # row of the VL arbitration tables
        ("cut_through", np.int8),
        ("wakes", np.int8),  # a PORT_READY is on the agenda
        ("down", np.int8),  # the cable loses every packet now
        ("wait_since_ps", np.int64),
        ("wait_ps", np.int64),
        ("clean_bytes", np.int64),  # bytes until the next bit error
        ("bytes_per_error", np.float64),  # mean; 0 on a good cable
        ("corrupted", np.int32),
        ("dropped", np.int32),
        ("marked", np.int32),
        ("pauses", np.int32),
        ("high_at", np.int16),  # position of the VL arbiter in its tables
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
        ("slid", np.int32),  # destination of acknowledgements
        ("qp", np.int32),
        ("packets", np.int32),
        ("sent", np.int32),
        ("received", np.int32),
        ("first_psn", np.int32),
        ("full", np.int16),  # size of all packets but the first and the last
        ("first", np.int16),  # size of the first packet
        ("last", np.int16),
        ("sl", np.int8),
        ("back_sl", np.int8),  # SL of its acknowledgements, whose path may differ
        ("waits_for", np.int32),  # messages not yet delivered
        ("retransmitted", np.int32),
        ("next", np.int32),  # in its queue pair
        ("branch", np.int32),  # multicast: root of the tree of its copies, else NONE
        ("branches", np.int32),  # size of that tree
        ("bytes", np.int64),
        ("lead_ps", np.int64),  # from its start until its first packet can leave
        ("delay_ps", np.int64),
        ("free_ps", np.int64),  # when the last message it waits for was delivered
        ("start_ps", np.int64),
        ("ready_ps", np.int64),
        ("finish_ps", np.int64),
        ("acked_ps", np.int64),
    ],
    align=True,
)
QP = np.dtype(
    [
        ("queue", np.int32),  # output queue of its packets
        ("dst", np.int32),  # port
        ("host", np.int32),
        ("flow", np.int32),  # input of the ECMP hash
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
        ("window", np.int32),  # limit of `outstanding`
        ("given_psn", np.int32),  # next PSN to assign to a message
        ("expected_psn", np.int32),  # at the receiver
        ("acked_psn", np.int32),  # all earlier packets have arrived
        ("lost", np.int32),  # packets that the network lost, unknown to the sender
        ("lost_tail", np.int32),
        ("again", np.int32),  # packets known to be lost, to be sent again
        ("again_tail", np.int32),
        ("posted_ps", np.int64),  # when the last posted message is ready; none overtakes it
        ("clock_ps", np.int64),  # the next message cannot start before
        ("paced_ps", np.int64),  # the next packet cannot leave before
        ("gap_ps", np.int64),  # between messages
        ("setup_ps", np.int64),  # time to start reading a message from memory
        ("ps_per_kib", np.int64),  # time to read it
        ("deadline_ps", np.int64),  # for an acknowledgement from the other end
        ("timer_ps", np.int64),  # when the TIMEOUT on the agenda expires, NONE
        ("pace_ps_per_kib", np.int64),  # rate limit, or copying in TCP; 0: port speed
        ("packet_ps", np.int64),  # TCP: processor time per packet sent
        ("receive_packet_ps", np.int64),  # TCP: processor time per packet received
        ("receive_clock_ps", np.int64),
        ("line_ps_per_kib", np.int64),  # the port, or the path if slower
        ("notified_ps", np.int64),  # when the receiver last reported congestion
        ("alpha", np.float64),  # DCQCN: estimate of congestion
        ("rate", np.float64),  # share of the line rate
        ("target", np.float64),  # DCQCN: target of the rate
        ("step_ps", np.int64),  # between two steps back up
        ("rate_due_ps", np.int64),  # when the rate rises next
        ("paced_bytes", np.int64),  # DCQCN: bytes since the byte counter last expired
        ("byte_rounds", np.int32),  # DCQCN: expirations since the last cut
        ("rounds", np.int32),  # DCQCN: increases since the last cut; IB: index in the congestion control table
        ("ccti_increase", np.int32),  # IB: added to that index for each notification
        ("ccti_min", np.int32),  # IB: lowest index
        ("newly_acked", np.int32),  # packets acknowledged by the latest acknowledgement
        ("in_flight", np.int32),  # packets; kept for TCP and for controls that see each acknowledgement
        ("window_packets", np.float64),  # TCP: congestion window
        ("window_bytes", np.float64),  # on the wire, of controls that see each acknowledgement; 0: no limit
        ("rtt_ps", np.int64),  # the next four belong to the latest acknowledgement, for such controls
        ("packet_bytes", np.int32),  # of a full packet, on the wire
        ("ack_psn", np.int32),  # the packet that it acknowledges
        ("sent_psn", np.int32),  # the next new packet
        ("ecn_echo", np.int8),  # the acknowledged packet was marked
        ("threshold", np.float64),  # TCP: where slow start ends
        ("recover_psn", np.int32),  # TCP: one cut per window
        ("arrived", np.int32),  # packets received in total
        ("counted", np.int32),  # of those, known to the sender, modulo 2^15
        ("unacked", np.int32),  # TCP: packets received since the last acknowledgement
        ("unacked_message", np.int32),  # TCP: message of the latest of those
        ("quick_acks", np.int32),  # TCP: packets that are still acknowledged at once
        ("ack_timer", np.int8),  # TCP: a DELAYED_ACK is on the agenda
        ("ack_due_ps", np.int64),  # TCP: when those packets are acknowledged at the latest
        ("backoff", np.int32),  # timeouts in a row
    ],
    align=True,
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
    space = np.zeros(n * dtype.itemsize + LINE_BYTES, np.uint8)
    begin = -space.ctypes.data % LINE_BYTES
    return space[begin : begin + n * dtype.itemsize].view(dtype).view(np.recarray)


def distinct_rows(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct rows in order, and the index of each row among them; 3 to 16 times faster than
    np.unique(axis=0).
    """
    order = np.lexsort(rows.T[::-1])
    sorted_rows = rows[order]
    new = np.ones(len(rows), bool)
    new[1:] = (sorted_rows[1:] != sorted_rows[:-1]).any(axis=1)
    index = np.empty(len(rows), np.int64)
    index[order] = np.cumsum(new) - 1
    return sorted_rows[new], index
