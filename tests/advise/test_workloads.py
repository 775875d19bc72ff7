"""Workloads on each fabric: closed forms, simulated runs, and workloads without messages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.advise import rows
from weft.advise.case import Case
from weft.advise.rows import Bench, Point
from weft.advise.rule import decide
from weft.advise.workloads import Messages, Storage, cluster_of, fabrics, ideal_of, options, routed
from weft.collectives.interconnect import options_of
from weft.collectives.mpi import bench
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import place
from weft.errors import ConfigError
from weft.fabric.prices import Band
from weft.plan.bill import Bill, Item
from weft.sim.engine import Memory


def test_mpi_waits_as_long_as_weft_osu_prints():
    for size_bytes in (8, 1 << 20):
        case = Case(workload="mpi", servers=16, rate_per_s=1000, message_bytes=size_bytes)
        for option in options(case):
            fabric = routed(option, case)
            ranks = place(fabric, fabric.servers[: case.servers])
            rules = replace(options_of(option.interconnect, case.seed), memory=Memory.HOST)
            row = bench.run(ranks, bench.Settings(test=bench.Test.ALLREDUCE, only=(size_bytes,), options=rules)).rows[0]
            wait_us = 1e6 * Messages(case).run(option).seconds - 1000
            assert wait_us == pytest.approx(row.value)
            assert 1e6 * Messages(case).guess(option, case).seconds - 1000 == pytest.approx(row.value, rel=0.25)


def test_socket_workloads_do_not_profit_from_rdma():
    """InfiniBand carries IP through the same kernel stack."""
    for workload in ("batch", "web"):
        case = Case(workload=workload, servers=4, server="host")
        times = [Messages(case).run(option).seconds for option in options(case)]
        assert max(times) < 1.01 * min(times)
        tcp = ideal_of(options(case)[-1].interconnect, case)[Pattern.PAIRS]
        there_and_back_us = 2 * (tcp.step_us + 4096 / tcp.adapter_gbyte_s / 1e3)
        assert times[-1] - 1 / case.rate == pytest.approx(there_and_back_us / 1e6, rel=0.05)
        assert {option.answer for option in options(case)} == {"InfiniBand", "Ethernet"}
        assert decide(Bench(case).rows(), case).answer == "Ethernet"


def test_storage_on_ethernet_delays_compute_on_infiniband():
    """A storage server reads 90 GB/s from its disks, and two adapters of 100G carry 25 of them."""
    case = Case(workload="storage", servers=8)
    same, mixed, roce, *_, ethernet = options(case)
    times = {option: Storage(case).run(option).seconds - 1 for option in options(case)}
    assert times[mixed] / times[same] == pytest.approx(90 / 25, rel=0.05)
    assert times[roce] == pytest.approx(times[same], rel=0.01)
    for option in options(case):
        assert Storage(case).guess(option, case).seconds - 1 == pytest.approx(times[option], rel=0.05)
    assert len(fabrics(mixed, case, 8)) == 2
    assert times[ethernet] > times[roce]


def test_fabric_too_small_for_the_servers_is_left_out_with_its_reason(monkeypatch):
    def refuse(option, case, servers):
        if option.answer == "Ethernet":
            raise ConfigError(f"{servers} servers do not fit")
        return fabrics(option, case, servers)

    monkeypatch.setattr(rows, "fabrics", refuse)
    bench = Bench(Case(workload="mpi", servers=2))
    assert list(bench.left_out.values()) == ["2 servers do not fit"]
    assert [row.option.answer for row in bench.rows()] == ["InfiniBand", "RoCE", "Spectrum-X", "Ultra Ethernet"]


def test_times_at_other_points_are_closed_forms_corrected_by_the_run_unless_congestion_or_the_fabric_differ(
    monkeypatch,
):
    """Ethernet has no run, as two servers do not fit. With 400 servers packets meet above the leaves."""

    def refuse(option, case, servers):
        if option.answer == "Ethernet" and servers == 2:
            raise ConfigError("2 servers do not fit")
        return fabrics(option, case, servers)

    monkeypatch.setattr(rows, "fabrics", refuse)
    bench = Bench(Case(workload="web", servers=2))
    runs = {row.option: row.seconds / bench.work.guess(row.option, bench.case).seconds for row in bench.rows()}
    for servers, corrected in ((3, True), (400, False)):
        case = replace(bench.case, servers=servers)
        for row in bench.rows(Point(case=case)):
            factor = runs.get(row.option, 1.0) if corrected else 1.0
            assert row.seconds == pytest.approx(factor * bench.work.guess(row.option, case).seconds, rel=1e-12)
    assert all(abs(factor - 1) > 1e-6 for factor in runs.values())


def test_unknown_power_of_servers_costs_nothing_and_that_of_adapters_is_part_of_it():
    bench, price = Bench(Case(workload="single-node", servers=1)), Band(low_usd=10.0, high_usd=10.0)
    items = tuple(
        Item(kind=kind, name=kind, count=2, price=price, power_w=300.0, inside_w=inside_w)
        for kind, inside_w in (("switch", 0.0), ("adapter", 100.0))
    )
    unknown, none = (
        bench._cost_over_years(
            Bill(items=items, servers=(Item(kind="server", name="s", count=1, price=price, power_w=power_w),)), price
        )
        for power_w in (None, 0.0)
    )
    assert unknown == none
    assert none.low_usd > 50


def test_servers_count_as_one_rank_with_one_adapter_unless_each_gpu_has_its_own():
    sockets, gpus = (Case(workload=workload, servers=4) for workload in ("web", "mpi"))
    for option in options(sockets):
        cluster = cluster_of(option.interconnect, sockets)
        rate_gbit_s = sockets.template.card_for(option.interconnect).rate_gbit_s
        assert (cluster.nodes, cluster.gpus, cluster.nics, cluster.nic_gbit_s) == (4, 1, 1, rate_gbit_s)
    rails = cluster_of(options(gpus)[0].interconnect, gpus)
    assert (rails.nodes, rails.gpus, rails.nics) == (4, 8, 8)


def test_default_model_fits_on_a_single_server():
    case = Case(servers=1)
    assert case.chosen_model == "llama3-8b"
    bench = Bench(case)
    result = bench.rows()
    assert {row.price_usd for row in result} == {0.0}
    stored = replace(result[0].option, storage="ethernet")  # no checkpoint leaves a single server
    assert bench.work.run(stored) == bench.work.run(result[0].option)
    fitting = bench.work._layouts(result[0].option, case)
    larger = replace(fitting[0], gpus=16, tp=8, pp=2, cp=1)  # does not divide over 8 GPUs
    assert bench.work._cut([larger, *fitting, larger], case) == fitting
    with pytest.raises(ConfigError, match="Or give a smaller --model"):
        Bench(Case(servers=1, model="llama3-70b"))


@pytest.mark.parametrize(
    ("servers", "tokens", "sequences"),
    [(2048, 16e6, 2048), (1250, 16e6, 2000), (4, 1e6, 128), (4, 8192, 1), (4, 1, 1), (3, 20 * 8192, 24)],
)
def test_batch_in_tokens_is_rounded_to_sequences_that_divide_over_the_gpus(servers, tokens, sequences):
    """16 M tokens are 1,953 sequences of 8,192: one for every eighth of 16,384 GPUs, every fifth of 10,000."""
    case = Case(servers=servers, tokens=tokens)
    assert case.batch(8192) == sequences
    assert case.gpus % sequences == 0 or sequences % case.gpus == 0


def test_smaller_batches_lose_a_larger_share_to_the_network():
    """A batch in tokens stays the same when servers are added; a batch per GPU grows with them."""
    by_gpu, by_tokens = Case(servers=32, model="gpt-7.5b"), Case(servers=32, model="gpt-7.5b", tokens=256 * 2048)
    assert (by_gpu.batch(2048), by_tokens.batch(2048)) == (512, 256)
    assert replace(by_tokens, servers=64).batch(2048) == 256
    few, many = (Bench(case).rows()[0] for case in (by_tokens, by_gpu))
    assert few.seconds < many.seconds
    assert few.timed.waits > many.timed.waits


def test_one_server_needs_no_fabric():
    case = Case(workload="single-node", servers=1)
    result = Bench(case)
    assert {row.price_usd for row in result.rows()} == {0.0}
    assert {round(row.timed.waits, 9) for row in result.rows()} == {0.0}
    assert {row.option.answer for row in result.rows()} == {"InfiniBand", "Ethernet"}
    assert decide(result.rows(), case).answer == "Ethernet"


@pytest.mark.parametrize(
    ("options_given", "error"),
    [
        ({"workload": "mpi", "model": "llama3-8b"}, "--model has no effect on mpi"),
        ({"message_bytes": 8}, "--size has no effect on training; it is for mpi, storage, batch, web"),
        ({"server": "host"}, "training needs GPUs; host has none"),
        ({"workload": "web", "storage": "same"}, "--storage-network has no effect on web"),
        ({"servers": 4096}, "32,768 GPUs are too many; give at most 16,384"),
        ({"workload": "mpi", "rate_per_s": 0.0}, "--message-rate must be above 0, got 0"),
        ({"sequences": 0}, "--batch must be above 0, got 0"),
        ({"workload": "mpy"}, "no workload 'mpy'; did you mean mpi"),
        ({"cloud": True, "budget_usd": 1.0}, "--budget is for a fabric that is bought"),
        ({"workload": "mpi", "server": "host-opa100"}, "host-opa100 has 100HFA016"),
    ],
)
def test_wrong_options_are_refused_with_a_reason(options_given, error):
    with pytest.raises(ConfigError, match=error):
        options(Case(**{"servers": 4} | options_given))
