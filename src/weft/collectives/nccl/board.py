"""The paths between GPUs of a server without NVSwitches, and the bandwidth of rings over them, by NCCL's count.

    gpu0 ─┐                 ┌─ gpu2        a lane is one direction of a PCIe slot, of a PCIe switch's way up, or of
    gpu1 ─┴─ pcie0 ─ cpu0 ─ pcie1 ─ gpu3   the link between two processors
    board.ring_gbyte_s(4, ...)             a ring goes through the tree once: each lane carries it once
    board.path_gbyte_s(4, ...)             from an adapter of one processor to one of the other, and back in turn

NCCL takes the same lanes whether GPUs write to each other (below one PCIe switch, NCCL_P2P_LEVEL=PXB by default) or
through host memory (above it). GPUs that may not write to each other go up to the processor even below one switch. What
NVLinks join directly takes none of these lanes (src/graph/paths.cc, topo.cc and search.cc of NCCL).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.rates import parse_label
from weft.fabric.timing import timings
from weft.units import gbyte_s

Edge = tuple[int, int, float]  # GPUs, and the part of a GPU's bytes that goes from one to the other
_Way = tuple[tuple[int, float], ...]  # lanes, and how often the bytes count there


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The lanes and NVLinks of a server. `groups` work at once, each as a ring; GPUs have the job's numbers."""

    lanes_gbyte_s: tuple[float, ...]
    ways: tuple[tuple[_Way, ...], ...]  # [GPU][GPU]
    nvlinks: tuple[tuple[int, ...], ...]  # [GPU][GPU], directly
    slot_gbyte_s: float  # a GPU's slot
    order: tuple[int, ...]  # GPUs in the order of the PCIe tree
    open: bool = False  # adapters at both ends of that order: channels may enter at one and leave at the other
    groups: tuple[tuple[int, ...], ...] = ()

    def shared(self, groups: Sequence[Sequence[int]]) -> Board:
        """Return the board with groups that work at once."""
        return replace(self, groups=tuple(tuple(group) for group in groups))

    def links(self, gpus: int) -> int:
        """Return the fewest NVLinks of a GPU to the others of its group; 0 if a ring needs PCIe."""
        group = self._groups(gpus)[0]
        peers = [[self.nvlinks[gpu][other] for other in group if other != gpu] for gpu in group]
        ring = min(gpus - 1, 2)  # so many neighbours
        return min((sum(of) if sum(map(bool, of)) >= ring else 0 for of in peers), default=0)

    def pair_links(self, gpus: int) -> int:
        """Return the fewest NVLinks between two connected GPUs of a group."""
        group = self._groups(gpus)[0]
        return min((self.nvlinks[gpu][other] or 1 << 30 for gpu, other in permutations(group, 2)), default=0)

    def ring_gbyte_s(self, gpus: int, nvlink_gbyte_s: float) -> float:
        """Return the bandwidth of rings through all GPUs of each group; `nvlink_gbyte_s` is that of one link."""
        return self.rate_gbyte_s([edge for group in self._groups(gpus) for edge in _ring(group)], nvlink_gbyte_s)

    def path_gbyte_s(self, gpus: int, nvlink_gbyte_s: float) -> float:
        """Return the bandwidth of open paths through all GPUs of each group, half of them in each direction."""
        edges = [edge for group in self._groups(gpus) for edge in _path(group)]
        return min(self.rate_gbyte_s(edges, nvlink_gbyte_s), self.slot_gbyte_s)

    def one_way_gbyte_s(self, gpus: int, nvlink_gbyte_s: float) -> float:
        """Return the bandwidth of open paths that all have the same direction."""
        groups = self._groups(gpus)
        edges = [(*pair, 1.0) for group in groups for pair in pairwise(group)]
        return min(self.rate_gbyte_s(edges, nvlink_gbyte_s), self.slot_gbyte_s)

    def all_to_all_gbyte_s(self, gpus: int, nvlink_gbyte_s: float) -> float:
        """Return the bandwidth of each GPU to all others of its group."""
        share = 1 / (gpus - 1)
        edges = [(*pair, share) for group in self._groups(gpus) for pair in permutations(group, 2)]
        return self.rate_gbyte_s(edges, nvlink_gbyte_s)

    def gather_gbyte_s(self, gpus: int, nvlink_gbyte_s: float) -> float:
        """Return the bandwidth into the first GPU of each group from all others."""
        share = 1 / (gpus - 1)
        edges = [(gpu, group[0], share) for group in self._groups(gpus) for gpu in group[1:]]
        return self.rate_gbyte_s(edges, nvlink_gbyte_s)

    def rate_gbyte_s(self, edges: Sequence[Edge], nvlink_gbyte_s: float) -> float:
        """Return the send rate of each GPU if all edges are active; the fullest lane limits it."""
        load: dict[int, float] = {}
        rates = []
        for gpu, other, share in edges:
            if self.nvlinks[gpu][other]:
                rates.append(self.nvlinks[gpu][other] * nvlink_gbyte_s / share)
                continue
            for lane, weight in self.ways[gpu][other]:
                load[lane] = load.get(lane, 0.0) + weight * share
        return min(rates + [self.lanes_gbyte_s[lane] / total for lane, total in load.items()])

    def _groups(self, gpus: int) -> tuple[tuple[int, ...], ...]:
        """Return the groups in the order of the tree; by default one of the first `gpus`."""
        groups = self.groups if self.groups and len(self.groups[0]) == gpus else (self.order[:gpus],)
        if gpus > len(self.order):
            raise ConfigError(f"{gpus} GPUs of a node, and its board has {len(self.order)}")
        return tuple(tuple(sorted(group, key=self.order.index)) for group in groups)


