"""Slurm's `topology.conf` for `topology/tree`, which lets Slurm place jobs close together. Written only.

    SwitchName=su1 Nodes=dgx[1-32]         leaves that share most of their servers are one switch: the 8 rails of a
    SwitchName=su2 Nodes=dgx[33-64]        scalable unit
    SwitchName=spine1-spine4 Switches=su[1-2]   spines that share a leaf are one switch: Slurm needs a tree

A node is a server, not an adapter; it appears once, below the switch that most of its adapters are cabled to (so a
storage network beside the compute network is not counted twice). Above the leaves, each tier of the cabling is one
level of the tree; a switch with a single child is omitted. If several connected tops remain (a torus, a dragonfly),
dragonfly groups form a level, and each connected part gets one artificial top.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from weft.errors import ConfigError
from weft.fabric.files.hostlist import compress, natural
from weft.fabric.kinds import NodeKind
from weft.fabric.levels import components, levels
from weft.fabric.model import Fabric
from weft.version import __version__

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(slots=True, eq=False)
class _Unit:
    """A switch of the tree. It stands for one or more switches of the fabric, or for none if it is artificial."""

    switches: list[int]
    servers: list[str] = field(default_factory=list)
    below: list[_Unit] = field(default_factory=list)
    above: _Unit | None = None
    name: str = ""

    def __post_init__(self) -> None:
        for child in self.below:
            child.above = self

    @property
    def top(self) -> _Unit:
        return self if self.above is None else self.above.top

    @property
    def height(self) -> int:
        return 1 + max((child.height for child in self.below), default=0)

    @property
    def first_leaf(self) -> int:
        return self.below[0].first_leaf if self.below else self.switches[0]


def to_text(fabric: Fabric) -> str:
    """Return the file. Servers on no switch and adapters in no server are in comments: Slurm would not accept them."""
    cables = _server_cables(fabric)
    if not cables:
        raise ConfigError(f"{fabric.spec} has no server on a switch: its topology.conf would be empty")
    units = _bottom_up(_crown(fabric, _climb(fabric, _leaves(fabric, cables))))
    _give_names(fabric, units)
    units.sort(key=lambda unit: (unit.height, natural(unit.name)))
    lines = [f"# Slurm topology/tree of {' '.join(fabric.spec.split())}: {len(cables):,} nodes; weft {__version__}"]
    hcas = fabric.of_kind(NodeKind.HCA)
    if lost := {fabric.servers[i] for i in fabric.nodes.server[hcas].tolist() if i >= 0} - cables.keys():
        lines.append(f"# On no switch: {compress(lost)}")
    if stray := [fabric.nodes.name[i] for i in hcas[fabric.nodes.server[hcas] < 0].tolist()]:
        lines.append(f"# Adapters in no known server: {compress(stray)}")
    for unit in units:
        if len(unit.switches) > 1:
            lines.append(f"# {unit.name} stands for {compress(fabric.nodes.name[i] for i in unit.switches)}")
        inside = f"Switches={compress(u.name for u in unit.below)}" if unit.below else f"Nodes={compress(unit.servers)}"
        lines.append(f"SwitchName={unit.name} {inside}")
    return "\n".join(lines) + "\n"


def _server_cables(fabric: Fabric) -> dict[str, Counter[int]]:
    """Return the number of cables from each server to each leaf."""
    nodes = fabric.nodes
    cables: dict[str, Counter[int]] = defaultdict(Counter)
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    for hca, switch in ((a, b), (b, a)):
        rows = (nodes.kind[hca] == NodeKind.HCA) & (nodes.server[hca] >= 0) & (nodes.kind[switch] == NodeKind.SWITCH)
        for server, leaf in zip(nodes.server[hca[rows]].tolist(), switch[rows].tolist(), strict=True):
            cables[fabric.servers[server]][leaf] += 1
    for name in cables:
        if not _NODE_NAME.fullmatch(name):
            raise ConfigError(f"server {name!r} cannot be a Slurm NodeName: use letters, digits and any of - _ .")
    return dict(cables)


def _leaves(fabric: Fabric, server_cables: dict[str, Counter[int]]) -> dict[int, _Unit]:
    """Return the unit of each leaf. Two leaves are one if they share more than two thirds of the servers on either.

    So a server may lack a rail, and a storage leaf with other servers stays separate. Two real fabrics, Selene and an
    NDR cluster with many adapters down, give the same result with any share from a half to three quarters.
    """
    size: Counter[int] = Counter()
    shared: Counter[tuple[int, int]] = Counter()
    for on in server_cables.values():
        size.update(on.keys())
        shared.update(combinations(sorted(on), 2))
    same = _joined(fabric, [(a, b) for (a, b), both in shared.items() if 3 * both > 2 * (size[a] + size[b] - both)])
    units = {first: _Unit(members) for first, members in _parts(same, size).items()}
    for name in sorted(server_cables, key=natural):
        cables: Counter[int] = Counter()
        for leaf, count in server_cables[name].items():
            cables[same[leaf]] += count
        units[min(cables, key=lambda first: (-cables[first], first))].servers.append(name)
    return {leaf: units[same[leaf]] for leaf in size if units[same[leaf]].servers}


def _climb(fabric: Fabric, unit_of: dict[int, _Unit]) -> list[_Unit]:
    """Add the tiers of switches above the leaves, merged until every unit has one parent; return the tops."""
    leaves = list(dict.fromkeys(unit_of.values()))
    level = levels(fabric).tolist()
    under: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))  # tier -> switch -> lower ones
    for a, b in _cables_between_switches(fabric):
        low, high = sorted((a, b), key=level.__getitem__)
        if level[low] < level[high]:
            under[level[high]][high].append(low)
    for tier in sorted(under):
        children = {switch: _units(lower, unit_of) for switch, lower in under[tier].items()}
        children = {switch: units for switch, units in children.items() if units}
        parent: dict[_Unit, int] = {}
        pairs = [(parent.setdefault(unit, switch), switch) for switch, units in children.items() for unit in units]
        for members in _parts(_joined(fabric, pairs), children).values():
            below = list(dict.fromkeys(unit for switch in members for unit in children[switch]))
            unit_of.update(dict.fromkeys(members, below[0] if len(below) == 1 else _Unit(members, below=below)))
    return list(dict.fromkeys(leaf.top for leaf in leaves))


def _units(switches: list[int], unit_of: dict[int, _Unit]) -> list[_Unit]:
    """Return the tops above these switches, each once."""
    return list(dict.fromkeys(unit_of[switch].top for switch in switches if switch in unit_of))


def _cables_between_switches(fabric: Fabric) -> list[list[int]]:
    """Return the pairs of switches that cables join, each once."""
    is_switch = fabric.nodes.kind == NodeKind.SWITCH
    a, b = (end[fabric.network_links] for end in fabric.link_nodes)
    both = is_switch[a] & is_switch[b]
    pairs: list[list[int]] = np.unique(np.column_stack((a[both], b[both])), axis=0).tolist()
    return pairs


def _crown(fabric: Fabric, tops: list[_Unit]) -> list[_Unit]:
    """Return one top for each connected part."""
    together = [(switch, unit.switches[0]) for unit in _bottom_up(tops) for switch in unit.switches]
    joined = _joined(fabric, [*_cables_between_switches(fabric), *together])
    parts: dict[int, list[_Unit]] = defaultdict(list)
    for top in tops:
        parts[joined[top.first_leaf]].append(top)
    return [_top_of_part(fabric, part) for part in parts.values()]


def _top_of_part(fabric: Fabric, tops: list[_Unit]) -> _Unit:
    if len(tops) == 1:
        return tops[0]
    groups: dict[int, list[_Unit]] = defaultdict(list)
    for top in tops:
        groups[int(fabric.nodes.group[top.first_leaf])].append(top)
    if -1 not in groups and 1 < len(groups) < len(tops):
        tops = [_Unit([s for u in g for s in u.switches], below=g) if len(g) > 1 else g[0] for g in groups.values()]
    return _Unit([], below=tops)


def _bottom_up(tops: list[_Unit]) -> list[_Unit]:
    """Return all units, each after those below it."""
    tiers = [tops]
    while below := [child for unit in tiers[-1] for child in unit.below]:
        tiers.append(below)
    return [unit for tier in reversed(tiers) for unit in tier]


def _give_names(fabric: Fabric, units: list[_Unit]) -> None:
    """Name each unit after its switch, the group of its switches, or `spine1-spine4`; names are unique."""
    used: set[str] = set()
    for unit in units:
        names = sorted((_NOT_IN_A_NAME.sub("-", fabric.nodes.name[i]) for i in unit.switches), key=natural)
        groups = {int(fabric.nodes.group[i]) for i in unit.switches}
        choices = names if len(names) == 1 else ["top" if not names else f"{names[0]}-{names[-1]}"]
        if len(names) > 1 and len(groups) == 1 and -1 not in groups:
            choices.insert(0, fabric.groups[groups.pop()])
        choices += [f"{choices[-1]}.{n}" for n in range(2, len(units) + 2)]
        unit.name = next(name for name in choices if name not in used)
        used.add(unit.name)


def _joined(fabric: Fabric, pairs: Iterable[Sequence[int]]) -> list[int]:
    """Return the lowest node that pairs join each node with."""
    a, b = np.array([*pairs], np.int64).reshape(-1, 2).T
    least: list[int] = components(len(fabric.nodes), a, b).tolist()
    return least


def _parts(joined: list[int], members: Iterable[int]) -> dict[int, list[int]]:
    """Return all members of each part, in order, by its lowest member."""
    parts: dict[int, list[int]] = defaultdict(list)
    for member in sorted(members):
        parts[joined[member]].append(member)
    return parts
