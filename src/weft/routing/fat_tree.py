"""Fat tree: up/down rooted at a leaf, with one trunk for each destination that all paths to it join.

In a regular tree this is destination-modulo routing (Zahavi, "D-Mod-K routing providing non-blocking traffic for shift
permutations on real life fat trees", 2010): no two hosts of a leaf share a path down while there are enough paths. The
tree need not be regular: missing links, half-filled leaves, oversubscription, adapters on spines and cores are allowed
(see `orientation`). Guarantee: complete, free of deadlock on one virtual lane.
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
                f"fat-tree routing needs a tree: every switch of {subnet.fabric.spec} has hosts, so none is a spine"
                '\n  Route with engine="up-down", or "dfsssp".'
            )
        return fill_tables(subnet, orient(subnet.graph, subnet.root(options)), trunks=True)
