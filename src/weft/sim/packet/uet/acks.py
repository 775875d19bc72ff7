"""The sender of a packet delivery context hears of its packets: ACKs, NACKs, credits, and timeouts.

A packet is lost if it is trimmed (NACK), unacknowledged for too long, or, with `detects_gaps`, followed by arrived
packets of more than one and a half windows (SLEEK in the reference simulator).
"""

from __future__ import annotations

from weft.jit import call_with_hops, handler, part
from weft.sim.layout.records import NONE
from weft.sim.packet.nic import free_packet, on_control, set_timer, wake_qp
from weft.sim.packet.reliability import RETRIES, RETRIES_EXCEEDED, complete_message, leave_ring
from weft.sim.packet.state import Carries, QpState
from weft.sim.packet.uet.entropy import learn
from weft.sim.packet.uet.records import LAST_HOP, PROBED, Cause, Feedback, SlotState
from weft.sim.packet.uet.send import make_probe, may_send_uet, packet_size, set_probe, slot_of

GAP_WINDOWS = 1.5  # packets that arrive out of order before the missing ones are lost, in windows
LEAST_GAP = 5  # packets
FIRST_PROBE_RTTS, NEXT_PROBE_RTTS = 3, 5  # round trips without an ACK before a probe


@handler
def accept_answer(s, packet_index):
    """Handle an ACK, a NACK or credits at the sender. Return the port that may send."""
    packet = s.packets[packet_index]
    qp_index = s.messages[packet.message].qp
    pdc = s.pdcs[qp_index]
    s.qps[qp_index].backoff = 0
    if pdc.speculates:
        pdc.speculates = 0
        pdc.credit_bytes = min(pdc.credit_bytes, 0)
    if packet.carries == Carries.PULL:
        _add_credits(s, qp_index, s.notes[packet_index].pull_bytes)
    elif packet.carries == Carries.NAK:
        _on_nack(s, qp_index, packet_index)
    else:
        _on_ack(s, qp_index, packet_index)
    free_packet(s, packet_index)
    return _send_more(s, qp_index)


@handler
def _send_more(s, qp_index):
    """Let a context send, or stop if it has nothing to send any more. Return its port."""
    if s.qps[qp_index].state == QpState.RING and not may_send_uet(s, qp_index):
        leave_ring(s, qp_index)
    return wake_qp(s, qp_index)


@part
def _add_credits(s, qp_index, granted_bytes):
    pdc = s.pdcs[qp_index]
    if granted_bytes > pdc.granted_bytes:
        more_bytes = granted_bytes - pdc.granted_bytes
        pdc.credit_bytes = min(pdc.credit_bytes + more_bytes, s.run[0].speculative_bytes)
        pdc.granted_bytes = granted_bytes


@part
def _control(s, qp_index, cause, size_bytes, rtt_ps):
    """Call the congestion control of the sender, if it has one."""
    run = s.run[0]
    if run.on_packet == 0:
        return
    qp = s.qps[qp_index]
    qp.cause, qp.acked_bytes, qp.rtt_ps = cause, size_bytes, rtt_ps
    qp.flight_bytes = s.pdcs[qp_index].flight_bytes
    qp.packet_bytes = s.size_bytes[-1]
    call_with_hops(run.on_packet, qp, run.now_ps, s.control_table, s.control_fields[qp_index], s.hops[0][:0])


