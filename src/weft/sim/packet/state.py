"""All that a run knows, as arrays of records; and the few numbers that the kernels share.

    host --Port--> wire --> Queue (input buffer of a VL) --> switch --> Queue (output) --Port--> wire --> ...

Ports are numbered node by node, with a slot 0 for each, as in a fabric, but only those of hosts and switches. The
queue of VL v at port p is row `p * n_vls + v`, which is also the row of p's own input buffer of that VL. Times are
picoseconds. Lists run through `next` fields; -1 ends them.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.sim.layout.records import LINE_BYTES, Records

CHUNK_BITS = 6
CHUNK_EVENTS = 1 << CHUNK_BITS  # events in one piece of a delay line
DELAY_LINE_BITS = 10
DELAY_LINES = 1 << DELAY_LINE_BITS  # at most
EMPTY = (1 << 63) - 1  # the first event of a line that has none
PAUSED = 1 << 30  # credits that a pause frame takes away
ROOM = 128  # for what a few events make, if none of them copies a packet


class Kind(enum.IntEnum):
    """What an event is: that of its line, or its own on the agenda."""

    LINK_FREE = 0  # a: port, b: packet that it sent
    CREDIT = 1  # a: queue upstream, b: bytes
    ARRIVAL = 2  # a: packet, b: input buffer
    CONTROL = 3  # a: packet, from the adapter itself
    READY = 4  # a: message
    QP_READY = 5  # a: queue pair
    PORT_READY = 6  # a: port of a host
    TURN = 7  # a: packet, b: queue; it came in slower than it leaves
    ACCEPT = 8  # a: packet; the host has processed it
    TIMEOUT = 9  # a: queue pair
    RATE = 10  # a: queue pair; time to send faster again
    POSTED = 11  # a: message; it waited for others, and starts


class Carries(enum.IntEnum):
    """What a packet is."""

    DATA = 0
    ACK = 1
    NAK = 2
    CNP = 3  # congestion notification: BECN
    COPY = 4  # data for a group


class Stop(enum.IntEnum):
    """Why the kernel came back."""

    DONE = 0
    SLICE = 1  # its share of events is spent
    MOMENT = 2  # the next event is later than it was to go
    ROOM = 3  # a pool runs low
    STUCK = 4  # nothing can happen, and packets wait
    OVERFLOW = 5  # an input buffer that was promised room
    NO_ROUTE = 6  # a table without an entry for a packet that came
    RETRIES = 7  # a queue pair gave up


class QpState(enum.IntEnum):
    IDLE = 0  # nothing to send, or not allowed to
    RING = 1  # takes its turns at the port
    TIMER = 2  # an event will bring it back


def _line(begin: int, *fields: tuple[str, type]) -> np.dtype[Any]:
    """A record in a cache line of its own, with these fields from some byte of it on."""
    formats = [np.dtype(kind) for _, kind in fields]
    ends = begin + np.cumsum([kind.itemsize for kind in formats])
    offsets = [int(end) - kind.itemsize for end, kind in zip(ends, formats, strict=True)]
    names = [name for name, _ in fields]
    layout = {"names": names, "formats": formats, "offsets": offsets, "itemsize": LINE_BYTES}
    return np.dtype(layout, align=True)  # type: ignore[call-overload, no-any-return]


# What every packet touches, of a port and of a queue. Where there is one VL they are two views of one array, so that a
# port and its queue share a line: the one begins where the other ends.
PORT = _line(
    0,
    ("xmit_bytes", np.int64),
    ("xmit_packets", np.int64),
    ("peer", np.int32),
    ("wire_line", np.int16),
    ("rate", np.int16),  # row of `serial_ps`
    ("sending_from", np.int32),  # input buffer that the packet leaves, NONE if it came from here
    ("sending_bytes", np.int32),  # of that buffer
    ("waiting", np.int16),  # a bit for each VL that has packets, or at a host queue pairs, that wait to leave
    ("blocked", np.int16),  # a bit for each VL that has, and not the credits for the first
    ("busy", np.int8),
    ("starved", np.int8),  # it waits for credits
    ("cut_through", np.int8),  # the far end forwards a packet before it has all of it
    ("gated", np.int8),  # of a host whose memory may be slower
)
QUEUE = _line(
    40,
    ("head", np.int32),  # packets that wait to leave
    ("tail", np.int32),
    ("ring", np.int32),  # last of the queue pairs that take turns here; its next is the first
    ("credits", np.int32),  # bytes that may be sent
    ("bytes", np.int32),  # waiting to leave
    ("port", np.int32),
)
BUFFER = np.dtype(  # 32 bytes: half a line
    [
        ("held", np.int32),  # bytes
        ("held_peak", np.int32),
        ("room", np.int32),
        ("upstream", np.int32),  # the queue whose credits this buffer gives
        ("owner", np.int32),  # as of the port
        ("first", np.int32),  # port 0 of the same node
        ("credit_line", np.int16),  # how credits travel
        ("rate", np.int16),  # as of the port
        ("cut_in", np.int8),  # packets are here before all of their bytes
        ("errs", np.int8),  # the cable makes bit errors
        ("pausing", np.int8),  # a pause was sent upstream
        ("number", np.uint8),  # of the port
    ],
    align=True,
)
LOAD = np.dtype([("bytes", np.int32), ("peak_bytes", np.int32)], align=True)
PACKET = np.dtype(
    [
        ("message", np.int32),
        ("psn", np.int32),  # of the queue pair, counted from 0; of a copy its branch: nobody puts those in order
        ("dlid", np.int32),
        ("bytes", np.int32),  # on the wire
        ("held_in", np.int32),  # input buffer where it is or will be, NONE at its source; see `multicast` for less
        ("next", np.int32),
        ("length", np.int16),  # column of `serial_ps`; `size` is an attribute of every numpy record
        ("total", np.int16),  # TCP: packets that had arrived when this acknowledgement left, modulo 2^15; of one that
        # was copied: copies that have not left yet
        ("carries", np.int8),
        ("sl", np.int8),
        ("marked", np.int8),  # FECN, or ECN's congestion experienced
        ("again", np.int8),  # sent before
    ],
    align=True,
)
BRANCH = np.dtype(  # a port that copies of a packet come into
    [
        ("queue", np.int32),  # by which they leave for it
        ("first", np.int32),  # branch that goes on from there
        ("end", np.int32),  # after the last of those
        ("came", np.int64),
        ("corrupted", np.int64),  # by bit errors
    ],
    align=True,
)
DELAY_LINE = np.dtype(
    [
        ("delay_ps", np.int64),
        ("kind", np.int32),
        ("head", np.int32),  # place of the first event
        ("tail", np.int32),  # place of the next one to come
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
        ("until_ps", np.int64),  # come back before an event later than this
        ("events", np.int64),
        ("packets", np.int64),
        ("alive", np.int64),  # packets somewhere in the network
        ("left", np.int64),  # messages not delivered, or not acknowledged where they ask for it
        ("delivered", np.int64),
        ("order", np.int64),  # of the agenda's entries
        ("rival", np.int64),  # the first event of the lines other than the one whose turn it is
        ("random", np.int64),
        ("agenda", np.int32),  # entries
        ("agenda_room", np.int32),  # free entries that must be there before a few events are handled
        ("free_chunk", np.int32),
        ("free_chunks", np.int32),
        ("free_packet", np.int32),
        ("free_packets", np.int32),
        ("room", np.int32),  # free packets and chunks that must be there before a few events are handled
        ("n_vls", np.int32),
        ("flow", np.int32),
        ("selection", np.int32),
        ("policy", np.int64),  # where it is; `choose` is an attribute of every numpy record
        ("on_notification", np.int64),  # of the congestion control, for `weft.jit.call`; 0: nothing happens
        ("on_timer", np.int64),
        ("on_ack", np.int64),
        ("on_loss", np.int64),
        ("on_timeout", np.int64),
        ("losses", np.int8),  # packets can be lost: keep timers
        ("ack_every", np.int32),  # TCP
        ("ack_size", np.int16),
        ("mark_least_bytes", np.int64),  # of all ports; 0: none marks
        ("notify_ps", np.int64),  # not more often to one sender
        ("timeout_ps", np.int64),
        ("stop_a", np.int32),  # where it stopped
        ("stop_b", np.int32),
    ],
    align=True,
)


class State(NamedTuple):
    """Everything, in the form that kernels take it."""

    run: Records  # one record
    ports: Records
    plugs: Records  # [port]
    queues: Records
    buffers: Records  # [queue]
    loads: Records  # [port] -> what waits to leave or is leaving, which adaptive routing looks at; and the most
    drop_above: NDArray[np.int32]  # [queue] -> bytes that may wait to leave
    pause_above: NDArray[np.int32]  # [queue] -> bytes that the buffer may hold
    stuck_ps: NDArray[np.int64]  # [queue] -> since when it is blocked, if it is
    marks: NDArray[np.int64]  # [port] -> bytes in its queue up to which none is marked, and from which all are, if it
    # is by chance; percent just below that, in InfiniBand above the first; bytes of the smallest that is marked
    control_table: NDArray[np.float64]  # what the congestion control looks up
    packets: Records
    messages: Records
    branches: Records
    qps: Records
    hosts: Records
    lines: Records
    tree: NDArray[np.int64]  # [n + line] -> time of first event << DELAY_LINE_BITS | line, or EMPTY; [1] -> the least
    events: Records  # [chunk * CHUNK_EVENTS + n]
    next_chunk: NDArray[np.int32]
    agenda: Records  # a heap of the events with odd delays
    serial_ps: NDArray[np.int64]  # [rate, size] -> on the wire
    serial_line: NDArray[np.int32]  # [rate, size] -> line, NONE: the agenda
    size_bytes: NDArray[np.int32]  # [size] -> on the wire
    lft: NDArray[Any]  # [switch, lid] -> port number; where there is a choice: which of the switch's choices
    first_choice: NDArray[np.int32]  # [switch]
    choice_first: NDArray[np.int32]  # [choice + 1]
    choice_ports: NDArray[np.int32]  # port numbers
    slots: NDArray[np.int64]  # [switch] -> its ports, with port 0
    first_pair: NDArray[np.int64]  # [switch] -> its first row of sl2vl
    pair_row: NDArray[np.uint16]  # [row] -> that of `sl2vl`: few differ, and all of them would not fit the cache
    sl2vl: NDArray[np.uint8]  # [row, sl] -> VL
    host_vl: NDArray[np.int32]  # [host, sl] -> VL by which it sends
    successor_first: NDArray[np.int64]  # [message + 1]
    successors: NDArray[np.int32]
    arbitration_vl: NDArray[np.int32]  # [row, low | high, entry]
    arbitration_weight: NDArray[np.int32]  # 0 ends the list
    high_limit_bytes: NDArray[np.int64]  # [row]
