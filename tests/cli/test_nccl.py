"""`weft nccl`, as a user runs it."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.test_options import SINGLE_SERVER

import weft
from weft.cli import app
from weft.errors import ConfigError, UnknownName

PAIR = "star:hosts=2,server=dgx-h100"


def rows(printed: str) -> list[list[str]]:
    return [line.split() for line in printed.splitlines() if line and not line.startswith("#")]


def times_us(capsys: pytest.CaptureFixture[str], *flags: str) -> list[float]:
    app(["nccl", "all_reduce", PAIR, "-b", "8", "-e", "64M", "-f", "64", *flags])
    return [float(row[5]) for row in rows(capsys.readouterr().out)]


@pytest.mark.parametrize("name", ["all_reduce", "AllReduce", "MPI_Allreduce", "ncclAllReduce", "all_reduce_perf"])
def test_a_collective_goes_by_any_of_its_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    app(["nccl", name, PAIR, "-b", "1M", "-e", "1M"])
    printed = capsys.readouterr().out
    assert "# Collective test starting: all_reduce_perf" in printed
    (row,) = rows(printed)
    assert row[:5] == ["1048576", "262144", "float", "sum", "-1"]


def test_options_come_before_the_fabric_as_in_nccl_tests(capsys: pytest.CaptureFixture[str]) -> None:
    app(["nccl", "broadcast", "-b", "1M", "-e", "3M", "-f", "1", "-g", "1", PAIR])  # a factor of 1: steps of 1 MiB
    result = rows(capsys.readouterr().out)
    assert [row[0] for row in result] == ["1048576", "2097152", "3145728"]
    assert result[0][3:5] == ["none", "0"]


def test_servers_are_the_first_so_many_or_those_named(capsys: pytest.CaptureFixture[str]) -> None:
    for servers, ranks in (("1", 8), ("2", 16), ("dgx2", 8)):
        app(["nccl", "all_reduce", PAIR, "-e", "8", "--servers", servers])
        assert capsys.readouterr().out.count("#  Rank ") == ranks
    with pytest.raises(ConfigError, match=r"--servers 3: .* has 2"):
        app(["nccl", "all_reduce", PAIR, "--servers", "3"])
    with pytest.raises(UnknownName, match="dgx9"):
        app(["nccl", "all_reduce", PAIR, "--servers", "dgx9"])


def test_without_gpudirect_all_is_slower(capsys: pytest.CaptureFixture[str]) -> None:
    with_it, without = times_us(capsys), times_us(capsys, "--no-gpudirect")
    assert all(slow > fast for slow, fast in zip(without, with_it, strict=True))


def test_tcp_has_no_gpudirect(capsys: pytest.CaptureFixture[str]) -> None:
    app(["nccl", "all_reduce", f"{PAIR},speed=100GbE", "--network", "tcp", "-e", "8"])
    printed = capsys.readouterr().out
    assert "memory=host network=tcp" in printed
    assert float(rows(printed)[0][5]) > 35  # the minimum time of a kernel


def test_algorithm_and_protocol_can_be_forced_by_nccls_names(capsys: pytest.CaptureFixture[str]) -> None:
    app(["nccl", "all_reduce", PAIR, "-e", "8", "--algo", "ring", "--proto", "SIMPLE", "--channels", "4", "--explain"])
    (row,) = rows(capsys.readouterr().out)
    assert row[13] == "Ring/Simple/4"
    with pytest.raises(UnknownName, match="Ring"):
        app(["nccl", "all_reduce", PAIR, "--algo", "Rong"])


def test_channels_of_pairs_are_nccls_p2p_channels(capsys: pytest.CaptureFixture[str]) -> None:
    output = []
    for channels in (("--channels", "1"), ()):
        app(["nccl", "sendrecv", PAIR, "-b", "1G", "-e", "1G", *channels, "--json"])
        output.append(json.loads(capsys.readouterr().out))
    assert output[0]["env"] == ["NCCL_MIN_P2P_NCHANNELS=1", "NCCL_MAX_P2P_NCHANNELS=1"]
    item, usual = (each["results"][0] for each in output)
    assert (item["weft"]["channels"], usual["weft"]["channels"]) == (1, 16)
    assert item["in_place"]["bus_bw"] < 14 < usual["in_place"]["bus_bw"]


def test_json_is_nccl_tests_with_seed_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    app(["nccl", "all_reduce", PAIR, "-e", "64", "--seed", "7", "--algo", "Ring", "--json"])
    output = json.loads(capsys.readouterr().out)
    assert [item["size"] for item in output["results"]] == [8, 16, 32, 64]
    assert output["env"] == ["NCCL_ALGO=Ring"]
    assert output["weft"]["seed"] == 7
    assert output["weft"]["spec"] == PAIR


def test_the_tuner_file_is_written_beside_the_table(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    path = tmp_path / "tuner.csv"
    app(["nccl", "all_reduce", PAIR, "-e", "1M", "--tuner", str(path)])
    assert f"# {path}: written" in capsys.readouterr().out
    assert path.read_text().splitlines()[-1].startswith("allreduce,")
    assert [item.name for item in tmp_path.iterdir()] == ["tuner.csv"]


def test_the_picture_says_that_it_is_simulated_of_what_and_with_which_options(
    capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    path = tmp_path / "curve.svg"
    app(["nccl", "all_reduce", PAIR, "-b", "1M", "-e", "4M", "--algo", "ring", "--seed", "7", "--picture", str(path)])
    assert f"# {path}: written" in capsys.readouterr().out
    messages = set(re.findall("<!-- (.*?) -->", path.read_text()))  # the text of the letters' outlines
    assert f"all_reduce_perf, 16 GPUs of {PAIR}" in messages
    assert {"bus bandwidth (GB/s, simulated)", "1M", "4M", "Ring/LL128"} <= messages
    note = next(item for item in messages if item.startswith(f"Simulated by weft {weft.__version__}, not measured"))
    assert "seed=7" in note


def test_a_cluster_is_needed_and_gpus_in_it() -> None:
    with pytest.raises(ConfigError, match="weft nccl all_reduce superpod:su=1"):
        app(["nccl", "all_reduce"])
    with pytest.raises(ConfigError, match="GPUs"):
        app(["nccl", "all_reduce", "star:hosts=2"])
    with pytest.raises(UnknownName, match="all_reduce"):
        app(["nccl", "all_redcue", PAIR])


def test_calibration_shows_every_published_run_and_one_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    from weft.collectives.nccl.calibration import runs

    app(["nccl", "calibration"])
    printed = capsys.readouterr().out
    assert all(run.name in printed for run in runs())
    app(["nccl", "calibration", runs()[0].name])
    assert f"Source: {runs()[0].source}" in capsys.readouterr().out
    with pytest.raises(UnknownName, match="run"):
        app(["nccl", "calibration", "h100-99"])


def test_calibration_as_json_has_measured_and_simulated_of_every_size(capsys: pytest.CaptureFixture[str]) -> None:
    from weft.collectives.nccl.calibration import runs

    app(["nccl", "calibration", "--json"])
    output = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in output] == [item.name for item in runs()]
    figure = output[0]["figures"][0]
    assert (figure["size_bytes"], figure["measured_us"]) == runs()[0].rows[0]
    assert figure["error"] == pytest.approx(figure["simulated_us"] / figure["measured_us"] - 1)


def test_a_command_line_of_nccl_tests_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    app(
        [
            "nccl",
            "all_reduce_perf",
            "-b",
            "1M",
            "-e",
            "1M",
            "-f",
            "2",
            "-g",
            "8",
            "-n",
            "20",
            "-w",
            "5",
            "-c",
            "1",
            PAIR,
        ]
    )
    assert len(rows(capsys.readouterr().out)) == 1
    with pytest.raises(ConfigError, match="-g 4 -t 1: all 8 GPUs"):
        app(["nccl", "all_reduce", PAIR, "-g", "4"])


@pytest.mark.parametrize(("flags", "wrong"), [((), "0"), (("-c", "1"), "0"), (("-c", "0"), "N/A")])
def test_results_are_verified_unless_c_is_0(flags, wrong, capsys) -> None:
    app(["nccl", "all_reduce", PAIR, "-b", "1M", "-e", "1M", *flags])
    (row,) = rows(capsys.readouterr().out)
    assert row[8] == wrong


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-f", "2", "-i", "1M"), "-f 2 -i 1M"),
        (("-b", "1K", "-e", "1G", "-i", "1K"), "1,048,576 sizes"),
        (("--channels", "1000"), "from 1 to 64"),
        (("--picture", "curve.jpg"), r"\.png, \.svg, \.pdf"),
    ],
)
def test_impossible_nccl_options_are_refused_at_once(flags: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        app(["nccl", "all_reduce", PAIR, *flags])


def test_windows_go_by_nccl_tests_name_and_kernels_by_nccls(capsys: pytest.CaptureFixture[str]) -> None:
    alone = "star:hosts=1,server=dgx-h100"
    app(["nccl", "all_gather", alone, "-b", "64M", "-e", "64M", "-R", "2", "--explain"])
    printed = capsys.readouterr().out
    assert rows(printed)[0][13] == "AllGather_STMC/2"
    assert "# Far from anything published: no published run of AllGather_STMC" in printed
    flags = ["--local_register", "2", "--NCCL_SYM_KERNEL", "AllGather_ST", "--NCCL_SYM_CTAS", "3", "--nccl", "2.32"]
    app(["nccl", "all_gather", alone, "-b", "64M", "-e", "64M", "--explain", *flags])
    printed = capsys.readouterr().out
    assert rows(printed)[0][13] == "AllGather_ST/3"
    assert "NCCL_SYM_KERNEL=AllGather_ST NCCL_SYM_CTAS=3" in printed
    app(["nccl", "all_gather", alone, "-e", "1M", "-R", "2", "--NCCL_WIN_ENABLE", "0", "--explain"])
    assert all(row[13].startswith("Ring/") for row in rows(capsys.readouterr().out))
    with pytest.raises(ConfigError, match="-R 1: NCCL's local registration"):
        app(["nccl", "all_gather", alone, "-R", "1"])


def test_channels_of_rings_go_by_nccls_older_names(capsys: pytest.CaptureFixture[str]) -> None:
    app(["nccl", "all_gather", PAIR, "-b", "1G", "-e", "1G", "--explain", "--NCCL_MIN_NCHANNELS", "24"])
    printed = capsys.readouterr().out
    assert rows(printed)[0][13] == "Ring/Simple/24"
    assert "NCCL_MIN_NCHANNELS=24" in printed


def test_variables_of_nccl_are_taken_from_its_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command line has priority; variables without effect are listed."""
    monkeypatch.setenv("NCCL_ALGO", "ring")
    monkeypatch.setenv("NCCL_MAX_CTAS", "4")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    command = ["nccl", "all_reduce", PAIR, "-b", "1G", "-e", "1G", "--explain"]
    app(command)
    printed = capsys.readouterr().out
    assert "memory=gpudirect NCCL_ALGO=Ring NCCL_MAX_CTAS=4\n" in printed
    assert "Ring/Simple/4 " in printed
    assert "# Of NCCL's environment, without effect here: NCCL_DEBUG\n" in printed
    app([*command, "--NCCL_ALGO", "Tree"])
    assert "Tree/Simple/4 " in capsys.readouterr().out
    monkeypatch.setenv("NCCL_ALGO", "^NVLS,NVLSTree")
    app(command)
    assert "NCCL_ALGO=Tree,Ring,CollNetDirect,CollNetChain,PAT " in capsys.readouterr().out


