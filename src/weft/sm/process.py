"""The manager's process: kernels that are compiled and loaded before a sweep needs them, and signals.

The kernels are compiled by bringing up a small subnet in this process, and again after a fault. At the first start
after an installation that takes half a minute. No request would be answered during that time, and a standby would take
over, so it is done before the first MAD. If they are in the cache, a kernel loads in milliseconds: the first sweep
loads those that it needs, and a thread loads the others, which the sweep after a fault needs, when the subnet is up and
idle. Kernels of other routing engines are loaded when these engines route.
"""

from __future__ import annotations

import hashlib
import io
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

from numba.core.registry import cpu_target

from weft.jit import cache_folder
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.run import SubnetManager


@contextmanager
def obeying_signals(manager: SubnetManager) -> Iterator[None]:
    """Handle signals as OpenSM does; restore the previous handlers afterwards."""
    on_signal = {signal.SIGTERM: manager.stop, signal.SIGINT: manager.stop, signal.SIGHUP: manager.reload}
    with ExitStack() as stack:
        for number, act in on_signal.items():
            before = signal.signal(number, lambda *_, act=act: act())
            stack.callback(signal.signal, number, before)
        yield


# Modules whose kernels run in the manager's own thread; those of routing run in another.
KERNELS = ("weft.wire.kernels", "weft.sm.mcast.tree_kernels", "weft.sm.ucast.upload_waits", "weft.sm.sa.kernels")
_STEPS = 8  # more than enough for the trap, the delay after it, and the sweep


def run_warmed_up(manager: SubnetManager, *, once: bool = False) -> bool:
    """Run the manager, and warm up before it; after the first sweep if the kernels are in the cache."""
    if not is_warmed_up():
        warm_up(manager.options)
        return manager.run(once=once)
    later = Thread(target=warm_up, args=(manager.options,), name="weft warm-up")
    try:
        return manager.run(once=once, then=later.start)
    finally:
        if later.ident is not None:
            later.join()  # it starts a thread to route, which fails while Python exits


def is_warmed_up() -> bool:
    """Return whether the cache has the kernels of this source for this processor."""
    return all(path.exists() for path in _markers())


def warm_up(options: Options) -> None:
    """Run the kernels once, with the routing engines of the options; read and write no files of the manager."""
    from weft.fabric.topologies.fat_tree import fat_tree
    from weft.mad.faults import pull_cable
    from weft.mad.local import LocalCarrier, ManualClock
    from weft.mad.subnet import Subnet

    fabric = fat_tree(hosts=8, radix=4)
    clock = ManualClock()
    subnet = Subnet(fabric, clock=clock)
    carrier = LocalCarrier(subnet, fabric.find_port("h1/1").slot, sleep=clock.sleep)
    engines = Options(routing_engine=options.routing_engine, adaptive_routing=options.adaptive_routing)
    manager = SubnetManager(carrier, engines, log=Log(io.StringIO()), clock=clock)
    manager.open()
    manager.step()
    pull_cable(subnet.devices, fabric.find_port("leaf1/3").slot)
    for _ in range(_STEPS):
        manager.step()
    manager.close()
    with suppress(OSError):  # the cache folder is read-only: every start warms up first
        for path in _markers():
            path.touch()


def _markers() -> list[Path]:
    """Return the files beside the kernels that mark a complete warm-up."""
    processor = repr(cpu_target.target_context.codegen().magic_tuple())  # numba compiles for one alone
    name = f"warm-{hashlib.sha256(processor.encode()).hexdigest()[:16]}"
    return [cache_folder(module) / name for module in KERNELS]
