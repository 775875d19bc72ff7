"""Jobs: a collective and its size, or a trace; every wrong one is refused with its place."""

from __future__ import annotations

import pytest

from weft.collectives.kinds import Collective
from weft.compare.job import Call, CollectiveJob, parse_job
from weft.errors import ConfigError, FileError


def test_a_job_is_a_collective_and_its_size() -> None:
    job = parse_job("AllReduce:64M")
    assert job.calls == (Call(collective=Collective.ALL_REDUCE, size_bytes=64 << 20),)
    assert str(job) == "all_reduce of 64 MiB"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("all_reduce", "write all_reduce:1G"),
        ("all_reduce:", "write all_reduce:1G"),
        ("allreduse:1G", "did you mean all_reduce"),
        ("barrier:1G", "barrier is not supported by compare; it supports all_reduce"),
        ("all_reduce:1X", "size '1X' is not a number of bytes"),
        ("all_reduce:-5", "size '-5' is not a number of bytes"),
        ("all_reduce:0", "the size must be 1 byte to 4 TiB"),
        ("all_reduce:5T", "the size must be 1 byte to 4 TiB"),
        ("trace:nosuch.csv", "nosuch.csv: no such file"),
    ],
)
def test_an_invalid_job_is_refused_with_the_rule(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_job(text)


def test_a_call_shows_how_often_it_runs_if_more_than_once() -> None:
    calls = [Call(collective=Collective.ALL_REDUCE, size_bytes=1 << 20, count=count) for count in (1, 2)]
    assert [str(call) for call in calls] == ["all_reduce of 1 MiB", "2 × all_reduce of 1 MiB"]


def test_bus_bandwidth_is_that_of_the_bytes_of_all_calls() -> None:
    """An all-reduce among 4 ranks moves 3/2 of its bytes over each link, an all-to-all 3/4: 12 + 3 GB in 3 s."""
    job = CollectiveJob(
        name="both",
        calls=(
            Call(collective=Collective.ALL_REDUCE, size_bytes=4 * 10**9, count=2),
            Call(collective=Collective.ALL_TO_ALL, size_bytes=4 * 10**9),
        ),
    )
    assert job.bus_gbyte_s(4, 3e6) == pytest.approx(5)


def test_a_trace_adds_up_equal_calls(tmp_path) -> None:
    path = tmp_path / "step.csv"
    path.write_text(
        "collective,size,count\n# one step\nall_reduce, 64M, 12\n\nall_to_all,1M  # once\nall_reduce,67108864,3\n"
    )
    job = parse_job(f"trace:{path}")
    assert job.calls == (
        Call(collective=Collective.ALL_REDUCE, size_bytes=64 << 20, count=15),
        Call(collective=Collective.ALL_TO_ALL, size_bytes=1 << 20, count=1),
    )
    assert job.leading.collective is Collective.ALL_REDUCE
    assert str(job) == f"the 16 collectives of {path}"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("all_reduce", "expected collective,size,count"),
        ("all_reduce,1M,2,3", "expected collective,size,count"),
        ("allreduse,1M,2", "did you mean all_reduce"),
        ("all_reduce,big,2", "size 'big' is not a number of bytes"),
        ("all_reduce,1M,0", "count must be 1 to 1,000,000,000, got '0'"),
        ("all_reduce,1M,1.5", "count must be 1 to 1,000,000,000, got '1.5'"),
    ],
)
def test_a_wrong_line_of_a_trace_is_named(line: str, says: str, tmp_path) -> None:
    path = tmp_path / "step.csv"
    path.write_text(f"all_reduce,1M,1\n{line}\n")
    with pytest.raises(FileError, match=says) as caught:
        parse_job(f"trace:{path}")
    assert caught.value.line == 2


def test_an_empty_trace_and_one_that_is_no_text_are_refused(tmp_path) -> None:
    path = tmp_path / "step.csv"
    path.write_text("collective,size,count\n")
    with pytest.raises(FileError, match="no collective; expected lines"):
        parse_job(f"trace:{path}")
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not a text file"):
        parse_job(f"trace:{path}")
