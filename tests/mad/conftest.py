"""A small subnet in this process, unconfigured or brought up, with a clock that tests advance."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

import weft
from weft.fabric.counters import Counter
from weft.fabric.model import Fabric
from weft.mad.carrier import Address, ask
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.wire.mad import Method, PlainMad
from weft.wire.notice import Notice
from weft.wire.port_info import PortInfo

_SUITE = Path(__file__).parents[1] / "conformance" / "agents.py"


def _load_suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_agents", _SUITE)
    assert spec is not None
    assert spec.loader is not None
    suite = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = suite  # dataclasses look up their module
    spec.loader.exec_module(suite)
    return suite


suite = _load_suite()


@dataclass
class Bench:
    """A subnet with a program on h1; ports are addressed by name."""

    spec: str | Fabric = "fat-tree:hosts=8,radix=4"
    host: str = "h1"
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        fabric = weft.load(self.spec) if isinstance(self.spec, str) else self.spec
        self.subnet = Subnet(fabric, clock=self.clock)
        self.devices = self.subnet.devices
        self.slot = self.slot_of(f"{self.host}/1")
        self.carrier = self.carrier_at(self.slot)

    def carrier_at(self, slot: int) -> LocalCarrier:
        return LocalCarrier(self.subnet, slot, sleep=self.clock.sleep)

    def slot_of(self, port: str) -> int:
        return self.devices.fabric.find_port(port).slot

    def node(self, name: str) -> int:
        return self.devices.fabric.node_index[name]

    def bring_up(self) -> Bench:
        self.carrier.set_is_sm(True)
        self.nodes = suite.discover(self.carrier)
        suite.bring_up(self.carrier, self.nodes)
        self.carrier.register(1, [Method.TRAP])
        self.devices.count_mads()
        return self

    def lid(self, name: str) -> int:
        return self.devices.lid(self.devices.first[self.node(name)] + (not self.devices.is_switch[self.node(name)]))

    def ask(self, path, method, attribute, modifier=0, data=b"", m_key=0):
        """Return the status without the direction bit and the 64 bytes of the answer; (None, b"") without one."""
        mad = suite.smp(bytes(path), method, attribute, modifier, data, m_key)
        answer = ask(self.carrier, mad, timeout_ms=10, retries=0)
        return (None, b"") if answer is None else (suite.status_of(answer), answer[64:128])

    def get(self, path, form, modifier=0, m_key=0):
        return suite.get(self.carrier, bytes(path), form, modifier, m_key)

    def put(self, path, record, modifier=0, m_key=0):
        return suite.put(self.carrier, bytes(path), record, modifier, m_key)

    def set_port(self, path, port=0, **changes):
        """Change some fields of a port's PortInfo, without an M_Key; return the status."""
        return self.put(path, suite.setting(self.get(path, PortInfo, port), **changes), port)

    def perf(self, to, method, attribute, record):
        """Query a node's performance agent; return the answer in the same format."""
        mad = PlainMad.pack(mgmt_class=4, method=method, attribute_id=attribute, data=record.raw)
        answer = ask(self.carrier, mad, Address(self.lid(to)), timeout_ms=10, retries=0)
        assert answer is not None
        return answer[4] << 8 | answer[5], type(record).unpack(answer, 64)

    def counter(self, port: str, counter: Counter) -> int:
        return self.devices.counters(self.slot_of(port))[counter]

    def traps(self) -> list[Notice]:
        """Return the traps that arrived at h1."""
        self.subnet.due()
        return [Notice.unpack(arrival.mad, 64) for arrival in self.carrier.arrivals()]


@pytest.fixture
def bench() -> Bench:
    """A bench after power-up, not managed yet."""
    return Bench()


@pytest.fixture
def running() -> Bench:
    """Return a bench with LIDs, tables and Active ports; the subnet manager is on h1."""
    return Bench().bring_up()


@pytest.fixture
def make_bench() -> type[Bench]:
    return Bench
