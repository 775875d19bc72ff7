"""Every cable and every switch fails once: how does the subnet manager recover?

    core     o   o   o                    1  a cable is pulled, or a switch loses power
    spine   o o o  o o o    ...           2  neighbours send traps to the subnet manager, over routes that may be gone
    leaf    o o o  o o o                  3  it sweeps, routes around the fault, and writes the differences
    hosts   ::::::::::::::                4  the tables in the switches are checked; then repair, and 1 to 4 again

weft's subnet manager communicates with the agents of all devices by MADs, in this process, and never sees the fabric.
Its work
is checked on the tables that the switches then hold. An entry of such a table is one destination at one switch. It
*led through*
the failed element if the path from that switch to that destination used it.
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
_BETWEEN_S = 300.0  # between two faults: no link counts as flapping
Entries = NDArray[np.bool_]  # [switch, lid]
Progress = Callable[[int, int, str], None]  # faults so far, total faults, the current element


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """An element that fails: a cable, by the slot of one end, or a switch."""

    name: str
    kind: str  # row of the table
    node: int = -1
    slot: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault of one element, and its consequences."""

    name: str
    kind: str
    cut_off: int  # hosts without a connection to the subnet manager
    into: int  # entries that pointed at the failed element: the least that must change
    through: int  # remaining entries that led through it
    changed: int  # changed entries to remaining destinations
    needless: int  # changed entries that did not lead through it
    cleared: int  # entries to lost destinations
    reported: int  # all changes reported by the subnet manager
    blocks: int  # written
    waves: int
    dropped: int  # entries that temporarily drop packets to avoid loops
    mads: int
    sweeps: int
    engine: str  # that made the tables
    pairs: int
    missing: int
    credit_loop: tuple[str, ...]
    lids_changed: int
    changed_back: int  # entries, after the repair
    returned: bool  # after the repair all pairs arrived, without a credit loop, with the original LIDs


def run(
    *,
    fabric: Annotated[str, "A topology or the path of a file."] = SPEC,
    routing_engine: Annotated[str, "Routing engines as in `weft sm`: auto, fat-tree, up-down, dfsssp, ..."] = "auto",
    links: Annotated[int, "Number of cables between switches that fail."] = 12,
    switches: Annotated[int, "Number of switches that fail."] = 6,
    all_elements: Annotated[bool, "All cables between switches and all switches fail, one by one.", "--all"] = False,
    seed: Annotated[int, "Random seed for their choice."] = 1,
    progress: Progress | None = None,
) -> Finding:
    """Let cables between switches and switches, chosen by the seed, or all of them, fail one by one."""
    arguments = {
        "fabric": fabric,
        "routing_engine": routing_engine,
        "links": links,
        "switches": switches,
        "all_elements": all_elements,
        "seed": seed,
    }
    if min(links, switches, seed) < 0 or not (links + switches or all_elements):
        raise ConfigError(
            f"--links, --switches and --seed must be 0 or more, with at least one fault; "
            f"got {links}, {switches}, {seed}"
        )
    options = Options(routing_engine=parse_engines(routing_engine), sweep_interval_s=0)  # only traps cause sweeps
    net = ManagedSubnet(spec.load(fabric), options)
    elements = list(_elements(net.fabric))
    chosen = elements if all_elements else _sample(elements, links, switches, seed)
    load = [_busiest(net)]  # before the first and after the last fault
    results = []
    for number, element in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen), element.name)
        results.append(_inject(net, element))
    load.append(_busiest(net))
    return _finding(net, results, len(elements), load, arguments)


# -- elements --------------------------------------------------------------------------------------------------------


def _elements(fabric: Fabric) -> Iterator[Element]:
    """Yield all cables between switches, then all switches."""
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
    """Return a random choice of each kind, in their order."""
    random = np.random.default_rng(seed)
    chosen: list[Element] = []
    cables, nodes = ([element for element in elements if (element.node < 0) == is_cable] for is_cable in (True, False))
    for count, group in ((links, cables), (switches, nodes)):
        places = random.choice(len(group), min(count, len(group)), replace=False)
        chosen += [group[place] for place in sorted(places.tolist())]
    return chosen


# -- one fault --------------------------------------------------------------------------------------------------------


