"""Bands: from the errors of published figures of a kind, and wide for kinds without any."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from weft.calibration.figure import Figure
from weft.collectives.mpi.band import IN_PODS, OVER_DATAGRAMS, draw, find_band, kind_of, remarks

RDMA = kind_of("collectives", 8, "over RDMA")
LATENCY = kind_of("latency", 8, "over RDMA")
TCP = kind_of("collectives", 8, "over TCP")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedFigure(Figure):
    ranks: int


def published(cluster: str, kind: tuple[str, ...], slowdown: float, ranks: int = 512) -> RankedFigure:
    return RankedFigure(run=cluster, cluster=cluster, kind=kind, ranks=ranks, measured=slowdown, predicted=1.0)


FIGURES = [
    *(published(f"a{number}", RDMA, slowdown) for number, slowdown in enumerate((0.5, 1.0, 2.0, 3.0))),
    *(published(f"b{number}", LATENCY, slowdown) for number, slowdown in enumerate((0.9, 1.0, 1.1))),
]


def test_every_kind_has_a_band_with_its_clusters_ranks_and_worst_figure():
    bands = draw(FIGURES)
    band = bands[", ".join(RDMA)]
    assert (band.clusters, band.ranks, band.worst) == (4, 512, 3.0)
    assert band.low < 0.5
    assert band.high > 3.0
    assert bands[", ".join(LATENCY)].high < band.high
    assert bands["any collectives"].clusters == 4


def test_a_kind_without_published_figures_has_the_band_of_its_class_or_of_an_unseen_one():
    bands = draw(FIGURES)
    assert find_band(kind_of("collectives", 1 << 20, "over RDMA"), 512, bands) == bands[RDMA[0]]
    assert find_band(TCP, 512, bands) == bands["any collectives"]


def test_errors_of_collectives_have_no_part_in_the_bands_of_single_messages():
    near = find_band(LATENCY, 2, draw(FIGURES))
    far = find_band(LATENCY, 2, draw([*FIGURES, published("c", RDMA, 40.0)]))
    assert near == far


def test_collectives_in_pods_have_no_part_in_the_bands_of_others():
    far = draw([*FIGURES, published("c", kind_of("collectives", 8, IN_PODS), 40.0)])
    assert find_band(RDMA, 512, far) == find_band(RDMA, 512, draw(FIGURES))
    assert find_band(kind_of("collectives", 8, OVER_DATAGRAMS), 512, far) == far["any collectives that wait"]


def test_beyond_what_was_published_the_upper_end_grows_with_the_ranks():
    bands = draw(FIGURES)
    near, far = (find_band(RDMA, ranks, bands) for ranks in (512, 2048))
    assert far.high == pytest.approx(4 * near.high)
    assert far.low == near.low


def test_a_figure_that_is_far_or_has_a_wide_band_is_remarked():
    bands = draw(FIGURES)
    assert not list(remarks(LATENCY, 2, bands))
    (far,) = remarks(RDMA, 2048, bands)
    assert far == "Far from anything published: 2,048 ranks, and the most of collectives over RDMA are 512"
    (unknown,) = remarks(TCP, 512, bands)
    assert unknown == "Far from anything published: no published collectives over TCP"
    (wide,) = remarks(RDMA, 512, draw([*FIGURES, published("c", RDMA, 40.0)]))
    assert wide == "Published collectives over RDMA, up to 2 KiB took up to 40 times as long: the band is wide"
