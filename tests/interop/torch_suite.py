"""PyTorch's own tests of backends, `DistributedTest` of its wheel, unmodified, on backend `weft`.

    BACKEND=gloo WORLD_SIZE=3 python tests/interop/torch_suite.py [-v] [TestForks.test_broadcast ...]

The tests decide by the name of a backend which of them it can run, and know only PyTorch's own backends. BACKEND
selects the tests of gloo or MPI; the groups are weft's. PyTorch starts a new Python for each rank of each test. Here
ranks are forks of one process that has imported PyTorch and weft, which takes a tenth of the time.
"""

from __future__ import annotations

import os

os.environ.setdefault("BACKEND", "gloo")
os.environ.setdefault("WORLD_SIZE", "3")

import torch
from torch.testing._internal.common_utils import run_tests
from torch.testing._internal.distributed import distributed_test

import weft.collectives.live.pytorch.backend  # noqa: F401, once and not by each fork

distributed_test.BACKEND = "weft"


class TestForks(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # type: ignore[misc]
    def setUp(self) -> None:
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def run_test(self, test_name: str, parent_pipe: object) -> None:
        if test_name.startswith("test_accumulate_gradients"):  # it also selects its model by the backend's name
            distributed_test.BACKEND = os.environ["BACKEND"]
        super().run_test(test_name, parent_pipe)


if __name__ == "__main__":
    run_tests()
