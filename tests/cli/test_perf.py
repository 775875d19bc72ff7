"""`weft perf`, run as a user runs it, and read as a script reads perftest."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from weft.cli import main

# cyclopts guesses that a test forgot the arguments; they are in sys.argv, as the user's are.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens:UserWarning")


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(capsys, monkeypatch) -> Callable[..., Done]:
    """The command in this process: the engine is loaded once, not once for each test."""

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["weft", "perf", *arguments])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        return Done(status, *capsys.readouterr())

    return call


def rows(text: str) -> list[list[str]]:
    """Return the lines after `#bytes` that begin with a number, as scripts read them."""
    return [line.split() for line in text.partition("#bytes")[2].splitlines()[1:] if re.match(r"\s*\d", line)]


def test_bandwidth_is_printed_in_perftests_columns(run):
    done = run("write_bw", "h1", "h2", "star:hosts=2", "-s", "2,64K", "-n", "100", "--report_gbits")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == lines[-1] == "-" * 87
    assert lines[1].strip() == "RDMA_Write BW Test"
    assert [line.split(":")[0].strip() for line in lines[2:10]] == [
        "Dual-port",
        "Number of qps",
        "Connection type",
        "TX depth",
        "Mtu",
        "Link type",
        "Memory",
        "Data ex. method",
    ]
    assert lines[10] == lines[0]
    assert " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]" in lines
    small, large = rows(done.stdout)
    assert (small[0], small[1], large[0]) == ("2", "100", "65536")
    assert float(large[3]) == pytest.approx(392.3, abs=0.2)
    assert float(small[4]) == pytest.approx(5.46, abs=0.05)
    assert len(small[3].partition(".")[2]) == 6, "below 0.1 Gb/s perftest prints six digits"


def test_without_report_gbits_bandwidth_is_in_mebibytes(run):
    done = run("ib_send_bw", "h1", "h2", "star:hosts=2", "-n", "100")
    assert "BW average[MiB/sec]" in done.stdout
    assert float(rows(done.stdout)[0][3]) == pytest.approx(46_770, rel=0.01)


def test_latency_is_printed_in_perftests_columns(run):
    done = run("write_lat", "h1", "h2", "star:hosts=2", "-n", "10")
    assert (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
        "   99% percentile[usec]   99.9% percentile[usec] "
    ) in done.stdout.splitlines()
    (row,) = rows(done.stdout)
    assert row[:2] == ["2", "10"]
    assert len(row) == 9
    assert 1 < float(row[4]) < 2


def test_json_has_the_names_of_perftests_own(run):
    facts = json.loads(run("read_lat", "h1", "h2", "star:hosts=2", "-n", "5", "--json").stdout)
    assert facts["results"][0]["MsgSize"] == 2
    assert {"t_min", "t_typical", "percentile_99", "percentile_99.9"} <= set(facts["results"][0])
    assert facts["settings"]["test"] == "ib_read_lat"


def test_calibration_prints_one_measurement_with_its_source(run):
    done = run("calibration", "ndr-send-lat")
    assert done.returncode == 0
    assert "1.27 us" in done.stdout
    assert "10% kept" in done.stdout
    assert "Source:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("write_bw", "h1", "h9", "star:hosts=2"), "'h9'; did you mean"),
        (("write_bw", "h1", "h1", "star:hosts=2"), "needs two hosts"),
        (("write_bw", "h1", "h2"), "weft perf write_bw h1 h2 star:hosts=2"),
        (("write_bx", "h1", "h2", "star:hosts=2"), "did you mean write_bw"),
        (("write_bw", "h1", "h2", "star:hosts=2", "-s", "0"), "--size must be 1 byte"),
        (("write_bw", "h1", "h2", "star:hosts=2", "-s", "2", "-a"), "leave out -s"),
        (("write_bw", "h1", "h2", "star:hosts=2", "--memory", "gpu"), "did you mean gpudirect"),
        (("send_bw", "h1", "h2", "star:hosts=2", "-c", "UD", "-s", "8K"), "at most 4096 bytes"),
        (("calibration", "hdr-write"), "hdr-write-bw"),
    ],
)
def test_bad_input_gets_one_clear_error_and_status_2(run, arguments, words):
    done = run(*arguments)
    assert done.returncode == 2, done
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
