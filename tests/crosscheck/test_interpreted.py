"""Compiled and interpreted, the kernels say the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SPECS = ("fat-tree:hosts=40,radix=8", "superpod:su=1,servers=2", "torus:5x3", "dragonfly:p=1,a=4,h=1", "hyperx:3x3")
_PROGRAM = """
import hashlib, sys, weft
from weft.fabric import faults
from weft.routing.check import check
from weft.routing.engine import CannotRoute, Options
from weft.routing.quality import measure
from weft.routing.route import ENGINES, reroute, route

said = hashlib.sha256()
for spec in sys.argv[1:]:
    fabric = weft.load(spec)
    for name in ENGINES:
        try:
            routing = route(fabric, Options(engine=name, lmc=1, adaptive=True))
        except CannotRoute as reason:
            said.update(str(reason).encode())
            continue
        tables, quality = routing.tables, measure(routing.fabric, bisections=3)
        for array in (tables.lft, tables.path_sl, tables.sl2vl, tables.ar_group, tables.ar_ports, quality.load):
            said.update(array.tobytes())
        verdict = check(routing.fabric)
        said.update(repr((verdict.hops, verdict.vls, len(verdict.credit_loop) > 0, quality.bisection)).encode())
        said.update(reroute(fabric, routing).tables.lft.tobytes())
print(said.hexdigest())
"""


def digest(disable_jit: str) -> str:
    environment = os.environ | {"NUMBA_DISABLE_JIT": disable_jit}
    command = [sys.executable, "-c", _PROGRAM, *SPECS]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_routing_compiled_and_interpreted_give_the_same_digest():
    assert digest("0") == digest("1")
