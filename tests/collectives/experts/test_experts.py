"""Dispatch and combine of mixture-of-experts layers by fused kernels."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np
import pytest

import weft
from weft.api.predictions import place_ranks
from weft.calibration.cross_validation import count_in_bands
from weft.calibration.figure import mean_error
from weft.collectives.experts.band import band_of
from weft.collectives.experts.bench import _all_rails, run
from weft.collectives.experts.calibration import (
    calibration_table,
    class_table,
    cross_validate,
    left_out_figures,
    refitted,
    runs,
)
from weft.collectives.experts.estimate import Links, estimate_experts, fused_times
from weft.collectives.experts.kernels import find_kernel, kernels
from weft.collectives.experts.routing import CopyPer, Layer
from weft.collectives.kinds import Collective
from weft.collectives.nccl.band import band_of as nccl_band_of
from weft.collectives.nccl.cluster import from_server
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.measure import CONNECTIONS
from weft.errors import ConfigError, UnknownName

FOUR = from_server("dgx-h100", nodes=4)


def brute_force(layer: Layer, servers: int, gpus: int) -> tuple[float, float]:
    """Return the mean copies to servers and GPUs over all choices of servers and experts."""
    per_gpu, per_server = layer.experts // (servers * gpus), layer.experts // servers
    to_servers, to_gpus, count = 0, 0, 0
    for chosen in combinations(range(servers), min(servers, layer.groups or servers)):
        candidates = [expert for expert in range(layer.experts) if expert // per_server in chosen]
        for picked in combinations(candidates, layer.topk):
            to_servers += len({expert // per_server for expert in picked})
            to_gpus += len({expert // per_gpu for expert in picked})
            count += 1
    return to_servers / count, to_gpus / count


@pytest.mark.parametrize("groups", [None, 2])
def test_copies_are_the_mean_over_all_choices_of_experts(groups):
    layer = Layer(tokens=1, topk=3, experts=12, groups=groups)
    expected = brute_force(layer, 3, 2)
    assert (layer.copies(CopyPer.SERVER, 3, 2), layer.copies(CopyPer.GPU, 3, 2)) == pytest.approx(expected)
    assert layer.copies(CopyPer.EXPERT, 3, 2) == 3


def test_busiest_receiver_has_the_excess_of_a_random_router():
    layer, ranks = Layer(tokens=64, topk=4, experts=32), 16
    draw = np.random.default_rng(1)
    loads = []
    for _ in range(40):
        experts = np.argsort(draw.random((ranks * layer.tokens, layer.experts)), axis=1)[:, : layer.topk]
        to_gpus = [np.unique(row) for row in experts // (layer.experts // ranks)]
        loads.append(np.bincount(np.concatenate(to_gpus), minlength=ranks))
    measured = np.mean([load.max() / load.mean() for load in loads])
    assert layer.excess(layer.copies(CopyPer.GPU, 2, 8), ranks) == pytest.approx(measured, abs=0.02)
    assert replace(layer, balanced=True).excess(4, ranks) == 1


def test_fp8_tokens_have_scales():
    layer = Layer(tokens=1)  # by default the size of DeepSeek-V3's
    assert (layer.token_bytes(1), layer.token_bytes(2)) == (7168 + 56 * 4, 14336)


def test_large_batch_takes_its_bytes_over_the_slower_link():
    """With forwarding, a token crosses the network once for each server, and NVLink once for each GPU."""
    layer = Layer(tokens=1 << 20, balanced=True)
    links = Links(servers=2, gpus=8, inside_gbyte_s=900, adapter_gbyte_s=50)
    done = fused_times(find_kernel("deepep"), layer, links)
    assert done.dispatch.network_bytes == layer.tokens * layer.token_bytes(1) * 2 * 1 / 2
    assert done.dispatch.inside_bytes == layer.tokens * layer.token_bytes(1) * 8 * 7 / 8
    assert done.dispatch.bound == "adapters"
    assert done.dispatch.time_us == pytest.approx(done.dispatch.network_bytes / 50e3, rel=0.01)
    slow = fused_times(find_kernel("deepep"), layer, replace(links, inside_gbyte_s=200))
    assert slow.dispatch.bound == "NVLink"
    assert slow.dispatch.time_us > done.dispatch.time_us


def test_forwarding_sends_fewer_bytes_over_the_network_than_pairs():
    layer = Layer(tokens=4096, groups=4)
    times = {kernel: estimate_experts(FOUR, layer, kernel=kernel) for kernel in ("deepep", "deepep-ll", "pairs")}
    sent = {kernel: each.dispatch.network_bytes for kernel, each in times.items()}
    assert sent["deepep"] < sent["deepep-ll"] == sent["pairs"]
    assert times["deepep"].dispatch.time_us < times["deepep-ll"].dispatch.time_us < times["pairs"].dispatch.time_us


def test_few_tokens_take_the_start_of_the_kernel():
    done = estimate_experts(FOUR, Layer(tokens=1), kernel="deepep-ll")
    assert done.dispatch.bound == "start"
    assert find_kernel("deepep-ll").start_us < done.dispatch.time_us < 25


@pytest.mark.parametrize("servers", [1, 4])
@pytest.mark.parametrize("kernel", ["deepep", "deepep-ll"])
def test_bandwidths_count_all_copies_and_the_bytes_of_links_those_that_leave(kernel, servers):
    """Libraries divide the bytes of all copies, those to the own server and GPU included, by the time."""
    layer = Layer(tokens=4096, experts=256, topk=8)
    call = fused_times(
        find_kernel(kernel), layer, Links(servers=servers, gpus=8, inside_gbyte_s=450, adapter_gbyte_s=50)
    )
    forwards, sent_bytes, ranks = kernel == "deepep", layer.tokens * layer.token_bytes(1), 8 * servers
    to_servers = layer.copies(CopyPer.SERVER if forwards else CopyPer.EXPERT, servers, 8)
    to_gpus = layer.copies(CopyPer.GPU if forwards else CopyPer.EXPERT, servers, 8)
    outside, inside = ((servers - 1) / servers, 7 / 8) if forwards else ((ranks - 8) / ranks, 7 / ranks)
    done = call.dispatch
    assert done.network_bytes == pytest.approx(sent_bytes * to_servers * outside)
    assert done.inside_bytes == pytest.approx(sent_bytes * to_gpus * inside)
    network_bytes, inside_bytes = (rate * done.time_us * 1000 for rate in (done.network_gbyte_s, done.inside_gbyte_s))
    assert network_bytes == pytest.approx(sent_bytes * to_servers if servers > 1 else 0)
    assert inside_bytes == pytest.approx(sent_bytes * to_gpus if forwards or servers == 1 else 0)


def test_kernels_that_forward_exchange_counts_first():
    """Two barriers and the counts, and one request for each other server."""
    links = Links(servers=4, gpus=8, inside_gbyte_s=450, adapter_gbyte_s=50, step_us=5, post_us=0.5)
    times = {name: fused_times(find_kernel(name), Layer(tokens=64), links) for name in ("deepep", "deepep-ll")}
    assert times["deepep"].notify_us == pytest.approx(find_kernel("deepep").start_us + 3 * 5 + 3 * 0.5)
    assert times["deepep-ll"].notify_us == 0
    parts = times["deepep"].notify_us, times["deepep"].dispatch.time_us, times["deepep"].combine.time_us
    assert times["deepep"].total_us == pytest.approx(sum(parts))


def test_stages_that_overlap_take_the_longer_one_and_the_part_of_the_shorter_that_is_not_hidden():
    layer = Layer(tokens=1 << 16, balanced=True)
    kernel = msgspec.structs.replace(find_kernel("deepep"), serial=(0.5, 0.5), sms=0, inside=1.0, floor_us=(0.0, 0.0))
    links = Links(servers=2, gpus=8, inside_gbyte_s=400, adapter_gbyte_s=50, step_us=2)
    done = fused_times(kernel, layer, links).dispatch
    network_us, inside_us = done.network_bytes / 50e3, done.inside_bytes / 400e3
    assert network_us > inside_us
    assert done.time_us == pytest.approx(kernel.start_us + 2 + network_us + 0.5 * inside_us)
    one_server = fused_times(kernel, layer, replace(links, servers=1)).dispatch
    assert one_server.time_us == pytest.approx(kernel.start_us + 2 + one_server.inside_bytes / 400e3, rel=1e-9)
    one_gpu = fused_times(kernel, layer, replace(links, gpus=1)).dispatch
    assert one_gpu.time_us == pytest.approx(kernel.start_us + 2 + one_gpu.network_bytes / 50e3, rel=1e-9)
    least_us = 10 * done.time_us
    floored = msgspec.structs.replace(kernel, floor_us=(least_us, 0.0))
    assert fused_times(floored, layer, links).dispatch.time_us == least_us


def test_few_sms_limit_the_copies_over_nvlink():
    few, usual = (estimate_experts(FOUR, Layer(tokens=4096), sms=sms) for sms in (2, None))
    assert few.dispatch.bound == "SMs"
    assert few.dispatch.time_us > 2 * usual.dispatch.time_us


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"experts": 100}, {}, "--experts 100 is not a multiple of 32 GPUs"),
        ({"topk": 300}, {}, "--topk 300"),
        ({"topk": 96, "groups": 1}, {}, "64 experts of --topk-groups 1"),
        ({"tokens": 0}, {}, "--num-tokens must be at least 1"),
        ({"dispatch_bytes": 3}, {}, "3 bytes"),
        ({}, {"kernel": "one-sided"}, "one NVLink domain"),
        ({}, {"kernel": "deepep-ll", "sms": 4}, "--sms 4 changes nothing"),
        ({}, {"kernel": "pairs", "sms": 4}, "--sms 4 changes nothing"),
        ({}, {"sms": 0}, "--sms must be at least 1"),
    ],
)
def test_impossible_layers_are_refused(changes, arguments, message):
    with pytest.raises(ConfigError, match=message):
        estimate_experts(FOUR, Layer(**{"tokens": 64} | changes), **arguments)


def test_unknown_kernel_is_refused_with_the_names():
    with pytest.raises(UnknownName, match="did you mean deepep"):
        estimate_experts(FOUR, Layer(tokens=1), kernel="deepp")


def test_traffic_of_direct_kernels_reaches_all_rails_of_other_servers():
    ranks = place_ranks(weft.load("superpod:su=1,servers=3"), "3")
    traffic = _all_rails(ranks)
    place = {int(slot): (server, rail) for (server, rail), slot in np.ndenumerate(ranks.adapters)}
    pairs = {(place[int(src)], place[int(dst)]) for src, dst in zip(traffic.src, traffic.dst, strict=True)}
    assert all(src[0] != dst[0] for src, dst in pairs)
    assert {dst[1] for src, dst in pairs if src == (0, 0)} == set(range(8))
    assert len(traffic) == CONNECTIONS * 24 * 16  # from each of 24 adapters to the 16 of other servers
    many = _all_rails(place_ranks(weft.load("superpod:su=1,servers=8"), "8"))
    assert len(many) == CONNECTIONS * 64 * 32  # evenly spaced shifts, so that many servers take no longer


def test_slow_cable_slows_the_kernels():
    whole = place_ranks(weft.load("star:hosts=2,server=dgx-h100"), "2")
    slow = place_ranks(weft.load("star:hosts=2,server=dgx-h100,speed=HDR"), "2")
    layers = [Layer(tokens=4096)]
    for kernel in ("deepep", "deepep-ll"):
        fast_us, slow_us = (run(ranks, layers, kernel=kernel).rows[0].combine.time_us for ranks in (whole, slow))
        assert slow_us > 1.5 * fast_us


def test_part_of_a_server_can_be_used_alone():
    ranks = place_ranks(weft.load("star:hosts=1,server=dgx-h100"), "1")
    assert run(ranks, [Layer(tokens=64)], kernel="one-sided", gpus=4).rows[0].links.gpus == 4
    assert run(ranks, [Layer(tokens=64)], kernel="one-sided", gpus=2).rows[0].links.gpus == 2
    for wrong in (1, 9):
        with pytest.raises(ConfigError, match="a part of a server"):
            run(ranks, [Layer(tokens=64)], gpus=wrong)
    with pytest.raises(ConfigError, match="4 GPUs of 2 servers"):
        run(place_ranks(weft.load("star:hosts=2,server=dgx-h100"), "2"), [Layer(tokens=64)], gpus=4)


# -- published times --------------------------------------------------------------------------------------------------


def test_published_times_are_within_15_percent_with_their_hardware_left_out():
    assert mean_error(left_out_figures()) < 0.10
    forwarded = [figure for figure in left_out_figures() if figure.kind[0] == "a copy for each server"]
    assert mean_error(forwarded) < 0.15
    inside, count = count_in_bands(cross_validate())
    assert inside / count >= 0.85


def test_constants_are_those_that_fit_best():
    for name in {published.kernel for published in runs()}:
        now, best = kernels()[name], refitted(name)
        for field in now.fitted:
            assert getattr(now, field) == pytest.approx(getattr(best, field), rel=0.05), (name, field)


def test_the_document_has_the_classes_as_they_are():
    text = (Path(__file__).parents[3] / "docs" / "calibration.md").read_text(encoding="utf-8")
    for row in class_table()[1]:
        assert f"| {' | '.join(row)} |" in text
    assert calibration_table()[2].partition(" Every time")[0] in text


def test_kernel_without_published_times_says_so():
    unpublished, published = (estimate_experts(FOUR, Layer(tokens=64), kernel=kernel) for kernel in ("deepep", "mori"))
    assert "no published time of deepep" in band_of(unpublished, unpublished.dispatch).far
    assert not band_of(published, published.combine).far


def test_pairs_have_the_band_of_nccls_all_to_all_of_their_size():
    layer = Layer(tokens=4096, topk=8)
    times = estimate_experts(FOUR, layer, kernel="pairs")
    for call, element_bytes in ((times.dispatch, 1), (times.combine, 2)):
        whole = estimate(FOUR, Collective.ALL_TO_ALL, 4096 * 8 * layer.token_bytes(element_bytes))
        assert (call.time_us, band_of(times, call)) == (whole.time_us, nccl_band_of(whole))
