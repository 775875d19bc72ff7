"""An adaptive-routing policy: the emptier of two random ports, instead of the emptiest of all.

Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 1996: nearly as good, and a switch looks at two
queues only. `choose` is a kernel: the packet engine compiles it and asks it for every packet.
"""

from __future__ import annotations

from weft.sim.adaptive import Policy


def choose(loads, ports, number):
    """`number` is a random place in `ports`; the other choice is half the way round from there."""
    other = (number + len(ports) // 2) % len(ports)
    return other if loads[ports[other]].bytes < loads[ports[number]].bytes else number


TWO_CHOICES = Policy(name="two-choices", choose=choose)


ENTRY_POINTS = {"weft.paths": {"two-choices": TWO_CHOICES}}  # for weft --plugin
