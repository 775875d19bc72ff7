"""The time of a message on an idle network: the part that other messages cannot change."""

from __future__ import annotations

from weft.jit import lean_kernel, part
from weft.jit.references import by_reference

FEW = 4  # packets that represent a message of any length: first, two full ones, last


@lean_kernel
def list_idle(s, bytes_of, idle_ps_of):
    """Fill in the bytes on the wire of each message, and its time from first byte sent to last byte arrived."""
    s = by_reference(s)
    for index in range(len(s.messages)):
        bytes_of[index] = wire_bytes(s, index)
        idle_ps_of[index] = idle_ps(s, index)


@part
def wire_bytes(s, index):
    """Return the size of a message with all of its headers."""
    message = s.messages[index]
    if message.packets == 1:
        return s.size_bytes[message.last] + 0.0
    ends = s.size_bytes[message.first] + s.size_bytes[message.last]
    return ends + (message.packets - 2) * s.size_bytes[message.full] + 0.0


@part
def idle_ps(s, index):
    """Return the time from the first byte sent until the last has arrived, on an idle network, as in the packet engine.

    Packets follow each other through a sequence of links, each busy with one packet at a time. Beyond the first few,
    all
    packets are full ones, and each adds the time of the slowest link.
    """
    message = s.messages[index]
    flow = s.flows[message.qp]
    begin, end = s.hop_first[message.qp], s.hop_first[message.qp + 1]
    few = min(message.packets, FEW)
    for hop in range(end - begin):
        s.free_ps[hop] = 0
    sent_ps = taken_ps = processed_ps = came_ps = 0
    for i in range(few):
        size = message.full
        if i == few - 1:
            size = message.last
        elif i == 0:
            size = message.first
        came_ps = sent_ps
        for hop in range(begin, end):
            serial_ps = s.serial_ps[s.hop_rate[hop], size]
            leaves_ps = max(came_ps, s.free_ps[hop - begin])
            s.free_ps[hop - begin] = leaves_ps + serial_ps
            if hop == begin:
                sent_ps = leaves_ps + _pace_ps(flow, s.size_bytes[size])
            came_ps = leaves_ps + s.hop_ps[hop]
            if s.hop_cut[hop] == 0:
                came_ps += serial_ps
            else:  # a packet cannot leave faster than it arrives
                came_ps += max(serial_ps - s.serial_ps[s.hop_rate[hop + 1], size], 0)
        taken_ps = came_ps = max(came_ps, taken_ps) + ((s.size_bytes[size] * flow.take_ps_per_kib) >> 10)
        processed_ps = came_ps = max(came_ps, processed_ps) + flow.receive_packet_ps
    return came_ps + _more_ps(s, index, message.packets - few)


@part
def _more_ps(s, index, packets):
    """Return the time that so many more full packets take."""
    message = s.messages[index]
    flow = s.flows[message.qp]
    size_bytes = s.size_bytes[message.full]
    if s.spreads:
        return round_ps(packets * size_bytes / flow.alone)
    slowest_ps = max(_pace_ps(flow, size_bytes), (size_bytes * flow.take_ps_per_kib) >> 10, flow.receive_packet_ps)
    for hop in range(s.hop_first[message.qp], s.hop_first[message.qp + 1]):
        slowest_ps = max(slowest_ps, s.serial_ps[s.hop_rate[hop], message.full])
    return packets * slowest_ps


@part
def _pace_ps(flow, size_bytes):
    """Return the least time between two packets of the sender."""
    return max(flow.packet_ps, (size_bytes * flow.pace_ps_per_kib) >> 10)


@part
def round_ps(time):
    return int(time + 0.5)
