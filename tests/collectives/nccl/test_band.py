"""Bands around predictions, and clusters that are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from weft.calibration.cross_validation import count_in_bands
from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.nccl.band import Evidence, band_of, describe
from weft.collectives.nccl.calibration import compare, compare_all, find, runs
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.cross_validation import (
    best,
    cross_validate,
    cross_validation_table,
    means,
    refitted,
    with_constant,
)
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.times import times


@pytest.mark.parametrize("kind", [Collective.ALL_REDUCE, Collective.ALL_TO_ALL])
def test_no_time_is_shorter_than_the_lines_of_a_gpu_take(kind):
    """900 GB/s each way; of a sum of all, which switches may have made, each GPU receives as many bytes as it has."""
    rack = Cluster(sm=100, gpus=72, nodes=1)
    result = estimate(rack, kind, 8 << 30)
    low_us, _ = band_of(result).around(result.time_us)
    least = 1.0 if kind == Collective.ALL_REDUCE else 71 / 72
    assert low_us >= 0.999999 * least * (8 << 30) / 900e3
    assert kind == Collective.ALL_REDUCE or low_us == pytest.approx(least * (8 << 30) / 900e3)


def test_clusters_that_were_left_out_are_met_within_the_limits():
    every, large = means()
    assert every <= 0.10
    assert large <= 0.05


def test_nine_of_ten_bands_hold_on_clusters_that_have_no_part_in_them():
    inside, count = count_in_bands(cross_validate())
    assert count == len(compare_all())
    assert inside >= 0.9 * count


def test_a_band_is_as_wide_as_the_worst_of_its_kind_and_a_part_more():
    """Two clusters, off by a quarter and by nothing: the third may be off by 1.25 to the power of 1.5."""
    item, other = (compare(find(name))[-1] for name in ("h100-1", "h200-8"))
    exact, quarter = (
        replace(figure, measured=figure.predicted * factor) for figure, factor in ((item, 1.0), (other, 1.25))
    )
    result = estimate(from_server("dgx-h100", nodes=1), Collective.ALL_REDUCE, 8 << 30)
    results = band_of(result, Evidence((exact, quarter)))
    assert results.clusters == 2
    assert results.high == pytest.approx(1.25**1.5)
    assert 1 / results.low == pytest.approx(1.25**1.5)


def test_a_transport_that_nobody_published_has_all_algorithms_for_witnesses():
    """As if they were one cluster: the worst of them squared."""
    cluster = from_server("dgx-h100", nodes=2)
    result = estimate(
        cluster, Collective.ALL_REDUCE, 1 << 20, networks=ideal_networks(cluster, network="roce", transport="slingshot")
    )
    rest = Evidence(tuple(figure for figure in compare_all() if figure.estimate.transport != "slingshot"))
    results = band_of(result, rest)
    alike = [
        item for item in rest.figures if item.estimate.cluster.nodes > 1 and 64 << 10 < item.size_bytes < 256 << 20
    ]
    worst = max(max(item.error + 1, 1 / (item.error + 1)) for item in alike)
    assert results.kind == "middle messages between nodes"
    assert results.high == pytest.approx(worst**2)
    assert "Slingshot" in result.doubts[0]


def test_what_ran_over_a_transport_counts_by_whatever_algorithm():
    """NCCL over Slingshot takes up to 2.9 times as long at some sizes, by trees and rings; an NVLS tree would, too."""
    cluster = from_server("dgx-h100", nodes=2)
    networks = ideal_networks(cluster, network="roce", transport="slingshot")
    over, bare = (
        band_of(estimate(cluster, Collective.ALL_REDUCE, 16 << 20, algorithm=Algorithm.NVLS_TREE, networks=between))
        for between in (networks, None)
    )
    assert over.high / over.low > 2**2 > bare.high / bare.low
    assert over.kind == "middle messages between nodes, slingshot"


def test_no_band_is_narrower_than_half_of_the_clusters_need():
    exact = [
        replace(figure, measured=figure.predicted * factor)
        for name, factor in (("h100-1", 1.0), ("h100-1-cloud", 1.0), ("h100-ndr-2", 1.2))
        for figure in compare(find(name))[-1:]
    ]
    result = estimate(from_server("dgx-h100", nodes=1), Collective.ALL_REDUCE, 16 << 30)
    assert result.algorithm == exact[0].estimate.algorithm == Algorithm.NVLS
    alone = band_of(result, Evidence(tuple(exact[:2])))
    assert alone.high == 1
    usual = band_of(result, Evidence((*exact[:2], exact[2])))
    assert usual.high == 1
    most = band_of(result, Evidence((*exact[:2], exact[2], replace(exact[2], cluster="elsewhere"))))
    assert most.high == pytest.approx(1.2**0.5)


def test_a_kind_that_one_cluster_published_is_taken_wider():
    ring = estimate(from_server("dgx-h100", nodes=4), Collective.ALL_REDUCE, 8 << 30, algorithm=Algorithm.RING)
    assert band_of(ring).kind == "large messages between nodes, Ring, InfiniBand, more than two nodes"
    chain = estimate(
        from_server("dgx-h100", nodes=4, sharp=True), Collective.ALL_REDUCE, 8 << 30, algorithm=Algorithm.COLLNET_CHAIN
    )
    assert band_of(chain).kind == "large messages between nodes"
    assert band_of(chain).clusters > band_of(ring).clusters


@pytest.mark.parametrize("collective", [Collective.ALL_TO_ALL, Collective.BROADCAST])
def test_what_is_off_in_rings_says_little_of_pairs_and_lines(collective):
    """One cluster published pairs between nodes and none a broadcast: all algorithms, squared, but those of clouds."""
    result = estimate(from_server("dgx-h100", nodes=4), collective, 1 << 20)
    results, alike = band_of(result), [item for item in compare_all() if item.estimate.cluster.nodes > 1]
    middle = [item for item in alike if 64 << 10 < item.size_bytes < 256 << 20 and not item.estimate.transport]
    worst = max(max(item.error + 1, 1 / (item.error + 1)) for item in middle)
    assert results.kind == "middle messages between nodes"
    assert results.high == pytest.approx(worst**2)


def test_what_nobody_published_is_said():
    cluster = from_server("dgx-h100", nodes=32)
    near = estimate(from_server("dgx-h100", nodes=2), Collective.ALL_REDUCE, 1 << 30)
    assert band_of(near).far == ()
    networks = ideal_networks(cluster, network="omni-path")
    result = estimate(cluster, Collective.REDUCE_SCATTER, 1 << 40, networks=networks)
    far = describe(result, band_of(result))
    for why in ("reduce_scatter", "Omni-Path", "32 nodes, and the most that is published is 8", "bytes, and the most"):
        assert why in far


def test_a_constant_is_fitted_again_without_a_cluster():
    """NVLS is known from three clusters: had one of them not been published, it would be much the same."""
    now = times().bandwidth.nvls
    assert refitted("ml-engineering-h200").bandwidth.nvls == pytest.approx(now, rel=0.1)
    assert refitted("cscs-alps") == times()
    assert refitted("vultr-b200").pipeline.blackwell_hop == pytest.approx(times().pipeline.blackwell_hop, rel=0.3)


def test_the_fit_finds_the_constant_that_made_the_times():
    """From a constant twice as large, the published runs lead back."""
    name = "pipeline.meeting_us"
    fit = times().fit[name]
    assert best(name, fit, fit.runs) == pytest.approx(times().pipeline.meeting_us, rel=0.1)
    assert with_constant(times(), name, 9.0).pipeline.meeting_us == 9.0


def test_no_constant_stands_on_one_cluster_alone():
    for name, fit in times().fit.items():
        assert len({find(run).where for run in fit.runs}) > 1, name


def test_every_constant_of_ours_says_what_it_is_fitted_to():
    """The others are NCCL's own, a plugin's or a network's, and their source says whose."""
    recorded = times()
    ours = {
        f"{table}.{field}"
        for table in ("bandwidth", "pipeline")
        for field, value in msgspec.structs.asdict(getattr(recorded, table)).items()
        if isinstance(value, float)
    }
    assert ours == set(recorded.fit)


def test_the_table_has_every_cluster():
    columns, rows, note = cross_validation_table()
    assert [row[0] for row in rows] == list(dict.fromkeys(run.where for run in runs()))
    assert all(len(row) == len(columns) for row in rows)
    assert "bands hold" in note


def test_bands_of_one_node_know_no_network():
    result = estimate(Cluster(sm=90, gpus=8, nodes=1), Collective.ALL_REDUCE, 8)
    assert result.fabric == "NVLink"
    assert "in one node" in band_of(result).kind


def test_the_document_has_the_table_as_it_is():
    text = (Path(__file__).parents[3] / "docs" / "collectives.md").read_text(encoding="utf-8")
    _, rows, note = cross_validation_table()
    for row in rows:
        assert "| " + " | ".join(cell or " " for cell in row) + " |" in text, row
    assert note in text
