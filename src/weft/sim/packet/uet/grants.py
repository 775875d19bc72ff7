"""The credits of a receiving adapter (RCCC): its line is shared among the contexts that ask for it.

    data --wanted--> active contexts take turns --PULL: 4 packets' worth--> sender

A context whose wish is granted is idle; idle ones get credits unasked, up to a window, when no other wants any, so that
new messages begin without waiting. The pace is 99 % of the line.
"""

from __future__ import annotations

from weft.jit import handler
from weft.sim.layout.records import NONE
from weft.sim.packet.delay_lines import push, schedule
from weft.sim.packet.nic import new_packet
from weft.sim.packet.state import Carries, PacketEvent
from weft.sim.packet.uet.records import ENTROPIES, QUANTUM_BYTES, Pull

PULL_PACKETS = 4
PACE = 0.99
LEAST_BYTES = 1024  # between two PULLs at least the time of so much data


@handler
def take_wish(s, packet_index):
    """Note the credits that the sender of a packet wants."""
    qp_index = s.messages[s.packets[packet_index].message].qp
    pdc = s.pdcs[qp_index]
    if s.notes[packet_index].pull_bytes > pdc.wanted_bytes:
        pdc.wanted_bytes = s.notes[packet_index].pull_bytes
        if pdc.pull != Pull.ACTIVE and pdc.wanted_bytes > pdc.given_bytes:
            host_index = -1 - s.plugs[s.qps[qp_index].dst].owner
            if pdc.pull == Pull.IDLE:
                _remove_idle(s, host_index, qp_index)
            _add_active(s, host_index, qp_index)


@handler
def _add_active(s, host_index, qp_index):
    pdc, puller = s.pdcs[qp_index], s.pullers[host_index]
    pdc.pull, pdc.next_pull = Pull.ACTIVE, NONE
    if puller.active < 0:
        puller.active = qp_index
    else:
        s.pdcs[puller.active_last].next_pull = qp_index
    puller.active_last = qp_index
    if puller.busy == 0:
        puller.busy = 1
        schedule(s, s.run[0].now_ps, PacketEvent.PULL, host_index, 0)


@handler
def _add_idle(s, host_index, qp_index):
    pdc, puller = s.pdcs[qp_index], s.pullers[host_index]
    pdc.pull, pdc.next_pull = Pull.IDLE, NONE
    if puller.idle < 0:
        puller.idle = qp_index
    else:
        s.pdcs[puller.idle_last].next_pull = qp_index
    puller.idle_last = qp_index


@handler
def _remove_idle(s, host_index, qp_index):
    puller = s.pullers[host_index]
    before, at = NONE, puller.idle
    while at != qp_index:
        before, at = at, s.pdcs[at].next_pull
    if before < 0:
        puller.idle = s.pdcs[at].next_pull
    else:
        s.pdcs[before].next_pull = s.pdcs[at].next_pull
    if puller.idle_last == at:
        puller.idle_last = before


@handler
def on_pull(s, host_index):
    """Give credits to the context whose turn it is. Return that no port may send."""
    run = s.run[0]
    puller = s.pullers[host_index]
    pull_bytes = PULL_PACKETS * s.size_bytes[-1] & -QUANTUM_BYTES
    if puller.active >= 0:
        qp_index = puller.active
        pdc = s.pdcs[qp_index]
        puller.active = pdc.next_pull
        given_bytes = max(min(pull_bytes, pdc.wanted_bytes - pdc.given_bytes), 0)
        pdc.given_bytes += given_bytes
        if pdc.given_bytes < pdc.wanted_bytes:
            _add_active(s, host_index, qp_index)
        else:
            _add_idle(s, host_index, qp_index)
    elif puller.idle >= 0:
        qp_index = puller.idle
        pdc = s.pdcs[qp_index]
        puller.idle = pdc.next_pull
        given_bytes = pull_bytes
        pdc.given_bytes += given_bytes
        pdc.pull = Pull.NONE
        if pdc.given_bytes - pdc.wanted_bytes < run.speculative_bytes:
            _add_idle(s, host_index, qp_index)
    else:
        puller.busy = 0
        return NONE
    send_pull(s, host_index, qp_index)
    pace_ps = int(max(given_bytes, LEAST_BYTES) * puller.line_ps_per_kib / (1024 * PACE))
    schedule(s, run.now_ps + pace_ps, PacketEvent.PULL, host_index, 0)
    return NONE


@handler
def send_pull(s, host_index, qp_index):
    """Send the credits given so far to the sender of a context."""
    pdc = s.pdcs[qp_index]
    message_index = pdc.last_message
    packet_index = new_packet(s, message_index, 0, s.run[0].ack_size, Carries.PULL)
    note = s.notes[packet_index]
    note.pull_bytes, note.bits = pdc.given_bytes, 0
    s.packets[packet_index].total = (pdc.given_bytes // QUANTUM_BYTES) % ENTROPIES
    push(s, s.hosts[host_index].ack_line, packet_index, 0)
