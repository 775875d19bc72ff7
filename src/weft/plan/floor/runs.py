"""Find the links that are cables between boxes, how plugs join them, and which cables fit.

    leaf1 cage 17: ports 33, 34  ====  ports 1, 2: cage 1 spine1        a joint of two links that one plug carries
    leaf1 cage 1:  ports 1, 2    ===<  h1, h2: one port each            the same with a splitter

A cage takes one plug, so the links of a cage share their medium with each other, with the cages at the far ends, and so
on: these links form a joint. A twin-port cable carries a whole joint: two cages, or one cage and the adapters at it.
Any other joint has transceivers, all of one kind, and a fibre for each link; for example, two adapters of a DGX H100
share a cage, and lead to two leaves in a SuperPOD. Cables for a single link, as all up to HDR are, are chosen link
by link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import components
from weft.fabric.model import Fabric
from weft.fabric.rates import speeds

NONE = -1  # no medium reaches


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Runs:
    """The cables before their length is known; the columns are those of `Cabling`."""

    link: NDArray[np.int32]
    low_box: NDArray[np.int32]
    high_box: NDArray[np.int32]
    low_slot: NDArray[np.int32]
    high_slot: NDArray[np.int32]
    speed: NDArray[np.int8]  # [cable] -> index in rates.speeds()
    to_adapter: NDArray[np.bool_]  # [cable] -> is an end in a server?
    twin: NDArray[np.bool_]  # [cable] -> is that end in a cage with another cable?
    cage: NDArray[np.int64]  # [port] -> slot of the first port in its cage
    plugs: NDArray[np.int16]  # [end, cable] -> index in `connectors` of the switch there, -1 an adapter or unknown
    joint: NDArray[np.int32]  # [cable]
    whole: NDArray[np.bool_]  # [cable] -> can one plug carry its joint?

    def kinds(self) -> list[tuple[NDArray[np.bool_], list[catalog.Cable]]]:
        """Return groups of cables with the same possible parts: a mask and the parts, the cheapest first."""
        kinds_of_cable = []
        for speed in np.unique(self.speed).tolist():
            label = speeds()[speed].label(speeds()[speed].default_width)
            kinds: dict[catalog.Ends, NDArray[np.bool_]] = {
                "switches": ~self.to_adapter,
                "adapters": self.to_adapter & ~self.twin,
                "twin adapters": self.twin,
            }
            for joins, mine in kinds.items():
                of_kind = (self.speed == speed) & mine
                most = len(connectors())
                ends = (self.plugs[0, of_kind] + 1) * (most + 1) + self.plugs[1, of_kind] + 1
                for low, high in ((both // (most + 1) - 1, both % (most + 1) - 1) for both in np.unique(ends).tolist()):
                    mask = of_kind & (self.plugs[0] == low) & (self.plugs[1] == high)
                    cages = [connectors()[plug] for plug in (low, high) if plug >= 0]
                    kinds_of_cable.append((mask, catalog.cables_for(label, joins, cages)))
        return kinds_of_cable

    def longest_m(self, route_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the longest route in the joint of each cable."""
        longest = np.zeros(int(self.joint.max(initial=-1)) + 1)
        np.maximum.at(longest, self.joint, route_m)
        return longest[self.joint]


def find_runs(fabric: Fabric, box_of: NDArray[np.int32], tier: NDArray[np.int16]) -> Runs:
    links = fabric.links
    a, b = (box_of[end] for end in fabric.link_nodes)
    link = np.flatnonzero(fabric.network_links & (a != b)).astype(np.int32)
    a, b = a[link], b[link]
    turned = (tier[a] > tier[b]) | ((tier[a] == tier[b]) & (a > b))
    low_slot = np.where(turned, links.b[link], links.a[link])
    high_slot = np.where(turned, links.a[link], links.b[link])
    is_switch = fabric.nodes.kind[fabric.ports.node] == NodeKind.SWITCH
    cage = _cages(fabric)
    joint, whole = _joints(cage, low_slot, high_slot, is_switch)
    plugged = np.bincount(np.concatenate((cage[low_slot], cage[high_slot])), minlength=len(cage))
    in_server = ~is_switch[low_slot] | ~is_switch[high_slot]
    twin = [~is_switch[slot] & (plugged[cage[slot]] > 1) for slot in (low_slot, high_slot)]
    return Runs(
        link=link,
        low_box=np.where(turned, b, a),
        high_box=np.where(turned, a, b),
        low_slot=low_slot,
        high_slot=high_slot,
        speed=links.speed[link],
        to_adapter=in_server,
        twin=twin[0] | twin[1],
        cage=cage,
        plugs=_plugs(fabric)[np.stack((low_slot, high_slot))],
        joint=joint,
        whole=whole,
    )


@cache
def connectors() -> tuple[str, ...]:
    """Return the cage types of the switches in the catalog."""
    return tuple(sorted({switch.cage for switch in catalog.switches()}))


