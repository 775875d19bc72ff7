"""The receiving side of an adapter: data is counted and acknowledged; control packets act on the sender."""

from __future__ import annotations

from weft.jit import ask_with_hops, call, call_with_hops, handler, part
from weft.sim.layout.records import NONE, FlowControl
from weft.sim.packet.delay_lines import push, schedule
from weft.sim.packet.link import ask_uet, release
from weft.sim.packet.nic import free_packet, make_control, send_control, wake_qp
from weft.sim.packet.pacing import set_pace, slow_down
from weft.sim.packet.reliability import count_acked, on_acked, on_nak, on_tcp_ack, sent_psn
from weft.sim.packet.state import PROBE, Carries, PacketEvent, UetAction

DELAYED_ACK_PS = 40_000_000_000  # Linux: TCP_DELACK_MIN


@part
def on_packet_at_host(s, host_index, packet_index):
    """Receive a complete packet. Return the port that may send."""
    run = s.run[0]
    host = s.hosts[host_index]
    arrival_ps = run.now_ps
    if host.receive_ps_per_kib > 0:
        cost_ps = (s.packets[packet_index].bytes * host.receive_ps_per_kib) >> 10
        host.receive_clock_ps = max(host.receive_clock_ps, run.now_ps) + cost_ps
        arrival_ps = host.receive_clock_ps
    if run.flow == FlowControl.DROP:
        arrival_ps = _process(s, packet_index, arrival_ps)
    if arrival_ps > run.now_ps:
        schedule(s, arrival_ps, PacketEvent.ACCEPT, packet_index, 0)
        return NONE
    return accept(s, packet_index)


@handler
def _process(s, packet_index, arrival_ps):
    """Return when the kernel has processed a packet: each connection has a core, which only data occupies."""
    packet = s.packets[packet_index]
    qp = s.qps[s.messages[packet.message].qp]
    if packet.carries != Carries.DATA:
        return arrival_ps + qp.receive_packet_ps
    qp.receive_clock_ps = max(qp.receive_clock_ps, arrival_ps) + qp.receive_packet_ps
    return qp.receive_clock_ps


@part
def accept(s, packet_index):
    """Take a packet out of the input buffer. Return the port that may send."""
    packet = s.packets[packet_index]
    release(s, packet.held_in, packet.bytes)
    if s.run[0].uet != 0:
        return ask_uet(s, UetAction.ACCEPT, packet_index)
    if packet.carries == Carries.DATA:
        if packet.marked:
            _notify_congestion(s, packet_index)
        if s.run[0].checks_data:
            _accept_data(s, packet_index)
        else:  # lossless: only count
            message = s.messages[packet.message]
            message.received += 1
            if message.received == message.packets:
                _complete(s, packet.message)
        free_packet(s, packet_index)
        return NONE
    return _accept_control(s, packet_index)


@handler
def _notify_congestion(s, packet_index):
    """Notify the sender of a marked packet, at most once every `notify_ps`."""
    run = s.run[0]
    packet = s.packets[packet_index]
    qp = s.qps[s.messages[packet.message].qp]
    if run.on_notification != 0 and run.now_ps - qp.notified_ps >= run.notify_ps:
        qp.notified_ps = run.now_ps
        send_control(s, packet.message, packet.psn, Carries.CNP)


@handler
def _accept_data(s, packet_index):
    """Receive data on a network that can lose packets, or for a control that sees each acknowledgement."""
    run = s.run[0]
    packet = s.packets[packet_index]
    message = s.messages[packet.message]
    qp = s.qps[message.qp]
    if qp.ordered and qp.acked:
        if packet.psn > qp.expected_psn:
            if qp.nak_sent == 0:
                qp.nak_sent = 1
                send_control(s, packet.message, qp.expected_psn, Carries.NAK)
            return
        if packet.psn < qp.expected_psn:
            # the first acknowledgement may have been lost
            _echo(s, packet_index, send_control(s, packet.message, packet.psn, Carries.ACK))
            return
        qp.expected_psn += 1
        qp.nak_sent = 0
    elif packet.again == PROBE:
        _echo(s, packet_index, send_control(s, packet.message, packet.psn, Carries.ACK))
        return
    qp.arrived += 1
    message.received += 1
    if message.received == message.packets:
        _echo(s, packet_index, _complete(s, packet.message))
    elif run.on_packet != 0 and qp.acked:
        if run.on_arrival != 0:
            _echo(s, packet_index, _acknowledge_later(s, packet_index))
        else:
            _echo(s, packet_index, send_control(s, packet.message, packet.psn, Carries.ACK))
        qp.expected_psn = max(qp.expected_psn, packet.psn + 1)
    elif run.flow == FlowControl.DROP:
        _acknowledge_some(s, packet_index)