@handler
def _on_ack(s, qp_index, packet_index):
    run = s.run[0]
    qp, pdc = s.qps[qp_index], s.pdcs[qp_index]
    packet, note = s.packets[packet_index], s.notes[packet_index]
    new_bytes = max(note.received_bytes - pdc.received_bytes, 0)
    pdc.received_bytes += new_bytes
    pdc.flight_bytes -= new_bytes
    is_probe = note.bits & PROBED != 0
    slot = s.sent[slot_of(pdc, packet.psn)]
    rtt_ps = 0
    # known to be of this transmission; of a retransmission the first only
    if not is_probe and packet.psn >= pdc.acked_psn and slot.state == SlotState.FLYING and slot.again == packet.again:
        rtt_ps = run.now_ps - slot.sent_ps
    while pdc.acked_psn < note.cumulative_psn:
        _free_slot(s, pdc, pdc.acked_psn)
        pdc.acked_psn += 1
    bitmap, psn = note.bitmap, note.base_psn
    while bitmap != 0:
        if bitmap & 1 and psn >= pdc.acked_psn:
            _free_slot(s, pdc, psn)
        bitmap >>= 1
        psn += 1
    while qp.oldest >= 0 and s.messages[qp.oldest].first_psn + s.messages[qp.oldest].packets <= pdc.acked_psn:
        if s.messages[qp.oldest].sent < s.messages[qp.oldest].packets:
            break  # a later one that has not been sent
        complete_message(s, qp.oldest)
        qp.oldest = s.messages[qp.oldest].next
    if not is_probe:
        learn(s, qp_index, packet.total, Feedback.MARKED if packet.marked else Feedback.GOOD)
    qp.ecn_echo = packet.marked
    _control(s, qp_index, Cause.ACKED, new_bytes, rtt_ps)
    if run.detects_gaps:
        _look_for_gaps(s, qp_index, packet_index)


@part
def _free_slot(s, pdc, psn):
    """Note that a packet has arrived; one that was to be sent again is in flight no longer only now."""
    slot = s.sent[slot_of(pdc, psn)]
    if slot.state == SlotState.LOST:
        pdc.lost -= 1
        message_index = slot.message
        number = psn - s.messages[message_index].first_psn
        pdc.flight_bytes += s.size_bytes[packet_size(s, message_index, number)]
    slot.state = SlotState.DONE


@handler
def _lose_slot(s, qp_index, psn):
    """Note that a packet is to be sent again. Return its size."""
    pdc = s.pdcs[qp_index]
    slot = s.sent[slot_of(pdc, psn)]
    size_bytes = s.size_bytes[packet_size(s, slot.message, psn - s.messages[slot.message].first_psn)]
    slot.state = SlotState.LOST
    pdc.lost_psn = psn if pdc.lost == 0 else min(pdc.lost_psn, psn)
    pdc.lost += 1
    pdc.flight_bytes -= size_bytes
    return size_bytes


@handler
def _on_nack(s, qp_index, packet_index):
    """Send a trimmed packet again."""
    pdc = s.pdcs[qp_index]
    packet, note = s.packets[packet_index], s.notes[packet_index]
    if packet.psn < pdc.acked_psn or s.sent[slot_of(pdc, packet.psn)].state != SlotState.FLYING:
        return
    rtt_ps = s.run[0].now_ps - s.sent[slot_of(pdc, packet.psn)].sent_ps
    is_last_hop = note.bits & LAST_HOP != 0
    slot = s.sent[slot_of(pdc, packet.psn)]
    size_bytes = s.size_bytes[packet_size(s, slot.message, packet.psn - s.messages[slot.message].first_psn)]
    _control(s, qp_index, Cause.TRIMMED_LAST_HOP if is_last_hop else Cause.TRIMMED, size_bytes, rtt_ps)
    _lose_slot(s, qp_index, packet.psn)
    # at the last hop the path is not to blame
    feedback = Feedback.MARKED if packet.marked else Feedback.GOOD
    learn(s, qp_index, packet.total, feedback if is_last_hop else Feedback.TRIMMED)


