"""PyTorch's own tests of backends, on backend `weft`: a selection; docs/pytorch.md has the counts of all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interop.conftest import find_module
from tests.patience import PATIENCE_S

_SUITE = Path(__file__).with_name("torch_suite.py")
_CHOSEN = {
    "gloo": (
        "test_destroy_group",
        "test_sparse_all_reduce_sum",
        "test_barrier_timeout_full_group",
        "test_all_gather_object_default_pg",
        "test_accumulate_gradients_no_sync_grad_is_view",
    ),
    "mpi": (
        "test_all_to_all_single_unequal_split_group",
        "test_all_reduce_group_sum",
        "test_send_recv_any_source",
        "test_scatter_complex",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("chosen_as", _CHOSEN)
def test_tests_of_pytorch_pass(chosen_as: str) -> None:
    find_module("torch")
    find_module("expecttest")
    names = _CHOSEN[chosen_as]
    done = subprocess.run(
        [sys.executable, str(_SUITE), *(f"TestForks.{name}" for name in names)],
        env=os.environ | {"BACKEND": chosen_as, "WORLD_SIZE": "3", "OMP_NUM_THREADS": "1", "CI": ""},  # else as XML
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if line.startswith(("Ran ", "OK", "FAILED"))]
    assert [line.split(" in ")[0] for line in said] == [f"Ran {len(names)} tests", "OK"], done.stderr[-3000:]
