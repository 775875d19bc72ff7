"""Kernels to load or compile when the first real sweep begins."""

from __future__ import annotations

import subprocess
import sys

from tests.patience import without_notices

_SWEEPS = """
import io, sys

import weft
from numba.core.dispatcher import Dispatcher
from weft.mad.faults import pull_cable
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.sm.events import Log
from weft.sm.conf.options import Options
from weft.sm.process import warm_up
from weft.sm.run import SubnetManager

def loaded():
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("weft.")]
    kernels = [thing for module in modules for thing in vars(module).values() if isinstance(thing, Dispatcher)]
    return {f"{one.py_func.__name__}{signature}" for one in kernels for signature in one.overloads}

fabric = weft.load("fat-tree:hosts=40,radix=8,levels=3")
clock = ManualClock()
subnet = Subnet(fabric, clock=clock)
if "warm" in sys.argv:
    warm_up(Options())
before = loaded()
carrier = LocalCarrier(subnet, fabric["h1/1"].slot, sleep=clock.sleep)
manager = SubnetManager(carrier, Options(), log=Log(io.StringIO()), clock=clock)
manager.open()
manager.step()
pull_cable(subnet.devices, fabric["leaf1/8"].slot)
while manager.sweeps < 2:
    manager.step()
print(*sorted(loaded() - before), sep="\\n")
"""


def left_to_load(*words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", _SWEEPS, *words], capture_output=True, text=True, check=True)
    assert not without_notices(done.stderr)
    return [line for line in done.stdout.splitlines() if line]


def test_after_a_warm_up_no_kernel_is_left_to_load_and_without_one_there_are_many() -> None:
    assert left_to_load("warm") == []
    assert len(left_to_load()) > 10
