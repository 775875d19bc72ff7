"""Outputs of benchmarks are read as their programs print them."""

from __future__ import annotations

import json

import pytest

from weft.acceptance import read_outputs
from weft.errors import ConfigError

NCCL = """\
# Collective test starting: all_reduce_perf
#  Rank  0 Group  0 Pid   2091 on       n001 device  0 [0x18] NVIDIA H100 80GB HBM3
#  Rank 15 Group  0 Pid   2098 on       n002 device  7 [0xdb] NVIDIA H100 80GB HBM3
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    63.93   16.40   30.75      0    61.10   16.40   30.75      0
  8589934592    2147483648     float     sum      -1    43370  198.06  371.36      0    43111  198.06  371.36      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 101.433
"""
# Before version 2.11 nothing names the test, and alltoall_perf left two columns empty.
OLD = """\
#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                       (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float            71.25   14.72   27.59    N/A    70.02   14.97   28.08    N/A
"""
PERFTEST = """\
                    RDMA_Write BW Test
 Dual-port       : OFF          Device         : mlx5_0
 #bytes     #iterations    BW peak[{unit}/sec]    BW average[{unit}/sec]   MsgRate[Mpps]
 65536      5000             {value}             {value}              0.748336
                    Send Latency Test
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%
 2       1000          1.40           6.80         1.46                1.51             0.10            2.00
"""
OSU = """\
# OSU MPI{variant} {heading} Test v7.3
# Size      {column}
1                       {value}
1048576              24000.00
"""


def written(folder, text, name="run.txt"):
    path = folder / name
    path.write_text(text)
    return path


def test_nccl_tests_are_read_with_their_ranks_and_times_out_of_place(tmp_path):
    (output,) = read_outputs(written(tmp_path, NCCL))
    assert (output.program, output.ranks) == ("all_reduce_perf", 16)
    assert (output.sizes_bytes, output.values) == ([1048576, 8589934592], [63.93, 43370.0])


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", " 0: "])
def test_prefixes_of_mpirun_and_srun_are_removed(tmp_path, prefix):
    text = "".join(f"{prefix}{line}\n" for line in NCCL.splitlines())
    (output,) = read_outputs(written(tmp_path, text))
    assert (output.ranks, output.values) == (16, [63.93, 43370.0])


def test_an_old_output_takes_its_name_from_the_option_or_the_file(tmp_path):
    for output in (
        *read_outputs(written(tmp_path, OLD), "alltoall_perf"),
        *read_outputs(written(tmp_path, OLD, "alltoall_perf-2.log")),
    ):
        assert (output.program, output.ranks, output.values) == ("alltoall_perf", None, [71.25])
    with pytest.raises(ConfigError, match=r"run\.txt:1: nothing names the test: give --measured all_reduce_perf=FILE"):
        read_outputs(written(tmp_path, OLD))


def test_json_of_nccl_tests_is_read(tmp_path):
    rows = [{"size": 1024, "out_of_place": {"time": 12.5, "bus_bw": 1.0}, "in_place": {"time": 9.0}}]
    facts = {"args": ["./build/all_gather_perf", "-b", "1K"], "config": {"devices": [{}, {}]}, "results": rows}
    (output,) = read_outputs(written(tmp_path, json.dumps(facts)))
    assert (output.program, output.ranks, output.sizes_bytes, output.values) == ("all_gather_perf", 2, [1024], [12.5])
    for wrong in ("{", '{"results": []}', '{"args": [], "results": []}'):
        with pytest.raises(ConfigError, match="not the JSON of nccl-tests"):
            read_outputs(written(tmp_path, wrong))


@pytest.mark.parametrize(("unit", "value"), [("Gb", 392.34), ("MiB", 46770.0), ("MB", 46770.0)])
def test_perftest_is_read_in_its_units_and_several_tests_of_a_file(tmp_path, unit, value):
    bandwidth, latency = read_outputs(written(tmp_path, PERFTEST.format(unit=unit, value=value)))
    assert (bandwidth.program, bandwidth.sizes_bytes) == ("ib_write_bw", [65536])
    assert bandwidth.values == pytest.approx([392.34], rel=1e-4)
    assert (latency.program, latency.sizes_bytes, latency.values) == ("ib_send_lat", [2], [1.46])


