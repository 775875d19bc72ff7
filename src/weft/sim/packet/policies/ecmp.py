"""Equal-cost multipath: a hash of the flow picks the port (RFC 2992)."""

from __future__ import annotations

from weft.jit import part
from weft.sim.adaptive import Policy


@part
def choose(loads, ports, number):
    return number % len(ports)


ECMP = Policy(name="ecmp", by_flow=True, choose=choose)