def test_elements_of_another_type_are_counted_and_take_as_long(capsys: pytest.CaptureFixture[str]) -> None:
    result = []
    for flags in ([], ["-d", "bfloat16"]):
        app(["nccl", "all_gather", PAIR, "-b", "1000", "-e", "1000", *flags])
        result += rows(capsys.readouterr().out)
    assert [row[:3] for row in result] == [["768", "12", "float"], ["768", "24", "bfloat16"]]
    assert result[0][5] == result[1][5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["all_reduce", PAIR, "-d", "fp8"], "there is no datatype 'fp8'; there are float"),
        (["all_reduce", PAIR, "-d", "FLOAT"], "there is no datatype 'FLOAT'; there are float"),
        (["all_reduce", PAIR, "-o", "max"], "-o max: reductions are sums"),
        (["all_reduce", PAIR, "-g", "2"], "give -g 8 or -g 1, or a server that has fewer"),
        (["all_reduce", PAIR, "--NCCL_MAX_CTAS", "0"], "NCCL_MAX_CTAS=0: from 1 to 64"),
        (["all_reduce", PAIR, "--NCCL_SYM_KERNEL", "foo"], "there are AllReduce_AGxLL_R"),
        ([PAIR, "all_reduce"], f"is a fabric and comes second: weft nccl all_reduce {PAIR}"),
        (["all_reduce", "star:hosts=2"], "h1 has no GPUs: NCCL needs a fabric with server=dgx-h100"),
    ],
)
def test_common_mistakes_have_a_remedy(words: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        app(["nccl", *words])


def test_start_by_mpirun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "16")
    for command in (["nccl", "all_reduce", PAIR], ["osu", "latency", "star:hosts=2"]):
        with pytest.raises(ConfigError, match=r"simulates all ranks in one process; start it without mpirun"):
            app(command)


