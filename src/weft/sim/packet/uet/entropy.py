"""The choice of the entropy of each packet, by which switches hash it to a path.

REPS: Bonato et al., "REPS: Recycled Entropy Packet Spraying", 2024. The other rules are those of `uec_mp.cpp`.
"""

from __future__ import annotations

from weft.jit import handler, part
from weft.sim.packet.draws import draw_below
from weft.sim.packet.uet.records import ENTROPIES, RECYCLED, Entropy, Feedback

MOST_PENALTY = 15
FROZEN_PS = 10_000_000_000  # REPS uses old entropies for so long after a timeout
EXPLORED = 16  # and then tries so many new ones


@handler
def next_entropy(s, qp_index):
    """Return the entropy of the next packet of a context."""
    rule = s.run[0].entropy
    pdc = s.pdcs[qp_index]
    if rule == Entropy.OBLIVIOUS:
        return _next_in_turn(s, pdc)
    if rule == Entropy.BITMAP:
        return _next_not_skipped(s, qp_index)
    if rule == Entropy.MIXED:
        return _take_recycled(s, pdc) if pdc.fresh > 0 else _next_not_skipped(s, qp_index)
    if rule == Entropy.REPS:
        return _next_of_reps(s, pdc)
    return 0


@part
def _next_in_turn(s, pdc):
    entropy = pdc.turn ^ pdc.order
    pdc.turn += 1
    if pdc.turn == ENTROPIES:
        pdc.turn = 0
        pdc.order = draw_below(s, ENTROPIES)
    return entropy


@handler
def _next_not_skipped(s, qp_index):
    """Return the next entropy in turn without a penalty; the first one with a penalty loses a part of it."""
    skips = s.skips[qp_index]
    entropy = _next_in_turn(s, s.pdcs[qp_index])
    if skips[entropy] > 0:
        skips[entropy] -= 1
        for _ in range(ENTROPIES):
            entropy = _next_in_turn(s, s.pdcs[qp_index])
            if skips[entropy] == 0:
                break
    return entropy


@part
def _take_recycled(s, pdc):
    """Return the oldest unused entropy of the ring."""
    entropy = s.recycled[_place(pdc, pdc.head - pdc.fresh)]
    pdc.fresh -= 1
    return entropy


@part
def _place(pdc, at):
    return pdc.first + (at & pdc.mask)


@handler
def _next_of_reps(s, pdc):
    if pdc.explore > 0:
        pdc.explore -= 1
    elif pdc.frozen_ps > 0 and pdc.kept > 0:
        entropy = s.recycled[_place(pdc, pdc.head - pdc.kept + pdc.frozen_at)]
        pdc.frozen_at = (pdc.frozen_at + 1) % pdc.kept
        return entropy
    elif pdc.fresh > 0 and pdc.frozen_ps == 0:
        return _take_recycled(s, pdc)
    return draw_below(s, ENTROPIES)


@handler
def learn(s, qp_index, entropy, feedback):
    """Use the news about the path of an entropy."""
    rule = s.run[0].entropy
    pdc = s.pdcs[qp_index]
    if rule == Entropy.BITMAP or rule == Entropy.MIXED:
        skips = s.skips[qp_index]
        skips[entropy] = min(skips[entropy] + feedback, MOST_PENALTY)
    if rule == Entropy.REPS:
        _thaw(s, pdc)
        if feedback == Feedback.LOST and pdc.frozen_ps == 0 and pdc.explore == 0:
            pdc.frozen_ps = s.run[0].now_ps + FROZEN_PS
            pdc.frozen_at = 0
    if feedback == Feedback.GOOD and (rule == Entropy.REPS or rule == Entropy.MIXED):
        most = min(RECYCLED, pdc.mask + 1) if rule == Entropy.REPS else pdc.mask + 1
        s.recycled[_place(pdc, pdc.head)] = entropy
        pdc.head += 1
        pdc.fresh = min(pdc.fresh + 1, most)
        pdc.kept = min(pdc.kept + 1, most)


@part
def _thaw(s, pdc):
    """Forget old entropies some time after a timeout."""
    if 0 < pdc.frozen_ps < s.run[0].now_ps:
        pdc.frozen_ps = 0
        pdc.fresh = pdc.kept = 0
        pdc.explore = EXPLORED
