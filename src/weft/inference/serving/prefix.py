"""The prefix cache of a replica: blocks of prompts that later requests share, evicted in the order of last use.

A block is present while requests use it (`ref` counts them) and afterwards until its room is needed. Used blocks count
once in `used`, others in `evictable`.
"""

from __future__ import annotations

from weft.inference.serving.state import NONE
from weft.jit import handler, part


@part
def count_hits(s, row, index):
    """Return how many leading prefix blocks of a request a replica has. At least one token stays to be computed."""
    request = s.requests[index]
    most = min(request.blocks, (request.prompt + request.made - 1) // max(s.rules[0].block, 1))
    hits = 0
    while hits < most and s.ref[row, s.hashes[request.hash_first + hits]] >= 0:
        hits += 1
    return hits


@part
def count_unused(s, row, index, hits):
    """Return how many of the leading blocks no request uses now."""
    unused = 0
    for i in range(hits):
        if s.ref[row, s.hashes[s.requests[index].hash_first + i]] == 0:
            unused += 1
    return unused


@part
def _append(s, row, block):
    replica = s.replicas[row]
    s.lru_prev[row, block], s.lru_next[row, block] = replica.lru_tail, NONE
    if replica.lru_tail >= 0:
        s.lru_next[row, replica.lru_tail] = block
    else:
        replica.lru_head = block
    replica.lru_tail = block
    replica.evictable += s.rules[0].block


@part
def _detach(s, row, block):
    replica = s.replicas[row]
    before, after = s.lru_prev[row, block], s.lru_next[row, block]
    if before >= 0:
        s.lru_next[row, before] = after
    else:
        replica.lru_head = after
    if after >= 0:
        s.lru_prev[row, after] = before
    else:
        replica.lru_tail = before
    replica.evictable -= s.rules[0].block


@part
def hold(s, row, index, hits):
    """Mark the leading blocks of a request as used. The caller counts their tokens in `used`."""
    request = s.requests[index]
    for i in range(hits):
        block = s.hashes[request.hash_first + i]
        if s.ref[row, block] == 0:
            _detach(s, row, block)
        s.ref[row, block] += 1
    request.held = hits


@handler
def insert(s, row, index):
    """Make all prefix blocks of a prefilled request available to others; blocks that exist already are shared."""
    request = s.requests[index]
    for i in range(request.held, request.blocks):
        block = s.hashes[request.hash_first + i]
        if s.ref[row, block] < 0:
            s.ref[row, block] = 1
            continue
        if s.ref[row, block] == 0:
            _detach(s, row, block)
        else:
            s.replicas[row].used -= s.rules[0].block
        s.ref[row, block] += 1
    request.held = request.blocks


@handler
def let_go(s, row, index):
    """End the use of prefix blocks by a request; unused ones become evictable."""
    request = s.requests[index]
    for i in range(request.held):
        block = s.hashes[request.hash_first + i]
        s.ref[row, block] -= 1
        if s.ref[row, block] == 0:
            _append(s, row, block)
            s.replicas[row].used -= s.rules[0].block
    request.held = 0


@part
def evict(s, row):
    """Remove unused blocks until the KV cache fits, the least recently used first."""
    replica = s.replicas[row]
    while replica.lru_head >= 0 and replica.used + replica.evictable > replica.room:
        block = replica.lru_head
        _detach(s, row, block)
        s.ref[row, block] = NONE


@handler
def clear(s, row):
    """Empty the cache of a failed replica, which no request uses any more."""
    while s.replicas[row].lru_head >= 0:
        block = s.replicas[row].lru_head
        _detach(s, row, block)
        s.ref[row, block] = NONE
