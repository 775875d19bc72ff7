"""Fat tree: up/down rooted at a leaf, with one trunk for each destination that everybody's path joins.

In a regular tree this is destination-modulo routing (Zahavi, "D-Mod-K routing providing non-blocking traffic for shift
permutations on real life fat trees", 2010): no two hosts of a leaf share a way down while there are ways enough. It
asks nothing of the tree's regularity: missing links, half-filled leaves, oversubscription, adapters on spines and
cores (see `orientation`). Guarantee: complete, free of deadlock on one virtual lane.
"""

from __future__ import annotations

from weft.fabric.tables import Tables
from weft.routing.engine import CannotRoute, Options, Subnet
from weft.routing.fill import fill_tables
from weft.routing.orientation import orient


class FatTree:
    name = "fat-tree"
    guarantee = "complete, no deadlock, one lane, even load in trees"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        if (subnet.graph.hosts > 0).all():
            raise CannotRoute(
                f"fat-tree routing needs a tree: every switch of {subnet.fabric.spec} has hosts, nothing is above them"
                '\n  Route with engine="up-down", or "dfsssp".'
            )
        return fill_tables(subnet, orient(subnet.graph, subnet.root(options)), trunks=True)
