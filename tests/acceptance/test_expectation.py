"""Healthy clusters pass their expectation, defects fail it and are named."""

from __future__ import annotations

import json
import sys

import pytest

from weft.acceptance import Setup, check, expect, find_causes, read_expectation, write_expectation
from weft.acceptance.expectation import Expectation
from weft.acceptance.outputs import Output
from weft.acceptance.prediction import place_setup, predict, programs
from weft.cli import main
from weft.collectives.nccl import calibration
from weft.errors import ConfigError

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
