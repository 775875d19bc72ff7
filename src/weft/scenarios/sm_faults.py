"""Every cable and every switch fails once: what does the subnet manager make of it?

    core     o   o   o                    1  a cable is pulled, or a switch goes dark
    spine   o o o  o o o    ...           2  neighbours send traps to the subnet manager, over routes that may be gone
    leaf    o o o  o o o                  3  it sweeps, routes around the hole, and writes what differs
    hosts   ::::::::::::::                4  tables in the switches are proved; then all is mended, and 1 to 4 again

weft's subnet manager speaks with the agents of all devices by MADs, in this process, and never sees the fabric. What it
did is judged on the tables that the switches then hold. An entry of such a table is one destination at one switch. It
*led through* what failed if the path from that switch to that destination used it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from weft.draw.chart import FAINT, titled_chart
from weft.errors import ConfigError
from weft.fabric import spec
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.fabric.tables import NO_ROUTE
from weft.mad import faults
from weft.routing.check import check
from weft.routing.quality import measure
from weft.scenarios.finding import COLOURS, Cell, Finding
from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options, parse_engines

CLAIM = (
    "In InfiniBand, the SM discovers all devices, computes optimal routing, and pushes routing tables to every switch "
    "and HCA. It's a single point of coordination."
)
SOURCE = "InfiniBand Is Not Magic. Here's What It Actually Does."
SPEC = "fat-tree:hosts=54,radix=6"
_TIERS = {1: "leaf", 2: "spine", 3: "core"}
_BLOCK = 64  # LIDs in a block of a forwarding table
_BETWEEN_S = 300.0  # from one fault to the next: no link counts as flapping
Entries = NDArray[np.bool_]  # [switch, lid]
Progress = Callable[[int, int, str], None]  # faults so far, faults in all, what fails now


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """What fails: a cable, by the slot of one end, or a switch."""

    name: str
    kind: str  # row of the table
    node: int = -1
    slot: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One of them, and what became of it."""

    name: str
    kind: str
    cut_off: int  # hosts that nothing connects with the subnet manager any more
    into: int  # entries that pointed at what failed: the least that must change
    through: int  # entries to what is left that led through it
    changed: int  # entries to what is left
    needless: int  # of these, those that did not lead through it
    cleared: int  # entries to what is gone
    reported: int  # all that changed, as the subnet manager says
    blocks: int  # written
    waves: int
    dropped: int  # entries that drop packets for a moment, so that none runs in a circle
    mads: int
    sweeps: int
    engine: str  # that made the tables
    pairs: int
    missing: int
    credit_loop: tuple[str, ...]
    lids_changed: int
    changed_back: int  # entries, when it was mended
    returned: bool  # then all pairs arrived, without a credit loop, with the LIDs of the beginning


def run(
    *,
    fabric: Annotated[str, "A topology or the path of a file."] = SPEC,
    engine: Annotated[str, "Routing engines, as `weft sm` takes them: auto, fat-tree, up-down, dfsssp, ..."] = "auto",
    links: Annotated[int, "How many cables between switches fail."] = 12,
    switches: Annotated[int, "How many switches fail."] = 6,
    all_elements: Annotated[bool, "All cables between switches and all switches fail, one by one.", "--all"] = False,
    seed: Annotated[int, "Of the choice among them."] = 1,
    progress: Progress | None = None,
) -> Finding:
    """So many cables between switches and so many switches, chosen by the seed, or all of them, fail one by one."""
    given = {
        "fabric": fabric,
        "engine": engine,
        "links": links,
        "switches": switches,
        "all_elements": all_elements,
        "seed": seed,
    }
    if min(links, switches, seed) < 0 or not (links + switches or all_elements):
        raise ConfigError(
            f"links {links}, switches {switches}, seed {seed}: give whole numbers from 0 on, and something that fails"
        )
    options = Options(routing_engine=parse_engines(engine), sweep_interval_s=0)  # traps alone cause sweeps
    net = ManagedSubnet(spec.load(fabric), options)
    elements = list(_elements(net.fabric))
    chosen = elements if all_elements else _sample(elements, links, switches, seed)
    load = [_busiest(net)]  # before, and after all
    found = []
    for number, element in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen), element.name)
        found.append(_try(net, element))
    load.append(_busiest(net))
    return _finding(net, found, len(elements), load, given)


