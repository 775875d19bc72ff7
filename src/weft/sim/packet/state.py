"""The state of a run as arrays of records, and the constants that the kernels share.

    host --Port--> cable --> Queue (input buffer of a VL) --> switch --> Queue (output) --Port--> cable --> ...

Ports are numbered node by node, with a slot 0 for each, as in a fabric, but only those of hosts and switches. The
queue of VL v at port p is row `p * n_vls + v`, which is also the number of p's own input buffer of that VL. Times are
picoseconds. Lists are linked by `next` fields; -1 ends them.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.sim.layout.records import Records

CHUNK_BITS = 6
CHUNK_EVENTS = 1 << CHUNK_BITS  # events in one chunk of a delay line
DELAY_LINE_BITS = 10
DELAY_LINES = 1 << DELAY_LINE_BITS  # limit
EMPTY = (1 << 63) - 1  # the key of an empty line
PAUSED = 1 << 30  # credits removed by a pause frame
PART_BITS = 4  # the service level of a packet; above it, the part of its path: `weft.routing.detours`
ROOM = 128  # free entries for a few events that copy no packet
LOSSY, ONE_READ, CAPTURED = 1, 2, 4  # bits of `extra` of a buffer
PROBE = 2  # `again` of a packet that probes whether its message has arrived


class PacketEvent(enum.IntEnum):
    """The kind of an event: that of its line, or its own on the agenda."""

    LINK_FREE = 0  # a: port, b: packet that it sent
    CREDIT = 1  # a: queue upstream, b: bytes
    ARRIVAL = 2  # a: packet, b: input buffer
    CONTROL = 3  # a: packet, from the adapter itself
    READY = 4  # a: message
    QP_READY = 5  # a: queue pair
    PORT_READY = 6  # a: port of a host
    TURN = 7  # a: packet, b: queue; it arrived more slowly than it leaves
    ACCEPT = 8  # a: packet; the host has processed it
    TIMEOUT = 9  # a: queue pair
    RATE = 10  # a: queue pair; time to raise the rate
    POSTED = 11  # a: message that waited for others and now starts
    DELAYED_ACK = 12  # a: queue pair (TCP)
    LOST = 13  # a: packet, lost in another group of switches
    RELEASE = 14  # a: message, delivered in another group of switches; b: message that waits for it
    REPLAYED = 15  # a: packet, b: input buffer; the link has sent it again
    UET_PROBE = 16  # a: queue pair
    PULL = 17  # a: host that gives credits


class Carries(enum.IntEnum):
    """The type of a packet."""

    DATA = 0
    ACK = 1
    NAK = 2
    CNP = 3  # congestion notification: BECN
    COPY = 4  # multicast data, or the result of a reduction
    SUMMAND = 5  # data that switches add up
    PULL = 6  # credits of a receiver (UET)
    HEADER = 7  # of data that a full queue has trimmed, or of none: a probe that must not wait (UET)


class Stop(enum.IntEnum):
    """The reason why the kernel returned."""

    DONE = 0
    SLICE = 1  # its budget of events is spent
    MOMENT = 2  # the next event is later than `until_ps`
    ROOM = 3  # a pool runs low
    STUCK = 4  # no event is possible, and packets wait
    OVERFLOW = 5  # an input buffer overflowed despite flow control
    NO_ROUTE = 6  # no table entry for a packet
    RETRIES = 7  # a queue pair gave up


class UetAction(enum.IntEnum):
    """A request to the rules of Ultra Ethernet, about an index."""

    ACCEPT = 0  # a packet at a host; returns the port that may send
    NEXT_PACKET = 1  # of a queue pair; returns the packet
    MAY_SEND = 2  # a queue pair
    ENQUEUE = 3  # a queue << 32 and a packet
    DEQUEUE = 4  # from a queue; returns the packet
    TIMEOUT = 5  # of a queue pair; as the next two, returns the port
    PROBE = 6  # of a queue pair
    PULL = 7  # of a host
    POSTED = 8  # a message to a queue pair


UET_ACTIONS = len(UetAction)


class QpState(enum.IntEnum):
    IDLE = 0  # nothing to send, or not allowed to
    RING = 1  # in the ring of the port
    TIMER = 2  # an event will wake it


# With one VL, a port and its queue share a cache line: the queue's fields begin where the first ones of the port end.
QUEUE_BEGIN = 40
PORT = np.dtype(
    [
        ("xmit_bytes", np.int64),
        ("xmit_packets", np.int64),
        ("peer", np.int32),
        ("wire_line", np.int16),
        ("rate", np.int16),  # row of `serial_ps`
        ("sending_from", np.int32),  # input buffer of the packet, NONE if it originates here
        ("sending_bytes", np.int32),  # size in that buffer
        ("waiting", np.int16),  # a bit for each VL with packets, or at a host with queue pairs, to send
        ("blocked", np.int16),  # of those, a bit for each VL without credits for its first packet
        ("busy", np.int8),
        ("starved", np.int8),  # waits for credits
        ("cut_through", np.int8),  # the far end forwards a packet before it has arrived completely
        ("gated", np.int8),  # a host whose memory may be slower
        # The VL arbiter, with several VLs. With one VL its queue is here.
        ("high_left", np.int32),  # weight left of the entry at its position in the tables
        ("low_left", np.int32),
        ("high_spent_bytes", np.int32),
        ("high_at", np.int16),  # position
        ("low_at", np.int16),
        ("arbitration", np.int16),  # row of the tables
    ],
    align=True,
)
QUEUE = np.dtype(
    [
        ("head", np.int32),  # packets that wait to leave
        ("tail", np.int32),
        ("ring", np.int32),  # last queue pair in the ring; its `next` is the first
        ("credits", np.int32),  # bytes that may be sent
        ("bytes", np.int32),  # waiting to leave
        ("port", np.int32),
    ],
    align=True,
)
QUEUE_ROW_BYTES = 32  # with several VLs: two queues in a cache line, each with its `State.stuck_ps`
# The input side of a port. The bytes held in the buffer of each VL follow in the same row of memory: `State.held`.
BUFFER = np.dtype(
    [
        ("held_peak", np.int32),  # of all VLs
        ("room", np.int32),  # of each VL
        ("peer", np.int32),  # port that gets the credits
        ("owner", np.int32),  # as in the port
        ("credit_line", np.int16),  # delay line of its credits
        ("rate", np.int16),  # as in the port
        ("pausing", np.int16),  # a bit for each VL whose pause was sent upstream
        ("cut_in", np.int8),  # packets arrive head first (cut-through)
        # bits: LOSSY, the cable has bit errors or is cut now; ONE_READ, packets leave one at a time: `inputs`; CAPTURED
        ("extra", np.int8),
        ("number", np.int16),  # of the port
    ],
    align=True,
)
LOAD = np.dtype([("bytes", np.int32), ("peak_bytes", np.int32)], align=True)
PACKET = np.dtype(
    [
        ("message", np.int32),
        ("psn", np.int32),  # of the queue pair, counted from 0; of a copy: its branch
        ("dlid", np.int32),
        ("bytes", np.int32),  # on the wire
        ("held_in", np.int32),  # current or next input buffer, NONE at its source; lower values: see `multicast`
        ("next", np.int32),
        ("length", np.int16),  # column of `serial_ps`; `size` is an attribute of every numpy record
        ("total", np.int16),  # TCP: packets arrived when this acknowledgement left, modulo 2^15; of a
        # multicast packet: copies that have not left yet; UET: entropy
        ("carries", np.int8),
        ("sl", np.int8),  # with the part of its path above
        ("marked", np.int8),  # FECN, or ECN's congestion experienced
        ("again", np.int8),  # a retransmission; of an acknowledgement: its message had arrived completely
    ],
    align=True,
)
HOP = np.dtype(  # in-band telemetry: a switch port when it began to send the packet
    [
        ("queue_bytes", np.float64),  # waiting behind the packet
        ("sent_bytes", np.float64),  # by the port so far, before this packet
        ("rate_gbit_s", np.float64),
        ("time_ps", np.float64),
        ("port", np.int64),
    ],
    align=True,
)
MOST_HOPS = 16  # further switches add no telemetry
TRACE = np.dtype([("sent_ps", np.int64), ("hops", np.int64)], align=True)  # of a packet, or echoed by its ACK
BRANCH = np.dtype(  # a port that receives copies of a packet
    [
        ("queue", np.int32),  # output queue of the copies
        ("first", np.int32),  # first branch that follows
        ("end", np.int32),  # after the last of those
        ("member", np.int32),  # of the reduction whose result it takes to a host, else NONE
        ("arrived", np.int64),
        ("corrupted", np.int64),  # by bit errors
    ],
    align=True,
)
INPUT = np.dtype(  # an input buffer from which packets leave one at a time
    [("head", np.int32), ("tail", np.int32), ("taken", np.int8)], align=True
)  # packets behind the one that has been read, and whether there is such a one
REDUCTION = np.dtype(  # an all-reduce in switches
    [
        ("tree", np.int32),  # its row of `vertex_of_switch`
        ("first", np.int32),  # its first place in `members`
        ("packets", np.int32),
        ("sums", np.int64),  # its first place in `sums`
    ],
    align=True,
)
VERTEX = np.dtype(  # a switch of an aggregation tree
    [
        ("number", np.int32),  # in its tree
        ("children", np.int32),
        ("queue", np.int32),  # output queue to the switch above, NONE at the root
        ("branch", np.int32),  # that brings the result
    ],
    align=True,
)
FRAME = np.dtype(  # a packet that has arrived at a captured port
    [
        ("time_ps", np.int64),
        ("buffer", np.int32),
        ("message", np.int32),
        ("psn", np.int32),
        ("dlid", np.int32),
        ("bytes", np.int32),
        ("carries", np.int8),
        ("sl", np.int8),
        ("marked", np.int8),
    ],
    align=True,
)
DELAY_LINE = np.dtype(
    [
        ("delay_ps", np.int64),
        ("kind", np.int32),
        ("head", np.int32),  # index of the first event
        ("tail", np.int32),  # index of the next event to add
    ],
    align=True,
)
EVENT = np.dtype([("time_ps", np.int64), ("a", np.int32), ("b", np.int32)], align=True)
ENTRY = np.dtype(
    [("time_ps", np.int64), ("order", np.int64), ("kind", np.int32), ("a", np.int32), ("b", np.int32)], align=True
)
RUN = np.dtype(
    [
        ("now_ps", np.int64),
        ("until_ps", np.int64),  # return before an event later than this
        ("events", np.int64),
        ("packets", np.int64),
        ("alive", np.int64),  # packets in the network
        ("left", np.int64),  # messages not delivered, or not acknowledged if reliable
        ("delivered", np.int64),
        ("order", np.int64),  # of the agenda's entries
        ("rival", np.int64),  # the first event of the other lines
        ("random", np.int64),
        ("agenda", np.int32),  # entries
        ("agenda_room", np.int32),  # free entries needed before a few events are handled
        ("free_chunk", np.int32),
        ("free_chunks", np.int32),
        ("free_packet", np.int32),
        ("free_packets", np.int32),
        ("room", np.int32),  # free packets and chunks needed before a few events are handled
        ("n_vls", np.int32),  # rows of queues for each port: a power of two
        ("vl_bits", np.int32),  # its logarithm
        ("flow", np.int32),
        ("selection", np.int32),
        ("no_route", np.int32),  # the number in forwarding tables that means no route
        ("detour", np.int8),
        ("ends_in_group", np.int8),  # as in `weft.routing.detours`
        ("in_first_group", np.int8),
        ("bias_bytes", np.int64),  # of UGAL, towards the minimal path
        ("policy", np.int64),  # its address; `choose` is an attribute of every numpy record
        ("on_notification", np.int64),  # address of the congestion control's hook, for `weft.jit.call`; 0: none
        ("on_timer", np.int64),
        ("on_ack", np.int64),
        ("on_loss", np.int64),
        ("on_timeout", np.int64),
        ("on_packet", np.int64),
        ("on_arrival", np.int64),
        ("one_read", np.int8),  # packets leave an input buffer one at a time
        ("frames", np.int64),  # captured in this slice
        ("losses", np.int8),  # packets can be lost: keep timers
        ("traced", np.int8),  # packets carry their time and telemetry
        ("uet", np.int64),  # address of the rules of `uet`, 0 on other networks; the next eight are theirs
        ("trims", np.int8),  # a full queue trims a packet; else it drops it
        ("grants", np.int8),  # receivers give credits
        ("entropy", np.int8),  # `Entropy`
        ("detects_gaps", np.int8),  # a sender detects losses by packets that arrive out of order
        ("network_rtt_ps", np.int64),  # the longest round trip without queues
        ("ack_every_bytes", np.int64),
        ("plain_bytes", np.int64),  # shorter queues of data leave packets unmarked
        ("speculative_bytes", np.int64),  # credits that a context has at its start, and the most that it keeps
        ("checks_data", np.int8),  # the receiver looks at each packet, not only at their number
        ("ack_every", np.int32),  # TCP
        ("ack_size", np.int16),
        ("mark_least_bytes", np.int64),  # minimum over all ports; 0: no marking
        ("notify_ps", np.int64),  # least time between notifications to one sender
        ("timeout_ps", np.int64),
        ("groups", np.int32),  # number of groups of switches: `groups`
        ("group", np.int32),  # this one
        ("lost_line", np.int32),  # first of the lines that take events of a kind to each group
        ("release_line", np.int32),
        ("stop_a", np.int32),  # port or packet at which it stopped
        ("stop_b", np.int32),
    ],
    align=True,
)


class State(NamedTuple):
    """The state in the form that kernels take it."""

    run: Records  # one record
    ports: Records
    plugs: Records  # [port]
    queues: Records
    buffers: Records  # [port]
    held: NDArray[np.int32]  # [port, VL] -> bytes in the input buffer
    loads: Records  # [port] -> bytes queued or being sent, as seen by adaptive routing; and the peak
    drop_above: NDArray[np.int32]  # [queue] -> limit of the output queue in bytes
    pause_above: NDArray[np.int32]  # [queue] -> fill level at which the buffer sends a pause
    port_group: NDArray[np.int16]  # [port] -> group of switches
    stuck_ps: NDArray[np.int64]  # [queue] -> time since when it is blocked, if it is
    # [port] -> queue length up to which no packet is marked, and from which every one is (ECN); packets in a million
    # that are marked just below that, in InfiniBand above the first; size of the smallest packet that is marked
    marks: NDArray[np.int64]
    control_table: NDArray[np.float64]  # table of the congestion control
    control_fields: NDArray[np.float64]  # [qp, field] -> the control's own
    host_fields: NDArray[np.float64]  # [host, field] -> of the control at the receiving adapter
    traces: Records  # [packet]; one row without `on_packet`
    hops: Records  # [packet, hop]
    packets: Records
    notes: Records  # [packet]; with the next seven one row unless `uet`
    pdcs: Records  # [qp]
    sent: Records  # [slot of a context]
    has_arrived: NDArray[np.uint8]  # [slot]
    recycled: NDArray[np.int16]  # [slot] -> entropy
    skips: NDArray[np.uint8]  # [qp, entropy] -> rounds in which it is not used
    express: Records  # [queue]
    pullers: Records  # [host]
    messages: Records
    branches: Records
    inputs: Records  # [queue]; one row unless `one_read`
    frames: Records
    reductions: Records
    vertex_of_switch: NDArray[np.int32]  # [tree, switch] -> vertex, NONE
    vertices: Records
    sums: NDArray[np.int32]  # [reduction, vertex of the tree, packet] -> summands that have arrived
    members: NDArray[np.int32]  # [reduction, member] -> message
    qps: Records
    hosts: Records
    lines: Records
    tree: NDArray[np.int64]  # [n + line] -> time of first event << DELAY_LINE_BITS | line, or EMPTY; [1] -> the least
    events: Records  # [chunk * CHUNK_EVENTS + n]
    next_chunk: NDArray[np.int32]
    agenda: Records  # a heap of the events with irregular delays
    serial_ps: NDArray[np.int64]  # [rate, size] -> on the wire
    serial_line: NDArray[np.int32]  # [rate, size] -> line, NONE: the agenda
    size_bytes: NDArray[np.int32]  # [size] -> on the wire
    lft: NDArray[Any]  # [switch, lid] -> port number; with several: index of the switch's choice
    first_choice: NDArray[np.int32]  # [switch]
    choice_first: NDArray[np.int32]  # [choice + 1]
    choice_ports: NDArray[np.int32]  # port numbers
    intermediate_lid: NDArray[np.int32]  # LIDs of the intermediate switches of detours
    switch_group: NDArray[np.int32]  # [switch]
    lid_group: NDArray[np.int32]  # [lid] -> group of its switch
    switch_first: NDArray[np.int64]  # [switch] -> its port 0
    path_sl: NDArray[np.uint8]  # [switch, lid]; empty without detours
    slots: NDArray[np.int64]  # [switch] -> number of ports, including port 0
    first_pair: NDArray[np.int64]  # [switch] -> its first row of sl2vl
    pair_row: NDArray[np.uint16]  # [row] -> row of `sl2vl`; only the distinct rows fit the cache
    sl2vl: NDArray[np.uint8]  # [row, sl with the part of the path] -> VL
    host_vl: NDArray[np.int32]  # [host, sl] -> VL by which it sends
    successor_first: NDArray[np.int64]  # [message + 1]
    successors: NDArray[np.int32]
    arbitration_vl: NDArray[np.int32]  # [row, low | high, entry]
    arbitration_weight: NDArray[np.int32]  # 0 ends the list
    high_limit_bytes: NDArray[np.int64]  # [row]
    in_turns: NDArray[np.bool_]  # [row] -> whether all VLs take turns, in order: the tables have nothing else
