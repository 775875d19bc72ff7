"""The receiver of a packet delivery context: ACKs, NACKs of trimmed packets, and answers at the sender."""

from __future__ import annotations

from weft.jit import handler, part
from weft.sim.layout.records import NONE
from weft.sim.packet.delay_lines import push
from weft.sim.packet.nic import free_packet, new_packet
from weft.sim.packet.receive import deliver
from weft.sim.packet.state import PROBE, Carries
from weft.sim.packet.uet.acks import accept_answer
from weft.sim.packet.uet.grants import send_pull, take_wish
from weft.sim.packet.uet.records import ACK_REQUEST, LAST_HOP, PROBED, SACK_PACKETS
from weft.sim.packet.uet.send import slot_of


@handler
def accept_uet(s, packet_index):
    """Receive a packet. Return the port that may send."""
    packet = s.packets[packet_index]
    if packet.carries != Carries.DATA and packet.carries != Carries.HEADER:
        return accept_answer(s, packet_index)
    pdc = s.pdcs[s.messages[packet.message].qp]
    pdc.last_message = packet.message
    if s.run[0].grants:
        take_wish(s, packet_index)
    if packet.again == PROBE:
        _answer(s, packet_index, Carries.ACK, _usual_base(pdc, packet.psn))
        if s.run[0].grants:  # the last PULL may have been lost
            send_pull(s, -1 - s.plugs[s.messages[packet.message].dst].owner, s.messages[packet.message].qp)
    elif packet.psn < pdc.expected_psn or s.has_arrived[slot_of(pdc, packet.psn)]:
        _answer(s, packet_index, Carries.ACK, _usual_base(pdc, packet.psn))
        pdc.accepted_bytes = 0
    elif packet.carries == Carries.HEADER:
        _answer(s, packet_index, Carries.NAK, packet.psn)
    else:
        _accept_data(s, packet_index)
    free_packet(s, packet_index)
    return NONE


@part
def _usual_base(pdc, psn):
    """Return the first packet of a selective acknowledgement that ends with this one."""
    return max(psn - SACK_PACKETS + 1, pdc.expected_psn + 1)


@handler
def _accept_data(s, packet_index):
    """Note a packet that has arrived for the first time. An ACK follows at once if it is marked, the sender wants one,
    or no packet is missing any more; else after so many bytes.
    """
    packet = s.packets[packet_index]
    message = s.messages[packet.message]
    pdc = s.pdcs[message.qp]
    wants_ack = s.notes[packet_index].bits & ACK_REQUEST != 0
    answers = packet.marked != 0 or wants_ack or pdc.arrived_bytes == 0
    pdc.accepted_bytes += packet.bytes
    pdc.arrived_bytes += packet.bytes
    if wants_ack:
        pdc.ack_wanted = 1
    if packet.psn == pdc.expected_psn:
        pdc.expected_psn += 1
        while s.has_arrived[slot_of(pdc, pdc.expected_psn)]:
            s.has_arrived[slot_of(pdc, pdc.expected_psn)] = 0
            pdc.expected_psn += 1
            pdc.out_of_order -= 1
        if pdc.out_of_order == 0 and pdc.ack_wanted:
            answers = True
            pdc.ack_wanted = 0
    else:
        s.has_arrived[slot_of(pdc, packet.psn)] = 1
        pdc.out_of_order += 1
    message.received += 1
    if message.received == message.packets:
        deliver(s, packet.message)
    if answers or pdc.accepted_bytes >= s.run[0].ack_every_bytes:
        is_own = packet.marked != 0 or wants_ack
        _answer(s, packet_index, Carries.ACK, packet.psn if is_own else _usual_base(pdc, packet.psn))
        pdc.accepted_bytes = 0


@handler
def _answer(s, packet_index, carries, base_psn):
    """Send an ACK or a NACK for a packet."""
    packet, note = s.packets[packet_index], s.notes[packet_index]
    message = s.messages[packet.message]
    pdc = s.pdcs[message.qp]
    answer_index = new_packet(s, packet.message, packet.psn, s.run[0].ack_size, carries)
    s.packets[answer_index].again, s.packets[answer_index].marked = packet.again, packet.marked
    s.packets[answer_index].total = packet.total
    answer = s.notes[answer_index]
    answer.bits = note.bits & (PROBED | LAST_HOP)
    answer.received_bytes = pdc.arrived_bytes
    answer.cumulative_psn = pdc.expected_psn
    answer.out_of_order = pdc.out_of_order
    base_psn = max(base_psn, pdc.expected_psn + 1)
    answer.base_psn = base_psn
    bitmap = 0
    for at in range(min(SACK_PACKETS, pdc.expected_psn + pdc.mask + 1 - base_psn)):
        if s.has_arrived[slot_of(pdc, base_psn + at)]:
            bitmap |= 1 << at
    answer.bitmap = bitmap
    push(s, s.hosts[-1 - s.plugs[message.dst].owner].ack_line, answer_index, 0)
