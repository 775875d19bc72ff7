"""Which device of a discovered fabric is which of the plan.

1. By name. The only adapter that is seen of a server goes by the server's name; its description says which it is.
2. By GUID, where the plan is a dump too: a device that was renamed is the same. GUIDs that weft makes up say nothing.
3. By cables: of a planned device that is still not found, most cables lead to one that the plan does not know. That may
   be another name or another box, so that it is a finding. Those found so lead to the next: leaves, then their spines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.build import made_up_guids
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.views import Port

_SHOWN = 3  # names of each side, where none is the same


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Identity:
    """Nodes of a discovered fabric as nodes of the plan."""

    planned: NDArray[np.int64]  # [node of FOUND] -> node of PLAN, -1 for none
    by_name: int
    by_guid: int
    by_cables: tuple[tuple[int, int], ...]  # (node of FOUND, node of PLAN)


def identify(found: Fabric, plan: Fabric) -> Identity:
    planned = np.full(len(found.nodes), -1, np.int64)
    mine, theirs = cabled(found), cabled(plan)
    _match(planned, _by_name(found, plan))
    by_name = int((planned[mine] >= 0).sum())
    _match(planned, _by_guid(found, plan))
    by_guid = int((planned[mine] >= 0).sum()) - by_name
    if not (planned >= 0).any():
        raise ConfigError(
            f"no device of {found.spec} is one of {plan.spec}: names were compared, {_shown(found, mine)} with "
            f"{_shown(plan, theirs)}, and GUIDs\n  Give the plan of this fabric, or name its devices as the plan does."
        )
    by_cables = _by_cables(found, plan, planned)
    return Identity(planned=planned, by_name=by_name, by_guid=by_guid, by_cables=tuple(by_cables))


def cables(fabric: Fabric) -> NDArray[np.bool_]:
    """[link] -> can one pull it: it leaves its box. Aggregation nodes sit inside their switch."""
    inside = fabric.nodes.kind == NodeKind.AGGREGATION
    a, b = fabric.link_nodes
    pulled: NDArray[np.bool_] = fabric.network_links & ~inside[a] & ~inside[b]
    return pulled


def cabled(fabric: Fabric) -> NDArray[np.int64]:
    """Nodes with a cable in them."""
    a, b = (end[cables(fabric)] for end in fabric.link_nodes)
    return np.union1d(a, b).astype(np.int64)


def box_name(fabric: Fabric, node: int) -> str:
    """What stands in a rack: the server of an adapter, or the node itself."""
    server = int(fabric.nodes.server[node])
    return fabric.servers[server] if server >= 0 else fabric.nodes.name[node]


def _shown(fabric: Fabric, nodes: NDArray[np.int64]) -> str:
    return ", ".join(fabric.nodes.name[i] for i in nodes[:_SHOWN].tolist()) + (", ..." if len(nodes) > _SHOWN else "")


def _match(planned: NDArray[np.int64], pairs: Mapping[int, int]) -> None:
    """Take these pairs, where neither has one already."""
    taken = set(planned[planned >= 0].tolist())
    for one, other in pairs.items():
        if planned[one] < 0 and other not in taken:
            planned[one] = other
            taken.add(other)


def _by_name(found: Fabric, plan: Fabric) -> dict[int, int]:
    pairs = {i: plan.node_index[name] for name, i in found.node_index.items() if name in plan.node_index}
    mine, theirs = _adapters(found), _adapters(plan)
    return pairs | {i: theirs[name] for name, i in mine.items() if name in theirs and i not in pairs}


def _adapters(fabric: Fabric) -> dict[str, int]:
    """Adapters by server and device, however many of the server there are."""
    names = {}
    for node in fabric.of_kind(NodeKind.HCA).tolist():
        server, _, device = fabric.nodes.description[node].strip().partition(" ")
        names[fabric.nodes.name[node] if "/" in fabric.nodes.name[node] else f"{server}/{device}"] = node
    return names


def _by_guid(found: Fabric, plan: Fabric) -> dict[int, int]:
    told = np.flatnonzero(plan.nodes.guid != made_up_guids(len(plan.nodes)))
    theirs = dict(zip(plan.nodes.guid[told].tolist(), told.tolist(), strict=True))
    return {i: theirs[guid] for i, guid in enumerate(found.nodes.guid.tolist()) if guid in theirs}


def _by_cables(found: Fabric, plan: Fabric, planned: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Match, again and again, what is left and has most of its cables where the other has them; in place."""
    pairs: list[tuple[int, int]] = []
    waiting = set(np.setdiff1d(cabled(plan), planned).tolist())
    spare = set(cabled(found)[planned[cabled(found)] < 0].tolist())
    while waiting and spare:
        new = _vote(found, plan, planned, waiting, spare) or _vote(
            found, plan, planned, waiting, spare, only_known=True
        )
        if not new:
            break
        for node, other in new.items():
            planned[node] = other
        pairs += new.items()
        waiting -= set(new.values())
        spare -= set(new)
    return pairs


def _vote(
    found: Fabric,
    plan: Fabric,
    planned: NDArray[np.int64],
    waiting: set[int],
    spare: set[int],
    *,
    only_known: bool = False,
) -> dict[int, int]:
    """Of those that wait: who is in the ports of the plan where they should be, by most of their cables?

    `only_known`: of those cables whose other end is known; a leaf has its hosts, and waits for spines that wait for it.
    """
    seen_as = {int(other): node for node, other in enumerate(planned.tolist()) if other >= 0}
    homes = {box_name(plan, other): box_name(found, node) for other, node in seen_as.items()}
    guests = {box: home for home, box in homes.items()}
    votes: dict[int, Counter[int]] = {}
    for other in waiting:
        ports = [port for port in plan.node(other).ports if port.peer is not None]
        if only_known:
            ports = [port for port in ports if port.peer and port.peer.node.index in seen_as]
        here = Counter(_stranger(found, seen_as, port.number, port.peer) for port in ports if port.peer)
        del here[-1]
        for node, count in here.items():
            home, box = box_name(plan, other), box_name(found, node)
            alike = found.nodes.kind[node] == plan.nodes.kind[other]
            fits = homes.get(home, box) == box and guests.get(box, home) == home
            if node in spare and alike and fits and 2 * count > len(ports):
                votes.setdefault(node, Counter())[other] = count
    return {node: likes.most_common(1)[0][0] for node, likes in votes.items() if len(likes) == 1}


def _stranger(found: Fabric, seen_as: Mapping[int, int], number: int, planned_peer: Port) -> int:
    """Whose port of that number is in a port of the plan, -1 for nobody's."""
    node = seen_as.get(planned_peer.node.index)
    if node is None or planned_peer.number > found.nodes.n_ports[node]:
        return -1
    slot = int(found.ports.peer[found.first_port[node] + planned_peer.number])
    return int(found.ports.node[slot]) if slot >= 0 and found.ports.number[slot] == number else -1
