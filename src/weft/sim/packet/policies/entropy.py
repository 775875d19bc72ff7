"""Equal-cost multipath by flow and by an entropy that the sender of Ultra Ethernet gives each packet."""

from __future__ import annotations

from weft.sim.adaptive import Policy
from weft.sim.packet.policies.ecmp import choose
from weft.sim.packet.uet.records import Entropy

OBLIVIOUS, BITMAP, REPS, MIXED = (
    Policy(name=rule.name.lower(), choose=choose, entropy=rule) for rule in Entropy if rule is not Entropy.NONE
)