# -- what fails -------------------------------------------------------------------------------------------------------


def _elements(fabric: Fabric) -> Iterator[Element]:
    """All cables between switches, then all switches."""
    level, kind = levels(fabric), fabric.nodes.kind
    several = len(np.unique(level[kind == NodeKind.SWITCH])) > 1
    near, far = fabric.link_nodes
    between = fabric.network_links & (kind[near] == NodeKind.SWITCH) & (kind[far] == NodeKind.SWITCH) & (near != far)
    for link in np.flatnonzero(between).tolist():
        low, high = sorted((int(level[near[link]]), int(level[far[link]])))
        slot, tiers = int(fabric.links.a[link]), f" {_tier(low)}-{_tier(high)}" if several else ""
        yield Element(name=fabric.port(slot).name, kind=f"cable{tiers}", slot=slot)
    for node in fabric.of_kind(NodeKind.SWITCH).tolist():
        tier = f"{_tier(int(level[node]))} " if several else ""
        yield Element(name=fabric.nodes.name[node], kind=f"{tier}switch", node=node)


def _tier(level: int) -> str:
    return _TIERS.get(level, f"tier {level}")


def _sample(elements: list[Element], links: int, switches: int, seed: int) -> list[Element]:
    """So many of each, in their order."""
    random = np.random.default_rng(seed)
    chosen: list[Element] = []
    cables, nodes = ([one for one in elements if (one.node < 0) == is_cable] for is_cable in (True, False))
    for count, group in ((links, cables), (switches, nodes)):
        places = random.choice(len(group), min(count, len(group)), replace=False)
        chosen += [group[place] for place in sorted(places.tolist())]
    return chosen


# -- one fault --------------------------------------------------------------------------------------------------------


def _try(net: ManagedSubnet, element: Element) -> Fault:
    """Break it, look, mend it, look again."""
    net.stay_clear_of(element.node)
    before = net.fabric.tables.lft.copy()
    into, through = _leading_through(net, element, before)
    _break(net, element)
    work = net.settle()
    left, kept = net.connected()
    verdict, lids_changed, engine = check(left), _lids_changed(net, kept), net.engine
    differs = _differs(before, net.fabric.tables.lft)
    here, gone = _entries_of(net, kept, differs.shape[1])
    changed = differs & here
    _mend(net, element)
    back = net.settle()
    return Fault(
        name=element.name,
        kind=element.kind,
        cut_off=len(net.hosts) - int(kept[net.fabric.ports.node[net.hosts]].sum()),
        into=int((into & here[:, : into.shape[1]]).sum()),
        through=int((through & here[:, : through.shape[1]]).sum()),
        changed=int(changed.sum()),
        needless=int(changed.sum() - (changed[:, : through.shape[1]] & through).sum()),
        cleared=int((differs & gone).sum()),
        reported=work.entries,
        blocks=work.blocks,
        waves=work.waves,
        dropped=work.dropped,
        mads=work.mads,
        sweeps=work.sweeps,
        engine=engine,
        pairs=verdict.pairs,
        missing=verdict.missing + len(verdict.no_lid),
        credit_loop=verdict.credit_loop,
        lids_changed=lids_changed,
        changed_back=back.entries,
        returned=_has_returned(net),
    )


def _break(net: ManagedSubnet, element: Element) -> None:
    net.clock.sleep(_BETWEEN_S)
    if element.node >= 0:
        faults.kill(net.devices, element.node)
    else:
        faults.pull_cable(net.devices, element.slot)


def _mend(net: ManagedSubnet, element: Element) -> None:
    net.clock.sleep(_BETWEEN_S)
    if element.node >= 0:
        faults.revive(net.devices, element.node)
    else:
        faults.plug_cable(net.devices, element.slot)


