"""The engines min-hop, up-down and fat-tree: one kernel fills their tables by destination."""

from __future__ import annotations

import numpy as np

from weft.fabric.tables import Tables
from weft.routing.engine import CannotRoute, Options, Subnet, turned
from weft.routing.islands import explain_islands
from weft.routing.kernels.balance import route_by_trunks, route_least_loaded
from weft.routing.orientation import Orientation, orient


def fill_tables(subnet: Subnet, way: Orientation | None, *, trunks: bool = False) -> Tables:
    """Return tables by shortest paths, or with an orientation by the up/down rule.

    With previous tables, entries that are still allowed are kept, and trunks are not used.
    """
    graph, tables = subnet.graph, subnet.new_tables()
    edges = graph if way is None else way
    middle = edges.first[:-1] if way is None else way.middle
    from_top = np.empty(0, np.int32) if way is None else way.from_top
    column = np.full(tables.lft.shape[::-1], tables.no_route, tables.lft.dtype)
    arguments = (edges.first, middle, edges.far, edges.port, from_top, graph.lid, graph.at, graph.out)
    if trunks and way is not None and subnet.previous is None:
        cut_off = route_by_trunks(*arguments, way.near, way.far_port, graph.is_host, graph.hosts, column)
    else:
        cut_off = route_least_loaded(*arguments, graph.is_host, graph.hosts, subnet.previous_by_lid, column)
    if cut_off >= 0:
        raise explain_islands(subnet)
    tables.lft = turned(column)
    return tables


class MinHop:
    """The engine of shortest paths, spread evenly over the ports that are equally near: the default of OpenSM.

    If shortest paths form a cycle of waiting buffers (a torus, Selene), `check` shows it and `auto` does not use them.
    """

    name = "min-hop"
    guarantee = "shortest paths; may deadlock"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        return fill_tables(subnet, None)


class UpDown:
    """The engine whose links have a direction: a path goes up first and then only down, so that no cycle can form.

    Schroeder et al., "Autonet: a high-speed, self-configuring local area network using point-to-point links", 1991.
    Paths may be longer than the shortest, and links near the root are busy where there is no tree.
    """

    name = "up-down"
    guarantee = "complete, no deadlock, one lane, any fabric"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        return fill_tables(subnet, orient(subnet.graph, subnet.root(options)))


class FatTree:
    """The engine for trees: up and down from a leaf as root, with one trunk for each destination that all paths join.

    In a regular tree this is destination-modulo routing (Zahavi, "D-Mod-K routing providing non-blocking traffic for
    shift permutations on real life fat trees", 2010): no two hosts of a leaf share a path down while there are enough
    paths. Missing links, half-filled leaves, oversubscription, adapters on spines and cores are allowed: `orientation`.
    """

    name = "fat-tree"
    guarantee = "complete, no deadlock, one lane, even load in trees"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        if (subnet.graph.hosts > 0).all():
            raise CannotRoute(
                f"fat-tree routing needs a tree: every switch of {subnet.fabric.spec} has hosts, so none is a spine"
                '\n  Route with engine="up-down", or "dfsssp".'
            )
        return fill_tables(subnet, orient(subnet.graph, subnet.root(options)), trunks=True)