def _inject(net: ManagedSubnet, element: Element) -> Fault:
    """Fail an element, check, repair it, check again."""
    net.stay_clear_of(element.node)
    before = net.fabric.tables.lft.copy()
    into, through = _leading_through(net, element, before)
    _break(net, element)
    work = net.settle()
    left, connected = net.connected()
    tables, lids_changed, engine = check(left), _lids_changed(net, connected), net.engine
    differs = _differs(before, net.fabric.tables.lft)
    remaining, lost = _entries_of(net, connected, differs.shape[1])
    changed = differs & remaining
    _repair(net, element)
    back = net.settle()
    return Fault(
        name=element.name,
        kind=element.kind,
        cut_off=len(net.hosts) - int(connected[net.fabric.ports.node[net.hosts]].sum()),
        into=int((into & remaining[:, : into.shape[1]]).sum()),
        through=int((through & remaining[:, : through.shape[1]]).sum()),
        changed=int(changed.sum()),
        needless=int(changed.sum() - (changed[:, : through.shape[1]] & through).sum()),
        cleared=int((differs & lost).sum()),
        reported=work.entries,
        blocks=work.blocks,
        waves=work.waves,
        dropped=work.dropped,
        mads=work.mads,
        sweeps=work.sweeps,
        engine=engine,
        pairs=tables.pairs,
        missing=tables.missing + len(tables.no_lid),
        credit_loop=tables.credit_loop,
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


def _repair(net: ManagedSubnet, element: Element) -> None:
    net.clock.sleep(_BETWEEN_S)
    if element.node >= 0:
        faults.revive(net.devices, element.node)
    else:
        faults.plug_cable(net.devices, element.slot)


def _leading_through(net: ManagedSubnet, element: Element, lft: NDArray[np.uint8]) -> tuple[Entries, Entries]:
    """Return the entries that point at the failing element, and those whose path uses it ([switch, lid])."""
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
    """Return the entries that changed; new columns of a table count as empty before."""
    wide = max(before.shape[1], after.shape[1])
    old, new = (np.pad(lft, ((0, 0), (0, wide - lft.shape[1])), constant_values=NO_ROUTE) for lft in (before, after))
    differs: Entries = old != new
    return differs


def _entries_of(net: ManagedSubnet, connected: NDArray[np.bool_], lids: int) -> tuple[Entries, Entries]:
    """Return the entries of the connected switches, for remaining and for lost destinations ([switch, lid])."""
    lid, node = net.lids, net.fabric.ports.node
    is_left, is_gone = np.zeros(lids, bool), np.zeros(lids, bool)
    is_left[lid[connected[node] & (lid > 0)]] = True
    is_gone[lid[~connected[node] & (lid > 0)]] = True
    rows = connected[net.fabric.of_kind(NodeKind.SWITCH)][:, None]
    return rows & is_left, rows & is_gone


def _lids_changed(net: ManagedSubnet, connected: NDArray[np.bool_]) -> int:
    return int((net.fabric.tables.lid != net.lids)[connected[net.fabric.ports.node]].sum())


def _has_returned(net: ManagedSubnet) -> bool:
    left, connected = net.connected()
    return (
        check(left).ok and bool(connected[net.fabric.ports.node[net.hosts]].all()) and not _lids_changed(net, connected)
    )


def _busiest(net: ManagedSubnet) -> float:
    """Return the pairs of hosts on the busiest link of an all-to-all."""
    return measure(net.connected()[0], bisections=2).all_to_all.max_load


# -- results ----------------------------------------------------------------------------------------------------------


def _finding(
    net: ManagedSubnet, results: list[Fault], elements: int, load: list[float], arguments: dict[str, Any]
) -> Finding:
    kinds = list(dict.fromkeys(fault.kind for fault in results))
    figures = _figures(net, results, load)
    engines = " and ".join(figures["engines"])
    moved = " The subnet manager moves to a host elsewhere before its own leaf fails." if net.moves else ""
    return Finding(
        scenario="sm-faults",
        claim=CLAIM,
        source=SOURCE,
        ran=f"{net.fabric.spec}, {engines} routing: {len(results)} of {elements} cables and switches fail in turn, and "
        "are repaired",
        columns=_COLUMNS,
        rows=tuple(_row(kind, [fault for fault in results if fault.kind == kind]) for kind in kinds),
        finding="\n  ".join(_claims(results, figures)),
        trust="MADs, agents and the subnet manager are the real ones, and the tables proved are those in the switches. "
        "Faults come one at a time and wait for each other. Nothing is lost but what the fault loses, and answers take "
        f"no time: how long a sweep takes is not seen here.{moved}",
        options=arguments,
        figures=figures,
    )


_COLUMNS = (
    "failed element", "faults", "hosts cut off", "led through", "changed: least", "mean", "most", "needless", "blocks",
    "waves", "dropped", "MADs",
)  # fmt: skip


def _row(kind: str, results: list[Fault]) -> tuple[Cell, ...]:
    """Return a row of the table: means; minimum, mean and maximum of changes; maxima of waves and drops."""

    def mean(name: str) -> float:
        return float(np.mean([getattr(fault, name) for fault in results]))

    changed = [fault.changed for fault in results]
    most = (max(fault.waves for fault in results), max(fault.dropped for fault in results))
    return (
        kind, len(results), max(fault.cut_off for fault in results), mean("through"), min(changed), mean("changed"),
        max(changed), mean("needless"), mean("blocks"), *most, mean("mads"),
    )  # fmt: skip


_BAD: dict[str, Callable[[Fault], bool]] = {
    "Reach": lambda fault: fault.missing > 0,
    "Deadlock": lambda fault: bool(fault.credit_loop),
    "LIDs": lambda fault: fault.lids_changed > 0,
    "Traps": lambda fault: fault.sweeps != 1,
    "Return": lambda fault: not fault.returned,
}


def _figures(net: ManagedSubnet, results: list[Fault], load: list[float]) -> dict[str, Any]:
    lft = net.fabric.tables.lft
    return {
        "engines": dict(Counter(fault.engine for fault in results)),
        "faults": [asdict(fault) for fault in results],
        "entries": int(((lft != NO_ROUTE) & (np.arange(lft.shape[1]) > 0)).sum()),
        "table_blocks": lft.shape[0] * -(-lft.shape[1] // _BLOCK),
        "changed": sum(fault.changed for fault in results),
        "through": sum(fault.through for fault in results),
        "into": sum(fault.into for fault in results),
        "needless": sum(fault.needless for fault in results),
        "moves": net.moves,
        "busiest_link_pairs": {"before": load[0], "after": load[1]},
        "holds": {name: not any(map(bad, results)) for name, bad in _BAD.items()},
    }


def _claims(results: list[Fault], figures: dict[str, Any]) -> Iterator[str]:
    """Yield one line per property."""
    pairs = [fault.pairs for fault in results]
    for name, well in (
        ("Reach", f"after each of {len(results)} faults all surviving pairs ({min(pairs):,} to {max(pairs):,}) arrive"),
        ("Deadlock", "no tables had a credit loop"),
        ("LIDs", "none changed"),
        ("Traps", "they alone reported each fault, and one sweep was enough"),
        ("Return", "after each repair all pairs arrived again, with the original LIDs"),
    ):
        bad = [fault.name for fault in results if _BAD[name](fault)]
        yield (
            f"{name}: not so with {len(bad)} of {len(results)} faults, the first is {bad[0]}"
            if bad
            else f"{name}: {well}"
        )
    changed, blocks = [fault.changed for fault in results], [fault.blocks for fault in results]
    yield (
        f"Change: {min(changed):,} to {max(changed):,} of {figures['entries']:,} entries, {np.mean(changed):,.0f} in "
        f"the mean; {figures['through'] / len(results):,.0f} led through what failed, "
        f"{figures['into'] / len(results):,.0f} pointed at it; of all {figures['changed']:,} that changed "
        f"{figures['needless']:,} did not lead through it"
    )
    yield (
        f"Upload: {min(blocks)} to {max(blocks)} of {figures['table_blocks']} blocks, in at most "
        f"{max(fault.waves for fault in results)} waves; "
        f"{sum(fault.dropped for fault in results)} entries dropped packets for a moment"
    )
    back, load = [fault.changed_back for fault in results], figures["busiest_link_pairs"]
    yield (
        f"Balance: {np.mean(back):,.0f} entries changed in the mean after a repair; the busiest link carries "
        f"{load['after']:,.0f} pairs of hosts after all faults, {load['before']:,.0f} before"
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw the changed entries against those that led through the failed element, fault by fault."""
    results = finding.figures["faults"]
    kinds = list(dict.fromkeys(fault["kind"] for fault in results))
    with titled_chart(path, "Every fault, and how much of the tables it changed", finding.ran) as (axes,):
        top = max((max(fault["through"], fault["changed"]) for fault in results), default=1)
        axes.plot([0, top], [0, top], color=FAINT, linewidth=1, linestyle="--", label="as many as led through it")
        for index, kind in enumerate(kinds):
            through, changed = (
                [fault[column] for fault in results if fault["kind"] == kind] for column in ("through", "changed")
            )
            colour = COLOURS[index % len(COLOURS)]
            axes.scatter(through, changed, color=colour, s=28, alpha=0.7, label=f"{kind}: {len(changed)} of them")
        axes.set_xlabel("entries whose path led through what failed")
        axes.set_ylabel("entries that changed")
        axes.legend(loc="upper left")
