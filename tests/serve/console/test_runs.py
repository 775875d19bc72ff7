"""`weft compare` and `weft train` beside the service."""

from __future__ import annotations

import pytest
from tests.patience import wait_until

from weft.errors import ConfigError
from weft.serve.console.runs import Compare, Runs, Train
from weft.serve.desired import NotFoundError

_SMALL = "fat-tree:hosts=2,server=dgx-h100"


def test_a_run_shows_progress_and_has_a_report():
    with Runs() as runs:
        number = runs.start(Compare(spec=_SMALL, job="all_reduce:1M", fabrics="ndr,roce-400"))
        wait_until(lambda: runs.get(number).state in ("done", "failed"))
        output = runs.get(number)
        assert output.state == "done", output.lines
        assert any(line.startswith("running ") for line in output.lines)
        assert b"<!doctype html>" in runs.report(number)[:50]
        folder = runs._folder
    assert not folder.exists()


def test_a_failing_run_shows_its_error_and_has_no_report():
    with Runs() as runs:
        number = runs.start(Compare(spec="fat-tree:hosts=2,radix=7"))
        wait_until(lambda: runs.get(number).state == "failed")
        assert "radix" in "\n".join(runs.get(number).lines)
        with pytest.raises(NotFoundError, match="failed"):
            runs.report(number)


def test_a_waiting_run_can_be_ended_before_it_starts():
    with Runs() as runs:
        numbers = [runs.start(Train(model="llama3-70b", spec="superpod:su=1")) for _ in range(3)]
        for number in numbers:
            runs.end(number)
        assert {runs.get(number).state for number in numbers} == {"ended"}
        with pytest.raises(NotFoundError, match="no run 99"):
            runs.get(99)


@pytest.mark.parametrize(
    "wanted",
    [
        Compare(spec="/etc/passwd"),
        Compare(spec="passwd"),
        Compare(spec=_SMALL, job="trace:/etc/passwd"),
        Compare(spec=_SMALL, fabrics="--report=/tmp/x"),
        Train(model="../../etc/passwd", spec=_SMALL),
        Train(model="-h", spec=_SMALL),
    ],
)
def test_no_file_of_this_machine_is_read_or_written(wanted):
    with Runs() as runs, pytest.raises(ConfigError, match=r"must be a name|not a topology"):
        runs.start(wanted)
