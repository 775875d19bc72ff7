"""A subnet in this process that weft's manager brought up, and a poller at its first host."""

from __future__ import annotations

import numpy as np

import weft
from weft.fabric.model import Fabric
from weft.lab.places import cables
from weft.mad import faults
from weft.mad.local import LocalCarrier
from weft.monitor.columns import Column
from weft.monitor.poll import Poller
from weft.scenarios.managed import ManagedSubnet
from weft.sm.conf.options import Options
from weft.wire.perf import PerfAttribute
from weft.wire.smp import SmpAttribute

SPEC = "fat-tree:hosts=8,radix=4"


class Listener:
    """A carrier that counts queries, and loses the answers of some LIDs."""

    def __init__(self, carrier: LocalCarrier) -> None:
        self.carrier, self.silent, self.asked = carrier, set[int](), []  # asked for: attributes

    def exchange(self, mads, to=None, **how):
        kind = PerfAttribute if to is not None else SmpAttribute
        self.asked += [kind(item) for item in (mads[:, 16].astype(int) << 8 | mads[:, 17]).tolist()]
        answers, came = self.carrier.exchange(mads, to, timeout_ms=1, retries=0)
        if to is not None:
            lost = np.isin(to, [*self.silent])
            answers[lost], came[lost] = 0, False
        return answers, came

    def count(self, attribute: PerfAttribute | SmpAttribute) -> int:
        """Return the number of queries of an attribute. Attributes of two classes may have the same number."""
        return sum(item is attribute for item in self.asked)


class Watched:
    """A small subnet with a poller. The clock stands still unless a test advances it."""

    def __init__(self, spec: str | Fabric = SPEC) -> None:
        self.net = ManagedSubnet(weft.load(spec) if isinstance(spec, str) else spec, Options())
        self.devices, self.fabric = self.net.devices, self.net.fabric
        self.carrier = Listener(LocalCarrier(self.net.subnet, self.net.carrier.slot, sleep=self.net.clock.sleep))
        self.now_s = self.wall_s = 1000.0
        self.poller = Poller(self.carrier, clock=lambda: self.now_s, wall=lambda: self.wall_s)

    def slot(self, port: str) -> int:
        """Return the slot in the real fabric."""
        return self.fabric.find_port(port).slot

    def count(self, port: str, column: Column, by: int) -> None:
        self.fabric.counters[self.slot(port), column] += by

    def break_(self, name: str) -> None:
        """Pull the cable of a port, or all cables of a node or server."""
        for slot in cables(self.devices, name):
            faults.pull_cable(self.devices, slot)

    def poll(self, after_s: float = 10.0):
        self.now_s += after_s
        self.wall_s += after_s
        self.carrier.asked.clear()
        return self.poller.poll()


def value(reading, port: str, column: Column) -> int | None:
    """Return the value of a port in a reading; None if it is unknown."""
    slot = reading.ports.fabric.find_port(port).slot
    return int(reading.counters[slot, column]) if reading.known[slot, column] else None


def delta(change, port: str, column: Column) -> int | None:
    slot = change.ports.fabric.find_port(port).slot
    return int(change.delta[slot, column]) if change.known[slot, column] else None