def _leading_through(net: ManagedSubnet, element: Element, lft: NDArray[np.uint8]) -> tuple[Entries, Entries]:
    """[switch, lid] -> does the entry point at what is to fail; does the path that begins with it use that?"""
    ports, row = net.fabric.ports, net.fabric.tables.switch_row
    of_switch = row[ports.node] >= 0
    far = np.full((len(lft), NO_ROUTE + 1), -1, np.int32)  # [switch, port] -> switch at the other end
    dead = np.zeros(far.shape, bool)
    slots = np.flatnonzero(of_switch & (ports.peer >= 0))
    far[row[ports.node[slots]], ports.number[slots]] = row[ports.node[ports.peer[slots]]]
    if element.node >= 0:
        dead[far == row[element.node]] = True
    else:
        ends = np.array([element.slot, ports.peer[element.slot]])
        dead[row[ports.node[ends]], ports.number[ends]] = True
    switch = np.arange(len(lft))[:, None]
    into, after = dead[switch, lft], far[switch, lft]
    through, count, lid = into.copy(), -1, np.arange(lft.shape[1])
    while count != (count := int(through.sum())):
        through |= (after >= 0) & through[after, lid]
    return into, through


def _differs(before: NDArray[np.uint8], after: NDArray[np.uint8]) -> Entries:
    """Entries that are not what they were; a table that grew held nothing there."""
    wide = max(before.shape[1], after.shape[1])
    old, new = (np.pad(lft, ((0, 0), (0, wide - lft.shape[1])), constant_values=NO_ROUTE) for lft in (before, after))
    differs: Entries = old != new
    return differs


def _entries_of(net: ManagedSubnet, kept: NDArray[np.bool_], lids: int) -> tuple[Entries, Entries]:
    """[switch, lid] of switches that are left: of destinations that are, and of those that are gone."""
    lid, node = net.lids, net.fabric.ports.node
    is_left, is_gone = np.zeros(lids, bool), np.zeros(lids, bool)
    is_left[lid[kept[node] & (lid > 0)]] = True
    is_gone[lid[~kept[node] & (lid > 0)]] = True
    rows = kept[net.fabric.of_kind(NodeKind.SWITCH)][:, None]
    return rows & is_left, rows & is_gone


def _lids_changed(net: ManagedSubnet, kept: NDArray[np.bool_]) -> int:
    return int((net.fabric.tables.lid != net.lids)[kept[net.fabric.ports.node]].sum())


def _has_returned(net: ManagedSubnet) -> bool:
    left, kept = net.connected()
    return check(left).ok and bool(kept[net.fabric.ports.node[net.hosts]].all()) and not _lids_changed(net, kept)


def _busiest(net: ManagedSubnet) -> float:
    """Pairs of hosts on the busiest link of an all-to-all."""
    return measure(net.connected()[0], bisections=2).all_to_all.max_load


# -- what was found ---------------------------------------------------------------------------------------------------


def _finding(
    net: ManagedSubnet, found: list[Fault], elements: int, load: list[float], given: dict[str, Any]
) -> Finding:
    kinds = list(dict.fromkeys(one.kind for one in found))
    figures = _figures(net, found, load)
    engines = " and ".join(figures["engines"])
    moved = " The subnet manager moves to a host elsewhere before its own leaf fails." if net.moves else ""
    return Finding(
        scenario="sm-faults",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{net.fabric.spec}, {engines} routing: {len(found)} of {elements} cables and switches fail in turn, and "
        "are mended",
        columns=_COLUMNS,
        rows=tuple(_row(kind, [one for one in found if one.kind == kind]) for kind in kinds),
        finding="\n  ".join(_claims(found, figures)),
        trust="MADs, agents and the subnet manager are the real ones, and the tables proved are those in the switches. "
        "Faults come one at a time and wait for each other. Nothing is lost but what the fault loses, and answers take "
        f"no time: how long a sweep takes is not seen here.{moved}",
        options=given,
        figures=figures,
    )


_COLUMNS = (
    "what fails", "faults", "hosts cut off", "led through", "changed: least", "mean", "most", "needless", "blocks",
    "waves", "dropped", "MADs",
)  # fmt: skip