@pytest.mark.parametrize(
    ("heading", "variant", "program", "value"),
    [
        ("Latency", "", "osu_latency", 1.79),
        ("Bandwidth", "-CUDA", "osu_bw", 1.79 * 8e-3),
        ("Allreduce Latency", "", "osu_allreduce", 1.79),
        ("All-Reduce Latency", "", "osu_allreduce", 1.79),
    ],
)
def test_osu_is_read_with_bandwidth_in_gbit_s(tmp_path, heading, variant, program, value):
    text = OSU.format(heading=heading, variant=variant, column="Avg", value=1.79)
    (output,) = read_outputs(written(tmp_path, text))
    assert output.program == program
    assert output.sizes_bytes == [1, 1048576]
    assert output.values[0] == pytest.approx(value)


def test_a_file_without_results_is_refused(tmp_path):
    for text in ("", "hello\n", "# Collective test starting: all_reduce_perf\n", NCCL.partition("     1048576")[0]):
        with pytest.raises(ConfigError, match=r"run\.txt: no results of nccl-tests, perftest or OSU"):
            read_outputs(written(tmp_path, text))


def test_each_test_of_a_file_has_its_own_name_ranks_and_rows(tmp_path):
    """Also one without a line for each rank, and rows that are no result."""
    second = NCCL.replace("all_reduce_perf", "all_gather_perf").replace("63.93", "0.00").replace("43370", "N/A")
    third = "".join(line for line in NCCL.splitlines(keepends=True) if "Rank" not in line)
    one, three = read_outputs(written(tmp_path, NCCL + second + third))
    assert [(one.program, one.ranks, len(one.values)), (three.program, three.ranks, three.values)] == [
        ("all_reduce_perf", 16, 2),
        ("all_reduce_perf", None, [63.93, 43370.0]),
    ]
    assert one.source == str(tmp_path / "run.txt")


@pytest.mark.parametrize(
    ("heading", "program"),
    [
        ("RDMA_Read BW Test", "ib_read_bw"),
        ("Send Bidirectional BW Test", "ib_send_bw -b"),
        ("RDMA_Write Bidirectional Post List BW Test", "ib_write_bw -b"),
        ("Atomic BW Test", "ib_atomic_bw"),
    ],
)
def test_tests_of_perftest_are_named_as_their_programs(tmp_path, heading, program):
    text = f"  {heading}\n #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec]\n 2 5000 0.30 0.25 0.01\n"
    (output,) = read_outputs(written(tmp_path, text))
    assert (output.program, output.values) == (program, [0.25])


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Bi-Directional Bandwidth", "osu_bibw"),
        ("All-Gather Latency", "osu_allgather"),
        ("Multiple Bandwidth / Message Rate", "osu_Multiple Bandwidth / Message Rate"),
    ],
)
def test_rows_of_an_unknown_test_are_not_those_of_the_test_before_it(tmp_path, heading, expected):
    first = OSU.format(heading="Latency", variant="", column="us", value=1.79)
    second = OSU.format(heading=heading, variant="-CUDA", column="x", value=4.0)
    latency, output = read_outputs(written(tmp_path, first + second))
    assert (latency.program, latency.values) == ("osu_latency", [1.79, 24000.0])
    scale = 8e-3 if expected.endswith("bw") else 1.0
    assert (output.program, output.values) == (expected, pytest.approx([4.0 * scale, 24000.0 * scale]))


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("reduce_scatter_perf.log", "reduce_scatter_perf"),
        ("reduce_perf.log", "reduce_perf"),
        ("n4-broadcast_perf.log", "broadcast_perf"),
        ("sendrecv_perf", "sendrecv_perf"),
        ("all_gather_perf", "all_gather_perf"),
    ],
)
def test_an_old_output_takes_any_tests_name_from_the_file(tmp_path, name, program):
    (output,) = read_outputs(written(tmp_path, OLD, name))
    assert output.program == program


def test_json_without_devices_has_no_ranks_and_rows_without_a_time_are_left_out(tmp_path):
    rows = [{"size": size, "out_of_place": {"time": time}} for size, time in ((8, 0.0), (16, 0.5))]
    (output,) = read_outputs(written(tmp_path, "\n " + json.dumps({"args": ["x_perf"], "results": rows})))
    assert (output.program, output.ranks, output.sizes_bytes, output.values) == ("x_perf", None, [16], [0.5])


def test_rccl_tests_are_read_with_the_names_of_amds_gpus(tmp_path):
    """rccl-tests print their version without a #, and busbw as nccl-tests."""
    text = NCCL.replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X").replace(
        "# Collective test", "rccl-tests: Version develop:5272cd1\n# Collective test"
    )
    (output,) = read_outputs(written(tmp_path, text))
    assert (output.program, output.ranks, output.values) == ("all_reduce_perf", 16, [63.93, 43370.0])