def _ring(group: Sequence[int]) -> Iterator[Edge]:
    yield from ((gpu, other, 1.0) for gpu, other in zip(group, (*group[1:], group[0]), strict=True))


def _path(group: Sequence[int]) -> Iterator[Edge]:
    """Yield the edges of a path, with half of the bytes in each direction."""
    for gpu, other in pairwise(group):
        yield from ((gpu, other, 0.5), (other, gpu, 0.5))


def board_of(template: catalog.Server, gpus: Sequence[int], nvlinks: Mapping[tuple[int, int], int]) -> Board:
    """Return the board of a template with some of its GPUs and the NVLinks between them."""
    tree = _Tree(template)
    names = [f"gpu{number}" for number in gpus]
    between = [[nvlinks.get((min(a, b), max(a, b)), 0) if a != b else 0 for b in gpus] for a in gpus]
    ways = tuple(tuple(tree.way(gpu, other) if gpu != other else () for other in names) for gpu in names)
    hangs = {name: at for at, name in enumerate(tree.leaves())}
    order = sorted(range(len(gpus)), key=lambda gpu: hangs[names[gpu]])
    ends = {tree.root(names[order[0]]), tree.root(names[order[-1]])}
    return Board(
        lanes_gbyte_s=tuple(tree.lanes_gbyte_s),
        ways=ways,
        nvlinks=tuple(map(tuple, between)),
        slot_gbyte_s=slot_gbyte_s(tree.gpu.pcie),
        order=tuple(order),
        open=len(ends) > 1 and ends <= {tree.root(name) for name in template.compute},
    )


def pairs_of(template: catalog.Server) -> dict[tuple[int, int], int]:
    """Return the number of direct NVLinks for each pair of GPUs, the lower number first."""
    number = {f"gpu{gpu}": gpu for gpu in range(template.gpus)}
    pairs: dict[tuple[int, int], int] = {}
    for gpu, other, links in template.nvlink_pairs:
        low, high = sorted((number[gpu], number[other]))
        pairs[low, high] = links
    return pairs


class _Tree:
    """The PCIe tree of a template: a lane up and down for each device, and lanes between processors."""

    def __init__(self, template: catalog.Server) -> None:
        self.template = template
        self.gpu = catalog.gpu(template.gpu)
        self.above = {name: parent for parent, names in template.pcie_tree.items() for name in names}
        self.lanes_gbyte_s: list[float] = []
        self._lane: dict[tuple[str, str], int] = {}

    def leaves(self) -> Iterator[str]:
        """Yield the GPUs in the order of the tree."""
        roots = [f"cpu{number}" for number in range(self.template.cpus)]
        waiting = roots[::-1]
        while waiting:
            name = waiting.pop()
            waiting += reversed(self.template.pcie_tree.get(name, ()))
            if name.startswith("gpu"):
                yield name

    def way(self, gpu: str, other: str) -> _Way:
        up, down = self._to_root(gpu), self._to_root(other)
        meet = next((name for name in up if name in down), None)
        if meet is not None and not self.gpu.p2p:
            meet = up[-1]  # host memory is at the processor
        if meet is not None:
            hops = [*pairwise(up[: up.index(meet) + 1]), *pairwise(down[: down.index(meet) + 1][::-1])]
            chip = self.template.cpu
            intel = meet == up[-1] and (chip is None or chip.vendor == "GenuineIntel")
            weight = timings().socket.intel_peer if intel else 1.0
            return tuple((self._number(*hop), weight) for hop in hops)
        across = [*pairwise(up), (up[-1], down[-1]), *pairwise(down[::-1])]
        return tuple((self._number(*hop), 1.0) for hop in across)

    def root(self, name: str) -> str:
        """Return the processor above a device."""
        return self._to_root(name)[-1]

    def _to_root(self, name: str) -> list[str]:
        path = [name]
        while path[-1] in self.above:
            path.append(self.above[path[-1]])
        return path

    def _number(self, node: str, other: str) -> int:
        if (node, other) not in self._lane:
            self._lane[node, other] = len(self.lanes_gbyte_s)
            self.lanes_gbyte_s.append(self._gbyte_s(node, other))
        return self._lane[node, other]

    def _gbyte_s(self, node: str, other: str) -> float:
        if node.startswith("cpu") and other.startswith("cpu"):
            return timings().socket.of(self.template)
        below = node if self.above.get(node) == other else other
        return slot_gbyte_s(self.gpu.pcie if below.startswith("gpu") else self.template.pcie)


def slot_gbyte_s(label: str) -> float:
    """Return the bandwidth of a PCIe slot by NCCL's count."""
    speed, lanes = parse_label(label)
    return pcie_gbyte_s(int(speed.name.removeprefix("PCIe")), lanes)


def pcie_gbyte_s(generation: int, lanes: int = 16) -> float:
    """Return PCIe bandwidth by NCCL's count: 6 Gbit/s a lane of PCIe 3, doubled each generation (src/graph/topo.cc)."""
    return gbyte_s(lanes * 6 * 2 ** (generation - 3))
