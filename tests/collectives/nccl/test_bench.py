"""nccl-tests' table: its sizes, its text, its JSON, and the tuner's file."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import weft
from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl import bench, nccl_tests, tuner
from weft.collectives.nccl.bench import Settings, Sizes, run
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.network import Pattern
from weft.collectives.ranks import Ranks, place
from weft.collectives.schedules.check import WrongProgram
from weft.collectives.schedules.program import Program
from weft.collectives.schedules.ring import ring_all_reduce
from weft.errors import ConfigError
from weft.sim.engine import Memory, Network, Options
from weft.sim.perftest import prepare

PAIR = "star:hosts=2,server=dgx-h100"
SMALL = Sizes(max_bytes=8 << 27, factor=8)  # 8 bytes to 1 GiB
# As src/util.cu of nccl-tests 2.19.6 gives them to printf.
PREAMBLE, BODY, UNCHECKED = "%12li  %12li  %8s  %6s  %6s", "  %7s  %6s  %6s  %6g", "  %7s  %6s  %6s    N/A"


@pytest.fixture(scope="module")
def ranks() -> Ranks:
    return place(prepare(weft.load(PAIR)))


@pytest.fixture(scope="module")
def table(ranks: Ranks) -> bench.Table:
    return run(ranks, Settings(collective=Collective.ALL_REDUCE, sizes=SMALL))


def test_sizes_grow_by_a_factor_or_by_a_step() -> None:
    assert list(Sizes(min_bytes=8, max_bytes=64)) == [8, 16, 32, 64]
    assert list(Sizes(min_bytes=8, max_bytes=30, factor=1, step_bytes=10)) == [8, 18, 28]


@pytest.mark.parametrize("wrong", [{"min_bytes": 0}, {"min_bytes": 9, "max_bytes": 8}, {"factor": 0}])
def test_sizes_that_do_not_grow_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Sizes(**wrong)


def test_the_number_of_sizes_is_limited_wherever_they_begin() -> None:
    begin = 1 << 30
    assert len(list(Sizes(min_bytes=begin, max_bytes=begin + 99_999, factor=1, step_bytes=1))) == 100_000
    with pytest.raises(ConfigError, match="makes 100,001 sizes"):
        Sizes(min_bytes=begin, max_bytes=begin + 100_000, factor=1, step_bytes=1)


@pytest.mark.parametrize(
    ("kind", "first", "count"),
    [
        (Collective.ALL_REDUCE, 8, 2),
        (Collective.SEND_RECV, 8, 2),
        (Collective.ALL_GATHER, 256, 4),  # 16 bytes for each of 16 ranks: nothing smaller can be cut
        (Collective.ALL_TO_ALL, 256, 4),
    ],
)
def test_sizes_are_cut_as_nccl_tests_cuts_them(ranks: Ranks, kind: Collective, first: int, count: int) -> None:
    result = run(ranks, Settings(collective=kind, sizes=Sizes(max_bytes=1024)))
    assert (result.rows[0].size_bytes, result.rows[0].count) == (first, count)
    odd = run(ranks, Settings(collective=kind, sizes=Sizes(min_bytes=1030, max_bytes=1030)))
    assert odd.rows[0].size_bytes == (1024 if first == 256 else 1028)


def test_the_text_is_what_nccl_tests_prints_with_these_figures(table: bench.Table) -> None:
    rows = [replace(row, wrong=0 if number % 2 else None) for number, row in enumerate(table.rows)]
    printed = nccl_tests.text(replace(table, rows=tuple(rows)))
    lines = [line for line in printed if line and not line.startswith("#")]
    for line, row in zip(lines, rows, strict=True):
        item = row.estimate
        figures = f"{item.time_us:7.2f}", f"{item.algo_gbyte_s:6.2f}", f"{item.bus_gbyte_s:6.2f}"
        body = BODY % (*figures, row.wrong) if row.wrong is not None else UNCHECKED % figures
        assert line == PREAMBLE % (row.size_bytes, row.size_bytes // 4, "float", "sum", "    -1") + body + body


def test_other_lines_are_comments_or_blank(table: bench.Table) -> None:
    lines = list(nccl_tests.text(table))
    head = (
        "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw"
    )
    assert any(line.startswith(head) for line in lines)
    average = sum(row.estimate.bus_gbyte_s for row in table.rows) / len(table.rows)
    assert f"# Avg bus bandwidth    : {average:g} " in lines
    assert lines[0].startswith("# nccl-tests version 2.19.6 nccl-headers=23007")
    output = "\n".join(lines)
    assert f"# Simulated by weft {weft.__version__}, not measured: {PAIR} seed=1 memory=gpudirect" in output
    assert "#  Rank  9 Group  0 Pid      0 on       dgx2 device  1 [0000:43:00] H100" in lines


@pytest.mark.parametrize(
    ("value", "width", "shown"),
    [
        (12.345, 7, "  12.35"),
        (12345.67, 7, "12345.7"),
        (123456.7, 7, " 123457"),
        (1e9, 7, "1.0e+09"),
        (1e7, 6, " 1e+07"),
    ],
)
def test_a_figure_loses_decimals_before_it_breaks_the_columns(value: float, width: int, shown: str) -> None:
    assert nccl_tests._fit(value, width) == shown


def test_explaining_adds_columns_only_on_the_right(table: bench.Table) -> None:
    plain, explained = list(nccl_tests.text(table)), list(nccl_tests.text(table, explain=True))
    assert len(plain) == len(explained)
    assert all(long.startswith(short) for short, long in zip(plain, explained, strict=True))
    row = next(line for line in explained if line.startswith("           8 "))
    low_us, high_us = table.rows[0].band_us
    assert row.split()[13:] == [table.rows[0].choice, "steps", f"{low_us:.2f}", "to", f"{high_us:.2f}"]
    assert any(line.startswith("# 90 % band at 8 to ") for line in plain)
    large = table.rows[-1]
    assert large.estimate.parts["data"] == max(large.estimate.parts.values())
    assert large.bound == large.estimate.bound


def test_nothing_is_said_to_be_right_that_was_not_proved(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Settings(collective=Collective.ALL_REDUCE, sizes=Sizes(max_bytes=8), algorithms=(Algorithm.RING,))
    assert run(ranks, ring).rows[0].wrong == 0
    monkeypatch.setattr(bench, "MOST_PROVED", 15)
    unproved = run(ranks, ring)
    assert unproved.rows[0].wrong is None
    assert nccl_tests.report(unproved)["results"][0]["in_place"]["nwrong"] is None
    monkeypatch.setattr(bench, "MOST_PROVED", 16)
    monkeypatch.setattr(bench, "program", _lacks_its_last_round)
    with pytest.raises(WrongProgram):
        run(ranks, ring)


def _lacks_its_last_round(*_: object, nodes: int, gpus: int) -> Program:
    whole = ring_all_reduce(nodes * gpus)
    first, last = whole.runs
    return replace(whole, runs=(first, replace(last, n_rounds=last.n_rounds - 1)))


def test_json_has_nccl_tests_names_and_wefts_beside_them(table: bench.Table) -> None:
    output = nccl_tests.report(table)
    assert (output["version"], output["nccl_version"], output["args"][0]) == (3, 23007, "all_reduce_perf")
    item = output["results"][1]
    assert (item["size"], item["count"], item["type"], item["redop"], item["root"]) == (
        64,
        16,
        "float",
        "sum",
        "    -1",
    )
    assert item["out_of_place"] == item["in_place"]
    assert item["in_place"]["bus_bw"] == pytest.approx(item["in_place"]["alg_bw"] * 30 / 16)
    band = {"band_us", "band_kind", "band_clusters", "far", "doubts"}
    assert set(item["weft"]) == {"algorithm", "kernel", "protocol", "channels", "bound", "parts_us", *band}
    low_us, high_us = item["weft"]["band_us"]
    assert low_us < item["in_place"]["time"] < high_us
    assert len(output["config"]["devices"]) == 16
    assert output["weft"]["seed"] == 1
    assert output["average_bus_bandwidth"]["bandwidth"] == pytest.approx(table.average_gbyte_s)


def test_options_that_nccl_lacks_are_refused(ranks: Ranks) -> None:
    with pytest.raises(ConfigError, match="NCCL has no barrier"):
        run(ranks, Settings(collective=Collective.BARRIER))
    with pytest.raises(ConfigError, match="-e 256 is the least"):
        run(ranks, Settings(collective=Collective.ALL_GATHER, sizes=Sizes(max_bytes=255)))
    with pytest.raises(ConfigError, match="no all_to_all: it tunes all_reduce"):
        tuner.to_text(run(ranks, Settings(collective=Collective.ALL_TO_ALL, sizes=Sizes(max_bytes=256))))


def test_one_server_has_no_network(ranks: Ranks) -> None:
    alone = run(place(ranks.fabric, ["dgx1"]), Settings(collective=Collective.ALL_REDUCE, sizes=SMALL))
    assert alone.networks is None
    assert alone.rows[-1].estimate.bus_gbyte_s > 0


def test_copies_through_host_memory_cost_time(ranks: Ranks, table: bench.Table) -> None:
    staged = Settings(collective=Collective.ALL_REDUCE, sizes=SMALL, options=Options(memory=Memory.STAGED))
    for with_copies, without in zip(run(ranks, staged).rows, table.rows, strict=True):
        assert with_copies.estimate.time_us > without.estimate.time_us


# -- the tuner's file -------------------------------------------------------------------------------------------------


def test_the_ranges_of_the_tuner_cover_every_size_once(table: bench.Table) -> None:
    result = tuner.ranges(table)
    assert result[0].first_bytes == 0
    assert result[-1].last_bytes == (1 << 64) - 1
    assert all(item.last_bytes + 1 == after.first_bytes for item, after in pairwise(result))
    answers = [(item.best.algorithm, item.best.protocol, item.best.channels) for item in result]
    assert all(item != after for item, after in pairwise(answers))  # merged


def test_the_tuner_takes_the_fastest_of_all(table: bench.Table) -> None:
    for item in tuner.ranges(table):
        size_bytes = item.row.size_bytes
        for algorithm in (Algorithm.RING, Algorithm.TREE):
            for protocol in Protocol:
                other = estimate(
                    table.cluster,
                    Collective.ALL_REDUCE,
                    size_bytes,
                    networks=table.networks,
                    algorithm=algorithm,
                    protocol=protocol,
                )
                assert item.best.time_us <= other.time_us


ONE_GPU = """
gpu: H100
gpus: 1
cpus: 1
cpu: {model: x, arch: x86_64, vendor: GenuineIntel, family_id: 6, model_id: 143}
pcie: 16xPCIe5
pcie_switches: 1
pcie_tree: {cpu0: [pcie0], pcie0: [gpu0, mlx5_0]}
compute: [mlx5_0]
compute_adapter: ConnectX-7
height_u: 1
power_w: 1000
"""


def test_a_time_that_jumps_with_nccls_choice_is_explained_below_the_table(tmp_path: Path) -> None:
    """Two servers with one GPU each and trees only: NCCL estimates 199 us for LL128 in 58 small chunks, 207 for
    Simple.
    """
    (tmp_path / "one.yaml").write_text(ONE_GPU)
    ranks = place(prepare(weft.load(f"star:hosts=2,server={tmp_path / 'one.yaml'}")))
    sizes = Sizes(min_bytes=2 << 20, max_bytes=9 << 19, factor=1, step_bytes=1 << 19)
    settings = Settings(collective=Collective.ALL_REDUCE, sizes=sizes, algorithms=(Algorithm.TREE,))
    table = run(ranks, settings)
    assert [row.estimate.protocol for row in table.rows][-3:] == [Protocol.SIMPLE, Protocol.LL128, Protocol.LL128]
    notes = [line for line in nccl_tests.text(table) if "tuning model" in line]
    assert len(notes) == 1
    assert "From 4,194,304 bytes on NCCL's tuning model takes Tree/LL128" in notes[0]
    assert nccl_tests.report(table)["weft"]["slower_choices"] == [notes[0].removeprefix("# ")]
    in_windows = run(ranks, replace(settings, windows=True))
    assert tuner.much_slower_choices(in_windows) == [], "--tuner writes no file for buffers in windows"


def test_a_choice_near_the_fastest_is_not_named(table: bench.Table) -> None:
    assert tuner.much_slower_choices(table) == []


def test_no_choice_is_named_where_nccl_has_no_table(ranks: Ranks) -> None:
    table = run(ranks, Settings(collective=Collective.ALL_TO_ALL, sizes=SMALL))
    assert tuner.much_slower_choices(table) == []


def test_the_tuner_plugin_can_read_its_file(table: bench.Table) -> None:
    """The plugin takes what it does not know for a ring, -1 channels for one, and cuts lines at 255 characters."""
    text = tuner.to_text(table)
    rows = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    assert len(rows) == len(tuner.ranges(table))
    for kind, first, last, algorithm, protocol, channels, *job in rows:
        assert kind == "allreduce"
        assert int(first) < int(last)
        assert algorithm in {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"}
        assert protocol in {"ll", "ll128", "simple"}
        assert int(channels) >= 1
        assert job == ["2", "16", "-1", "-1"]
    assert max(len(line) for line in text.splitlines()) <= 255


def test_a_forced_algorithm_is_all_that_the_tuner_may_choose(ranks: Ranks) -> None:
    ring = run(ranks, Settings(collective=Collective.ALL_REDUCE, sizes=SMALL, algorithms=(Algorithm.RING,)))
    assert {item.best.algorithm for item in tuner.ranges(ring)} == {Algorithm.RING}


def test_buffers_in_windows_take_symmetric_kernels_and_the_switches_sum_is_proved() -> None:
    alone = place(prepare(weft.load("star:hosts=1,server=dgx-h100")))
    result = run(alone, Settings(collective=Collective.ALL_REDUCE, sizes=SMALL, windows=True))
    assert nccl_tests.about(result)[0].endswith(" -R 2")
    assert nccl_tests.report(result)["args"][-2:] == ["-R", "2"]
    first, last = result.rows[0], result.rows[-1]
    assert (first.choice, first.wrong) == ("AllReduce_AGxLLMC_R/2", 0)
    assert (last.choice, last.bound, last.wrong) == ("AllReduce_RSxLDMC_AGxSTMC/2", "NVLink", 0)
    assert nccl_tests.report(result)["results"][-1]["weft"]["kernel"] == "AllReduce_RSxLDMC_AGxSTMC"
    with pytest.raises(ConfigError, match="leave out -R 2, or --tuner"):
        tuner.to_text(result)


def test_variables_without_which_all_rows_would_be_the_same_are_named() -> None:
    alone = place(prepare(weft.load("star:hosts=1,server=dgx-h100")))
    little = Settings(collective=Collective.ALL_REDUCE, sizes=Sizes(min_bytes=8, max_bytes=8))
    idle = replace(
        little, nvls=False, pat=False, buffer_bytes=2 << 20, nvls_chunk_bytes=1 << 19, qps=4, win_enable=False,
        sym_tma=0, sym_gin=False,
    )  # fmt: skip
    assert bench.without_effect(run(alone, idle)) == list(idle.environment)
    assert bench.without_effect(run(alone, replace(little, windows=True, win_enable=False))) == []


def test_smaller_buffers_make_smaller_chunks(ranks: Ranks) -> None:
    """A broadcast with Simple waits for whole chunks at every hop: an eighth of the buffer."""
    kind = Settings(collective=Collective.BROADCAST, sizes=Sizes(min_bytes=1 << 30, max_bytes=1 << 30))
    whole, half = (run(ranks, replace(kind, buffer_bytes=size)).rows[0].estimate for size in (4 << 20, 2 << 20))
    assert run(ranks, kind).rows[0].estimate.parts == whole.parts
    assert half.parts["pipeline"] == pytest.approx(whole.parts["pipeline"] / 2, rel=0.01)
    with pytest.raises(ConfigError, match="NCCL_BUFFSIZE=1: from 8192"):
        replace(kind, buffer_bytes=1)


def test_chunks_of_nvls_can_be_given() -> None:
    alone = place(prepare(weft.load("star:hosts=1,server=dgx-h100")))
    large = Sizes(min_bytes=8 << 30, max_bytes=8 << 30)
    nvls = Settings(collective=Collective.ALL_REDUCE, sizes=large, algorithms=(Algorithm.NVLS,))
    larger, own = (run(alone, replace(nvls, nvls_chunk_bytes=item)).rows[0].estimate for item in (512 << 10, None))
    assert larger.time_us < own.time_us  # fewer meetings


def test_more_queue_pairs_meet_fewer_full_links() -> None:
    """Hashes that put two flows on one link put parts of four there."""
    spec = "fat-tree:hosts=8,server=dgx-h100,radix=16,speed=400GbE"
    wide = place(prepare(weft.load(spec)))
    kind = Settings(collective=Collective.ALL_REDUCE, sizes=Sizes(min_bytes=1 << 30, max_bytes=1 << 30))
    item, eight = (run(wide, replace(kind, qps=qps)) for qps in (1, 8))
    assert eight.networks is not None
    assert item.networks is not None
    assert eight.networks[Pattern.RING].adapter_gbyte_s > item.networks[Pattern.RING].adapter_gbyte_s
    with pytest.raises(ConfigError, match="TCP has no queue pairs"):
        replace(kind, qps=2, options=Options(network=Network.TCP))


@pytest.mark.parametrize(
    ("name", "variable", "least", "most"),
    [
        ("channels", "--channels", 1, 64),
        ("qps", "NCCL_IB_QPS_PER_CONNECTION", 1, 128),
        ("min_ctas", "NCCL_MIN_CTAS", 1, 64),
        ("max_channels", "NCCL_MAX_NCHANNELS", 1, 64),
        ("sym_ctas", "NCCL_SYM_CTAS", 0, 64),
        ("buffer_bytes", "NCCL_BUFFSIZE", 8192, 1 << 30),
        ("nvls_chunk_bytes", "NCCL_NVLS_CHUNKSIZE", 1024, 1 << 30),
    ],
)
def test_variables_of_nccl_have_limits(name, variable, least, most):
    for value in (least, most):
        assert getattr(Settings(collective=Collective.ALL_REDUCE, **{name: value}), name) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError, match=variable):
            Settings(collective=Collective.ALL_REDUCE, **{name: value})