@handler
def _acknowledge_later(s, packet_index):
    """Acknowledge a packet as late as the control of the receiving adapter decides. Return the acknowledgement."""
    run = s.run[0]
    packet = s.packets[packet_index]
    message = s.messages[packet.message]
    host_index = -1 - s.plugs[message.dst].owner
    fields = s.host_fields[host_index]
    fields[0], fields[1] = message.packets - message.received, message.packets
    fields[2] = s.size_bytes[message.full]
    hops = s.hops[packet_index][: s.traces[packet_index].hops]
    later_ps = ask_with_hops(run.on_arrival, s.qps[message.qp], run.now_ps, s.control_table, fields, hops)
    ack_index = make_control(s, packet.message, packet.psn, Carries.ACK)
    leaves_ps = run.now_ps + s.lines[s.hosts[host_index].ack_line].delay_ps + max(later_ps, 0)
    schedule(s, leaves_ps, PacketEvent.CONTROL, ack_index, 0)
    return ack_index


@handler
def _echo(s, packet_index, ack_index):
    """Copy the time, the mark and the telemetry of a packet into its acknowledgement."""
    if not s.run[0].traced or ack_index < 0:
        return
    s.packets[ack_index].marked = s.packets[packet_index].marked
    s.traces[ack_index].sent_ps = s.traces[packet_index].sent_ps
    s.traces[ack_index].hops = s.traces[packet_index].hops
    for at in range(s.traces[packet_index].hops):
        s.hops[ack_index, at] = s.hops[packet_index, at]


@handler
def _acknowledge_some(s, packet_index):
    """Acknowledge as TCP does: the first packets, a gap and a retransmission at once, else every second packet or after
    the delayed-ACK timeout.
    """
    run = s.run[0]
    packet = s.packets[packet_index]
    qp_index = s.messages[packet.message].qp
    qp = s.qps[qp_index]
    qp.unacked += 1
    qp.unacked_message = packet.message
    in_order = packet.psn == qp.expected_psn and packet.again == 0
    qp.expected_psn = max(qp.expected_psn, packet.psn + 1)
    if qp.unacked >= run.ack_every or qp.quick_acks > 0 or not in_order:
        send_control(s, packet.message, packet.psn, Carries.ACK)
        qp.quick_acks = max(qp.quick_acks - qp.unacked, 0)
        qp.unacked = 0
        return
    qp.ack_due_ps = run.now_ps + DELAYED_ACK_PS
    if qp.ack_timer == 0:
        qp.ack_timer = 1
        schedule(s, qp.ack_due_ps, PacketEvent.DELAYED_ACK, qp_index, 0)


@handler
def on_delayed_ack(s, qp_index):
    """Acknowledge packets that have waited for the delayed-ACK timeout; if later ones wait, set the timer again."""
    run = s.run[0]
    qp = s.qps[qp_index]
    qp.ack_timer = 0
    if qp.unacked == 0:
        return
    if run.now_ps < qp.ack_due_ps:
        qp.ack_timer = 1
        schedule(s, qp.ack_due_ps, PacketEvent.DELAYED_ACK, qp_index, 0)
        return
    send_control(s, qp.unacked_message, qp.expected_psn - 1, Carries.ACK)
    qp.unacked = 0


@handler
def _complete(s, message_index):
    """Complete a message that has arrived: acknowledge it and release the messages that waited for it.

    Return the index of the acknowledgement, or NONE.
    """
    message = s.messages[message_index]
    qp = s.qps[message.qp]
    ack_index = NONE
    if qp.acked:
        psn = message.first_psn + message.packets - 1
        ack_index = send_control(s, message_index, psn, Carries.ACK)
        qp.unacked = 0
        qp.expected_psn = max(qp.expected_psn, psn + 1)
    else:
        s.run[0].left -= 1
    deliver(s, message_index)
    return ack_index


