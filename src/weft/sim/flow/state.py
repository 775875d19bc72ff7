"""The state of a run of flows, as columns.

A queue pair sends one message at a time, so each queue pair is one flow: row q of `qps` (shared with the packet
engine) and
of `flows` (its rate, and the rest of its message). Links that carry the same flows with the same shares differ only in
capacity: they form one *class*, with the smallest capacity of its members. A *node* is one flow in the list of one
class; it
has a fixed index, whether the flow is active or not. Times are picoseconds, rates bytes per picosecond. Lists are
linked by
`next` fields; -1 ends them.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.sim.layout.records import NONE, Records, records, whole_lines


class FlowEvent(enum.IntEnum):
    """The events on the agenda."""

    DELIVERED = 0  # a: message
    READY = 1  # a: message
    WAKE = 2  # a: flow whose next message may start
    POSTED = 3  # a: message that waited for others and now starts


class Link(enum.IntEnum):
    """The connection of a flow to its links."""

    NONE = 0
    COUNTED = 1  # its rate is in their loads
    LISTED = 2  # and its nodes are in their lists


class Stop(enum.IntEnum):
    """The reason why the kernel returned."""

    DONE = 0
    SLICE = 1  # its budget of moments is spent
    MOMENT = 2  # the next event is later than `until_ps`


FLOW = whole_lines(
    [
        # The first cache line has what each solution of rates uses.
        ("message", np.int32),  # in flight, NONE
        ("place", np.int32),  # index in `ends`, NONE
        ("left_bytes", np.float64),  # on the wire, at `since_ps`
        ("rate", np.float64),
        ("new_rate", np.float64),  # computed, not yet applied
        ("since_ps", np.int64),
        ("end_ps", np.int64),
        ("bottleneck", np.int32),  # node of the link that limits its rate
        ("new_bottleneck", np.int32),
        ("chosen", np.int32),  # the last solution that opened its rate
        ("frozen", np.int8),  # its rate is decided
        ("linked", np.int8),  # Link
        ("changed", np.int8),  # it ended or started at this moment
        ("wakes", np.int8),  # a WAKE is on the agenda
        ("started", np.int64),  # messages
        ("sent_bytes", np.int64),  # in finished messages
        ("sent_packets", np.int64),
        ("alone", np.float64),  # rate on an idle network
        ("ack_ps", np.int64),  # from the arrival of a message until its sender knows
        ("pace_ps_per_kib", np.int64),  # path from memory, or the processor that copies
        ("packet_ps", np.int64),  # minimum of that processor
        ("take_ps_per_kib", np.int64),  # path to memory
        ("receive_packet_ps", np.int64),  # time of the receiving processor
        ("receive_ps", np.int64),  # from the last packet until the program knows
    ]
)
END = np.dtype([("time_ps", np.int64), ("flow", np.int64)])
NODE = np.dtype(
    [
        ("share", np.float64),  # part of the flow on a link of the class
        ("of", np.int32),  # class
        ("flow", np.int32),
        ("next", np.int32),  # of the class
        ("prev", np.int32),
        ("guess", np.int32),  # the solution in which its fixed flow is open on this class alone
        ("unused", np.int32),
    ]
)
CLASS = whole_lines(
    [
        ("capacity", np.float64),
        ("load", np.float64),  # rates in force times shares
        ("level", np.float64),  # rate of the flows that it holds
        ("held_share", np.float64),  # their shares
        ("held_load", np.float64),  # their part of `load`
        ("flows", np.int32),  # whose rates are in `load`
        ("holds", np.int32),  # flows limited by this class
        ("head", np.int32),  # node
        ("touched_in", np.int32),  # the solution that touched it last
        ("checked", np.float64),  # no fixed flow is faster than this, and every guess is
        # `batch` uses only the first cache line.
        ("residual", np.float64),  # in this solution: for flows whose rate is open here
        ("weight", np.float64),  # their shares
        ("key", np.float64),  # in the heap of levels
        ("open", np.int32),  # flows whose rate is open here
        ("final", np.int32),  # flows frozen in this solution
        ("guesses", np.int32),  # fixed flows opened for this class alone
        ("place", np.int32),  # index in `levels`, NONE
        ("released", np.int8),  # the flows that it held are open everywhere
        ("done", np.int8),  # its level is decided
    ]
)
PART = np.dtype(  # a link in `batch`
    [
        ("left", np.float64),  # of its capacity, by flows that are done
        ("weight", np.float64),  # shares of its open flows
        ("open", np.int32),
        ("solution", np.int32),  # the last one that used it
    ],
    align=True,
)
RUN = np.dtype(
    [
        ("now_ps", np.int64),
        ("until_ps", np.int64),
        ("tolerance", np.float64),  # relative: closer rates are equal
        ("left", np.int64),  # messages not finished
        ("next_ready", np.int64),  # index in `ready`
        ("order", np.int64),  # of the agenda's entries
        ("agenda", np.int32),  # entries
        ("ends", np.int32),  # entries
        ("changed", np.int32),  # entries
        ("started", np.int32),  # entries
        ("waiting", np.int32),  # whether the changes wait for others
        ("due_ps", np.int64),  # when they will no longer
        ("batch_ps", np.int64),  # the longest time that changes wait
        ("chosen", np.int32),  # entries
        ("touched", np.int32),  # entries
        ("levels", np.int32),  # entries
        ("slots", np.int32),  # entries of `open_flow`; NONE: they are out of date
        ("unlisted", np.int32),  # whether flows under way may not be in the lists of their links
        ("solution", np.int32),
        ("solutions", np.int64),
    ],
    align=True,
)


class State(NamedTuple):
    """The state in the form that kernels take it."""

    run: Records  # one record
    messages: Records  # as in the packet engine
    qps: Records
    flows: Records
    classes: Records
    agenda: Records  # a heap, as in the packet engine
    ready: NDArray[np.int32]  # messages without dependencies, by time
    ready_ps: NDArray[np.int64]
    ends: Records  # flows under way, a heap by their ends
    changed: NDArray[np.int32]  # flows
    started: NDArray[np.int32]  # flows with a message that has no end yet
    chosen: NDArray[np.int32]  # flows whose rate is open
    touched: NDArray[np.int32]  # classes of the chosen flows
    levels: NDArray[np.int32]  # classes, a heap by `key`
    node_first: NDArray[np.int64]  # [flow + 1]
    node_class: NDArray[np.int32]  # the columns of NODE
    node_share: NDArray[np.float64]
    node_flow: NDArray[np.int32]
    node_guess: NDArray[np.int32]
    node_next: NDArray[np.int32]
    node_prev: NDArray[np.int32]
    parts: Records  # [class]
    part_rate: NDArray[np.float64]  # [class] -> rate of each of its open flows, if it were their bottleneck
    part_least: NDArray[np.float64]  # [class] -> least of the rates that its open flows take
    open_flow: NDArray[np.int32]  # [slot] -> flow under way, in `batch`
    open_node: NDArray[np.int64]  # [slot] -> the flow's first node
    open_first: NDArray[np.int64]  # [slot + 1] -> its first entry in the next two
    open_link: NDArray[np.uint32]  # classes
    open_share: NDArray[np.float64]
    open_rate: NDArray[np.float64]  # [slot]
    open_held: NDArray[np.int64]  # [slot] -> entry in `open_link` of the link that holds the flow
    hop_first: NDArray[np.int64]  # [flow + 1]
    hop_rate: NDArray[np.int32]  # row of `serial_ps`
    hop_ps: NDArray[np.int64]  # from the first byte until the far end has it
    hop_cut: NDArray[np.int8]  # the far end forwards a packet before it has arrived completely
    free_ps: NDArray[np.int64]  # [hop], scratch: when a link is free
    serial_ps: NDArray[np.int64]  # [rate, size]
    size_bytes: NDArray[np.int64]  # [size] -> on the wire
    spreads: bool  # flows take many paths
    successor_first: NDArray[np.int64]
    successors: NDArray[np.int32]


class Agenda(NamedTuple):
    """The part of the state that the packet engine's agenda needs; passing the whole state would cost more than the
    call.
    """

    run: Records
    agenda: Records


class Net(NamedTuple):
    """The tables for following paths, and scratch space for one path."""

    selection: int
    peer: NDArray[np.int32]  # [port]
    owner: NDArray[np.int32]  # [port] -> switch, or -1 - host
    first: NDArray[np.int64]  # [switch] -> its port 0
    lft: NDArray[np.uint8]
    group: NDArray[np.int32]  # [switch, lid] -> group, -1: use the forwarding table
    group_first: NDArray[np.int64]  # [group + 1]
    group_ports: NDArray[np.int32]  # port numbers
    src: NDArray[np.int32]  # [flow] -> port
    dst: NDArray[np.int32]
    slid: NDArray[np.int32]
    dlid: NDArray[np.int32]
    hashed: NDArray[np.int64]  # [flow] -> input of the ECMP hash
    extra: NDArray[np.int32]  # [flow, 3] -> links that model its memories and processors, -1
    links: NDArray[np.int32]  # scratch: links of a path
    share: NDArray[np.float64]  # [link], scratch: part of the flow on it
    mass: NDArray[np.float64]  # [2, switch], scratch: part of the flow that reaches it
    front: NDArray[np.int32]  # [2, switch], scratch: switches reached after so many hops


def make_nodes(first: NDArray[np.int64], of: NDArray[np.int32], share: NDArray[np.float64]) -> dict[str, Any]:
    """Return the columns `node_...` of a state. They share memory, so that a node is in one cache line.

    There are at least two rows: numpy calls a column of one row contiguous, and numba would compile the kernels again.
    """
    memory = records(max(len(of), 2), NODE)
    memory.next = memory.prev = NONE
    nodes = memory[: len(of)]
    nodes.of, nodes.share = of, share
    nodes.flow = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
    columns = {name: np.asarray(memory[name]) for name in ("share", "flow", "next", "prev", "guess")}
    return {"node_class": np.asarray(memory.of)} | {f"node_{name}": column for name, column in columns.items()}
