"""Healthy clusters pass their expectation, defects fail it and are named."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from weft.acceptance import Setup, causes, check, expect, find_causes, prediction, read_expectation, write_expectation
from weft.acceptance.expectation import Expectation
from weft.acceptance.outputs import Output
from weft.acceptance.prediction import Curve, Suite, place_setup, predict, programs, suite_of
from weft.cli import main
from weft.collectives.nccl import calibration
from weft.collectives.nccl.rccl import calibration as rccl
from weft.errors import ConfigError
from weft.fabric.rates import Technology
from weft.sim import calibration as limits

PAIR = Setup(spec="superpod:su=1,servers=2,server=dgx-a100")


def published(name):
    run = calibration.find(name)
    rows = {int(row[0]): float(row[1]) for row in run.rows}
    return Output(source=name, program=f"{run.collective}_perf", sizes_bytes=[*rows], values=[*rows.values()])


def as_output(curve):
    return Output(source="predicted", program=curve.program, sizes_bytes=[*curve.sizes_bytes], values=[*curve.expected])


@pytest.fixture(scope="module")
def pair():
    return expect(PAIR)


def test_published_runs_on_healthy_servers_pass(pair):
    assert check(pair, published("a100-hdr-2")).passed
    for servers, name in ((1, "h100-1"), (2, "h100-ndr-2")):
        setup = Setup(spec=f"superpod:su=1,servers={servers}")
        curve = predict(setup, "all_reduce_perf")
        healthy = Expectation(setup=setup, servers=servers, ranks=8 * servers, tests=(curve,))
        assert check(healthy, published(name)).passed


def test_a_published_run_over_tcp_fails_as_with_tcp(pair):
    """The same servers and adapters, with IPoIB: a container without RDMA devices."""
    output = published("a100-tcp-2")
    assert not check(pair, output).passed
    assert [cause.name for cause in find_causes(PAIR, output)] == ["TCP instead of RDMA"]


@pytest.mark.parametrize(
    ("program", "change", "causes"),
    [
        ("all_reduce_perf", {"gpudirect": False}, {"no GPUDirect"}),
        ("alltoall_perf", {"gpudirect": False}, {"no GPUDirect"}),
        ("ib_write_bw", {"faults": ("slow:dgx2/mlx5_0/1=2xHDR",)}, {"one adapter at half its rate"}),
        (
            "all_gather_perf",
            {"faults": ("slow:dgx2/mlx5_3/1=2xHDR",)},
            {"one adapter at half its rate", "all adapters of a server at half their rate"},
        ),
    ],
)
def test_a_defect_elsewhere_in_the_cluster_fails_and_is_named(pair, program, change, causes):
    """Defects of the second server, or another adapter; the causes are predicted with one of the first."""
    output = as_output(predict(Setup(spec=PAIR.spec, **change), program))
    assert not check(pair, output).passed
    assert {cause.name for cause in find_causes(PAIR, output)} == causes


def test_a_shortfall_without_a_known_cause_has_none(pair):
    curve = predict(PAIR, "all_reduce_perf")
    odd = Output(
        source="odd",
        program=curve.program,
        sizes_bytes=[*curve.sizes_bytes],
        values=[value * (40 if index % 2 else 1) for index, value in enumerate(curve.expected)],
    )
    assert not check(pair, odd).passed
    assert find_causes(PAIR, odd) == []


def test_one_row_of_ten_may_be_beyond_the_band(pair):
    curve = predict(PAIR, "ib_write_bw")

    def measured(bad):
        values = [value * (0.5 if index < bad else 1) for index, value in enumerate(curve.expected[:20])]
        return Output(source="x", program=curve.program, sizes_bytes=[*curve.sizes_bytes[:20]], values=values)

    assert check(pair, measured(2)).passed
    assert not check(pair, measured(3)).passed
    assert check(pair, measured(3)).failures == 3


def test_sizes_between_the_expected_ones_are_interpolated(pair):
    curve = predict(PAIR, "all_reduce_perf")
    low, high = (curve.expected[curve.sizes_bytes.index(size)] for size in (1 << 30, 1 << 31))
    output = Output(source="x", program=curve.program, sizes_bytes=[3 << 29], values=[(low + high) / 2])
    assert check(pair, output).expected[0] == pytest.approx((low + high) / 2, rel=0.02)


def test_outputs_that_do_not_fit_the_expectation_are_refused(pair):
    with pytest.raises(ConfigError, match="nothing is expected of gather_perf: there are all_reduce_perf"):
        check(pair, Output(source="x", program="gather_perf", sizes_bytes=[8], values=[1.0]))
    with pytest.raises(ConfigError, match="ran on 32 GPUs, and 16 are expected: give --servers"):
        check(pair, Output(source="x", program="all_reduce_perf", ranks=32, sizes_bytes=[8], values=[1.0]))
    with pytest.raises(ConfigError, match="no size of all_reduce_perf is from 8 to"):
        check(pair, Output(source="x", program="all_reduce_perf", sizes_bytes=[4], values=[1.0]))


def test_the_benchmarks_of_a_cluster_follow_from_its_servers():
    assert programs(Setup(spec="superpod:su=1,servers=1")) == [
        "all_reduce_perf",
        "all_gather_perf",
        "reduce_scatter_perf",
        "broadcast_perf",
        "reduce_perf",
        "alltoall_perf",
        "sendrecv_perf",
    ]
    assert programs(Setup(spec="star:hosts=2"))[:2] == ["ib_write_bw", "ib_read_bw"]
    assert len(place_setup(Setup(spec="superpod:su=1,servers=4", servers="2")).servers) == 2
    with pytest.raises(ConfigError, match="one server without GPUs has no benchmark"):
        programs(Setup(spec="star:hosts=2", servers="1"))


def test_the_file_of_an_expectation_is_read_again(pair, tmp_path):
    path = tmp_path / "expected.json"
    write_expectation(pair, path)
    assert read_expectation(path) == pair
    path.write_text(path.read_text().replace("expectation 1", "expectation 2"))
    with pytest.raises(ConfigError, match=r"not a file of `weft expect -o`.*write it again"):
        read_expectation(path)


def test_a_file_with_an_unknown_setting_is_refused(pair, tmp_path):
    path = tmp_path / "expected.json"
    for part in ("setup", "tests"):
        write_expectation(pair, path)
        facts = json.loads(path.read_text())
        (facts["setup"] if part == "setup" else facts["tests"][0])["colour"] = "red"
        path.write_text(json.dumps(facts))
        with pytest.raises(ConfigError, match="unknown field `colour`"):
            read_expectation(path)


def test_an_edited_file_with_a_missing_value_is_refused(pair, tmp_path):
    path = tmp_path / "expected.json"
    write_expectation(pair, path)
    facts = json.loads(path.read_text())
    facts["tests"][0]["acceptable"].pop()
    path.write_text(json.dumps(facts))
    with pytest.raises(ConfigError, match="all_reduce_perf needs as many expected and acceptable values as sizes"):
        read_expectation(path)


def test_links_without_a_slower_speed_have_no_cause_by_speed():
    setup = Setup(spec="star:hosts=2,server=host,speed=1xSDR")
    output = as_output(predict(setup, "ib_write_bw"))
    output.values = [value / 3 for value in output.values]
    assert find_causes(setup, output) == []


def test_the_command_checks_outputs_against_a_file(pair, tmp_path, capsys, monkeypatch):
    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["weft", "expect", str(tmp_path / "expected.json"), *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code), capsys.readouterr().out

    write_expectation(pair, tmp_path / "expected.json")
    good = predict(PAIR, "ib_write_bw")
    bad = predict(Setup(spec=PAIR.spec, faults=("slow:dgx1/mlx5_0/1=2xHDR",)), "ib_write_bw")
    for name, curve in (("good", good), ("bad", bad)):
        rows = zip(curve.sizes_bytes, curve.expected, strict=True)
        lines = ["  RDMA_Write BW Test", "BW average[Gb/sec]", *(f"{size} 100 1.0 {value}" for size, value in rows)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    status, text = run("--measured", str(tmp_path / "good.txt"))
    assert (status, text.partition("\n")[0]) == (0, "1 of 1 tests pass.")
    status, text = run("--measured", str(tmp_path / "bad.txt"), "--json")
    (facts,) = json.loads(text)
    assert (status, facts["passed"], facts["causes"]) == (1, False, ["one adapter at half its rate"])
    status, text = run("--measured", str(tmp_path / "bad.txt"))
    assert "ib_write_bw of bad.txt fails as with one adapter at half its rate. Check: ibstat" in text
    assert run("--servers", "1")[0] == 2


def curve_of(program: str, values: tuple[float, ...] = (10.0, 20.0, 40.0), **more) -> Curve:
    return Curve(program=program, sizes_bytes=(1, 4, 16), expected=values, acceptable=values, **more)


def test_values_between_sizes_are_interpolated_in_logarithms_and_none_are_beyond_the_ends():
    curve = curve_of("ib_write_bw")
    values = curve.at(np.array([0, 1, 2, 4, 16, 17]), curve.expected)
    assert values.tolist() == pytest.approx([np.nan, 10, 10 * 2**0.5, 20, 40, np.nan], nan_ok=True)


@pytest.mark.parametrize("change", [{"values": (1.0, 2.0)}, {"values": (1.0, 0.0, 2.0)}, {"values": (1.0, -1.0, 2.0)}])
def test_a_curve_without_a_value_above_0_for_each_size_is_refused(change):
    with pytest.raises(ValueError, match="ib_x needs as many expected and acceptable values as sizes, above 0"):
        curve_of("ib_x", **change)
    with pytest.raises(ValueError, match="above 0"):
        Curve(program="x", sizes_bytes=(), expected=(), acceptable=())


@pytest.mark.parametrize(
    ("program", "measured", "failures", "worst", "passed"),
    [
        ("ib_write_bw", (10.01, 20.1, 40.2), 0, 0, True),
        ("ib_write_bw", (10.01, 19.9, 39.0), 2, 2, False),
        ("ib_write_lat", (9.99, 19.9, 39.0), 0, 0, True),
        ("ib_write_lat", (9.99, 20.1, 40.1), 2, 1, False),
        ("ib_write_lat", (9.0, 30.0, 41.0), 2, 1, False),
        ("all_reduce_perf", (9.99, 5.0, 40.1), 1, 2, False),
    ],
)
def test_bandwidth_is_worse_below_and_time_above_the_acceptable_value(program, measured, failures, worst, passed):
    expectation = Expectation(setup=PAIR, servers=2, ranks=16, tests=(curve_of(program),))
    output = Output(source="x", program=program, ranks=16, sizes_bytes=[1, 4, 16], values=[*measured])
    verdict = check(expectation, output)
    assert (verdict.failures, verdict.worst, verdict.passed) == (failures, worst, passed)


def test_sizes_that_are_not_expected_are_left_out_of_a_verdict():
    expectation = Expectation(setup=PAIR, servers=2, ranks=16, tests=(curve_of("ib_write_bw"),))
    output = Output(source="x", program="ib_write_bw", sizes_bytes=[16, 32, 1], values=[50.0, 1.0, 30.0])
    verdict = check(expectation, output)
    assert (verdict.sizes_bytes.tolist(), verdict.measured.tolist()) == ([16, 1], [50.0, 30.0])
    assert verdict.expected.tolist() == verdict.acceptable.tolist() == pytest.approx([40.0, 10.0])
    with pytest.raises(ConfigError, match=r"no size of ib_write_bw is from 1 to 16 bytes"):
        check(expectation, Output(source="x", program="ib_write_bw", sizes_bytes=[17], values=[1.0]))


@pytest.mark.parametrize(
    ("program", "suite"), [("all_reduce_perf", Suite.NCCL), ("osu_bw", Suite.OSU), ("ib_write_bw", Suite.PERFTEST)]
)
def test_a_program_belongs_to_the_suite_of_its_name(program, suite):
    assert suite_of(program) is suite


def test_the_benchmarks_of_two_servers_are_all_but_those_of_one():
    names = programs(Setup(spec="star:hosts=2"))
    assert names == [
        *("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat"),
        *("osu_latency", "osu_bw", "osu_bibw", "osu_allreduce", "osu_alltoall", "osu_bcast", "osu_allgather"),
        "osu_reduce",
    ]


def test_acceptable_values_are_the_slow_ends_of_the_bands_of_each_program():
    latency, bandwidth = (predict(Setup(spec="star:hosts=2"), f"ib_write_{kind}") for kind in ("lat", "bw"))
    assert [high / low for low, high in zip(latency.expected, latency.acceptable, strict=True)] == pytest.approx(
        [1 + limits.LATENCY_LIMIT] * len(latency.sizes_bytes)
    )
    for size, expected, acceptable in zip(bandwidth.sizes_bytes, bandwidth.expected, bandwidth.acceptable, strict=True):
        limit = limits.SMALL_BANDWIDTH_LIMIT if size <= limits.SMALL_BYTES else limits.BANDWIDTH_LIMIT
        assert acceptable / expected == pytest.approx(1 - limit)
    mpi = predict(Setup(spec="star:hosts=2"), "osu_bw")
    assert mpi.expected[-1] == pytest.approx(bandwidth.expected[-1], rel=0.2)  # both in Gbit/s
    assert all(low < expected for low, expected in zip(mpi.acceptable, mpi.expected, strict=True))
    time = predict(Setup(spec="star:hosts=2"), "osu_latency")
    assert all(high > expected for high, expected in zip(time.acceptable, time.expected, strict=True))


def test_processes_per_server_are_those_of_collectives_only():
    one, four = (Setup(spec="star:hosts=2", ppn=ppn) for ppn in (1, 4))
    assert predict(one, "osu_latency") == predict(four, "osu_latency")
    assert predict(one, "osu_allreduce") != predict(four, "osu_allreduce")


def test_ipoib_is_as_fast_as_ethernet_cables_of_the_same_or_the_next_lower_rate():
    """4xHDR is 200 Gbit/s, as is an Ethernet cable; 4xFDR is 54.5, and the next lower one is 50; the slowest is 10."""
    for speed, rate_gbit_s in (("4xHDR", 200), ("4xFDR", 50), ("4xEDR", 100), ("1xSDR", 10)):
        ranks = place_setup(Setup(spec=f"star:hosts=2,server=host,speed={speed}", ipoib=True))
        links = [ranks.fabric.link(number) for number in range(len(ranks.fabric.links))]
        assert {(link.technology, link.rate_gbit_s) for link in links} == {(Technology.ETHERNET, rate_gbit_s)}


def distances(setup: Setup, program: str, factor: float) -> list[str]:
    output = as_output(predict(setup, program))
    output.values = [value * factor for value in output.values]
    return [cause.name for cause in find_causes(setup, output)]


def test_a_cause_explains_rows_only_if_it_is_nearer_than_a_healthy_cluster():
    """Half the rate of an adapter halves the bandwidth of large messages."""
    setup = Setup(spec="star:hosts=2,server=host,speed=4xHDR")
    assert distances(setup, "ib_write_bw", 0.99) == []
    assert distances(setup, "ib_write_bw", 1.5) == []


def test_defects_that_a_cluster_cannot_have_are_not_predicted():
    alone = Setup(spec="superpod:su=1,servers=1")
    two = Setup(spec="superpod:su=1,servers=2")
    assert (causes._use_tcp(alone), causes._without_gpudirect(alone), causes._cut_adapter(alone)) == ([], [], [])
    assert causes._slow_adapter(alone) == causes._slow_server(alone) == []
    assert causes._use_tcp(msgspec.structs.replace(two, network="tcp")) == []
    assert causes._without_gpudirect(msgspec.structs.replace(two, gpudirect=False)) == []
    assert causes._without_nvls(msgspec.structs.replace(two, nvls=False)) == []
    assert causes._cut_adapter(Setup(spec="star:hosts=2")) == causes._slow_server(Setup(spec="star:hosts=2")) == []
    assert causes._collide(two) == []


def test_defects_are_those_of_the_first_server_beside_the_faults_that_are_there():
    two = Setup(spec="superpod:su=1,servers=2", faults=("slow:dgx2/mlx5_11/1=1xNDR",))
    ports = [f"mlx5_{number}/1" for number in (0, 3, 4, 5, 6, 9, 10, 11)]
    adapters = [f"dgx1/{name}" for name in ports]
    assert [setup.faults for setup in causes._cut_adapter(two)] == [("slow:dgx2/mlx5_11/1=1xNDR", f"cut:{adapters[0]}")]
    for (slow,), count in ((causes._slow_adapter(two), 1), (causes._slow_server(two), 8)):
        fabric = place_setup(slow).fabric
        links = [fabric.find_port(f"dgx{server}/{name}").link for server in (1, 2) for name in ports]
        assert [link.rate_gbit_s for link in links] == [200] * count + [400] * (15 - count) + [100]
    every, first = causes._use_tcp(two)
    assert (every.network, every.ipoib, every.faults) == ("tcp", True, ("slow:dgx2/mlx5_11/1=1xNDR",))
    assert first.faults == ("slow:dgx2/mlx5_11/1=1xNDR", *(f"cut:{name}" for name in adapters[1:]))
    assert [setup.gpudirect for setup in causes._without_gpudirect(two)] == [False]
    assert [setup.nvls for setup in causes._without_nvls(two)] == [False]


def test_paths_of_ethernet_collide_by_other_hashes_or_by_a_hash_at_all():
    roce = Setup(spec="superpod:su=1,servers=2,server=dgx-h100+ConnectX-7-EN,switch=SN5400")
    assert [setup.seed for setup in causes._collide(roce)] == [2, 3, 4, 5]
    assert [setup.seed for setup in causes._collide(msgspec.structs.replace(roce, paths="ecmp"))] == [2, 3, 4, 5]
    assert [setup.paths for setup in causes._collide(msgspec.structs.replace(roce, paths="adaptive"))] == ["ecmp"]
    assert [setup.ipoib for setup in causes._use_tcp(roce)] == [False, False]


def test_a_published_run_of_rccl_tests_passes_and_one_with_half_the_links_fails():
    """AMD's own eight MI300X, beyond the first sizes, which are slow to warm up; and the same at half its rate."""
    setup = Setup(spec="star:hosts=1,server=amd-mi300x")
    curve = predict(setup, "all_reduce_perf")
    healthy = Expectation(setup=setup, servers=1, ranks=8, tests=(curve,))
    rows = {size: us for size, us in rccl.runs()[0].rows if size > 512}
    output = Output(source="aac8", program="all_reduce_perf", sizes_bytes=[*rows], values=[*rows.values()])
    assert check(healthy, output).passed
    slow = Output(
        source="slow", program=output.program, sizes_bytes=output.sizes_bytes, values=[2 * us for us in output.values]
    )
    assert not check(healthy, slow).passed


