"""The size of a fabric: from a request to a fabric, its switches by tier and its cables by pair of tiers.

    made = size(Request(gpus=1024))
    made.spec                            superpod:su=4,switch=QM9700
    made.leaf, made.spine, made.cables   32, 16, {"node_leaf": 1024, "leaf_spine": 1024}

A fabric that will grow is built as the first part of the later one: its servers, their leaves, and the switches that
those are cabled to. Names and ports stay the same, and later parts are added.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import NO_LEVEL, levels
from weft.fabric.model import Fabric
from weft.fabric.planes import expand
from weft.fabric.spec import load, rewrite
from weft.fabric.topologies.dragonfly import fit_dragonfly_plus
from weft.fabric.topologies.fat_tree import most_in_fat_tree
from weft.fabric.topologies.registry import write_spec
from weft.fabric.topologies.superpod import count_switches, fit_superpod, most_in_superpod, places_of_ufm
from weft.plan.request import UFM_HOSTS, Request

TIERS = ("node", "leaf", "spine", "core")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Size:
    """A sized fabric; `fabric` is today's part of `later`, and the same object if it does not grow."""

    spec: str  # of `later`
    fabric: Fabric
    later: Fabric
    request: Request | None = None  # None for a spec or a file
    switches: dict[str, int]  # tier -> count
    cables: dict[str, int]  # two tiers, such as `leaf_spine` -> count
    notes: tuple[str, ...] = ()  # sentences

    @property
    def grows(self) -> bool:
        return self.later is not self.fabric

    @property
    def leaf(self) -> int:
        return self.switches.get("leaf", 0)

    @property
    def spine(self) -> int:
        return self.switches.get("spine", 0)

    @property
    def core(self) -> int:
        return self.switches.get("core", 0)

    def report(self) -> dict[str, Any]:
        """Return the size as `--json` prints it."""
        always = dict.fromkeys(("node_leaf", "leaf_spine", "spine_core"), 0)
        ufm = sum(is_ufm(name) for name in self.fabric.servers)
        cables = {f"cables_{between}": count for between, count in (always | self.cables).items()}
        cables["cables_node_leaf"] -= 2 * ufm  # counted apart
        return {
            "spec": self.spec,
            "servers": len(self.fabric.servers) - ufm,
            "gpus": len(self.fabric.of_kind(NodeKind.GPU)),
            **dict.fromkeys(TIERS[1:], 0),
            **self.switches,
            **cables,
            "cables_ufm": 2 * ufm,
            "later": count(self.spec, self.later).report() if self.grows else None,
            "notes": list(self.notes),
        }


def size(request: Request) -> Size:
    """Return the sized fabric for a request."""
    now, then = request.servers_for(request.amount), request.servers_for(request.grow_to or request.amount)
    _check_fits(request, then)
    whole = boxes_of(load(_spec(request, then)))
    today = whole if now == then else first_part(whole, now)
    sized = count(whole.spec, today)
    later = sized if today is whole else count(whole.spec, whole)
    notes = (*_notes(request, now, then), *_growth(sized, later, then))
    return replace(sized, request=request, later=whole, notes=notes)


def boxes_of(fabric: Fabric) -> Fabric:
    """Return the fabric with a node for each switch box.

    Planes are written out, unless every box has a chip in each of them: then it is one switch, and a cable holds all
    planes of a port.
    """
    chips = {switch.name: switch.planes for switch in catalog.switches()}
    if fabric.multiplicity > 1 and all(chips.get(node.model) == fabric.planes for node in fabric.switches):
        return replace(load(rewrite(fabric.spec, planes=None)), spec=fabric.spec)
    return expand(fabric)


def count(spec: str, fabric: Fabric) -> Size:
    """Count the switches and cables of a fabric."""
    level = levels(fabric)
    nodes = np.flatnonzero((fabric.nodes.kind == NodeKind.SWITCH) & (level > 0))
    order = nodes[np.argsort(level[nodes], kind="stable")]  # a director counts at its lowest level
    _, first = np.unique(fabric.nodes.system_guid[order], return_index=True)
    switches = level[order[first]]
    a, b = fabric.link_nodes
    inside = (level[a] > 0) & (level[b] > 0) & (fabric.nodes.system_guid[a] == fabric.nodes.system_guid[b])
    cabled = fabric.network_links & ~inside
    ends = np.stack([level[end[cabled]] for end in (a, b)]).astype(np.int64)
    low, high = ends.min(axis=0), ends.max(axis=0)
    levelled, above = low != NO_LEVEL, int(high.max(initial=0)) + 1
    joined = np.bincount(low[levelled] * above + high[levelled])
    pairs = np.flatnonzero(joined)
    return Size(
        spec=spec,
        fabric=fabric,
        later=fabric,
        switches={tier_name(n): k for n, k in sorted(Counter(switches.tolist()).items())},
        cables={"_".join(map(tier_name, divmod(tiers, above))): int(joined[tiers]) for tiers in pairs.tolist()},
    )


