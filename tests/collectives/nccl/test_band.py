"""Bands around predictions, and clusters that are left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from weft.calibration.cross_validation import count_in_bands
from weft.collectives.kinds import Algorithm, Collective
from weft.collectives.nccl.band import band_of, describe, published_bands
from weft.collectives.nccl.calibration import compare_all, find, runs
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.cross_validation import class_table, cross_validate, cross_validation_table, means
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.kind import kind_of
from weft.collectives.nccl.refit import best, refitted, with_constant
from weft.collectives.nccl.times import times


@pytest.mark.parametrize("kind", [Collective.ALL_REDUCE, Collective.ALL_TO_ALL])
def test_no_time_is_shorter_than_the_lines_of_a_gpu_take(kind):
    """900 GB/s each way; of a sum of all, which switches may have made, each GPU receives as many bytes as it has."""
    rack = Cluster(sm=100, gpus=72, nodes=1)
    result = estimate(rack, kind, 8 << 30)
    low_us, _ = band_of(result).around(result.time_us)
    least = 1.0 if kind == Collective.ALL_REDUCE else 71 / 72
    assert low_us >= 0.999999 * least * (8 << 30) / 900e3


def test_clusters_that_were_left_out_are_met_within_the_limits():
    every, large = means()
    assert every <= 0.1
    assert large <= 0.055


def test_nine_of_ten_bands_hold_on_clusters_that_have_no_part_in_them():
    inside, count = count_in_bands(cross_validate())
    assert count == len(compare_all())
    assert 0.9 <= inside / count <= 0.96


def test_85_percent_of_bands_hold_on_each_cluster_but_the_documented_ones():
    few = {
        where: sum(each.is_in_band for each in own) / len(own)
        for where, own in cross_validate().items()
        if sum(each.is_in_band for each in own) < 0.85 * len(own)
    }
    assert few == pytest.approx({"ml-engineering-a100": 12 / 15})


def test_a_class_with_many_clusters_has_a_narrower_band_than_one_without():
    cluster = from_server("dgx-h100", nodes=2)
    seen = estimate(cluster, Collective.ALL_REDUCE, 1 << 30)
    unseen = estimate(cluster, Collective.ALL_REDUCE, 1 << 30, networks=ideal_networks(cluster, network="omni-path"))
    assert band_of(seen).kind == "InfiniBand, large messages, NVLSTree"
    assert not band_of(seen).far
    assert band_of(unseen).far == ("no published run of Omni-Path",)
    assert band_of(unseen).high > band_of(seen).high
    assert band_of(unseen).low < band_of(seen).low


def test_the_errors_of_a_transport_count_for_it_alone():
    """Published runs over Slingshot take up to twice as long at some sizes; an NVLS tree would, too."""
    cluster = from_server("dgx-h100", nodes=2)
    networks = ideal_networks(cluster, network="roce", transport="slingshot")
    over = estimate(cluster, Collective.ALL_REDUCE, 16 << 20, algorithm=Algorithm.NVLS_TREE, networks=networks)
    bare = estimate(cluster, Collective.ALL_REDUCE, 16 << 20, algorithm=Algorithm.NVLS_TREE)
    assert band_of(over).high > 1.2 * band_of(bare).high
    assert band_of(over).kind == "slingshot, middle messages"
    assert "Slingshot" in over.doubts[0]
    without = published_bands().without("cscs-alps").without("sigma2-olivia")
    assert band_of(over, without).far == ("no published run of slingshot",)


def test_a_property_without_published_times_is_named_and_widens_the_band():
    cluster = from_server("dgx-h100", nodes=32)
    near = estimate(from_server("dgx-h100", nodes=8), Collective.ALL_REDUCE, 1 << 30)
    far = estimate(cluster, Collective.ALL_REDUCE, 1 << 30)
    assert band_of(near).far == ()
    assert band_of(far).far == ("32 nodes, and the most that is published is 8",)
    assert band_of(far).high > band_of(near).high
    result = estimate(cluster, Collective.SCATTER, 1 << 40, networks=ideal_networks(cluster, network="omni-path"))
    words = describe(result, band_of(result))
    for why in ("scatter", "Omni-Path", "32 nodes, and the most that is published is 8", "bytes, and the most"):
        assert why in words


def test_a_number_of_adapters_that_does_not_divide_the_gpus_is_named_and_widens_the_band():
    whole = from_server("dgx-h100", nodes=4)
    seven, half = (estimate(replace(whole, nics=nics), Collective.ALL_REDUCE, 1 << 30) for nics in (7, 4))
    assert band_of(seven).far == ("7 adapters for 8 GPUs, and in published runs one number divides the other",)
    assert not band_of(half).far
    assert band_of(seven).high > band_of(half).high


def test_a_constant_is_fitted_again_without_a_cluster():
    """NVLS is fitted to three clusters: without any one of them the result would be similar."""
    now = times().bandwidth.nvls
    assert refitted("ml-engineering-h200").bandwidth.nvls == pytest.approx(now, rel=0.1)
    assert refitted("cscs-alps") == times()
    assert refitted("vultr-b200").pipeline.blackwell_hop == pytest.approx(times().pipeline.blackwell_hop, rel=0.3)
    assert refitted("gcp-a3-high").plugin["tcpx"].rate == pytest.approx(times().plugin["tcpx"].rate, rel=0.1)


def test_the_fit_finds_the_constant_that_made_the_times():
    """Starting from twice the constant, the published runs lead back to it."""
    name = "pipeline.meeting_us"
    fit = times().fit[name]
    twice = with_constant(times(), name, 9.0)
    assert twice.pipeline.meeting_us == 9.0
    assert best(twice, name, fit, fit.runs) == pytest.approx(times().pipeline.meeting_us, rel=0.1)


def test_constants_of_one_cluster_are_those_of_classes_with_one_cluster():
    """And rings with LL on Ampere: other clusters of it have trees."""
    alone = {name for name, fit in times().fit.items() if len({find(run).where for run in fit.runs}) == 1}
    rings = {"generation.ampere.ll_launch_us", "generation.ampere.ll_hop"}
    assert alone == {"pipeline.pcie_hop", *rings}


def test_every_constant_of_ours_says_what_it_is_fitted_to():
    """The others come from NCCL, a plugin or a network, as their source says."""
    recorded = times()
    by_generation = {
        f"generation.{name}.{field}"
        for name, entry in recorded.generation.items()
        for field, value in msgspec.structs.asdict(entry).items()
        if isinstance(value, float) and value not in (0.0, 1.0)  # which are NCCL's own
    }
    ours = {
        f"{table}.{field}"
        for table in ("bandwidth", "pipeline")
        for field, value in msgspec.structs.asdict(getattr(recorded, table)).items()
        if isinstance(value, float)
    }
    of_pairs = {"pairs.nvlink", "pairs.ll_start_us"}
    assert ours | by_generation | of_pairs == {name for name in recorded.fit if not name.startswith("plugin.")}


def test_the_table_has_every_cluster():
    columns, rows, note = cross_validation_table()
    assert [row[0] for row in rows] == list(dict.fromkeys(run.where for run in runs()))
    assert all(len(row) == len(columns) for row in rows)
    assert "bands hold" in note


def test_bands_of_one_node_know_no_network():
    result = estimate(Cluster(sm=90, gpus=8, nodes=1), Collective.ALL_REDUCE, 8)
    assert result.fabric == "NVLink"
    assert band_of(result).kind == "one server, small messages, Ring"


def test_the_document_has_the_table_as_it_is():
    text = (Path(__file__).parents[3] / "docs" / "calibration.md").read_text(encoding="utf-8")
    _, rows, note = cross_validation_table()
    for row in (*rows, *class_table()[1]):
        assert "| " + " | ".join(cell or " " for cell in row) + " |" in text, row
    for line in note.splitlines():
        assert line in text


@pytest.mark.parametrize(
    ("size_bytes", "size"),
    [(64 << 10, "small"), ((64 << 10) + 1, "middle"), ((256 << 20) - 1, "middle"), (256 << 20, "large")],
)
def test_messages_are_small_up_to_64_kib_and_large_from_256_mib(size_bytes, size):
    cluster = from_server("dgx-h100", nodes=2)
    assert kind_of(estimate(cluster, Collective.ALL_REDUCE, size_bytes))[1] == f"{size} messages"
