"""`weft run` in a new lab of two subnets: sums of real bytes, through the routers."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.cli.run import run

SUM = """
import numpy as np
from weft.collectives.live.world import join_world

world = join_world()
total = np.full(300_000, world.rank + 1)
world.all_reduce(total)
assert (total == 10).all(), total
print("rank", world.rank, "has the sum")
"""


@pytest.mark.parametrize("spec", ["subnets:2,of=star:hosts=2", "subnets:2,of=star:hosts=2,planes=2"])
def test_ranks_of_two_subnets_add_real_bytes(
    compiled: None, tmp_path: Path, capfd: pytest.CaptureFixture[str], spec: str
) -> None:
    """The job's lab has a manager in each plane of each subnet."""
    program = tmp_path / "sum.py"
    program.write_text(SUM)
    with pytest.raises(SystemExit) as ended:
        run("-n", "4", "--lab", spec, "--quiet", str(program))
    printed = capfd.readouterr().out
    assert ended.value.code == 0, printed
    assert sorted(printed.splitlines()) == [f"[{rank}] rank {rank} has the sum" for rank in range(4)]
