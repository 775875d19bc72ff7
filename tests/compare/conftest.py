"""A small comparison shared by tests: four DGX H100, not aligned to rails, so that hashes can collide."""

from __future__ import annotations

import pytest

from weft.compare.comparison import compare
from weft.compare.job import parse_job
from weft.compare.outcome import Comparison

SPEC = "fat-tree:hosts=4,server=dgx-h100,levels=2,radix=16"


@pytest.fixture(scope="session")
def found() -> Comparison:
    return compare(SPEC, parse_job("all_gather:1G"), ["ndr", "xdr", "hdr", "roce-400", "eth-100-tcp"])