def _row(kind: str, found: list[Fault]) -> tuple[Cell, ...]:
    """Means; of changes all three, of waves and of what drops the most."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(one, name) for one in found]))

    changed = [one.changed for one in found]
    most = (max(one.waves for one in found), max(one.dropped for one in found))
    return (
        kind, len(found), max(one.cut_off for one in found), mean("through"), min(changed), mean("changed"),
        max(changed), mean("needless"), mean("blocks"), *most, mean("mads"),
    )  # fmt: skip


_BAD: dict[str, Callable[[Fault], bool]] = {
    "Reach": lambda one: one.missing > 0,
    "Deadlock": lambda one: bool(one.credit_loop),
    "LIDs": lambda one: one.lids_changed > 0,
    "Traps": lambda one: one.sweeps != 1,
    "Return": lambda one: not one.returned,
}


def _figures(net: ManagedSubnet, found: list[Fault], load: list[float]) -> dict[str, Any]:
    lft = net.fabric.tables.lft
    return {
        "engines": dict(Counter(one.engine for one in found)),
        "faults": [asdict(one) for one in found],
        "entries": int(((lft != NO_ROUTE) & (np.arange(lft.shape[1]) > 0)).sum()),
        "table_blocks": lft.shape[0] * -(-lft.shape[1] // _BLOCK),
        "changed": sum(one.changed for one in found),
        "through": sum(one.through for one in found),
        "into": sum(one.into for one in found),
        "needless": sum(one.needless for one in found),
        "moves": net.moves,
        "busiest_link_pairs": {"before": load[0], "after": load[1]},
        "holds": {name: not any(map(bad, found)) for name, bad in _BAD.items()},
    }


def _claims(found: list[Fault], figures: dict[str, Any]) -> Iterator[str]:
    """A line each."""
    pairs = [one.pairs for one in found]
    for name, well in (
        ("Reach", f"after each of {len(found)} faults all surviving pairs ({min(pairs):,} to {max(pairs):,}) arrive"),
        ("Deadlock", "no tables had a credit loop"),
        ("LIDs", "none changed"),
        ("Traps", "they alone told of each fault, and one sweep was enough"),
        ("Return", "when a fault was mended, all pairs arrived again, with the LIDs of the beginning"),
    ):
        bad = [one.name for one in found if _BAD[name](one)]
        yield (
            f"{name}: not so with {len(bad)} of {len(found)} faults, the first is {bad[0]}"
            if bad
            else f"{name}: {well}"
        )
    changed, blocks = [one.changed for one in found], [one.blocks for one in found]
    yield (
        f"Change: {min(changed):,} to {max(changed):,} of {figures['entries']:,} entries, {np.mean(changed):,.0f} in "
        f"the mean; {figures['through'] / len(found):,.0f} led through what failed, "
        f"{figures['into'] / len(found):,.0f} pointed at it; of all {figures['changed']:,} that changed "
        f"{figures['needless']:,} did not lead through it"
    )
    yield (
        f"Upload: {min(blocks)} to {max(blocks)} of {figures['table_blocks']} blocks, in at most "
        f"{max(one.waves for one in found)} waves; {sum(one.dropped for one in found)} entries dropped packets for a "
        "moment"
    )
    back, load = [one.changed_back for one in found], figures["busiest_link_pairs"]
    yield (
        f"Balance: {np.mean(back):,.0f} entries changed in the mean when a fault was mended; the busiest link carries "
        f"{load['after']:,.0f} pairs of hosts after all faults, {load['before']:,.0f} before"
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Entries that changed against those that led through what failed, fault by fault."""
    found = finding.figures["faults"]
    kinds = list(dict.fromkeys(one["kind"] for one in found))
    with titled_chart(path, "Every fault, and how much of the tables it changed", finding.ran) as (axes,):
        top = max((max(one["through"], one["changed"]) for one in found), default=1)
        axes.plot([0, top], [0, top], color=FAINT, linewidth=1, linestyle="--", label="as many as led through it")
        for index, kind in enumerate(kinds):
            through, changed = ([one[of] for one in found if one["kind"] == kind] for of in ("through", "changed"))
            colour = COLOURS[index % len(COLOURS)]
            axes.scatter(through, changed, color=colour, s=28, alpha=0.7, label=f"{kind}: {len(changed)} of them")
        axes.set_xlabel("entries whose path led through what failed")
        axes.set_ylabel("entries that changed")
        axes.legend(loc="upper left")
