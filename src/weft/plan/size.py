"""How large: from a request to a real fabric, its switches by tier and its cables by the tiers that they join.

    made = size(Request(gpus=1024))
    made.spec                            superpod:su=4,switch=QM9700
    made.leaf, made.spine, made.cables   32, 16, {"node_leaf": 1024, "leaf_spine": 1024}

A fabric that is to grow is the first part of the later one: its servers, their leaves, and what those are cabled to.
So names and ports stay as they are, and whatever comes later is added.
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
from weft.fabric.spec import load
from weft.fabric.topologies.dragonfly import fit_dragonfly_plus
from weft.fabric.topologies.fat_tree import most_in_fat_tree
from weft.fabric.topologies.registry import write_spec
from weft.fabric.topologies.superpod import count_switches, fit_superpod, most_in_superpod, places_of_ufm
from weft.plan.request import UFM_HOSTS, Request

TIERS = ("node", "leaf", "spine", "core")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Size:
    """What to build; `fabric` is today's part of `later`, which is the same where nothing is to grow."""

    spec: str  # of the later one
    fabric: Fabric
    later: Fabric
    request: Request | None = None  # of a spec or a file there is none
    switches: dict[str, int]  # tier -> how many
    cables: dict[str, int]  # the two tiers, `leaf_spine` -> how many
    notes: tuple[str, ...] = ()  # in whole sentences

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
        """As `--json` prints it."""
        always = dict.fromkeys(("node_leaf", "leaf_spine", "spine_core"), 0)
        ufm = sum(is_ufm(name) for name in self.fabric.servers)
        found = {f"cables_{between}": count for between, count in (always | self.cables).items()}
        found["cables_node_leaf"] -= 2 * ufm  # counted apart
        return {
            "spec": self.spec,
            "servers": len(self.fabric.servers) - ufm,
            "gpus": len(self.fabric.of_kind(NodeKind.GPU)),
            **dict.fromkeys(TIERS[1:], 0),
            **self.switches,
            **found,
            "cables_ufm": 2 * ufm,
            "later": count(self.spec, self.later).report() if self.grows else None,
            "notes": list(self.notes),
        }


def size(request: Request) -> Size:
    """The fabric that is asked for."""
    now, then = request.servers_for(request.amount), request.servers_for(request.grow_to or request.amount)
    _check_fits(request, then)
    whole = load(_spec(request, then))
    today = whole if now == then else _part(whole, now)
    made = count(whole.spec, today)
    later = made if today is whole else count(whole.spec, whole)
    notes = (*_notes(request, now, then), *_growth(made, later, then))
    return replace(made, request=request, later=whole, notes=notes)


def count(spec: str, fabric: Fabric) -> Size:
    """What any fabric has."""
    level = levels(fabric)
    switches = level[(fabric.nodes.kind == NodeKind.SWITCH) & (level > 0)]
    ends = np.sort(np.stack([level[end[fabric.network_links]] for end in fabric.link_nodes]), axis=0)
    joined = Counter(zip(*ends[:, ends[0] != NO_LEVEL].tolist(), strict=True))
    return Size(
        spec=spec,
        fabric=fabric,
        later=fabric,
        switches={tier_name(n): k for n, k in sorted(Counter(switches.tolist()).items())},
        cables={f"{tier_name(low)}_{tier_name(high)}": k for (low, high), k in sorted(joined.items())},
    )


def tier_name(level: int) -> str:
    """`leaf`; what stands above cores is `tier4`."""
    return TIERS[level] if 0 <= level < len(TIERS) else f"tier{level}"


def is_ufm(server: str) -> bool:
    """A host of UFM, as a superpod names them."""
    return re.fullmatch(r"ufm[0-9]+", server) is not None


def _spec(request: Request, servers: int) -> str:
    """A topology of that size, in one line."""
    template, switch = request.template, request.switch_model
    given: dict[str, Any] = {"server": template.name, "switch": switch.name}
    ports = {"rails": template.rails, "radix": request.radix}
    given |= _options(request)
    match request.kind:
        case "superpod":
            given |= fit_superpod(servers, **ports, trays=template.trays, ufm=given["ufm"])
        case "fat-tree":
            given |= {"hosts": servers}
        case _:
            given |= fit_dragonfly_plus(servers, **ports)
    return write_spec(request.kind, {key: value for key, value in given.items() if value is not None})


def _options(request: Request) -> dict[str, Any]:
    """What is asked of the topology beside its size, if it has that."""
    given: dict[str, Any] = {"oversubscription": request.oversubscription}
    if request.kind == "superpod":
        return given | {"ufm": UFM_HOSTS if request.ufm else None}
    if request.ufm:
        raise ConfigError(f"UFM's hosts have a place in a superpod, and in a {request.kind} none: leave out --ufm")
    if request.kind == "fat-tree":
        return given
    if request.oversubscription > 1:
        raise ConfigError(f"a {request.kind} is not oversubscribed: --topology superpod and fat-tree can be")
    return {}


