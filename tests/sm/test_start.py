"""Imports of `weft sm` before its first MAD, until the subnet is up, and after."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.patience import PATIENCE_S, without_notices

from weft.sm import process as warming
from weft.sm.conf.options import Options
from weft.sm.run import SubnetManager

_NOT_NEEDED = (
    "rich",
    "matplotlib",
    "weft.fabric.topologies",
    "weft.fabric.files.opensm",
    "weft.fabric.catalog",
    "weft.sim",
    "weft.sm.pkey.partitions_conf",
    "weft.sm.qos.policy",
    "weft.sm.sa.administrator",
    "weft.sm.opafm.virtual_fabrics",
    "weft.verbs",
    "weft.wire.cc",
    "weft.wire.crc",
)
_MODULES = """
import sys
from weft.cli.sm import _import_manager
_import_manager()
print(*sys.modules, sep="\\n")
"""
# The kernels that were loaded at its first log line, when the subnet was up, when it was idle, and after a fault.
_RUN = """
import io, json, sys, threading

import weft
from numba.core.dispatcher import Dispatcher
from weft.mad.faults import pull_cable
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.sm.events import Log
from weft.sm.conf.options import Options
from weft.sm.process import warm_up, run_warmed_up
from weft.sm.run import SubnetManager

def loaded():
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("weft.")]
    kernels = [thing for module in modules for thing in vars(module).values() if isinstance(thing, Dispatcher)]
    return sorted({f"{one.py_func.__module__}.{one.py_func.__name__}" for one in kernels if one.stats.cache_hits})

class Spy(Log):
    def say(self, event, text):
        super().say(event, text)
        said.setdefault(event.name, loaded())
        modules.setdefault(event.name, list(sys.modules))

class Watched(SubnetManager):
    def step(self):
        super().step()
        threads = [one for one in threading.enumerate() if one.name == "weft warm-up"]
        if self.sweeps > 1:
            self.stop()
        elif threads:
            threads[0].join()
            said["idle"] = loaded()
            pull_cable(subnet.devices, fabric["leaf1/8"].slot)

said, modules = {}, {}
fabric = weft.load("fat-tree:hosts=40,radix=8,levels=3")
clock = ManualClock()
subnet = Subnet(fabric, clock=clock)
carrier = LocalCarrier(subnet, fabric["h1/1"].slot, sleep=clock.sleep)
run_warmed_up(Watched(carrier, Options(), log=Spy(io.StringIO()), clock=clock))
said["end"], said["compiler"] = loaded(), "numba.np.random.generator_methods" in sys.modules
said["early"] = [one for one in modules["SUBNET_UP"] if one in ("weft.sm.sa.administrator", "numba.np.arrayobj")]
print(json.dumps(said))
"""


def python(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert not without_notices(done.stderr)
    return done.stdout


def test_modules_that_a_manager_has_no_use_for_are_not_imported() -> None:
    result = python(_MODULES).split()
    assert "weft.sm.run" in result
    assert [name for name in result if name.startswith(_NOT_NEEDED)] == []


def test_the_first_sweep_loads_what_it_needs_and_an_idle_manager_the_rest() -> None:
    warming.warm_up(Options())  # fill the cache
    output = json.loads(python(_RUN))
    assert output["STARTED"] == []
    assert not output["compiler"]
    assert output["early"] == []
    assert 5 < len(output["SUBNET_UP"]) < len(output["idle"])
    assert output["end"] == output["idle"]
    assert [name for name in output["end"] if not name.startswith(("weft.routing.", *warming.KERNELS))] == []


class _Manager:
    """A manager that only records calls."""

    options = Options()

    def __init__(self) -> None:
        self.done: list[str] = []
        self.is_over = threading.Event()

    def run(self, *, once: bool = False, then: Callable[[], Any] | None = None) -> bool:
        self.done.append("run")
        if then is not None and not once:
            then()
        self.is_over.set()
        return True

    def warm_up(self, _options: Options) -> None:
        if self.done:  # the manager's first sweep was before: wait for its end
            assert self.is_over.wait(PATIENCE_S)
        self.done.append("warm_up")


@pytest.mark.parametrize("compiled", [False, True])
def test_compiling_comes_before_the_first_mad_and_loading_after_the_first_sweep(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = _Manager()
    monkeypatch.setattr(warming, "is_warmed_up", lambda: compiled)
    monkeypatch.setattr(warming, "warm_up", manager.warm_up)
    assert warming.run_warmed_up(cast(SubnetManager, manager))
    assert manager.done == (["run", "warm_up"] if compiled else ["warm_up", "run"])  # and no thread is left


def test_complete_warm_up_is_marked_beside_the_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "cache_folder", lambda module: tmp_path / module)
    warming.warm_up(Options())  # the cache folders do not exist, as in a read-only home
    assert not warming.is_warmed_up()
    for module in warming.KERNELS:
        (tmp_path / module).mkdir()
    warming.warm_up(Options())
    assert warming.is_warmed_up()
