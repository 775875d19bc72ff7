"""Pick a random port for each packet, regardless of queues."""

from __future__ import annotations

from weft.jit import part
from weft.sim.adaptive import Policy


@part
def choose(loads, ports, number):
    return number


SPRAY = Policy(name="spray", choose=choose)
