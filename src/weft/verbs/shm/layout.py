"""Define the layout of the memory of an adapter's queues, for Python and kernels; offsets are in bytes.

    Header, Copy | table of regions | table of queue pairs | blocks: queues, and memory of regions

A queue is a ring: `head` counts what was put in, `tail` what was taken out; entry n is at n modulo its capacity.
"""

from __future__ import annotations

from weft.verbs.shm.record import Record, u32, u64
from weft.wire.headers import GRH

COPY = 256  # offset of the Copy
REGIONS, REGIONS_MAX = 4096, 1 << 14
QUEUE_PAIRS_MAX, QUEUE_PAIR_BYTES = 1 << 16, 256  # apart: no two of them in one line of a cache
SGE_MAX = 32  # elements of a request that a shared-memory path takes
RING = 64  # offset of the entries of a queue, after its record
ARMED_FOR_ALL, ARMED_FOR_SOLICITED = 1, 2
ESTABLISHED_BY_PATH = 2
REGION, WINDOW = 1, 2  # RegionRecord.kind; a window is for others only
KIND_MASK = 3
NO_REFERENCE = 4096  # in the place of one: no other process may use the region
ON_GPU = 1 << 62  # in an address, as kernels hand it on: it is a GPU's


class Header(Record):
    lock: u64  # 0, or the process that has it
    process: u64  # owner of the memory; 0 when it is closed
    begin: u64  # its address in that process
    length: u64  # bytes


class Copy(Record):
    """A long copy of another process, which holds the lock; idle pollers of this process copy parts of it.

    The owner takes parts from the end, helpers from the beginning, so that each finds the same parts in its cache next
    time. While parts or helpers are left, no other copy is written. All other fields are written before `left`.
    """

    is_idle: u64  # a poller is idle; set until the next unassisted copy
    left: u64  # parts that are not taken: the first << 32 | the end
    helpers: u64  # threads that may be at one
    has_failed: u64  # at a helper's
    process: u64  # the process that copies
    theirs: u64  # addresses, in that process ...
    ours: u64  # ... and in this one
    length: u64  # bytes
    part_length: u64
    is_ours: u64  # 1: to here


class RegionRecord(Record):
    """A region at the index of its key, the upper 24 bits, modulo REGIONS_MAX.

    One that does not fit is not in the table; who does not find it there asks the owner.
    """

    key: u64
    domain: u64
    address: u64
    length: u64
    base: u64  # remote address of its first byte
    access: u64
    qp_num: u64  # that alone may use it; 0: any of the domain
    kind: u64  # 0: it is closed; of a GPU's plus where its reference is (`gpu.Shown`), which begins at a page


class QueuePairRecord(Record):
    """A queue pair; number n is at n modulo QUEUE_PAIRS_MAX."""

    number: u64
    state: u64
    service: u64
    dest_qp: u64
    source: u64  # a hash of whom it takes packets from
    expected_psn: u64
    msn: u64
    is_midway: u64  # in a message
    receive_queue: u64  # offset
    receive_domain: u64
    receive_cq: u64  # offset
    access: u64
    p_key: u64
    pkey_index: u64
    domain: u64
    is_established: u64  # a request came; ESTABLISHED_BY_PATH: through shared memory, and the owner does not know yet
    max_dest_rd_atomic: u64
    next_psn: u64
    send_cq: u64  # offset
    signals_all: u64
    mtu_bytes: u64
    max_rd_atomic: u64
    max_send_wr: u64  # send requests that may be posted and not polled
    posted: u64  # send requests, ever
    polled: u64  # the last send request whose completion was polled: places up to it are free
    q_key: u64
    telling: u64  # 1: a send request is complete at the other end, and its completion is not in the queue here yet
    unacked: u64  # 1: packets of send requests are under way, or their acknowledgements


class ReceiveQueueRecord(Record):
    """A receive queue, followed by its ring of requests, each with `max_sge` elements."""

    capacity: u64
    head: u64
    tail: u64
    max_sge: u64
    limit: u64
    returned: u64  # requests that were taken and not used


class CompletionQueueRecord(Record):
    """A completion queue, followed by its ring of completions."""

    capacity: u64
    head: u64
    tail: u64
    armed: u64
    is_broken: u64
    stamps: u64
    bell: u64


