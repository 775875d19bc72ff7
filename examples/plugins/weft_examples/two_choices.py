"""An adaptive-routing policy: the emptier of two random ports, instead of the emptiest of all.

Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 1996: nearly as good, and a switch compares
only two queues.
`choose` is a kernel: the packet engine compiles it and calls it for every packet.
"""

from __future__ import annotations

from weft.sim.adaptive import Policy


def choose(loads, ports, number):
    """Return `number`, a random index into `ports`, or the index half the way round if that port is emptier."""
    other = (number + len(ports) // 2) % len(ports)
    return other if loads[ports[other]].bytes < loads[ports[number]].bytes else number


TWO_CHOICES = Policy(name="two-choices", choose=choose)


ENTRY_POINTS = {"weft.paths": {"two-choices": TWO_CHOICES}}  # for weft --plugin
