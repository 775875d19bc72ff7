"""Any port, packet by packet, without a look at what waits there."""

from __future__ import annotations

from weft.jit import part
from weft.sim.adaptive import Policy


@part
def choose(loads, ports, number):
    return number


SPRAY = Policy(name="spray", choose=choose)
