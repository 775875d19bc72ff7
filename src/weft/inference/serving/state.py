"""The state of a run: requests, replicas, hand-offs, and counts for the results.

Times are in seconds. A request is in one queue at a time, linked by `next` (and `prev` among the decoding requests of
a replica). KV is counted in tokens, as float64: with speculative decoding a step adds a mean number of them.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.sim.layout.records import NONE as NONE
from weft.sim.layout.records import Records as Records
from weft.sim.layout.records import records as records

NEVER_S = np.inf
GAP_LOW_S, GAP_STEP, GAP_BINS = 1e-5, 1.01, 2048  # bins of times between tokens: 10 us up, each 1 % wider


class Role(enum.IntEnum):
    """The phases that a replica serves."""

    BOTH = 0
    PREFILL = 1
    DECODE = 2


class Router(enum.IntEnum):
    """The way in which a replica is chosen for a request."""

    ROUND_ROBIN = 0
    LEAST_LOADED = 1  # fewest requests
    PREFIX = 2  # longest cached prefix, while loads are similar


class Kind(enum.IntEnum):
    """The step that a replica runs."""

    IDLE = 0
    DECODE = 1  # several steps of the same batch
    PREFILL = 2  # one step, alone
    MIXED = 3  # one step with decoding requests too


class Stream(enum.IntEnum):
    """The state of a hand-off that starts before its prefill ends."""

    NO = 0
    OPEN = 1  # layers are sent as they are computed
    DRAINED = 2  # all computed layers but the last are sent
    CLOSED = 3  # the prefill has ended


REQUEST = np.dtype(
    [
        ("arrival_s", np.float64),
        ("scheduled_s", np.float64),  # start of its first step
        ("prefilled_s", np.float64),  # end of its prefill
        ("handoff_s", np.float64),  # KV room at the decode replica allocated
        ("first_s", np.float64),  # first token at the user
        ("joined_s", np.float64),  # in the batch that decodes
        ("finished_s", np.float64),
        ("preempted_s", np.float64),  # time lost by preemptions
        ("last_s", np.float64),  # last token before a preemption
        ("sent_s", np.float64),  # last byte of its hand-off
        ("join_step", np.float64),
        ("hash_first", np.int64),  # first of its prefix blocks
        ("prompt", np.int32),
        ("output", np.int32),
        ("made", np.int32),  # tokens generated until it joined
        ("left", np.int32),  # tokens to prefill
        ("hit", np.int32),  # tokens found in the prefix cache
        ("blocks", np.int32),  # full prefix blocks of the prompt
        ("held", np.int32),  # prefix blocks in the cache that it uses
        ("replica", np.int32),
        ("source", np.int32),  # prefill replica that holds its KV
        ("next", np.int32),
        ("prev", np.int32),
        ("flow", np.int32),  # in the list of flows
        ("preemptions", np.int16),
        ("retries", np.int16),  # moves away from a failed replica
        ("stream", np.int8),
    ],
    align=True,
)
REPLICA = np.dtype(
    [
        ("began_s", np.float64),  # start of the present steps
        ("ends_s", np.float64),
        ("flat_s", np.float64),  # time of a step without the growth of the cache
        ("late_s", np.float64),  # that hand-offs add to the present steps
        ("load", np.float64),  # rate of its exchanges without hand-offs, by that with them, less one
        ("stall_s", np.float64),  # time that decoding requests waited for prefills
        ("busy_s", np.float64),
        ("steps", np.float64),  # in the present run of steps
        ("step", np.float64),  # decode steps so far
        ("cached", np.float64),  # KV tokens of decoding requests
        ("used", np.float64),  # KV tokens in use
        ("evictable", np.float64),  # KV tokens of unused prefix blocks
        ("room", np.float64),
        ("peak", np.float64),  # maximum of `used`
        ("seats", np.int32),  # max_num_seqs
        ("budget", np.int32),  # max_num_batched_tokens
        ("staging", np.int32),  # most hand-offs under way or waiting for a slot
        ("staged", np.int32),
        ("running", np.int32),  # decoding requests
        ("stalled", np.int32),  # decoding requests when the stall began
        ("run_head", np.int32),
        ("run_tail", np.int32),
        ("partial", np.int32),  # request with a part of its prompt prefilled
        ("chunk", np.int32),  # its tokens in the present step
        ("batch", np.int32),  # requests whose prefill ends with the present step
        ("step_tokens", np.int32),
        ("wait_head", np.int32),  # to be prefilled here
        ("wait_tail", np.int32),
        ("arrived_head", np.int32),  # KV received, waiting for a slot
        ("arrived_tail", np.int32),
        ("hand_head", np.int32),  # prefilled elsewhere, waiting for KV room here
        ("hand_tail", np.int32),
        ("lru_head", np.int32),
        ("lru_tail", np.int32),
        ("heap", np.int32),  # entries
        ("table", np.int32),
        ("role", np.int8),
        ("alive", np.int8),
        ("kind", np.int8),
        ("blocked", np.int8),  # the first waiting request does not fit
    ],
    align=True,
)
RULES = np.dtype(
    [
        ("accepted", np.float64),  # tokens that a decode step adds to a request
        ("waste", np.float64),  # tokens of a request's last KV block that stay empty, in the mean
        ("kv_bytes", np.float64),  # per token
        ("setup_s", np.float64),  # added to each hand-off
        ("think_s", np.float64),  # closed loop: from an answer to the next request
        ("layers", np.int32),
        ("tokens", np.int32),  # in a step for a decoding request: 1 + drafts
        ("block", np.int32),  # tokens of a prefix block
        ("router", np.int8),
        ("chunked", np.int8),
        ("mixed", np.int8),  # decoding requests go on during prefills
        ("streams", np.int8),  # hand-offs start with the prefill
    ],
    align=True,
)
RUN = np.dtype(
    [
        ("now_s", np.float64),
        ("wire_s", np.float64),  # time of the present rates of hand-offs
        ("wire_end_s", np.float64),  # end of the next hand-off
        ("area", np.float64),  # integral of the number of requests over time
        ("emitted", np.float64),  # tokens
        ("next", np.int64),  # request to arrive
        ("issued", np.int64),  # requests with an arrival time
        ("finished", np.int64),
        ("inside", np.int64),
        ("phase", np.int32),
        ("flows", np.int32),
        ("lane_head", np.int32),  # hand-offs whose last bytes wait for the set-up time
        ("lane_tail", np.int32),
        ("lost_head", np.int32),  # requests that no replica can take now
        ("lost_tail", np.int32),
        ("heap", np.int32),
    ],
    align=True,
)


class State(NamedTuple):
    """The state in the form that kernels take it."""

    run: Records  # one record
    rules: Records  # one record
    requests: Records
    replicas: Records
    turn: NDArray[np.int64]  # [prefill or decode] replica at which the router starts to look
    serves: NDArray[np.int8]  # [prefill or decode, replica]
    outstanding: NDArray[np.int32]  # [replica] requests that the router sent there
    hashes: NDArray[np.int32]  # prefix blocks of all requests
    phase_s: NDArray[np.float64]  # [phase] start of each phase; tables, routes and replicas change there
    alive: NDArray[np.int8]  # [phase, replica]
    table_of: NDArray[np.int32]  # [phase, replica]
    flat_s: NDArray[np.float64]  # [table, tokens] time of a step without attention
    pair_s: NDArray[np.float64]  # [table] attention of a prefill
    kv_s: NDArray[np.float64]  # [table] to read a cached token
    slowed_s: NDArray[np.float64]  # [table, load of `LOADS`, tokens] added to a step beside hand-offs
    batch: NDArray[np.int32]  # [replica, seat] requests whose prefill ends with the step
    last_step: NDArray[np.float64]  # [replica, seat] heap of decoding requests by their last step
    last_request: NDArray[np.int32]
    last_place: NDArray[np.int32]  # [request] index in the heap of its replica
    clock_s: NDArray[np.float64]  # [1, replica] heap of busy replicas by the end of their steps
    clock_replica: NDArray[np.int32]
    clock_place: NDArray[np.int32]  # [replica], NONE: idle
    ref: NDArray[np.int32]  # [replica, block] requests that use a prefix block; -1: absent
    lru_prev: NDArray[np.int32]
    lru_next: NDArray[np.int32]
    route_row: NDArray[np.int64]  # [phase] first row of its routes: pairs of replicas, then other traffic
    other_first: NDArray[np.int64]  # [phase + 1] first of its other traffic in `by_limit`
    by_limit: NDArray[np.int32]  # flows of other traffic by the most that they send
    link_first: NDArray[np.int64]  # [class + 1]
    link_other: NDArray[np.int32]  # flows of other traffic on each link
    other_weight: NDArray[np.float64]  # [class] their shares
    ranks: NDArray[np.int64]  # [phase] rows of a pair of replicas, which requests take in turn
    route_first: NDArray[np.int64]  # [row + 1]
    route_class: NDArray[np.int32]
    route_share: NDArray[np.float64]
    route_cap: NDArray[np.float64]  # [row] most bytes/s; 0: no route
    capacity: NDArray[np.float64]  # [class] bytes/s
    exchange_row: NDArray[np.int64]  # [phase] first row of its exchanges, one for each replica; NONE: no exchanges
    exchange_first: NDArray[np.int64]  # [row + 1]
    exchange_class: NDArray[np.int32]
    exchange_byte_s: NDArray[np.float64]
    exchange_weight: NDArray[np.float64]
    exchange_slack: NDArray[np.float64]
    exchange_least: NDArray[np.float64]  # [phase]
    flow_request: NDArray[np.int32]
    flow_left: NDArray[np.float64]  # bytes
    flow_rate: NDArray[np.float64]
    flow_fixed: NDArray[np.int8]  # scratch
    other_fixed: NDArray[np.int8]  # scratch
    open_flows: NDArray[np.int32]  # [class] scratch: flows without a rate; 0 without a hand-off
    open_link: NDArray[np.int32]  # scratch: classes with open flows
    level: NDArray[np.float64]  # [class] scratch: rate at which it is full
    residual: NDArray[np.float64]  # [class] scratch
    weight: NDArray[np.float64]  # [class] scratch
    gaps: NDArray[np.float64]  # [bin] tokens by the time since the token before
    decode_weight: NDArray[np.float64]  # [table, tokens] decoding requests in steps of so many tokens
    prefill_weight: NDArray[np.float64]
    attention: NDArray[np.float64]  # [table, phase of requests] request-seconds
    late: NDArray[np.float64]  # [phase of requests] request-seconds that hand-offs add to steps