@pytest.mark.parametrize(
    ("healthy", "distances", "named"),
    [
        (1.0, (0.29, 0.31), ["0"]),  # ln 1.35
        (1.0, (0.31, 0.5), []),
        (0.4, (0.23, 0.25), ["0"]),  # 60 % of the healthy one
        (4.0, (1.1, 0.99), ["1"]),  # a quarter of it
        (4.0, (0.5, 0.54, 0.56), ["0", "1"]),  # at most a tenth further than the best
        (4.0, (0.54, 0.5), ["1", "0"]),
        (0.0, (0.0,), []),
    ],
)
def test_causes_that_are_near_enough_to_the_rows_are_named_the_nearest_first(monkeypatch, healthy, distances, named):
    """The names of the causes are their places in the list; curves stand for their distances."""
    programs = [causes.Cause(name=str(place), check="", suites=(), setups=list) for place in range(len(distances))]
    near = [replace(cause, distance=distance) for cause, distance in zip(programs, distances, strict=True)]
    monkeypatch.setattr(causes, "predict", lambda setup, program: healthy)
    monkeypatch.setattr(causes, "_distance", lambda output, curve: curve)
    monkeypatch.setattr(causes, "_predict_causes", lambda setup, output: iter(near))
    output = Output(source="", program="ib_write_bw", sizes_bytes=[1], values=[1.0], ranks=None)
    assert [cause.name for cause in find_causes(Setup(spec="star:hosts=2"), output)] == named


