"""Min-hop: shortest paths, with destinations spread evenly over the ports that are equally near.

The default of OpenSM. Guarantee: shortest paths. Deadlock is not considered: if shortest paths form a cycle of waiting
buffers (a torus, Selene), `check` shows it and `auto` will not use them.
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
