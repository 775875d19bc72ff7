"""A routing engine: Ethernet's spanning tree, over InfiniBand's forwarding tables.

Links that are not in the tree carry nothing. Guarantee: complete, and free of deadlock, since a tree has no cycle.
`weft route SPEC --compare` shows the cost.
"""

from __future__ import annotations

from collections import deque

from weft.fabric.tables import Tables
from weft.routing.engine import CannotRoute, Options, Subnet


class SpanningTree:
    name = "spanning-tree"
    guarantee = "complete, no deadlock, one lane, any fabric; most links idle"

    def route(self, subnet: Subnet, options: Options) -> Tables:
        graph, tables = subnet.graph, subnet.new_tables()
        parent = self._grow(subnet, subnet.root(options))
        toward = [self._toward(parent, switch) for switch in range(graph.n_switches)]
        for lid, at, out in zip(graph.lid, graph.at, graph.out, strict=True):
            tables.lft[:, lid] = toward[at]
            tables.lft[at, lid] = out
        return tables

    def _grow(self, subnet: Subnet, root: int) -> dict[int, tuple[int, int, int]]:
        """Return the parent of each switch, the port that leads there, and the parent's port that leads back."""
        graph = subnet.graph
        parent = {root: (root, 0, 0)}
        todo = deque([root])
        while todo:
            switch = todo.popleft()
            for edge in range(graph.first[switch], graph.first[switch + 1]):
                far = int(graph.far[edge])
                if far not in parent:
                    parent[far] = (switch, int(graph.port[graph.back[edge]]), int(graph.port[edge]))
                    todo.append(far)
        if len(parent) < graph.n_switches:
            raise CannotRoute(f"{subnet.fabric.spec} is not connected, so no tree spans it")
        return parent

    def _toward(self, parent: dict[int, tuple[int, int, int]], goal: int) -> list[int]:
        """Return the port of each switch toward this one: down if it is below, else up."""
        ports = [up for _, (_, up, _) in sorted(parent.items())]
        while parent[goal][0] != goal:
            above, _, down = parent[goal]
            ports[above] = down
            goal = above
        return ports


ENTRY_POINTS = {
    "weft.routing": {"spanning-tree": SpanningTree}
}  # for weft --plugin spanning_tree.py; a package has them in pyproject.toml
