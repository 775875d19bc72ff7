"""Pick the port with the shortest queue for each packet; of equal ports the first from a random position."""

from __future__ import annotations

from weft.jit import part
from weft.sim.adaptive import Policy


@part
def choose(loads, ports, number):
    at = best = number
    least = loads[ports[at]].bytes
    for _ in range(len(ports) - 1):
        if least == 0:
            break
        at = at + 1 if at + 1 < len(ports) else 0
        load = loads[ports[at]].bytes
        if load < least:
            best, least = at, load
    return best


ADAPTIVE = Policy(name="adaptive", choose=choose)
