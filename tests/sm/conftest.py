"""A subnet in this process, and a carrier whose answers a test can change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import weft
from weft.fabric.model import Fabric
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.mad.walk import Rows

Tamper = Callable[[Rows, Rows, NDArray[np.bool_]], None]  # requests, answers, "is answered"


class Net:
    """A fabric that answers MADs, and a carrier at one of its ports."""

    def __init__(self, spec: str | Fabric, at: str = "") -> None:
        self.fabric = weft.load(spec) if isinstance(spec, str) else spec
        self.clock = ManualClock()
        self.subnet = Subnet(self.fabric, clock=self.clock)
        self.devices = self.subnet.devices
        self.carrier = self.at(at)
        self.tampers: list[Tamper] = []

    def at(self, name: str = "") -> LocalCarrier:
        port = self.fabric[name] if name else self.fabric[f"{self.fabric.hcas[0].name}/1"]
        return LocalCarrier(self.subnet, port.slot, sleep=self.clock.sleep)

    def exchange(self, mads, to=None, **how):
        answers, answered = self.carrier.exchange(mads, to, **how)
        for tamper in self.tampers:
            tamper(mads, answers, answered)
        return answers, answered


@pytest.fixture
def net() -> Net:
    return Net("fat-tree:hosts=16,radix=8")
