"""The sender of a packet delivery context: its window and credits, new packets, and those to be sent again."""

from __future__ import annotations

import numpy as np

from weft.jit import handler, part
from weft.sim.packet.delay_lines import schedule
from weft.sim.packet.nic import count_sent, new_packet, set_timer
from weft.sim.packet.state import PROBE, Carries, PacketEvent
from weft.sim.packet.uet.entropy import next_entropy
from weft.sim.packet.uet.records import ACK_REQUEST, PROBED, QUANTUM_BYTES, SlotState


@part
def slot_of(pdc, psn):
    """Return the slot of a packet number in the window of its context."""
    return pdc.first + (psn & pdc.mask)


@part
def packet_size(s, message_index, number):
    """Return the size of a packet of a message, by its number from 0 on."""
    message = s.messages[message_index]
    if number == message.packets - 1:
        return message.last
    return message.first if number == 0 else message.full


@handler
def next_bytes_uet(s, qp_index):
    """Return the size of the next packet of a context, 0 if it has none or its window of packet numbers is full."""
    qp, pdc = s.qps[qp_index], s.pdcs[qp_index]
    if pdc.lost > 0:
        psn = _lowest_lost(s, pdc)
        message_index = s.sent[slot_of(pdc, psn)].message
        return s.size_bytes[packet_size(s, message_index, psn - s.messages[message_index].first_psn)]
    if qp.unsent < 0 or pdc.next_psn - pdc.acked_psn > pdc.mask:
        return 0
    if qp.window > 0 and qp.outstanding >= qp.window:
        return 0
    return s.size_bytes[packet_size(s, qp.unsent, s.messages[qp.unsent].sent)]


@part
def _lowest_lost(s, pdc):
    """Return the number of the first packet to be sent again."""
    psn = max(pdc.lost_psn, pdc.acked_psn)
    while s.sent[slot_of(pdc, psn)].state != SlotState.LOST:
        psn += 1
    pdc.lost_psn = psn
    return psn


@handler
def may_send_uet(s, qp_index):
    """Return whether a context has a packet, and the window and the credits for it."""
    qp, pdc = s.qps[qp_index], s.pdcs[qp_index]
    if pdc.lost == 0 and qp.unsent < 0:
        return False
    if s.run[0].grants and pdc.credit_bytes <= 0:
        return False
    size_bytes = next_bytes_uet(s, qp_index)
    if size_bytes == 0:
        return False
    if qp.window_bytes > 0 and pdc.flight_bytes + size_bytes > qp.window_bytes:
        return pdc.recovers != 0 and pdc.lost > 0
    return True


@handler
def next_uet_packet(s, qp_index):
    """Create the next packet of a context: one that was lost, or else a new one."""
    run = s.run[0]
    qp, pdc = s.qps[qp_index], s.pdcs[qp_index]
    if pdc.lost > 0:
        psn = _lowest_lost(s, pdc)
        slot = s.sent[slot_of(pdc, psn)]
        message_index = slot.message
        slot.again += 1
        pdc.lost -= 1
        s.messages[message_index].retransmitted += 1
        number = psn - s.messages[message_index].first_psn
    else:
        message_index = qp.unsent
        number = s.messages[message_index].sent
        psn = s.messages[message_index].first_psn + number
        slot = s.sent[slot_of(pdc, psn)]
        slot.message, slot.again = message_index, 0
        count_sent(s, qp_index)
        pdc.next_psn = psn + 1
    packet_index = new_packet(s, message_index, psn, packet_size(s, message_index, number), Carries.DATA)
    packet = s.packets[packet_index]
    packet.again = min(slot.again, 1)
    slot.state, slot.sent_ps = SlotState.FLYING, run.now_ps
    pdc.flight_bytes += packet.bytes
    if run.grants:
        pdc.credit_bytes -= packet.bytes
    note = s.notes[packet_index]
    note.bits = 0
    packet.total = slot.entropy = next_entropy(s, qp_index)
    note.pull_bytes = _pull_target(s, qp_index)
    is_last = qp.unsent < 0 or (run.grants and pdc.credit_bytes <= 0)
    if is_last or packet.again or (qp.window_bytes > 0 and pdc.flight_bytes + packet.bytes >= qp.window_bytes):
        note.bits = ACK_REQUEST
    if qp.timer_ps < 0:
        set_timer(s, qp_index, run.now_ps + run.timeout_ps)
    return packet_index


@part
def _pull_target(s, qp_index):
    """Return the credits, since the start, that a context wants."""
    qp, pdc = s.qps[qp_index], s.pdcs[qp_index]
    if not s.run[0].grants:
        return 0
    full_bytes = np.int64(s.size_bytes[-1])
    wanted_bytes = pdc.lost * full_bytes
    message_index = qp.unsent
    while message_index >= 0 and wanted_bytes < s.run[0].speculative_bytes:
        wanted_bytes += (s.messages[message_index].packets - s.messages[message_index].sent) * full_bytes
        message_index = s.messages[message_index].next
    if qp.window_bytes > 0:
        wanted_bytes = min(wanted_bytes, np.int64(qp.window_bytes) + full_bytes)
    wanted_bytes = min(wanted_bytes, s.run[0].speculative_bytes) - pdc.credit_bytes
    if pdc.speculates and qp.unsent >= 0:
        wanted_bytes = max(wanted_bytes, full_bytes)
    return (pdc.granted_bytes + wanted_bytes + QUANTUM_BYTES - 1) & -QUANTUM_BYTES


@handler
def make_probe(s, qp_index, carries):
    """Return a packet without data that asks for an ACK and tells the receiver which credits its sender wants.

    One that carries DATA waits in queues as data does, so its ACK tells their length; a HEADER overtakes data.
    """
    pdc = s.pdcs[qp_index]
    message_index = s.qps[qp_index].oldest
    packet_index = new_packet(s, message_index, pdc.acked_psn, s.run[0].ack_size, Carries.DATA)
    s.packets[packet_index].carries, s.packets[packet_index].again = carries, PROBE
    s.packets[packet_index].total = next_entropy(s, qp_index)
    note = s.notes[packet_index]
    note.bits = PROBED
    note.pull_bytes = _pull_target(s, qp_index)
    pdc.probed_ps = s.run[0].now_ps
    return packet_index


@handler
def set_probe(s, qp_index, due_ps):
    """Probe at this time, unless an ACK arrives before; a PROBE on the agenda is postponed."""
    pdc = s.pdcs[qp_index]
    pdc.probe_ps = due_ps
    if pdc.probe_timer == 0:
        pdc.probe_timer = 1
        schedule(s, due_ps, PacketEvent.UET_PROBE, qp_index, 0)
