"""The level of detail for hosts.

INSIDE   up to 4 servers: their GPUs, switches and adapters      NAMED, TALL   a box with a name, level or upright
CELLS    a cell for each rail, in the ink of its link            BLOCK         only a number for the hosts of a rack
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from weft.draw.layout.bands import Band, Cluster, Rack, Stack
from weft.draw.scene import text_width
from weft.errors import SimulationBug

_NAME_SIZE = 9.0
_CLUSTER_PAD = 8.0
_RACK_PAD = 3.0
_CLUSTER_GAP = 12.0
_TALLEST_BLOCK = 140.0
_LEAST_CLUSTER = 26.0


class Detail(enum.Enum):
    INSIDE = enum.auto()
    NAMED = enum.auto()
    TALL = enum.auto()
    CELLS = enum.auto()
    BLOCK = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailLevel:
    """A level of detail; as a candidate, with the most rows and the greatest width that it may have."""

    detail: Detail
    host_width: float
    host_height: float
    rows: int = 1  # rows of hosts in a rack
    width: float  # width of the whole picture

    @property
    def is_named(self) -> bool:
        return self.detail in (Detail.INSIDE, Detail.NAMED, Detail.TALL)


def choose_detail(stack: Stack, names: Sequence[str], rails: int, inside: tuple[float, float] | None) -> DetailLevel:
    """Return the finest level that fits. `names` are those of the hosts, `inside` the size of an open server."""
    racks = [len(rack.hosts) for band in stack.bands for cluster in band.clusters for rack in cluster.racks]
    usual = Counter(racks).most_common(1)[0][0] if racks else 0
    sizes = list(_sizes(names, rails, inside))
    least = _width(stack, sizes[-1], 1)  # the width of the switches alone
    is_divisible = any(usual % columns == 0 for columns in range(2, usual))
    for evenly, size in [(True, size) for size in sizes[:-1] if is_divisible] + [(False, size) for size in sizes]:
        for rows in range(1, size.rows + 1):
            if evenly and usual % math.ceil(usual / rows):
                continue  # the last row of most racks would have gaps
            width = _width(stack, size, rows)
            if width <= max(size.width, least):
                return replace(size, rows=rows, width=width)
    raise SimulationBug("no level of detail fits, not even blocks")


def _sizes(names: Sequence[str], rails: int, inside: tuple[float, float] | None) -> Iterator[DetailLevel]:
    longest = max((text_width(name, _NAME_SIZE) for name in names), default=0.0)
    if inside:
        yield DetailLevel(detail=Detail.INSIDE, host_width=inside[0] + 16, host_height=inside[1], width=2400)
    level = max(28.0, longest + 8, 5.0 * rails + 6)
    yield DetailLevel(detail=Detail.NAMED, host_width=level, host_height=30.0, width=1500)
    upright = max(15.0, 3.2 * rails + 4)
    yield DetailLevel(detail=Detail.TALL, host_width=upright, host_height=min(longest + 12, 130), width=1900)
    for cell in (12.0, 10.0, 8.0, 6.5, 5.0, 4.0):
        height = cell if rails == 1 else rails * max(cell * 0.5, 2.5) + 3
        rows, width = max(int(_TALLEST_BLOCK / height), 1), 1700 if cell > 6 else 2300
        yield DetailLevel(detail=Detail.CELLS, host_width=cell, host_height=height, rows=rows, width=width)
    yield DetailLevel(detail=Detail.BLOCK, host_width=0.0, host_height=26.0, width=2300)


def switch_pitch(count: int) -> float:
    """Return the least width of each of so many switches in a row."""
    return 52.0 if count <= 24 else 15.0 if count <= 110 else max(min(6.0, 2000 / count), 1.5)


def rack_width(rack: Rack, leaf_pitch: float, host_width: float, rows: int) -> float:
    return max(len(rack.leaves) * leaf_pitch, math.ceil(len(rack.hosts) / rows) * host_width, leaf_pitch)


def cluster_width(cluster: Cluster, pitch: dict[int, float], host_width: float, rows: int) -> float:
    racks = [rack_width(rack, pitch[1], host_width, rows) for rack in cluster.racks]
    widths = [sum(racks) + rack_gap(pitch) * max(len(racks) - 1, 0)]
    widths += [len(row) * pitch[level] for level, row in cluster.rows.items()]
    return max(max(widths) + 2 * cluster_pad(cluster), min(_LEAST_CLUSTER, 4 * pitch[min(pitch)]))


def cluster_pad(cluster: Cluster) -> float:
    """Return the padding between a frame and its contents."""
    return _CLUSTER_PAD if len(cluster.racks) > 1 or cluster.name else _RACK_PAD


def pitches(stack: Stack) -> dict[int, float]:
    """Return the least width of a switch at each level."""
    return {
        level: switch_pitch(sum(cluster.count(level) for cluster in band.clusters))
        for band in stack.bands
        for level in band.levels
    }


def rack_gap(pitch: dict[int, float]) -> float:
    """Return the gap between racks; 0 if leaves are no wider than a gap."""
    return min(5.0, pitch[1] / 2) if pitch[1] >= 4 else 0.0


def cluster_gap(band: Band, pitch: dict[int, float]) -> float:
    """Return the gap between clusters; many clusters are as close as racks."""
    return _CLUSTER_GAP if len(band.clusters) <= 40 else rack_gap(pitch)


def _width(stack: Stack, size: DetailLevel, rows: int) -> float:
    pitch = pitches(stack)
    return max(
        sum(cluster_width(cluster, pitch, size.host_width, rows) for cluster in band.clusters)
        + cluster_gap(band, pitch) * (len(band.clusters) - 1)
        for band in stack.bands
    )