class CompletionRecord(Record):
    """A completion. With an error `status` only `wr_id`, `qp_num` and `vendor_err` are valid besides."""

    wr_id: u64
    qp_num: u64
    status: u64
    opcode: u64
    byte_len: u64
    immediate: u64  # or the key that was invalidated
    wc_flags: u64
    src_qp: u64
    slid: u64
    sl: u64
    pkey_index: u64
    dlid_path_bits: u64
    vendor_err: u64
    solicited: u64
    time_ns: u64  # monotonic clock, if the queue has timestamps
    posted: u64  # number of a send request in its queue pair, from 1
    place: u64  # 0, or where the bytes behind this record belong: who polls puts them there


# A short message lies behind the completion that tells of it: the sender would need a system call to put it into memory
# that it does not share, which takes longer than all the rest.
SHORT_BYTES = GRH.size + 64  # including the route header of a datagram
COMPLETION_BYTES = CompletionRecord.size + SHORT_BYTES  # from one to the next


# Requests of programs, for rings and shared-memory paths (`execute`); packing checks that numbers fit.


class SendRequest(Record):
    opcode: u32
    flags: u32
    wr_id: u64
    immediate: u32
    va: u64
    rkey: u32  # datagram: its Q_Key
    compare: u64  # or what is added
    swap: u64
    num_sge: u32
    number: u64  # 0, or of one that was posted before: which one of its queue pair


class ReceiveRequest(Record):
    wr_id: u64
    num_sge: u32


class SgeRecord(Record):
    """An element of a request, stored behind it."""

    address: u64
    length: u32
    lkey: u32


class MeterRecord(Record):
    """A meter of the packets between two ports of a lab that shared memory replaces, and of their time."""

    is_open: u64
    requests: u64  # packets
    request_bytes: u64  # BTH to ICRC
    responses: u64
    response_bytes: u64
    latency_ns: u64
    byte_ps: u64
    free_ns: u64  # when the link is free again


# The memory of a shared-memory path: this record, a request, the addresses of its elements, and `Scratch`.


class PathRecord(Record):
    """A path. Addresses are of this process unless noted; `fill_in` sets those from `request` on."""

    own: u64  # memory of the queues of this end
    far: u64  # and of the other
    far_begin: u64  # in the other process
    far_length: u64
    own_qp: u64
    far_qp: u64
    far_process: u64
    own_process: u64
    source: u64  # as the other end's queue pair has it
    meter: u64
    max_sge: u64
    max_inline: u64  # bytes
    staged: u64  # datagrams: a route header, followed by space for a message; else 0
    length_at: u64  # offset of the length in that header
    length: u64  # ... of a message without data
    dest_qp: u64
    wc_flags: u64  # these three are in the completion of a received datagram
    slid: u64
    sl: u64
    copy_on_gpu: u64  # a function of C; see `copying`
    own_is_on_gpu: u64  # ON_GPU if some element of the request is
    far_reference: u64  # reference of the peer's place that was used last
    request: u64  # a SendRequest, and its elements
    found: u64  # for each element, where it is
    scratch: u64


class Word(Record):
    """A word of memory."""

    value: u64


class Box(Record):
    """A completion queue, as the kernel that takes from it gets it: addresses."""

    queue: u64
    memory: u64  # memory of the adapter, if places of send requests are freed; else 0


class Scratch(Record):
    """The scratch memory for system calls, and for the two values of an atomic operation."""

    own: u64  # address and length
    own_length: u64
    far: u64
    far_length: u64
    before: u64
    after: u64


_REGION_BYTES = RegionRecord.size  # for kernels, which know no classes
QUEUE_PAIRS = REGIONS + REGIONS_MAX * _REGION_BYTES
BLOCKS = QUEUE_PAIRS + QUEUE_PAIRS_MAX * QUEUE_PAIR_BYTES


def region_at(key: int) -> int:
    return REGIONS + (key >> 8) % REGIONS_MAX * _REGION_BYTES


def queue_pair_at(number: int) -> int:
    return QUEUE_PAIRS + number % QUEUE_PAIRS_MAX * QUEUE_PAIR_BYTES