def _plugs(fabric: Fabric) -> NDArray[np.int16]:
    """Return the index in `connectors` of each port's cage, -1 for adapters and unknown models."""
    cage = {switch.name: connectors().index(switch.cage) for switch in catalog.switches()}
    of_model = np.array([*(cage.get(name, -1) for name in fabric.models), -1], np.int16)
    return of_model[fabric.nodes.model[fabric.ports.node]]


def _cages(fabric: Fabric) -> NDArray[np.int64]:
    """Return the slot of the first port in each port's cage; unknown models have one cage for each port."""
    switches = {switch.name: switch for switch in catalog.switches()}
    nodes, ports = fabric.nodes, fabric.ports
    most = int(nodes.n_ports.max(initial=0)) + 1
    kinds, kind = np.unique(nodes.model.astype(np.int64) * most + nodes.n_ports, return_inverse=True)
    names = (*fabric.models, "")  # the last serves index -1
    models = [(names[kind // most], kind % most) for kind in kinds.tolist()]
    of_kind = [switches[name].ports_per_cage(n_ports) if name in switches else 1 for name, n_ports in models]
    size = np.array(of_kind)[kind][ports.node]
    first: NDArray[np.int64] = np.arange(len(ports)) - np.where(ports.number > 0, (ports.number - 1) % size, 0)
    for node, neighbour in _shared(fabric):
        first[fabric.first_port[node] + 1] = fabric.first_port[neighbour] + 1
    return first


def _shared(fabric: Fabric) -> Iterator[tuple[int, int]]:
    """Yield adapters that share a cage, each with the first adapter of its cage."""
    cpus = fabric.of_kind(NodeKind.CPU)
    model_of = dict(zip(fabric.nodes.server[cpus].tolist(), fabric.nodes.model[cpus].tolist(), strict=True))
    first_of: dict[int, dict[str, str]] = {}  # by model of the server: adapter -> the first in its cage
    for model in set(model_of.values()) - {-1}:
        first_of[model] = catalog.server(fabric.models[model]).cages
    if all(adapter == first for of_model in first_of.values() for adapter, first in of_model.items()):
        return
    for node in fabric.of_kind(NodeKind.HCA).tolist():
        server, _, device = fabric.nodes.name[node].partition("/")
        first = first_of.get(model_of.get(int(fabric.nodes.server[node]), -1), {}).get(device, device)
        if first != device:
            yield node, fabric.node_index[f"{server}/{first}"]


def _joints(
    cage: NDArray[np.int64], low: NDArray[np.int32], high: NDArray[np.int32], is_switch: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the joint of each cable, and whether one plug at each end can carry it: two cages, or one and adapters."""
    label = components(len(cage), cage[low], cage[high])
    used = np.zeros(len(cage), np.bool_)
    used[cage[low]] = used[cage[high]] = True
    ends = np.flatnonzero(used)
    is_joint = np.zeros(len(cage), np.bool_)
    is_joint[label[ends]] = True
    number = np.cumsum(is_joint) - 1
    joint, of_end, count = number[label[cage[low]]], number[label[ends]], int(np.count_nonzero(is_joint))
    switches = np.bincount(of_end[is_switch[ends]], minlength=count)
    adapters = np.bincount(of_end[~is_switch[ends]], minlength=count)
    whole = (switches + adapters <= 2) | (switches == 1)
    return joint.astype(np.int32), whole[joint]


def choose(runs: Runs, route_m: NDArray[np.float64]) -> tuple[NDArray[np.int16], tuple[catalog.Cable, ...]]:
    """Return the cheapest part that reaches for each cable, as index into the used parts; NONE if none does."""
    longest_m = runs.longest_m(route_m)
    pick = np.full(len(route_m), NONE, np.int16)
    parts: list[catalog.Cable] = []
    for mask, candidates in runs.kinds():
        for part in candidates:
            fits = mask & (pick == NONE) & ((longest_m if part.shared else route_m) <= part.reach_m)
            if part.links > 1:
                fits &= runs.whole
            if fits.any():
                if part not in parts:
                    parts.append(part)
                pick[fits] = parts.index(part)
    return pick, tuple(parts)


def sold_m(
    runs: Runs, route_m: NDArray[np.float64], pick: NDArray[np.int16], parts: tuple[catalog.Cable, ...]
) -> NDArray[np.float64]:
    """Return the next longer length on sale for each cable; the legs of one cable have the same length."""
    longest_m = runs.longest_m(route_m)
    length_m = np.zeros(len(route_m))
    for index, part in enumerate(parts):
        mine = pick == index
        wanted_m = longest_m if part.links > 1 else route_m
        sold = np.array(part.lengths_m, np.float64)
        length_m[mine] = sold[np.searchsorted(sold, wanted_m[mine])]
    return length_m
