"""Fixtures of several folders: kernels with bounds checks, and the dumps of real fabrics."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest
from tests import argument_cache
from tests.janitor import hire
from tests.warm import WARM, warm_weft

os.environ.setdefault("NUMBA_BOUNDSCHECK", "1")  # before numba is imported
os.environ["WEFT_DEFAULTS"] = ""  # ignore the user's own defaults
os.environ.pop("COLUMNS", None)  # the width of tables in a pipe, which is wider than that of a terminal
# Each process has its own labs and adapters. In /tmp, because the path of a Unix socket is limited to 107 characters.
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="weft-", dir="/tmp")
os.environ["XDG_STATE_HOME"] = os.environ["XDG_RUNTIME_DIR"]

import weft
from weft.fabric.model import Fabric

gc.disable()  # until tests are collected: none of these objects can be freed
for variable in [name for name in os.environ if name.startswith(("NCCL_", "OMPI_", "PMI_"))]:
    del os.environ[variable]  # the user's own: `weft nccl` reads them
# nohup ignores SIGHUP and a shell's `&` ignores SIGINT; a program started by a shell cannot trap an ignored signal.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

argument_cache.install()
janitor = hire()
ROOT = Path(__file__).parents[1]
# 25 examples instead of 100 keep the whole suite under ten minutes. No deadline: a busy machine would exceed it.
hypothesis.settings.register_profile(
    "weft",
    max_examples=25,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("weft")


def find_dump(name: str) -> Path:
    """Return the path of a real fabric's dump, from $WEFT_DUMPS or beside the checkout; skip the test without it."""
    folder = Path(os.environ.get("WEFT_DUMPS") or ROOT.parent / "shared" / "dumps")
    if not (folder / name).is_file():
        pytest.skip(f"{name} is not in {folder}: set WEFT_DUMPS to the folder of the dumps")
    return folder / name


def start_warm_weft(until: ExitStack) -> None:
    """Start a `weft` that has imported all modules; its output does not depend on locale or terminal width."""
    folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="weft-")))
    environment = os.environ | {"COLUMNS": "120", "LC_ALL": "C.UTF-8"}
    os.environ[WARM] = str(until.enter_context(warm_weft(folder, environment)))


def pytest_configure(config: pytest.Config) -> None:
    """Start one warm `weft` for all workers: it imports while they collect."""
    if getattr(config.option, "numprocesses", None) and WARM not in os.environ:
        until = ExitStack()
        start_warm_weft(until)
        config.add_cleanup(until.close)


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    with ExitStack() as until:
        if WARM not in os.environ:
            start_warm_weft(until)
        yield Path(os.environ[WARM])


@pytest.fixture(scope="session")
def compiled() -> None:
    """Compile libibverbs and the subnet manager's kernels, so that no test prints the notice of a cold cache."""
    from weft.sm.conf.options import Options
    from weft.sm.process import warm_up
    from weft.verbs import launch

    warm_up(Options())
    launch.environment()


@pytest.fixture(scope="session")
def selene_dump() -> Path:
    """The dump of NVIDIA Selene's compute fabric of 2021: HDR, 666 switches."""
    return find_dump("selene.compute.txt")


@pytest.fixture(scope="session")
def ndr_dump() -> Path:
    """The dump of a DGX fabric of 2025: NDR, 40 switches."""
    return find_dump("topograph_example.out")


@pytest.fixture(scope="session")
def selene(selene_dump: Path) -> Fabric:
    return weft.load(str(selene_dump))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort slow tests first, then documents: at the end they would keep one worker busy while the others idle."""
    items.sort(key=lambda item: ("slow" not in item.keywords, item.path.name != "test_documents.py"))


def pytest_collection_finish() -> None:
    """Freeze imported and collected objects: garbage collection need not visit a million of them."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # Python's own thresholds cost one second in thirty
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of processors plus two: tests that wait for a timer or another process leave one idle."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_unconfigure() -> None:
    if janitor is not None:
        janitor.kill()
        janitor.wait()
    shutil.rmtree(os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)
