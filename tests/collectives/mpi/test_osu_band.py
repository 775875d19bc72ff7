"""Bands: as far as published figures of a kind are off, and more where few clusters published."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import pytest

from weft.calibration.figure import Figure
from weft.collectives.mpi.band import draw, find_band, kind_of, remarks

RDMA = kind_of("collectives", 8, "RDMA", 512)
MANY = kind_of("collectives", 8, "RDMA", 6144)
TCP = kind_of("collectives", 8, "TCP", 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedFigure(Figure):
    ranks: int


def published(cluster: str, kind: tuple[str, ...], slowdown: float, ranks: int = 512) -> RankedFigure:
    return RankedFigure(run=cluster, cluster=cluster, kind=kind, ranks=ranks, measured=slowdown, predicted=1.0)


def test_a_band_goes_as_far_as_the_farthest_cluster_and_a_kth_more():
    bands = draw([published("a", RDMA, 0.5), published("b", RDMA, 3.0)])
    band = bands[", ".join(RDMA)]
    assert (band.low, band.high) == pytest.approx((0.5**1.5, 3.0**1.5))
    assert (band.clusters, band.ranks, band.worst) == (2, 512, 3.0)


def test_of_a_cluster_the_outermost_tenth_does_not_count():
    rows = [published("a", RDMA, 2.0)] * 99 + [published("a", RDMA, 50.0), published("b", RDMA, 1.0)]
    band = draw(rows)[", ".join(RDMA)]
    assert band.high == pytest.approx(2.0**1.5)
    assert band.worst == 50.0


def test_no_band_is_narrower_than_constants_are_known():
    for test, size, least in (("latency", 8, 0.15), ("bandwidth", 8, 0.3), ("bandwidth", 4096, 0.15)):
        kind = kind_of(test, size, "RDMA", 2)
        band = draw([published("a", kind, 1.0)])[", ".join(kind)]
        assert (band.low, band.high) == pytest.approx((exp(-least), exp(least)))


def test_a_kind_of_one_cluster_is_taken_wider():
    rows = [published("a", RDMA, 2.0), published("b", RDMA, 2.0), published("c", MANY, 40.0, ranks=6144)]
    bands = draw([*rows, published("d", TCP, 3.0)])
    assert find_band(RDMA, 512, bands).high == pytest.approx(2.0**1.5)
    assert find_band(MANY, 6144, bands).clusters == 3
    assert find_band(TCP, 512, bands).clusters == find_band(kind_of("collectives", 8, "SRD", 4), 4, bands).clusters == 4
    (wide,) = remarks(TCP, 512, bands)
    assert wide == "Published collectives up to 2 KiB took up to 40 times as long: the band is wide"


def test_beyond_what_was_published_the_upper_end_grows_with_the_ranks():
    bands = draw([published("a", RDMA, 2.0), published("b", RDMA, 2.0)])
    near, far = (find_band(RDMA, ranks, bands) for ranks in (512, 2048))
    assert far.high == pytest.approx(4 * near.high)
    assert far.low == near.low


def test_what_is_wide_or_far_is_said():
    bands = draw([published("a", RDMA, 2.0), published("b", RDMA, 2.5)])
    assert not list(remarks(RDMA, 512, bands))
    wide, far = remarks(RDMA, 2048, bands)
    assert wide == "Published collectives up to 2 KiB over RDMA took up to 2 times as long: the band is wide"
    assert far == "Far from anything published: 2,048 ranks, and the most over RDMA are 512"
    (unknown,) = remarks(TCP, 512, bands)
    assert unknown == "Far from anything published: no published collectives up to 2 KiB over TCP"
