"""Queues of requests, and the choice of a replica."""

from __future__ import annotations

from weft.inference.serving.clock import wake
from weft.inference.serving.prefix import count_hits, evict, let_go
from weft.inference.serving.state import NONE, Router
from weft.inference.serving.wire import can_send
from weft.jit import handler, part

# SGLang's router (balance-abs-threshold, balance-rel-threshold): beyond them load comes before cached prefixes
_MORE_REQUESTS, _MORE_LOAD = 64, 1.5


@part
def wait_last(s, row, index):
    """Queue a request to be prefilled by a replica."""
    replica = s.replicas[row]
    s.requests[index].next = NONE
    if replica.wait_tail >= 0:
        s.requests[replica.wait_tail].next = index
    else:
        replica.wait_head = index
    replica.wait_tail = index


@part
def wait_first(s, row, index):
    """Queue a preempted request before all others."""
    replica = s.replicas[row]
    s.requests[index].next = replica.wait_head
    replica.wait_head = index
    if replica.wait_tail < 0:
        replica.wait_tail = index


@part
def take_waiting(s, row):
    """Remove the first request of the queue."""
    replica = s.replicas[row]
    index = replica.wait_head
    replica.wait_head = s.requests[index].next
    if replica.wait_head < 0:
        replica.wait_tail = NONE
    return index


@part
def link_running(s, row, index):
    """Add a request to those that decode, in the order in which they joined."""
    replica, request = s.replicas[row], s.requests[index]
    request.prev, request.next = replica.run_tail, NONE
    if replica.run_tail >= 0:
        s.requests[replica.run_tail].next = index
    else:
        replica.run_head = index
    replica.run_tail = index


@part
def unlink_running(s, row, index):
    """Remove a request from those that decode."""
    replica, request = s.replicas[row], s.requests[index]
    if request.prev >= 0:
        s.requests[request.prev].next = request.next
    else:
        replica.run_head = request.next
    if request.next >= 0:
        s.requests[request.next].prev = request.prev
    else:
        replica.run_tail = request.prev


@part
def lose(s, index):
    """Queue a request that no replica can take now."""
    run = s.run[0]
    s.requests[index].next = NONE
    if run.lost_tail >= 0:
        s.requests[run.lost_tail].next = index
    else:
        run.lost_head = index
    run.lost_tail = index


@handler
def release(s, row, index, tokens):
    """Free the KV tokens of a request on a replica."""
    replica, request = s.replicas[row], s.requests[index]
    replica.used -= tokens - request.held * s.rules[0].block + s.rules[0].waste
    let_go(s, row, index)
    evict(s, row)


@handler
def choose(s, decode, source, index):
    """Return the replica for the prefill (0) or decode (1) phase of a request; NONE if none is reachable."""
    n = len(s.replicas)
    best = NONE
    for i in range(n):
        row = (s.turn[decode] + i) % n
        if not s.serves[decode, row] or (best >= 0 and s.outstanding[row] >= s.outstanding[best]):
            continue
        if decode and not can_send(s, source, row):
            continue
        best = row
        if s.rules[0].router == Router.ROUND_ROBIN:
            break
    s.turn[decode] = best + 1
    if best >= 0 and s.rules[0].router == Router.PREFIX and not decode:
        return _longest_prefix(s, index, best)
    return best


@part
def _longest_prefix(s, index, least_loaded):
    """Return the replica with the most cached blocks of a request, unless it has far more load than the least."""
    best, most = least_loaded, 0
    for row in range(len(s.replicas)):
        if s.serves[0, row]:
            hits = count_hits(s, row, index)
            if hits > most:
                best, most = row, hits
    load, least = s.outstanding[best], s.outstanding[least_loaded]
    return least_loaded if load - least > _MORE_REQUESTS and load > _MORE_LOAD * least else best


@handler
def send_to_replica(s, index):
    """Send a request to the replica that the router chooses for its prefill."""
    request = s.requests[index]
    row = choose(s, 0, NONE, index)
    if row < 0:
        lose(s, index)
        return
    request.replica = row
    replica = s.replicas[row]
    s.outstanding[row] += 1
    wait_last(s, row, index)
    if not replica.blocked:
        wake(s, row)
