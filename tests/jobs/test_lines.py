"""Lines of ranks, and the command line of mpirun; no rank runs."""

from __future__ import annotations

import io

import pytest

from weft.errors import ConfigError
from weft.jobs.mpi import environment, joined, rank_before
from weft.jobs.processes import Lines, prefixed


def test_lines_are_written_whole_with_their_prefix_and_the_last_without_a_newline_at_the_end():
    out = io.BytesIO()
    lines = Lines(out, prefixed("[3] "))
    lines.take(b"a\nb")
    assert out.getvalue() == b"[3] a\n"
    lines.take(b"c\r\n\xff")
    lines.close()
    lines.close()
    assert out.getvalue() == b"[3] a\n[3] bc\r\n[3] \xff\n"
    assert list(lines.last) == ["a", "bc", "\ufffd"]


def test_a_line_of_more_than_64_kib_is_written_in_parts_and_the_newest_20_lines_are_kept():
    out = io.BytesIO()
    lines = Lines(out, prefixed(""))
    lines.take(b"x" * (1 << 16))
    assert out.getvalue() == b""
    lines.take(b"y")
    assert len(out.getvalue()) == (1 << 16) + 2
    lines.take(b"".join(b"%d\n" % i for i in range(30)))
    assert list(lines.last) == [str(i) for i in range(10, 30)]


def test_mpirun_starts_each_rank_with_its_own_variables():
    command = joined(["./ring", "8"], [{"RANK": "0"}, {"RANK": "1"}])
    assert " ".join(command) == "-n 1 env RANK=0 ./ring 8 : -n 1 env RANK=1 ./ring 8"
    with pytest.raises(ConfigError, match="uses the argument `:` to separate programs"):
        joined(["./ring", ":"], [{}])
    assert environment({"A": "b"}).items() >= {"A": "b", "OMPI_ALLOW_RUN_AS_ROOT": "1"}.items()


def test_a_tag_of_open_mpi_becomes_the_rank():
    assert rank_before(b"[1,12]<stderr>:x [1,2]<stdout>:") == b"[12] x [1,2]<stdout>:"
    assert rank_before(b"x") == b"x"
