"""Non-minimal paths (`weft.routing.detours`): the choice at a switch, and the change from one part to the next.

The upper bits of a packet's `sl` are the part of its path, so that `sl2vl` gives the lane. On the way to its
intermediate switch, `dlid` is the LID of that switch.
"""

from __future__ import annotations

from weft.fabric.kernels.forwarding import MOST_HOPS
from weft.jit import handler, part
from weft.routing.detours import TO_DESTINATION, TO_INTERMEDIATE, UNDECIDED, Detour
from weft.sim.packet.draws import draw_below
from weft.sim.packet.state import PART_BITS, Carries

_LEVEL_MASK = (1 << PART_BITS) - 1


@part
def _ends_detour(s, switch, lid):
    """Return whether a detour to the intermediate switch with this LID ends here."""
    return s.lft[switch, lid] == 0 or (s.run[0].ends_in_group and s.switch_group[switch] == s.lid_group[lid])


@part
def _begin_part(s, switch, packet_index, number, dlid):
    """Send a packet on by the tables to a LID, as if it came from this switch."""
    packet = s.packets[packet_index]
    level = packet.sl & _LEVEL_MASK
    if len(s.path_sl) > 1:
        level = s.path_sl[switch, dlid]
    packet.dlid = dlid
    packet.sl = (number << PART_BITS) | level


@handler
def begin_next_part(s, in_queue_index, packet_index):
    """Choose the path of an arriving packet, or end its detour. Return whether a part of its path begins here."""
    packet = s.packets[packet_index]
    switch = s.buffers[in_queue_index >> s.run[0].vl_bits].owner
    number = packet.sl >> PART_BITS
    if number == TO_DESTINATION or packet.dlid == 0:  # LID 0: multicast
        return False
    if number == TO_INTERMEDIATE:
        if not _ends_detour(s, switch, packet.dlid):
            return False
        message = s.messages[packet.message]
        is_forward = packet.carries == Carries.DATA or packet.carries == Carries.HEADER
        dlid = message.dlid if is_forward else message.slid
        _begin_part(s, switch, packet_index, TO_DESTINATION, dlid)
        return True
    if _may_divert(s, in_queue_index, packet_index):
        intermediate = _draw_intermediate(s, switch, packet.dlid)
        if s.run[0].detour == Detour.VALIANT or _is_shorter(s, in_queue_index, packet_index, intermediate):
            _begin_part(s, switch, packet_index, TO_INTERMEDIATE, intermediate)
            return True
    if s.run[0].detour == Detour.PAR:
        return False
    _begin_part(s, switch, packet_index, TO_DESTINATION, packet.dlid)
    return True


@part
def _may_divert(s, in_queue_index, packet_index):
    """Return whether this switch chooses the path of an undecided packet."""
    switch = s.buffers[in_queue_index >> s.run[0].vl_bits].owner
    if s.switch_group[switch] == s.lid_group[s.packets[packet_index].dlid]:
        return False
    previous = s.plugs[s.ports[in_queue_index >> s.run[0].vl_bits].peer].owner
    return previous < 0 or not s.run[0].in_first_group or s.switch_group[previous] == s.switch_group[switch]


@part
def _draw_intermediate(s, switch, dlid):
    """Return the LID of a random intermediate switch, outside the groups of both ends."""
    while True:  # there are three groups or more
        lid = s.intermediate_lid[draw_below(s, len(s.intermediate_lid))]
        if s.lid_group[lid] != s.switch_group[switch] and s.lid_group[lid] != s.lid_group[dlid]:
            return lid


@part
def _is_shorter(s, in_queue_index, packet_index, intermediate):
    """Return whether the detour has the shorter queue here, each weighted by the length of its path.

    Behind the same port, the queues of the two lanes are compared (Kim et al. 2008: UGAL-L with hybrid VCs).
    """
    run = s.run[0]
    switch, dlid = s.buffers[in_queue_index >> run.vl_bits].owner, s.packets[packet_index].dlid
    first = s.switch_first[switch]
    direct, around = first + s.lft[switch, dlid], first + s.lft[switch, intermediate]
    direct_bytes, around_bytes = s.loads[direct].bytes, s.loads[around].bytes
    if direct == around:
        undecided = UNDECIDED if run.detour == Detour.PAR else TO_DESTINATION
        direct_bytes = _lane_bytes(s, in_queue_index, packet_index, dlid, undecided)
        around_bytes = _lane_bytes(s, in_queue_index, packet_index, intermediate, TO_INTERMEDIATE)
    direct_hops, around_hops = _count_hops(s, switch, dlid, 0), _count_hops(s, switch, intermediate, dlid)
    return direct_bytes * direct_hops > around_bytes * around_hops + run.bias_bytes


@part
def _lane_bytes(s, in_queue_index, packet_index, dlid, number):
    """Return the bytes queued on the lane that a packet would take in a part of its path that begins here."""
    switch = s.buffers[in_queue_index >> s.run[0].vl_bits].owner
    level = s.packets[packet_index].sl & _LEVEL_MASK
    if len(s.path_sl) > 1:
        level = s.path_sl[switch, dlid]
    port = s.lft[switch, dlid]
    lane = s.sl2vl[s.pair_row[s.first_pair[switch] + port], (number << PART_BITS) | level]
    return s.queues[((s.switch_first[switch] + port) << s.run[0].vl_bits) + lane].bytes


@part
def _count_hops(s, switch, lid, dlid):
    """Return the links between switches on the way to a LID; with `dlid`, to an intermediate switch and then there."""
    for hops in range(MOST_HOPS):
        if dlid > 0 and _ends_detour(s, switch, lid):
            lid, dlid = dlid, 0
        switch = s.plugs[s.ports[s.switch_first[switch] + s.lft[switch, lid]].peer].owner
        if switch < 0:
            return hops
    return MOST_HOPS
