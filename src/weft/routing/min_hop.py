"""Min-hop: every path as short as can be, destinations spread evenly over the ports that are equally near.

What OpenSM does by default. Guarantee: shortest paths. It does not look at deadlock: where shortest paths close a
circle of waiting buffers (a torus, Selene), `check` shows it and `auto` will not use it.
"""

from __future__ import annotations

from weft.fabric.tables import Tables
from weft.routing.engine import Options, Subnet
from weft.routing.fill import fill_tables


class MinHop:
    name = "min-hop"
    guarantee = "shortest paths; may deadlock"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        return fill_tables(subnet, None)
