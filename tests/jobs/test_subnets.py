"""`weft run` on a lab of two subnets: sums of real bytes, through the router."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.cli.run import run
from weft.fabric.subnets import subnets_of
from weft.lab import control, daemon, subnet_manager
from weft.lab.registry import Entry
from weft.sm.conf.options import Options

SUM = """
import numpy as np
from weft.collectives.live.world import join_world

world = join_world()
total = np.full(300_000, world.rank + 1)
world.all_reduce(total)
assert (total == 10).all(), total
print("rank", world.rank, "has the sum")
"""


@pytest.fixture(scope="module")
def lab(compiled: None) -> Iterator[Entry]:
    """Start a lab of two subnets with a manager each."""
    fabric = weft.load("subnets:2,of=star:hosts=2")
    entry = daemon.start(fabric, f"jobs-subnets-{os.getpid()}")
    try:
        sockname = control.ask(entry, "state")["sockname"]
        prefixes = [part.prefix for part in subnets_of(fabric)]
        managers = [
            subnet_manager.launch(
                entry, sockname, f"s{n}-h1", Options(subnet_prefix=prefix), log=subnet_manager.new_log(entry, f"s{n}")
            )
            for n, prefix in enumerate(prefixes, 1)
        ]
        for manager, other in zip(managers, reversed(prefixes), strict=True):
            manager.wait({other})
        yield entry
    finally:
        control.end(entry)


def test_ranks_of_two_subnets_add_real_bytes(lab: Entry, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    with pytest.raises(SystemExit) as ended:
        run("-n", "4", "--lab", lab.name, "--quiet", str(program))
    printed = capfd.readouterr().out
    assert ended.value.code == 0, printed
    assert sorted(printed.splitlines()) == [f"[{rank}] rank {rank} has the sum" for rank in range(4)]
