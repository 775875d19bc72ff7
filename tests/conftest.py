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
# Workers meet neither each other's labs and adapters nor those of anybody else; short, as paths of sockets must be.
os.environ["WEFT_DEFAULTS"] = ""  # those of whoever runs the tests
os.environ.pop("COLUMNS", None)  # the width of tables in a pipe, which is wider than that of a terminal
os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="weft-", dir="/tmp")
os.environ["XDG_STATE_HOME"] = os.environ["XDG_RUNTIME_DIR"]

import weft
from weft.fabric.model import Fabric

gc.disable()  # until all is collected: nothing of it goes
for variable in [name for name in os.environ if name.startswith(("NCCL_", "OMPI_", "PMI_"))]:
    del os.environ[variable]  # of whoever runs the tests: `weft nccl` reads them
# nohup ignores the one and a shell's `&` the other, and what is ignored no program that is started can trap.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

argument_cache.install()
janitor = hire()
ROOT = Path(__file__).parents[1]
# 25 examples of 100: all tests take under ten minutes together. Nothing is judged by the clock of a busy machine.
hypothesis.settings.register_profile(
    "weft",
    max_examples=25,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
hypothesis.settings.load_profile("weft")


def find_dump(name: str) -> Path:
    """A real fabric's dump, from $WEFT_DUMPS or beside the checkout; a test that has none skips."""
    folder = Path(os.environ.get("WEFT_DUMPS") or ROOT.parent / "shared" / "dumps")
    if not (folder / name).is_file():
        pytest.skip(f"{name} is not in {folder}: set WEFT_DUMPS to the folder of the dumps")
    return folder / name


def start_warm_weft(until: ExitStack) -> None:
    """A `weft` that has all imported; what it prints is the same in every country."""
    folder = Path(until.enter_context(tempfile.TemporaryDirectory(prefix="weft-")))
    environment = os.environ | {"COLUMNS": "120", "LC_ALL": "C.UTF-8"}
    os.environ[WARM] = str(until.enter_context(warm_weft(folder, environment)))


def pytest_configure(config: pytest.Config) -> None:
    """Start one warm program for all workers: it imports while they collect."""
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
    """NVIDIA Selene's compute fabric of 2021: HDR, 666 switches."""
    return find_dump("selene.compute.txt")


@pytest.fixture(scope="session")
def ndr_dump() -> Path:
    """A DGX fabric of 2025: NDR, 40 switches."""
    return find_dump("topograph_example.out")


@pytest.fixture(scope="session")
def selene(selene_dump: Path) -> Fabric:
    return weft.load(str(selene_dump))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones first, then documents: at the end one worker would be left alone with them."""
    items.sort(key=lambda item: ("slow" not in item.keywords, item.path.name != "test_documents.py"))


def pytest_collection_finish() -> None:
    """Exempt imported and collected objects from garbage collection: there are a million of them."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # as often as Python has it takes one second of thirty
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: tests that wait, for a timer or for another process, leave them idle."""
    return len(os.sched_getaffinity(0)) + 2


def pytest_unconfigure() -> None:
    if janitor is not None:
        janitor.kill()
        janitor.wait()
    shutil.rmtree(os.environ["XDG_RUNTIME_DIR"], ignore_errors=True)
