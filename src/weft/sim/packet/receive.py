"""An adapter receives: data is counted and acknowledged, answers change what it sends."""

from __future__ import annotations

from weft.jit import call, handler, part
from weft.sim.layout.records import NONE, Flow
from weft.sim.packet.delay_lines import schedule
from weft.sim.packet.link import release
from weft.sim.packet.nic import answer, free_packet, wake_qp
from weft.sim.packet.pacing import set_pace, slow_down
from weft.sim.packet.reliability import ASKS, on_acked, on_nak, on_tcp_ack
from weft.sim.packet.state import Carries, Kind


@part
def on_packet_at_host(s, host_index, packet_index):
    """A packet has come whole. The port to try."""
    run = s.run[0]
    host = s.hosts[host_index]
    came_ps = run.now_ps
    if host.receive_ps_per_kib > 0:
        cost_ps = (s.packets[packet_index].bytes * host.receive_ps_per_kib) >> 10
        host.receive_clock_ps = max(host.receive_clock_ps, run.now_ps) + cost_ps
        came_ps = host.receive_clock_ps
    if run.flow == Flow.DROP:
        came_ps = _process(s, packet_index, came_ps)
    if came_ps > run.now_ps:
        schedule(s, came_ps, Kind.ACCEPT, packet_index, 0)
        return NONE
    return accept(s, packet_index)


@handler
def _process(s, packet_index, came_ps):
    """When the kernel has taken a packet: each connection has a core; data occupies it, acknowledgements only pass."""
    packet = s.packets[packet_index]
    qp = s.qps[s.messages[packet.message].qp]
    if packet.carries != Carries.DATA:
        return came_ps + qp.receive_packet_ps
    qp.receive_clock_ps = max(qp.receive_clock_ps, came_ps) + qp.receive_packet_ps
    return qp.receive_clock_ps


@part
def accept(s, packet_index):
    """The host has taken a packet out of the input buffer. The port to try."""
    packet = s.packets[packet_index]
    release(s, packet.held_in, packet.bytes)
    if packet.carries == Carries.DATA:
        if packet.marked:
            _tell_congestion(s, packet_index)
        if s.run[0].losses:
            _accept_data(s, packet_index)
        else:  # nothing can be lost: count
            message = s.messages[packet.message]
            message.received += 1
            if message.received == message.packets:
                _complete(s, packet.message)
        free_packet(s, packet_index)
        return NONE
    return _accept_answer(s, packet_index)


@handler
def _tell_congestion(s, packet_index):
    """A switch marked this packet: tell its sender, not more often than every `notify_ps`."""
    run = s.run[0]
    packet = s.packets[packet_index]
    qp = s.qps[s.messages[packet.message].qp]
    if run.now_ps - qp.notified_ps >= run.notify_ps:
        qp.notified_ps = run.now_ps
        answer(s, packet.message, packet.psn, Carries.CNP)


@handler
def _accept_data(s, packet_index):
    """Data where packets can be lost."""
    run = s.run[0]
    packet = s.packets[packet_index]
    message = s.messages[packet.message]
    qp = s.qps[message.qp]
    if qp.ordered and qp.acked:
        if packet.psn > qp.expected_psn:
            if qp.nak_sent == 0:
                qp.nak_sent = 1
                answer(s, packet.message, qp.expected_psn, Carries.NAK)
            return
        if packet.psn < qp.expected_psn:
            answer(s, packet.message, packet.psn, Carries.ACK)  # the first may have been lost
            return
        qp.expected_psn += 1
        qp.nak_sent = 0
    elif packet.again == ASKS:
        answer(s, packet.message, packet.psn, Carries.ACK)
        return
    qp.arrived += 1
    message.received += 1
    if message.received == message.packets:
        _complete(s, packet.message)
    elif run.flow == Flow.DROP:
        _acknowledge_some(s, packet_index)


@handler
def _acknowledge_some(s, packet_index):
    """TCP acknowledges every few packets; at once after a gap, and what was sent again."""
    packet = s.packets[packet_index]
    qp = s.qps[s.messages[packet.message].qp]
    qp.unacked += 1
    if qp.unacked >= s.run[0].ack_every or packet.psn != qp.expected_psn or packet.again:
        answer(s, packet.message, packet.psn, Carries.ACK)
        qp.unacked = 0
    qp.expected_psn = max(qp.expected_psn, packet.psn + 1)


@handler
def _complete(s, message_index):
    """All of a message has arrived: acknowledge it, and let those go that waited for it."""
    run = s.run[0]
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    message.finish_ps = run.now_ps + s.hosts[-1 - s.plugs[message.dst].owner].receive_ps
    run.delivered += 1
    if qp.acked:
        psn = message.first_psn + message.packets - 1
        answer(s, message_index, psn, Carries.ACK)
        qp.unacked = 0
        qp.expected_psn = max(qp.expected_psn, psn + 1)
    else:
        run.left -= 1
    for at in range(s.successor_first[message_index], s.successor_first[message_index + 1]):
        next_index = s.successors[at]
        following = s.messages[next_index]
        following.waits_for -= 1
        following.free_ps = max(following.free_ps, message.finish_ps)
        if following.waits_for == 0:
            following.start_ps = max(following.start_ps, following.free_ps + following.delay_ps)
            schedule(s, following.start_ps, Kind.POSTED, next_index, 0)  # not yet: others may start before it


@handler
def count_copy(s, packet_index):
    """A packet for a group has come along one of the branches of its tree; after all of them it has arrived."""
    packet = s.packets[packet_index]
    message = s.messages[packet.message]
    s.branches[packet.psn].came += 1
    message.received += 1
    if message.received == message.packets * message.branches:
        _complete(s, packet.message)


@handler
def _accept_answer(s, packet_index):
    """An acknowledgement, or word of a loss or of congestion. The port to try."""
    packet = s.packets[packet_index]
    message_index, psn, total, carries = packet.message, packet.psn, packet.total, packet.carries
    if carries == Carries.COPY:
        count_copy(s, packet_index)
    free_packet(s, packet_index)
    qp_index = s.messages[message_index].qp
    if carries == Carries.COPY:
        return NONE
    if carries == Carries.CNP:
        slow_down(s, qp_index)
        return NONE
    if carries == Carries.NAK:
        return on_nak(s, qp_index, psn)
    message = s.messages[message_index]
    if message.received == message.packets and psn == message.first_psn + message.packets - 1:
        on_acked(s, message_index)
    run = s.run[0]
    if run.flow == Flow.DROP:
        return on_tcp_ack(s, qp_index, psn, total)
    if run.on_ack != 0:
        qp = s.qps[qp_index]
        qp.newly_acked = message.packets
        call(run.on_ack, qp, run.now_ps, s.control_table)
        set_pace(s, qp_index)
    return wake_qp(s, qp_index)