def test_a_server_with_two_adapters_may_lose_one_of_them_or_half_the_rate_of_both(monkeypatch):
    two = Setup(spec="superpod:su=1,servers=2")
    adapters = ["dgx1/mlx5_0/1", "dgx1/mlx5_3/1"]
    monkeypatch.setattr(causes, "_adapters", lambda setup: adapters)
    assert [setup.faults for setup in causes._cut_adapter(two)] == [("cut:dgx1/mlx5_0/1",)]
    assert [setup.faults for setup in causes._slow_adapter(two)] == [("slow:dgx1/mlx5_0/1=8xEDR",)]
    assert [setup.faults for setup in causes._slow_server(two)] == [tuple(f"slow:{name}=8xEDR" for name in adapters)]
    del adapters[1]
    assert causes._cut_adapter(two) == causes._slow_server(two) == []


@pytest.mark.parametrize(("program", "expected", "acceptable"), [("osu_latency", 5.0, 9.0), ("osu_bw", 0.04, 0.016)])
def test_times_of_osu_stay_microseconds_and_bandwidths_become_gbit_s(monkeypatch, program, expected, acceptable):
    rows = [SimpleNamespace(size_bytes=8, value=5.0, low=2.0, high=9.0)]
    monkeypatch.setattr(prediction.osu, "run", lambda ranks, settings: SimpleNamespace(rows=rows))
    curve = predict(Setup(spec="star:hosts=2,speed=4xHDR", seed=97), program)
    assert (curve.sizes_bytes, curve.expected, curve.acceptable) == (
        (8,),
        pytest.approx((expected,)),
        pytest.approx((acceptable,)),
    )