def tier_name(level: int) -> str:
    """Return the name of a tier: `leaf`; above cores `tier4`."""
    return TIERS[level] if 0 <= level < len(TIERS) else f"tier{level}"


def is_ufm(server: str) -> bool:
    """Return whether a server is a UFM host, by the names in a superpod."""
    return re.fullmatch(r"ufm[0-9]+", server) is not None


def _spec(request: Request, servers: int) -> str:
    """Return the spec of the topology for a number of servers."""
    template, switch = request.template, request.switch_model
    options: dict[str, Any] = {"server": template.name, "switch": switch.name}
    options |= {"planes": request.planes if request.planes > 1 else None, "breakout": request.breakout}
    ports = {"rails": template.rails, "radix": request.radix}
    options |= _options(request)
    match request.kind:
        case "superpod":
            options |= fit_superpod(servers, **ports, trays=template.trays, ufm=options["ufm"])
        case "fat-tree":
            options |= {"hosts": servers}
        case _:
            options |= fit_dragonfly_plus(servers, **ports)
    return write_spec(request.kind, {key: value for key, value in options.items() if value is not None})


def _options(request: Request) -> dict[str, Any]:
    """Return the options of the topology other than its size; raise ConfigError for those that it does not have."""
    options: dict[str, Any] = {"oversubscription": request.oversubscription}
    if request.kind == "superpod":
        return options | {"ufm": UFM_HOSTS if request.ufm_hosts else None}
    if request.ufm_hosts:
        raise ConfigError(f"--ufm-hosts needs a superpod, and this is a {request.kind}; leave it out")
    if request.kind == "fat-tree":
        return options
    if request.oversubscription > 1:
        raise ConfigError(f"--oversubscription is not for {request.kind}; use --topology superpod or fat-tree")
    return {}


def _most(request: Request) -> int:
    """Return the largest number of servers for the switches of a request; a dragonfly+ is checked by its `fit`."""
    ports = {"rails": request.template.rails, "radix": request.radix}
    if request.kind == "superpod":
        return most_in_superpod(**ports, trays=request.template.trays, ufm=_options(request)["ufm"])
    return most_in_fat_tree(**ports, **_options(request))


def _check_fits(request: Request, servers: int) -> None:
    if request.kind == "dragonfly+" or servers <= _most(request):
        return
    each = request.template.gpus if request.gpus is not None else 1
    most, switch = _most(request), request.switch_model
    way_out = [f"take {most * each:,} {request.unit}"] if most > 0 else []
    way_out += [f"--planes {planes}" for planes in _enough_planes(request, servers)]
    way_out += [f"--fabric {interconnect.name} ({interconnect.switch})" for interconnect in _wider(request, servers)]
    raise ConfigError(
        f"{servers * each:,} {request.unit} do not fit: a {request.kind} of {switch.name}, {request.radix} ports, "
        f"joins {most:,} servers with {request.template.rails} rails at most\n  {', or '.join(way_out)}"
    )


def _enough_planes(request: Request, servers: int) -> list[int]:
    """Return the smallest number of planes whose switches, with more ports each, join so many servers; none if no."""
    for planes in (2, 4, 8):
        try:
            if planes > request.planes and servers <= _most(replace(request, planes=planes)):
                return [planes]
        except ConfigError:  # the adapter or the switch has no such planes
            continue
    return []


def _wider(request: Request, servers: int) -> list[catalog.Interconnect]:
    """Return up to two interconnects that can join so many servers: same technology first, then fewest switch ports."""

    def far(interconnect: catalog.Interconnect) -> tuple[bool, int]:
        switch = catalog.switch(interconnect.switch)
        return switch.technology is not request.switch_model.technology, switch.ports

    interconnects = sorted(
        (interconnect for interconnect in catalog.interconnects() if not interconnect.transport), key=far
    )
    return [
        interconnect
        for interconnect in interconnects
        if servers <= _most(replace(request, fabric=interconnect.name, switch=None))
    ][:2]


def first_part(whole: Fabric, servers: int) -> Fabric:
    """Return the first servers and all switches above them."""
    of = whole.nodes.server
    bought = [n < servers or is_ufm(name) for n, name in enumerate(whole.servers)]
    keep = (of >= 0) & np.array(bought)[of]
    level, (a, b) = levels(whole), whole.link_nodes
    for height in range(int(level.max())):
        for low, high in ((a, b), (b, a)):
            up = whole.network_links & keep[low] & (level[low] == height) & (level[high] == height + 1)
            keep[high[up]] = True
    return whole.subset(keep).changed(f"the first {servers:,} servers of it, and what they are cabled to")


