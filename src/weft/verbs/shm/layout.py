"""Where things are in the memory of an adapter's queues: offsets in words of 64 bits, for Python and kernels alike.

    header | table of regions | table of queue pairs | blocks: queues, and memory of regions

A queue is a ring: `HEAD` counts what was put in, `TAIL` what was taken out; entry n is at n modulo its size.
"""

from __future__ import annotations

import struct

WORD_BYTES = 8

# What programs post, as a ring or a path (`execute`) takes it; elements follow. Packing checks that numbers fit.
PLACE_FORM = struct.Struct("<Q I4x I4x")  # address, length, lkey
RECEIVE_FORM = struct.Struct("<Q I4x")  # wr_id, number of elements
# Opcode, flags, wr_id, immediate, address, rkey, compare or add, swap, number of elements, number if posted before
SEND_FORM = struct.Struct("<I4x I4x Q I4x Q I4x Q Q I4x Q")

# The header
LOCK = 0  # 0, or the process that has it
PROCESS = 1  # whose memory it is; 0 when it is closed
BEGIN = 2  # its address in that process
SIZE = 3  # bytes

# A region: an entry is at its index, which is the upper 24 bits of the key, modulo REGIONS_MAX. One that does not fit
# is not in the table; who does not find it there asks the owner.
REGIONS, REGIONS_MAX, REGION_WORDS = 512, 1 << 14, 8
R_KEY, R_DOMAIN, R_ADDRESS, R_LENGTH, R_FIRST, R_ACCESS, R_QUEUE_PAIR, R_OPEN = range(8)

# A queue pair: the entry of number n is at n modulo QUEUE_PAIRS_MAX.
QUEUE_PAIRS, QUEUE_PAIRS_MAX, QUEUE_PAIR_WORDS = REGIONS + REGIONS_MAX * REGION_WORDS, 1 << 16, 32
(
    Q_NUMBER,
    Q_STATE,
    Q_SERVICE,
    Q_DEST_QP,
    Q_SOURCE,  # a hash of whom it takes packets from
    Q_EXPECTED,  # PSN of the next request
    Q_MSN,
    Q_IS_MIDWAY,  # in a message
    Q_RECEIVES,  # word where the ring of receive requests is
    Q_RECEIVE_DOMAIN,
    Q_RECEIVE_CQ,  # word where the ring of completions is
    Q_ACCESS,
    Q_P_KEY,
    Q_P_KEY_INDEX,
    Q_DOMAIN,
    Q_IS_ESTABLISHED,
    Q_READS_MAX,  # of others, at a time
    Q_NEXT_PSN,  # of the next request that is sent
    Q_SEND_CQ,
    Q_SIGNALS_ALL,
    Q_MTU_BYTES,
    Q_OWN_READS_MAX,
    Q_SENDS_MAX,  # send requests that may be posted and not polled
    Q_POSTED,  # send requests, ever
    Q_POLLED,  # of these, up to the last whose completion was polled: their places are free again
) = range(25)

# A ring of receive requests: wr_id, number of elements, and (address, length, lkey) of each
RQ_CAPACITY, RQ_HEAD, RQ_TAIL, RQ_PLACES_MAX, RQ_LIMIT, RQ_RETURNED = range(6)
RQ_ENTRIES = 8

# A ring of completions
CQ_CAPACITY, CQ_HEAD, CQ_TAIL, CQ_ARMED, CQ_IS_BROKEN, CQ_STAMPS, CQ_BELL = range(7)
CQ_ENTRIES, CQ_ENTRY_WORDS = 8, 16
ENTRY_FORM = struct.Struct("<16Q")
ARMED_FOR_ALL, ARMED_FOR_SOLICITED = 1, 2
(
    C_WR_ID,
    C_QP_NUM,
    C_STATUS,
    C_OPCODE,
    C_BYTE_LEN,
    C_IMMEDIATE,
    C_FLAGS,
    C_SRC_QP,
    C_SLID,
    C_SL,
    C_PKEY_INDEX,
    C_PATH_BITS,
    C_VENDOR_ERR,
    C_SOLICITED,
    C_TIME_NS,
    C_POSTED,  # of a send request: which one of its queue pair it is, counted from 1
) = range(16)

BLOCKS = QUEUE_PAIRS + QUEUE_PAIRS_MAX * QUEUE_PAIR_WORDS


def region_at(key: int) -> int:
    return REGIONS + (key >> 8) % REGIONS_MAX * REGION_WORDS


def queue_pair_at(number: int) -> int:
    return QUEUE_PAIRS + number % QUEUE_PAIRS_MAX * QUEUE_PAIR_WORDS