@handler
def _look_for_gaps(s, qp_index, packet_index):
    """Detect losses by packets that arrive out of order; set the time of the next probe."""
    run = s.run[0]
    qp, pdc = s.qps[qp_index], s.pdcs[qp_index]
    note = s.notes[packet_index]
    if pdc.acked_psn < pdc.next_psn or qp.unsent >= 0:
        late_ps = 2 * run.network_rtt_ps if qp.unsent < 0 else FIRST_PROBE_RTTS * run.network_rtt_ps
        set_probe(s, qp_index, run.now_ps + late_ps)
    else:
        pdc.probe_ps = 0
    full_bytes = s.size_bytes[-1]
    window = max(qp.window_bytes, float(full_bytes)) if qp.window_bytes > 0 else float(run.speculative_bytes)
    if note.bits & PROBED and run.now_ps - pdc.probed_ps < 2 * run.network_rtt_ps:
        pdc.recovers = 1
        pdc.recover_psn, pdc.resent_psn = pdc.next_psn, pdc.acked_psn
    if pdc.recovers and pdc.acked_psn >= pdc.recover_psn:
        pdc.recovers = 0
    gap = max(int(min(GAP_WINDOWS * window, float(run.speculative_bytes))) // full_bytes, LEAST_GAP)
    if not pdc.recovers:
        if note.out_of_order < gap or pdc.lost > 0:
            return
        pdc.recovers = 1
        pdc.recover_psn = pdc.next_psn
    end = min(pdc.recover_psn, pdc.acked_psn + int(window) // full_bytes)
    for psn in range(max(pdc.acked_psn, pdc.resent_psn), end):
        if s.sent[slot_of(pdc, psn)].state == SlotState.FLYING:
            _lose_slot(s, qp_index, psn)
            pdc.resent_psn = psn + 1


@handler
def on_probe_due(s, qp_index):
    """Probe for packets that may be lost if no ACK has arrived for some time. Return the port."""
    run = s.run[0]
    pdc = s.pdcs[qp_index]
    pdc.probe_timer = 0
    if pdc.probe_ps == 0 or s.qps[qp_index].oldest < 0:
        return NONE
    if run.now_ps < pdc.probe_ps:
        set_probe(s, qp_index, pdc.probe_ps)
        return NONE
    set_probe(s, qp_index, run.now_ps + NEXT_PROBE_RTTS * run.network_rtt_ps)
    return on_control(s, make_probe(s, qp_index, Carries.DATA))


@handler
def on_uet_timeout(s, qp_index):
    """Send packets again that have been in flight for too long, and wait twice as long the next time.

    Return the port that may send, or RETRIES_EXCEEDED.
    """
    run = s.run[0]
    qp, pdc = s.qps[qp_index], s.pdcs[qp_index]
    qp.timer_ps = NONE
    first_ps = run.now_ps
    late = 0
    for psn in range(pdc.acked_psn, pdc.next_psn):
        slot = s.sent[slot_of(pdc, psn)]
        if slot.state == SlotState.FLYING:
            if slot.sent_ps + run.timeout_ps <= run.now_ps:
                late += 1
                learn(s, qp_index, slot.entropy, Feedback.LOST)
                _control(s, qp_index, Cause.LOST, _lose_slot(s, qp_index, psn), 0)
            else:
                first_ps = min(first_ps, slot.sent_ps)
    waits = run.grants and pdc.credit_bytes <= 0
    if qp.oldest < 0 or (s.messages[qp.oldest].sent == 0 and not waits):
        return NONE
    stalls = late > 0 or pdc.flight_bytes == 0
    if stalls:
        qp.backoff += 1
        if qp.backoff > RETRIES:
            return RETRIES_EXCEEDED
        pdc.speculates = 0
    set_timer(s, qp_index, first_ps + (run.timeout_ps << qp.backoff))
    if stalls and not may_send_uet(s, qp_index):
        # the receiver may not know that the context waits, or a PULL was lost
        return on_control(s, make_probe(s, qp_index, Carries.HEADER))
    return _send_more(s, qp_index)


@handler
def on_posted(s, qp_index):
    """Ask the receiver for credits if a context has none for a message that has just been posted."""
    run = s.run[0]
    qp, pdc = s.qps[qp_index], s.pdcs[qp_index]
    if run.grants and pdc.credit_bytes <= 0 and qp.timer_ps < 0:
        set_timer(s, qp_index, run.now_ps + run.timeout_ps)
        on_control(s, make_probe(s, qp_index, Carries.HEADER))
