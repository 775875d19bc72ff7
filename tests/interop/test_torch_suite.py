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
# Both kinds run in forks of a process that has imported PyTorch; the selection is set before the tests are imported.
_BOTH = """
import os, runpy, sys, torch._dynamo, torch.testing._internal.common_utils
suite, *kinds = sys.argv[1:]
for kind in kinds:
    os.environ["BACKEND"], *names = kind.split()
    if not (fork := os.fork()):
        sys.argv = [suite, *(f"TestForks.{name}" for name in names)]
        try:
            runpy.run_path(suite, run_name="__main__")
        except SystemExit:  # results are printed; a normal exit would free all of PyTorch's objects
            sys.stderr.flush()
            os._exit(0)
    os.waitpid(fork, 0)
"""
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
def test_tests_of_pytorch_pass() -> None:
    find_module("torch")
    find_module("expecttest")
    kinds = [f"{chosen_as} {' '.join(names)}" for chosen_as, names in _CHOSEN.items()]
    done = subprocess.run(
        [sys.executable, "-c", _BOTH, str(_SUITE), *kinds],
        env=os.environ | {"WORLD_SIZE": "3", "OMP_NUM_THREADS": "1", "CI": ""},  # else as XML
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    output = [line.split(" in ")[0] for line in done.stderr.splitlines() if line.startswith(("Ran ", "OK", "FAILED"))]
    expected = [line for names in _CHOSEN.values() for line in (f"Ran {len(names)} tests", "OK")]
    assert output == expected, done.stderr[-3000:]
