"""The tuner in AWS's plugin for NCCL (aws-ofi-nccl): its choices come before NCCL's own on three and more servers.

    tuned_row(cluster, Collective.ALL_REDUCE, 64 << 20, choice.rows)     None: NCCL chooses

`ofi_tuner.toml` has its regions: polygons of sizes and ranks, in logarithms of both, for the servers that it knows. The
first that holds a size decides, unless its row is off (NCCL_ALGO, NCCL_PROTO, no NVLS).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import hypot, log2

import msgspec

from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.tuning import Row
from weft.fabric.rates import Sourced, read_data

TRANSPORT = "srd"
_MORE_THAN_NODES = 2
_FIRST = (2, 22)  # the first NCCL that passes its table to a tuner
_ZERO = 1e-6  # stands for 0, which has no logarithm
_ON_EDGE = 1e-10

_Point = tuple[float, float]


class Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A row of NCCL's table, and the polygon of [bytes, ranks] in which it is chosen."""

    row: str
    at: tuple[_Point, ...]


class Platform(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The regions of a kind of server, by collective and by ranks in a server."""

    sm: int
    label: str
    regions: dict[str, dict[int, tuple[Region, ...]]]


class _Tuner(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    platform: dict[str, Platform]


@cache
def _tuner() -> _Tuner:
    return msgspec.convert(read_data("weft.collectives.nccl", "ofi_tuner.toml"), _Tuner, strict=False)


def platform_of(cluster: Cluster) -> Platform | None:
    """Return the kind of server that the tuner takes these nodes for; None where it leaves the choice to NCCL."""
    version = tuple(map(int, constants(cluster.nccl).version.split(".")[:2]))
    if not cluster.ofi_tuner or cluster.nodes <= _MORE_THAN_NODES or version < _FIRST:
        return None
    return next((each for each in _tuner().platform.values() if each.sm == cluster.sm), None)


def tuned_row(cluster: Cluster, collective: Collective, size_bytes: int, rows: Sequence[Row]) -> Row | None:
    """Return the row of NCCL's table that the tuner chooses; None: outside of its regions NCCL chooses."""
    platform = platform_of(cluster)
    regions = platform.regions.get(collective, {}).get(cluster.gpus, ()) if platform else ()
    on = {f"{row.algorithm}/{row.protocol}": row for row in rows if not row.off}
    point = _logarithms((size_bytes, cluster.ranks))
    return next((on[each.row] for each in regions if each.row in on and _is_inside(point, each.at)), None)


def _logarithms(point: _Point) -> _Point:
    return log2(point[0] or _ZERO), log2(point[1] or _ZERO)


def _is_inside(point: _Point, polygon: tuple[_Point, ...]) -> bool:
    """Return whether a point is in a polygon or on its edge: a ray from it crosses an odd number of edges."""
    (x, y), odd = point, False
    corners = [_logarithms(corner) for corner in polygon]
    for (x0, y0), (x1, y1) in pairwise([*corners, corners[0]]):
        if _distance(point, (x0, y0), (x1, y1)) < _ON_EDGE:
            return True
        if (y0 > y) != (y1 > y) and x < x0 + (y - y0) / (y1 - y0) * (x1 - x0):
            odd = not odd
    return odd


def _distance(point: _Point, start: _Point, end: _Point) -> float:
    """Return the distance of a point from an edge."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = dx * dx + dy * dy
    along = ((point[0] - start[0]) * dx + (point[1] - start[1]) * dy) / length if length else 0.0
    nearest = min(1.0, max(0.0, along))
    return hypot(point[0] - start[0] - nearest * dx, point[1] - start[1] - nearest * dy)
