"""`weft osu`, as a user runs it."""

from __future__ import annotations

import csv
import io
import json

import pytest

import weft
from weft.cli import app
from weft.errors import ConfigError, UnknownName

PAIR = "star:hosts=2,server=host-hdr"


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    app(["osu", *words])
    return capsys.readouterr().out


def test_the_form_is_that_of_osus_program(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "osu_latency", PAIR, "-m", "1:4", "--no-band").splitlines()
    assert lines[:3] == ["", "# OSU MPI Latency Test v7.5", "# Datatype: MPI_CHAR."]
    assert lines[4] == "# Size       Avg Latency(us)"
    assert [line[:10] for line in lines[5:]] == ["1         ", "2         ", "4         "]
    assert all(len(line) == 28 and line[25] == "." for line in lines[5:])


def test_a_band_stands_behind_osus_columns(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "bw", PAIR, "-m", "1M:1M", "--explain")
    head, row = out.splitlines()[-2:]
    assert head.split() == ["#", "Size", "Bandwidth", "(MB/s)", "Low(MB/s)", "High(MB/s)", "Protocol"]
    size, value, low, high, how = row.split()
    assert (size, how) == ("1048576", "rendezvous")
    assert float(low) < float(value) < float(high)


def test_the_picture_has_the_band_and_what_was_chosen(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    path = tmp_path / "latency.svg"
    assert f"# {path}: written" in printed(capsys, "latency", PAIR, "-m", "64K:512K", "--picture", str(path))
    drawn = path.read_text()
    assert all(word in drawn for word in ("band", "eager", "rendezvous", "latency (µs"))
    with pytest.raises(ConfigError, match="osu_barrier has one size"):
        app(["osu", "barrier", PAIR, "--picture", str(path)])


def test_a_barrier_has_no_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "barrier", PAIR, "--ppn", "2", "--no-band").splitlines()
    assert lines[1] == "# OSU MPI Barrier Latency Test v7.5"
    assert lines[-2] == "# Avg Latency(us)"
    assert len(lines[-1]) == 17


def test_full_has_the_first_and_the_last_rank(capsys: pytest.CaptureFixture[str]) -> None:
    row = printed(capsys, "bcast", "star:hosts=4", "-m", "8:8", "-f", "--no-band").splitlines()[-1].split()
    size, mean, least, most, iterations = map(float, row)
    assert (size, iterations) == (8, 1)
    assert least < mean < most


def test_servers_are_the_first_so_many_or_those_named(capsys: pytest.CaptureFixture[str]) -> None:
    for servers, output in (("3", "3 servers"), ("h2,h5", "2 servers")):
        assert f"on each of {output}" in printed(capsys, "barrier", "star:hosts=8", "--servers", servers)
    with pytest.raises(ConfigError, match=r"--servers 9: .* has 8"):
        app(["osu", "barrier", "star:hosts=8", "--servers", "9"])


def test_a_slow_link_slows_a_stream_and_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bw", PAIR, "-m", "4M:4M", "--no-band")
    whole, slow = (printed(capsys, *words, *more) for more in ((), ("--fault", "slow:host2/1=4xEDR")))
    rates = [float(out.split()[-1]) for out in (whole, slow)]
    assert rates[1] == pytest.approx(rates[0] / 2, rel=0.05)
    assert "#   with " in slow
    assert "#   with " not in whole


def test_ranks_without_their_adapter_use_that_of_another_rank(capsys: pytest.CaptureFixture[str]) -> None:
    """With seven of eight rails two ranks share one, on one server or on both, and the others wait for them."""
    words = ("--ppn", "8", "-m", "1M:1M", "--no-band")
    whole, seven = (
        printed(capsys, "alltoall", f"star:hosts=2,server=dgx-h100{rails}", *words) for rails in ("", "+7rails")
    )
    cut = printed(capsys, "alltoall", "star:hosts=2,server=dgx-h100", *words, "--fault", "cut:dgx1/mlx5_0/1")
    times_us = [float(out.split()[-1]) for out in (whole, seven, cut)]
    assert times_us[0] < times_us[1] < 1.5 * times_us[0]
    assert times_us[2] == pytest.approx(times_us[1], rel=0.01)


def test_json_and_csv_have_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("allreduce", "star:hosts=4", "--ppn", "2", "--mpi", "mvapich2", "-m", "8:16", "--seed", "3")
    facts = json.loads(printed(capsys, *words, "--json"))
    rows = list(csv.DictReader(io.StringIO(printed(capsys, *words, "--csv"))))
    assert (facts["weft"], facts["test"], facts["mpi"], facts["ppn"]) == (
        weft.__version__,
        "osu_allreduce",
        "mvapich2",
        2,
    )
    assert (facts["network"], facts["seed"], len(facts["servers"])) == ("infiniband", 3, 4)
    assert [float(row["us"]) for row in rows] == [row["us"] for row in facts["results"]]
    assert all(row["low_us"] < row["us"] < row["high_us"] for row in facts["results"])


def test_a_published_run_is_shown_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "calibration", "roce-latency")
    assert "1.67" in out
    assert "Source: Oracle" in out
    (facts,) = json.loads(printed(capsys, "calibration", "roce-latency", "--json"))
    assert facts["figures"][0]["kept"] is True


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["latency"], "needs a cluster: weft osu latency fat-tree"),
        (["latenzy", PAIR], "there is no test 'latenzy'"),
        (["latency", PAIR, "--mpi", "intelmpi"], "there is no MPI library 'intelmpi'"),
        (["latency", PAIR, "-m", "x:4"], "x"),
        (["latency", PAIR, "-m", "0:4"], "sizes from 1 B"),
        (["allreduce", "star:hosts=2", "--ppn", "100000"], "--ppn must be 1 to 1,024 processes per server, got 100000"),
        (["alltoall", "star:hosts=4", "--sharp"], "--sharp"),
        (["latency", PAIR, "--UCX_TLS", "foo"], "there is no transport of UCX_TLS 'foo'; there are all, sm"),
        (["latency", PAIR, "--UCX_TLS", "sm,self"], "nothing carries messages between servers"),
        (["latency", PAIR, "--map-by", "ppr:8:node"], "ppr:8:node is --ppn 8"),
        (["allreduce", "star:hosts=1", "--ppn", "4", "--map-by", "node"], "ranks lie as they do without"),
        (["calibration", "nothing"], "there is no run 'nothing'"),
    ],
)
def test_bad_input_is_one_error(words: list[str], error: str) -> None:
    with pytest.raises((ConfigError, UnknownName), match=error):
        app(["osu", *words])
