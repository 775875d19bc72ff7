"""perftest, unmodified, on weft's libibverbs: the measured bytes were really sent."""

from __future__ import annotations

import pytest
from tests.interop.c_programs import outside_of_labs, program, run_pair

from weft import compiler

pytestmark = [pytest.mark.interop, pytest.mark.skipif(compiler.find() is None, reason="no C compiler")]
CASES = {
    "write, four queue pairs": ("ib_write_bw", "-q", "4", "-s", "65536", "-n", "100"),
    "send by events": ("ib_send_lat", "-e", "-s", "64", "-n", "50"),
    "datagrams": ("ib_send_bw", "-c", "UD", "-s", "1024", "-n", "50"),
    "atomics": ("ib_atomic_bw", "-n", "50"),
    "unreliable, inline": ("ib_write_lat", "-c", "UC", "-I", "64", "-s", "32", "-n", "20"),
}


@pytest.mark.parametrize("name", CASES)
def test_perftest_comes_to_its_row_of_figures(name):
    tool, *words = CASES[name]
    for output in run_pair([program(tool), "-x", "1", *words], outside_of_labs(), outside_of_labs()):
        rows = output.splitlines()
        head = next(index for index, row in enumerate(rows) if row.lstrip().startswith("#bytes"))
        figures = rows[head + 1].split()
        assert int(figures[1]) >= int(words[-1]), output
        assert float(figures[3]) > 0, output
