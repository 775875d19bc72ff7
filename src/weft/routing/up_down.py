"""Up/down: links have a direction, and a path goes up first and then only down, so that no cycle can form.

Schroeder et al., "Autonet: a high-speed, self-configuring local area network using point-to-point links", 1991.
Guarantee:
complete and free of deadlock on one virtual lane, in any connected fabric. Paths may be longer than the shortest, and
links near
the root are busy where there is no tree.
"""

from __future__ import annotations

from weft.fabric.tables import Tables
from weft.routing.engine import Options, Subnet
from weft.routing.fill import fill_tables
from weft.routing.orientation import orient


class UpDown:
    name = "up-down"
    guarantee = "complete, no deadlock, one lane, any fabric"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        return fill_tables(subnet, orient(subnet.graph, subnet.root(options)))
