"""Hand-offs of prefilled requests to decode replicas: room first, then the wire, then a slot of the batch.

The decode replica allocates the KV room of a request before its bytes move (as vLLM's NixlConnector does), so requests
under way occupy room there; on the prefill replica they keep theirs until the last byte has left.
"""

from __future__ import annotations

from weft.inference.serving.clock import growth, steps_until, wake
from weft.inference.serving.queues import choose, lose, release
from weft.inference.serving.state import NONE, Kind, Stream
from weft.inference.serving.wire import add_flow, advance, solve
from weft.jit import handler, part


@part
def _context(s, index):
    """Return the KV tokens of a request."""
    request = s.requests[index]
    return request.prompt + request.made - 1


@part
def _has_room(s, row, tokens):
    """Return whether a decode replica has room for a request beside the tokens of the steps under way and the next."""
    replica = s.replicas[row]
    if replica.staged >= replica.staging or replica.wait_head >= 0:
        return False
    steps = 1.0 if replica.kind == Kind.IDLE else 2.0
    if replica.kind == Kind.DECODE:
        steps = 1 + steps_until(s, row, s.run[0].now_s)
    return replica.used + steps * growth(s, row) + tokens + s.rules[0].waste <= replica.room


@part
def _allocate(s, row, tokens):
    """Allocate room for a request; the present run of steps ends early if its later steps need that room."""
    replica = s.replicas[row]
    replica.used += tokens + s.rules[0].waste
    replica.peak = max(replica.peak, replica.used)
    replica.staged += 1
    if replica.kind == Kind.DECODE and replica.used + growth(s, row) * replica.steps > replica.room:
        wake(s, row)


@handler
def start_stream(s, row, index):
    """Start to send layers with the prefill if a decode replica has room now; else the hand-off follows the prefill."""
    request, rules = s.requests[index], s.rules[0]
    tokens = request.prompt + request.made
    target = choose(s, 1, row, index)
    if target < 0 or s.replicas[target].hand_head >= 0 or not _has_room(s, target, tokens):
        return
    _allocate(s, target, tokens)
    s.outstanding[target] += 1
    request.source, request.replica, request.stream = row, target, Stream.OPEN
    request.handoff_s = s.run[0].now_s
    add_flow(s, index, tokens * rules.kv_bytes * (1 - 1 / rules.layers))


@handler
def hand_off(s, row, index):
    """Pass a request on whose prefill has ended on a replica."""
    request, rules = s.requests[index], s.rules[0]
    last_bytes = _context(s, index) * rules.kv_bytes / rules.layers
    if request.stream == Stream.OPEN:
        advance(s)
        s.flow_left[request.flow] += last_bytes
        request.stream = Stream.CLOSED
        solve(s)
        return
    if request.stream == Stream.DRAINED:
        request.stream = Stream.CLOSED
        add_flow(s, index, last_bytes)
        return
    target = choose(s, 1, row, index)
    if target < 0:
        release(s, row, index, _context(s, index))
        s.outstanding[row] -= 1
        lose(s, index)
        return
    request.source, request.replica, request.next = row, target, NONE
    replica = s.replicas[target]
    s.outstanding[target] += 1
    if replica.hand_tail >= 0:
        s.requests[replica.hand_tail].next = index
    else:
        replica.hand_head = index
    replica.hand_tail = index
    start_handoffs(s, target)


@handler
def start_handoffs(s, row):
    """Start the hand-offs that a decode replica has room for, in their order."""
    replica = s.replicas[row]
    while replica.hand_head >= 0 and _has_room(s, row, _context(s, replica.hand_head)):
        index = replica.hand_head
        request = s.requests[index]
        replica.hand_head = request.next
        if replica.hand_head < 0:
            replica.hand_tail = NONE
        _allocate(s, row, _context(s, index))
        request.handoff_s, request.stream = s.run[0].now_s, Stream.CLOSED
        add_flow(s, index, _context(s, index) * s.rules[0].kv_bytes)


@handler
def receive(s, index):
    """Receive the last bytes of a request at its decode replica: its first token reaches the user."""
    request = s.requests[index]
    now_s = s.run[0].now_s
    replica = s.replicas[request.replica]
    release(s, request.source, index, _context(s, index))
    s.outstanding[request.source] -= 1
    wake(s, request.source)
    request.stream, request.next = Stream.NO, NONE
    if request.first_s < 0:
        request.first_s = now_s
    if replica.arrived_tail >= 0:
        s.requests[replica.arrived_tail].next = index
    else:
        replica.arrived_head = index
    replica.arrived_tail = index
    if replica.running < replica.seats:
        wake(s, request.replica)