def test_a_server_without_one_of_its_rails_has_that_much_less_bandwidth(capsys: pytest.CaptureFixture[str]) -> None:
    """Behind the missing adapter trees cross rails, where static routes put two messages on one uplink."""
    times = []
    cut = ["--fault", "cut:dgx2/mlx5_3/1"]
    for options in ([], [*cut, "--paths", "adaptive"], cut):
        app(["nccl", "all_reduce", "superpod:su=1,servers=4", "-b", "8G", "-e", "8G", "--algo", "NVLSTree", *options])
        printed = capsys.readouterr().out
        times.append(float(rows(printed)[0][5]))
    assert "removed the cable of dgx2/mlx5_3/1" in printed
    assert times[1] / times[0] == pytest.approx(8 / 7, rel=0.02)
    assert times[2] > 1.2 * times[1]
    with pytest.raises(ConfigError, match="only `weft train` models"):
        app(["nccl", "all_reduce", "superpod:su=1,servers=4", "--fault", "flap:dgx1/mlx5_0/1@5s"])


@pytest.mark.parametrize(("hosts", "shown"), [(16, [*range(16)]), (17, [0, 1, 2, 3, 13, 14, 15, 16])])
def test_more_than_16_ranks_are_folded(hosts, shown, tmp_path, capsys):
    server = tmp_path / "single.yaml"
    server.write_text(SINGLE_SERVER)
    app(["nccl", "all_gather", f"star:hosts={hosts},server={server}", "-b", "1M", "-e", "1M"])
    printed = capsys.readouterr().out
    assert [int(rank) for rank in re.findall(r"^#  Rank +(\d+) Group", printed, re.M)] == shown
    assert ("#  ... 9 more ranks (--json lists all 17)" in printed) == (hosts == 17)