@handler
def deliver(s, message_index):
    """Note that a message has arrived completely, and release the messages that waited for it."""
    run = s.run[0]
    message = s.messages[message_index]
    message.finish_ps = run.now_ps + s.hosts[-1 - s.plugs[message.dst].owner].receive_ps
    run.delivered += 1
    for at in range(s.successor_first[message_index], s.successor_first[message_index + 1]):
        group = s.port_group[s.messages[s.successors[at]].src]
        if group == run.group:
            release_message(s, message_index, s.successors[at])
        else:
            push(s, run.release_line + group, message_index, s.successors[at])


@handler
def release_message(s, message_index, next_index):
    """Release a message that waits for another one, which has been delivered; the last one starts it."""
    following = s.messages[next_index]
    following.waits_for -= 1
    following.free_ps = max(following.free_ps, s.messages[message_index].finish_ps)
    if following.waits_for == 0:
        following.start_ps = max(following.start_ps, following.free_ps + following.delay_ps)
        # not now: other messages may start before it
        schedule(s, following.start_ps, PacketEvent.POSTED, next_index, 0)


@handler
def count_copy(s, packet_index):
    """Count a multicast packet on one branch of its tree; after all branches its message has arrived.

    The result of a reduction is counted for the message of the host that it has reached.
    """
    packet = s.packets[packet_index]
    message = s.messages[packet.message]
    branch = s.branches[packet.psn]
    branch.arrived += 1
    if message.branch < NONE:
        if branch.member >= 0:
            own_index = s.members[s.reductions[-2 - message.branch].first + branch.member]
            s.messages[own_index].received += 1
            if s.messages[own_index].received == s.messages[own_index].packets:
                _complete(s, own_index)
        return
    message.received += 1
    if message.received == message.packets * message.branches:
        _complete(s, packet.message)


@handler
def _call_on_packet(s, qp_index, ack_index):
    """Call the hook of a control that sees each acknowledgement, and apply its rate."""
    run = s.run[0]
    qp = s.qps[qp_index]
    ack = s.packets[ack_index]
    trace = s.traces[ack_index]
    qp.rtt_ps = run.now_ps - trace.sent_ps
    qp.packet_bytes = s.size_bytes[s.messages[ack.message].full]
    qp.ack_psn = ack.psn
    qp.sent_psn = sent_psn(s, qp_index)
    qp.ecn_echo = ack.marked
    if run.flow != FlowControl.DROP:
        count_acked(s, qp_index, ack.total)
    hops = s.hops[ack_index][: trace.hops]
    call_with_hops(run.on_packet, qp, run.now_ps, s.control_table, s.control_fields[qp_index], hops)
    if run.flow != FlowControl.DROP:
        set_pace(s, qp_index)


@handler
def _accept_control(s, packet_index):
    """Handle an acknowledgement, a NAK or a congestion notification. Return the port that may send."""
    packet = s.packets[packet_index]
    message_index, psn, total, carries = packet.message, packet.psn, packet.total, packet.carries
    is_complete = packet.again
    if carries == Carries.COPY:
        count_copy(s, packet_index)
    free_packet(s, packet_index)
    qp_index = s.messages[message_index].qp
    if carries == Carries.COPY:
        return NONE
    if carries == Carries.ACK and s.run[0].on_packet != 0:
        _call_on_packet(s, qp_index, packet_index)
    if carries == Carries.CNP:
        slow_down(s, qp_index)
        return NONE
    if carries == Carries.NAK:
        return on_nak(s, qp_index, psn)
    message = s.messages[message_index]
    if is_complete and psn == message.first_psn + message.packets - 1:
        on_acked(s, message_index)
    run = s.run[0]
    if run.flow == FlowControl.DROP:
        return on_tcp_ack(s, qp_index, psn, total)
    if run.on_ack != 0:
        qp = s.qps[qp_index]
        qp.newly_acked = message.packets
        call(run.on_ack, qp, run.now_ps, s.control_table)
        set_pace(s, qp_index)
    return wake_qp(s, qp_index)