def _most(request: Request) -> int:
    """Servers that the switches of a request can join; what a dragonfly+ can, its own `fit` says."""
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
    way_out += [f"--fabric {wire.name} ({wire.switch})" for wire in _wider(request, servers)]
    raise ConfigError(
        f"{servers * each:,} {request.unit} do not fit: a {request.kind} of {switch.name}, {request.radix} ports, "
        f"joins {most:,} servers with {request.template.rails} rails at most\n  {', or '.join(way_out)}"
    )


def _wider(request: Request, servers: int) -> list[catalog.Interconnect]:
    """Fabrics of the catalog that do hold so many: two of the same kind first, then with the narrowest switch."""

    def far(wire: catalog.Interconnect) -> tuple[bool, int]:
        switch = catalog.switch(wire.switch)
        return switch.technology is not request.switch_model.technology, switch.ports

    wires = sorted((one for one in catalog.interconnects() if not one.transport), key=far)
    return [wire for wire in wires if servers <= _most(replace(request, fabric=wire.name, switch=None))][:2]


def _part(whole: Fabric, servers: int) -> Fabric:
    """The first servers, and all switches that can be reached from them going up."""
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
        yield f"{each}: {request.gpus:,} do not fill the last."
    ports = {"rails": template.rails, "trays": template.trays, "radix": request.radix}
    if request.ufm and _needs_more_for_ufm(later, ports):
        taken = -(-places_of_ufm(UFM_HOSTS, template.rails // template.trays) // template.trays)
        few = f"{later - taken:,} servers would do with fewer"
        yield f"UFM has the place of a server, and that takes more switches: {few}."
    else:
        yield from _near_sizes(request, later)
    if request.wire is not None and request.wire.transport:  # of clouds: parts that are sold stand for theirs
        yield f"{request.wire.name}: {request.wire.note}."
    else:
        yield from _other_cards(request)
    if later == 1:
        yield "One server needs no fabric: its GPUs are joined inside."


def _needs_more_for_ufm(servers: int, ports: dict[str, int]) -> bool:
    with_it, without = (fit_superpod(servers, **ports, ufm=hosts) for hosts in (UFM_HOSTS, None))
    return with_it != without | {"servers": with_it["servers"]}


def _other_cards(request: Request) -> Iterator[str]:
    """Say that cards are bought which the server is not sold with, and what its slots give them."""
    template, own = request.template, catalog.server(request.template.box)
    card = template.adapter
    if not own.gpus or card.card == own.adapter.card:
        return
    slot, made_for = template.slot(card), card.pcie_per_port
    slower = f" Its slots speak {slot}, and the card is made for {made_for}." if slot != made_for else ""
    yield f"{own.name} is sold with {own.compute_adapter}, which stay unused: {card.name} are bought beside it.{slower}"


_NEAR, _MUCH = 0.15, 0.8  # a size so near is worth a hint where each server takes at most so much of the switches


def _near_sizes(request: Request, servers: int) -> Iterator[str]:
    """Name the nearest sizes below and above at which a server takes far fewer switches."""
    if request.kind != "superpod":
        return
    template, most = request.template, _most(request)
    sized = {"rails": template.rails, "trays": template.trays, "radix": request.radix, **_options(request)}

    def switches(n: int) -> int:
        return count_switches(n, **sized)

    here, reach = switches(servers), int(_NEAR * servers)
    below, above = range(servers - 1, servers - reach - 1, -1), range(servers + 1, min(servers + reach, most) + 1)
    near = [next((n for n in side if switches(n) / n <= _MUCH * here / servers), None) for side in (below, above)]
    each = template.gpus if request.gpus is not None else 1
    told = [f"{n * each:,} {request.unit} take {switches(n):,}" for n in near if n is not None]
    if told:
        here_too = f"{servers * each:,} {request.unit} take {here:,} switches"
        yield f"A size near by needs far fewer: {here_too}, {', '.join(told)}."


def _growth(now: Size, then: Size, servers: int) -> Iterator[str]:
    """What of the later fabric is not there yet, and how a dragonfly's groups are joined."""
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
        f"Built for {servers:,} servers: {switches} and {cables:,} cables come later, and none of today's is moved. "
        f"{waiting:,} ports of today's switches wait for them."
    )


def _cabled_ports(fabric: Fabric, of: Fabric) -> int:
    """Ports with a cable, of those switches that the other fabric has too."""
    there = {node.name for node in of.switches}
    ends = np.concatenate([end[fabric.network_links] for end in fabric.link_nodes])
    plugged = np.bincount(ends, minlength=len(fabric.nodes))
    return int(sum(plugged[node.index] for node in fabric.switches if node.name in there))
