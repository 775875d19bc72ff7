"""Before the first MAD goes out: a small subnet in this process is brought up, and again when a cable of it breaks.

Whatever kernels a sweep needs are loaded then; compiled, at the first start after an installation, which takes half a
minute. In the middle of a sweep nobody would be answered for as long, and a standby would take us for dead. What only
engines for other topologies need is loaded aside, when they route.
"""

from __future__ import annotations

import io

from weft.fabric.topologies.fat_tree import fat_tree
from weft.mad.faults import pull_cable
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.sm.events import Log
from weft.sm.options import Options
from weft.sm.run import SubnetManager

_STEPS = 8  # more than enough for the trap, the wait for others, and the sweep


def rehearse(options: Options) -> None:
    """With the same engines; files are left alone."""
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
