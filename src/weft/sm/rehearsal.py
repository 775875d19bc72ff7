"""A small subnet in this process is brought up, and again when a cable of it breaks: kernels are loaded then.

Compiled, at the first start after an installation, which takes half a minute. In the middle of a sweep nobody would be
answered for as long, and a standby would take us for dead: so that comes before the first MAD. Where all was compiled
before, a kernel takes milliseconds: the first sweep loads those that it needs, and the others, which a fault's sweep
needs, come in a thread of their own when the subnet is up and quiet. What only engines for other topologies need is
loaded aside, when they route.
"""

from __future__ import annotations

import hashlib
import io
from contextlib import suppress
from pathlib import Path
from threading import Thread

from numba.core.registry import cpu_target

from weft.jit import cache_folder
from weft.sm.conf.options import Options
from weft.sm.events import Log
from weft.sm.run import SubnetManager

# Whose kernels a manager calls where everybody waits for it; those of routing run aside.
KERNELS = ("weft.wire.kernels", "weft.sm.mcast.tree_kernels", "weft.sm.ucast.upload_waits", "weft.sm.sa.kernels")
_STEPS = 8  # more than enough for the trap, the wait for others, and the sweep


def run_rehearsed(manager: SubnetManager, *, once: bool = False) -> bool:
    """`manager.run`, with a rehearsal before it; if there was one on this machine, when nothing else is to be done."""
    if not was_rehearsed():
        rehearse(manager.options)
        return manager.run(once=once)
    later = Thread(target=rehearse, args=(manager.options,), name="rehearsal")
    try:
        return manager.run(once=once, then=later.start)
    finally:
        if later.ident is not None:
            later.join()  # it routes in a thread of its own, and a Python that ends starts none


def was_rehearsed() -> bool:
    """Whether the kernels are in the cache, of this source and for this processor."""
    return all(path.exists() for path in _notes())


def rehearse(options: Options) -> None:
    """With the same engines; files are left alone."""
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
    with suppress(OSError):  # a home that cannot be written: each start is the first
        for path in _notes():
            path.touch()


def _notes() -> list[Path]:
    """Files that say that a rehearsal ended, beside the kernels."""
    processor = repr(cpu_target.target_context.codegen().magic_tuple())  # numba compiles for one alone
    name = f"rehearsed-{hashlib.sha256(processor.encode()).hexdigest()[:16]}"
    return [cache_folder(module) / name for module in KERNELS]