def _notes(request: Request, servers: int, later: int) -> Iterator[str]:
    template = request.template
    if request.gpus is not None and request.gpus % template.gpus:
        each = f"{servers:,} × {template.name} have {servers * template.gpus:,} GPUs"
        yield f"{each}; {request.gpus:,} do not fill the last server."
    ports = {"rails": template.rails, "trays": template.trays, "radix": request.radix}
    if request.ufm_hosts and _needs_more_for_ufm(later, ports):
        ufm_servers = -(-places_of_ufm(UFM_HOSTS, template.rails // template.trays) // template.trays)
        few = f"{later - ufm_servers:,} servers would do with fewer"
        yield f"The UFM hosts take the place of a server, which needs more switches: {few}."
    else:
        yield from _near_sizes(request, later)
    if (
        request.interconnect is not None and request.interconnect.transport
    ):  # cloud interconnects are represented by parts that are sold
        yield f"{request.interconnect.name}: {request.interconnect.note}."
    else:
        yield from _other_cards(request)
    if later == 1:
        yield "One server needs no fabric; its GPUs are connected inside."


def _needs_more_for_ufm(servers: int, ports: dict[str, int]) -> bool:
    with_it, without = (fit_superpod(servers, **ports, ufm=hosts) for hosts in (UFM_HOSTS, None))
    return with_it != without | {"servers": with_it["servers"]}


def _other_cards(request: Request) -> Iterator[str]:
    """Note cards that are bought in addition to those that the server includes, and slots that limit them."""
    template, own = request.template, catalog.server(request.template.box)
    card = template.adapter
    if not own.gpus or card.card == own.adapter.card:
        return
    slot, made_for = template.slot(card), card.pcie_per_port
    slower = f" Its slots are {slot}, and the card is made for {made_for}." if slot != made_for else ""
    yield f"{own.name} includes {own.compute_adapter}, which stay unused; {card.name} are bought in addition.{slower}"


_NEAR, _MUCH = 0.15, 0.8  # hint at sizes within 15 % that need at most 80 % of the switches per server


def _near_sizes(request: Request, servers: int) -> Iterator[str]:
    """Note the nearest sizes below and above that need far fewer switches per server."""
    if request.kind != "superpod":
        return
    template, most = request.template, _most(request)
    sized = {"rails": template.rails, "trays": template.trays, "radix": request.radix, **_options(request)}

    def switches(n: int) -> int:
        return count_switches(n, **sized)

    now, reach = switches(servers), int(_NEAR * servers)
    below, above = range(servers - 1, servers - reach - 1, -1), range(servers + 1, min(servers + reach, most) + 1)
    near = [next((n for n in side if switches(n) / n <= _MUCH * now / servers), None) for side in (below, above)]
    each = template.gpus if request.gpus is not None else 1
    alternatives = [f"{n * each:,} {request.unit} take {switches(n):,}" for n in near if n is not None]
    if alternatives:
        requested = f"{servers * each:,} {request.unit} take {now:,} switches"
        yield f"A similar size needs far fewer switches: {requested}, {', '.join(alternatives)}."


def _growth(now: Size, then: Size, servers: int) -> Iterator[str]:
    """Note the parts of the later fabric to add, and the bandwidth between the groups of a dragonfly."""
    if between := now.cables.get("spine_spine"):
        ratio = 2 * between / now.cables["node_leaf"]
        yield f"Global links between groups have {ratio:.2f} of the bandwidth of the hosts."
    if now.fabric is then.fabric:
        return
    missing = {name: k - now.switches.get(name, 0) for name, k in then.switches.items()}
    switches = f"{', '.join(f'{k:,} {name}' for name, k in missing.items() if k) or 'no'} switches"
    cables = sum(then.cables.values()) - sum(now.cables.values())
    waiting = _cabled_ports(then.fabric, now.fabric) - _cabled_ports(now.fabric, now.fabric)
    yield (
        f"Built for {servers:,} servers: {switches} and {cables:,} cables are added later, and none of today's moves. "
        f"{waiting:,} ports of today's switches stay free for them."
    )


def _cabled_ports(fabric: Fabric, of: Fabric) -> int:
    """Count the cabled ports of the switches that another fabric has too."""
    names = {node.name for node in of.switches}
    ends = np.concatenate([end[fabric.network_links] for end in fabric.link_nodes])
    plugged = np.bincount(ends, minlength=len(fabric.nodes))
    return int(sum(plugged[node.index] for node in fabric.switches if node.name in names))
