"""CableInfo of a lab: identities stay, readings follow the link, cables are exchanged, wrong requests are refused."""

from __future__ import annotations

from contextlib import closing

import pytest

import weft
from weft.errors import ConfigError
from weft.lab.lab import Lab
from weft.mad.carrier import Address, ask
from weft.mad.ibsim_client import IbsimCarrier
from weft.mad.modules import module_at
from weft.mad.power_up import switch_on
from weft.monitor.cables import Serials, milliwatts_to_dbm, read_end
from weft.monitor.poll import Poller
from weft.sm.run import SubnetManager
from weft.wire.cable_info import CableError, CableInfo
from weft.wire.mad import MadHeader, Method
from weft.wire.smp import Smp, SmpAttribute

SPEC = "fat-tree:hosts=8,radix=4"  # copper to hosts, transceivers between switches


@pytest.fixture(scope="module")
def lab():
    with Lab(weft.load(SPEC), "modules") as running:
        yield running


@pytest.fixture(scope="module")
def carrier(lab):
    with closing(IbsimCarrier("h1", lab.sockname)) as opened:
        SubnetManager(opened).run(once=True)
        yield opened


@pytest.fixture
def read(lab, carrier):
    ports = Poller(carrier).poll().ports
    yield lambda name: read_end(carrier, ports, ports.fabric.find_port(name).slot)
    lab.fix() if lab.state()["broken"] or lab.state()["degraded"] else None


def differences_db(lanes, others):
    return [milliwatts_to_dbm(a) - milliwatts_to_dbm(b) for a, b in zip(lanes, others, strict=True)]


def test_a_copper_cable_has_one_serial_number_and_no_readings(read):
    near, far = read("leaf1/1"), read("h1/1")
    assert (near.peer, far.peer) == ("h1/1", "leaf1/1")
    assert near.module.serial == far.module.serial != read("leaf1/2").module.serial
    assert near.module.technology == "passive copper"
    assert (near.module.temperature_c, near.module.receive_mw, near.module.length_m) == (None, (), 3.0)


def test_each_transceiver_has_its_own_serial_number_and_readings(read):
    near, far = read("leaf1/3").module, read("spine1/1").module
    assert near.serial != far.serial
    assert (near.form, near.technology, near.length_m) == ("OSFP", "optical", None)
    assert 50 < near.temperature_c < 60
    assert len(near.receive_mw) == len(near.transmit_mw) == len(near.bias_ma) == 8
    assert differences_db(far.transmit_mw, near.receive_mw) == pytest.approx(
        [0.54] * 8, abs=0.02
    )  # two connectors, and 10 m of fibre


def test_bit_errors_cost_received_power_in_their_direction(lab, read):
    before, far_before = read("leaf1/3").module, read("spine1/1").module
    lab.degrade("leaf1/3", 1e-8, one_way=True)
    after, far_after = read("leaf1/3").module, read("spine1/1").module
    assert differences_db(after.receive_mw, before.receive_mw) == pytest.approx(
        [-1.51] * 8, abs=0.02
    )  # Q falls from 7.94 to 5.61
    assert far_after.receive_mw == far_before.receive_mw
    assert after.serial == before.serial


def test_a_dead_far_end_sends_no_light_and_a_pulled_cable_has_no_module():
    devices = switch_on(weft.load(SPEC), seed=1, clock=lambda: 0.0)
    fabric = devices.fabric
    slot = fabric.find_port("leaf1/3").slot
    devices.dead.add(fabric.find_port("spine1/1").node.index)
    assert module_at(devices, slot).receive_mw == (0.0,) * 8
    assert module_at(devices, slot).transmit_mw[0] > 0
    assert milliwatts_to_dbm(0.0) is None
    devices.broken.add(devices.cable[slot])
    assert module_at(devices, slot) is None


def test_lasers_age_with_the_clock():
    hours = 0.0
    devices = switch_on(weft.load(SPEC), seed=1, clock=lambda: 3600 * hours)
    slot = devices.fabric.find_port("leaf1/3").slot
    new = module_at(devices, slot)
    hours = 10_000.0
    old = module_at(devices, slot)
    assert old.serial == new.serial
    assert [a / b for a, b in zip(old.transmit_mw, new.transmit_mw, strict=True)] == pytest.approx([0.98] * 8)
    assert [a / b for a, b in zip(old.bias_ma, new.bias_ma, strict=True)] == pytest.approx([1.04] * 8)


@pytest.mark.parametrize(
    ("port", "request_", "error"),
    [
        (99, {}, CableError.INVALID_PORT),
        (0, {}, CableError.INVALID_PORT),
        (3, {"i2c_address": 0x51}, CableError.INVALID_I2C_ADDRESS),
        (3, {"size_bytes": 0}, CableError.INVALID_ADDRESS),
        (3, {"size_bytes": 49}, CableError.INVALID_ADDRESS),
        (3, {"device_address": 250}, CableError.INVALID_ADDRESS),
        (3, {"page_number": 7}, CableError.INVALID_PAGE),
        (4, {}, CableError.NOT_CONNECTED),
    ],
)
def test_wrong_requests_are_refused_in_the_upper_byte_of_the_status(lab, carrier, read, port, request_, error):
    if error is CableError.NOT_CONNECTED:
        lab.break_cable("leaf1/4")
    data = CableInfo.pack(**({"device_address": 0, "size_bytes": 16} | request_))
    ports = Poller(carrier).poll().ports
    lid = int(ports.lid[ports.fabric.find_port("leaf1/1").slot])
    smp = Smp.pack(method=Method.GET, attribute_id=SmpAttribute.CABLE_INFO, attribute_modifier=port, data=data)
    answer = ask(carrier, smp, Address(lid=lid))
    assert MadHeader.status.get(answer) == error << 8


def test_exchanged_cables_take_serial_numbers_and_errors_along(lab, carrier, read):
    poller, serials = Poller(carrier), Serials(carrier)
    before = serials.read(poller.poll())
    first = read("leaf1/3").module
    lab.degrade("leaf1/3", 1e-8)
    lab.swap("leaf1/3", "leaf2/3")
    SubnetManager(carrier).run(once=True)
    after = serials.read(poller.poll())
    second = read("leaf2/3").module
    assert (second.serial, second.temperature_c, second.transmit_mw) == (
        first.serial,
        first.temperature_c,
        first.transmit_mw,
    )
    moved = {serial: (ports, after[serial]) for serial, ports in before.items() if after[serial] != ports}
    assert sorted(moved.values()) == [
        ("leaf1/3", "leaf2/3"), ("leaf2/3", "leaf1/3"), ("spine1/1", "spine1/2"), ("spine1/2", "spine1/1"),
    ]  # fmt: skip
    assert lab.state()["degraded"] == ["leaf2/3"]
    lab.swap("leaf1/3", "leaf2/3")
    SubnetManager(carrier).run(once=True)
    assert serials.read(poller.poll()) == before


def test_one_cable_cannot_be_exchanged_with_itself(lab, carrier):
    for other in ("spine1/1", "leaf1/3"):
        with pytest.raises(ConfigError, match="are in one cable"):
            lab.swap("leaf1/3", other)


def test_a_subnet_without_answers_is_asked_once(carrier, monkeypatch):
    reading = Poller(carrier).poll()
    asked = []
    monkeypatch.setattr("weft.monitor.cables.ask", lambda *words, **more: asked.append(words))
    serials = Serials(carrier)
    assert serials.read(reading) == {} == serials.read(reading)
    assert len(asked) == 1
