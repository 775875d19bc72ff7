"""The kernel that answers SMPs against the agents in Python: the same answers, the same state afterwards."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.mad import faults, transit
from weft.mad.devices import NONE
from weft.mad.fast_path import FastPathState, answer_one
from weft.mad.local import ManualClock
from weft.mad.subnet import Subnet
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import ALL_INPUTS, DirectedSmp, SmpAttribute, SwitchInfo

SPEC = "fat-tree:hosts=8,radix=4"
A = SmpAttribute
READ = [A.NODE_DESCRIPTION, A.NODE_INFO, A.SWITCH_INFO, A.GUID_INFO, A.MLNX_EXTENDED_PORT_INFO]
WRITTEN = [
    A.PORT_INFO, A.P_KEY_TABLE, A.SL_TO_VL_MAPPING_TABLE, A.VL_ARBITRATION_TABLE, A.LINEAR_FORWARDING_TABLE,
    A.MULTICAST_FORWARDING_TABLE,
]  # fmt: skip
HOT = {(1, int(one)) for one in READ + WRITTEN} | {(2, int(one)) for one in WRITTEN}
MODIFIERS = [
    0,
    0,
    0,
    1,
    2,
    3,
    4,
    5,
    0x0102,
    1 << 16,
    1 << 16 | 1,
    4 << 16 | 2,
    5 << 16,
    1 << 28,
    0x8000_0001,
    ALL_INPUTS | 2,
]


class Twins:
    """A pair of subnets with the same requests: one answers by its agents, one by the kernel where possible."""

    def __init__(self, spec: str = SPEC) -> None:
        self.plain, self.quick = (Subnet(weft.load(spec), clock=ManualClock()) for _ in range(2))
        for item in (self.plain, self.quick):  # as after a first sweep: Python handles inactive tables
            tables = item.devices.tables
            tables.lft = np.full((len(tables.lft), 256), 255, np.uint8)
            tables.mft = np.zeros((len(tables.lft), 64, 1), np.uint16)
            assert len(tables.pkey) == len(tables.vl_arbitration) == len(tables.vl_high_limit)
            assert len(tables.sl2vl)
        self.fast_path = FastPathState(self.quick)
        devices = self.plain.devices
        self.slots = [devices.first[node] + (not devices.is_switch[node]) for node in devices.nodes]
        self.taken: set[tuple[int, int]] = set()  # method and attribute of MADs that the kernel answered

    def send(self, slot: int, mad: bytes) -> bytes | None:
        expected = self.plain.send(slot, mad)
        at_hand = np.frombuffer(bytearray(mad), np.uint8)
        willing = self.fast_path.is_plain() and answer_one(self.fast_path.state(), slot, at_hand)
        self.fast_path.settle()
        if willing:
            self.taken.add((mad[3], mad[16] << 8 | mad[17]))
            reply = at_hand.tobytes()
        else:
            assert at_hand.tobytes() == mad, "what is left to Python is left as it was"
            answer = self.quick.send(slot, mad)
            reply = None if answer is None else bytes(answer)
        assert reply == (None if expected is None else bytes(expected))
        return reply

    def change_a_cable(self, draw: random.Random) -> None:
        slot = draw.choice([slot for slot, far in enumerate(self.plain.devices.cable) if far != NONE])
        becomes_bad, one_way = draw.random() < 0.3, draw.random() < 0.5
        for item in (self.plain, self.quick):
            devices = item.devices
            if becomes_bad:  # the cable loses a MAD in ten
                faults.degrade(devices, slot, 5e-5, one_way=one_way)
            else:
                (faults.plug_cable if devices.peer(slot) == NONE else faults.pull_cable)(devices, slot)

    def assert_same(self) -> None:
        for name in ("node_infos", "node_descriptions"):
            np.testing.assert_array_equal(*(getattr(item.devices, name) for item in (self.plain, self.quick)), name)
        plain, quick = (vars(item.devices.tables) for item in (self.plain, self.quick))
        assert plain.keys() == quick.keys()
        for name, table in plain.items():
            np.testing.assert_array_equal(table, quick[name], name)
        for item in (self.plain, self.quick):
            item.devices.count_mads()
        np.testing.assert_array_equal(self.plain.devices.fabric.counters, self.quick.devices.fabric.counters)
        for name in ("details", "odd", "keyed", "reregister", "generation"):
            assert getattr(self.plain.devices, name) == getattr(self.quick.devices, name), name
        assert self.plain.mads == self.quick.mads


def path_to_somewhere(draw: random.Random, devices, slot: int, hops: int) -> list[int]:
    path, at = [], slot
    for hop in range(hops):
        node = devices.node_of[at]
        if hop and not devices.is_switch[node]:
            break
        first = devices.first[node]
        ports = [port for port in range(1, devices.last_port[node] + 1) if devices.peer(first + port) != NONE]
        if not ports:
            break
        path.append(draw.choice(ports))
        at = devices.peer(first + path[-1])
    return path


def smp(draw: random.Random, devices, slot: int) -> bytes:
    """Return a random SMP, mostly as from a subnet manager, sometimes with one invalid field."""
    mad = bytearray(draw.randbytes(256) if draw.random() < 0.5 else bytes(256))
    path = path_to_somewhere(draw, devices, slot, draw.randrange(6))
    attribute = draw.choice([*READ, *WRITTEN, *WRITTEN, A.LED_INFO])
    method = draw.choice((1, 2)) if attribute in WRITTEN else draw.choice((1,) * 50 + (2,))
    mad[0:8] = bytes((1, 0x81, 1, method, 0, 0, 0, len(path)))
    mad[16:18] = int(attribute).to_bytes(2, "big")
    mad[20:24] = draw.choice(MODIFIERS).to_bytes(4, "big")
    mad[24:36] = bytes(8) + b"\xff" * 4
    mad[129 : 129 + len(path)] = bytes(path)
    if mad[17] == A.PORT_INFO and draw.random() < 0.95:
        mad[64:128] = port_info(draw, devices, mad)
    if draw.random() < 0.05:
        mad[draw.choice((0, 1, 2, 3, 4, 6, 7, 24, 32, 34, 129))] = draw.randrange(256)
    return bytes(mad)


def port_info(draw: random.Random, devices, mad: bytearray) -> bytes:
    """Return the PortInfo of some port with some changed fields, so that most Sets are accepted."""
    info = bytearray(
        devices.info(draw.choice([slot for slot, item in enumerate(devices.port_info) if item is not None]))
    )
    lid = draw.choice((1, 2, 77, 0xBFFF, 0xC000, 0)) if draw.random() < 0.2 else draw.randrange(1, 200)
    for field, value in (
        (PortInfo.lid, lid),
        (PortInfo.master_sm_lid, draw.choice((1, 1, 1, 0))),
        (PortInfo.lmc, draw.choice((0, 0, 0, 1))),
        (PortInfo.port_state, draw.choice((0, 0, 2, 3, 3, 4, 4, 4, 1) if draw.random() < 0.9 else (1, 5))),
        (PortInfo.port_physical_state, draw.choice((0,) * 30 + (2, 3))),
        (PortInfo.link_down_default_state, draw.choice((0, 1, 2, 2, 5))),
        (PortInfo.client_reregister, int(draw.random() < 0.1)),
    ):
        field.set(info, value)
    for field in draw.choices(list(PortInfo.fields.values()), k=draw.randrange(4)):
        if field.name != "m_key" or draw.random() < 0.02:
            field.set(info, draw.randrange(1 << field.width))
    return bytes(info)


@given(st.integers(0, 1 << 32))
def test_the_kernel_answers_as_the_agents_do(seed):
    draw = random.Random(seed)
    twins = Twins()
    for _ in range(200):
        if draw.random() < 0.03:
            twins.change_a_cable(draw)
        slot = draw.choice(twins.slots)
        twins.send(slot, smp(draw, twins.plain.devices, slot))
    twins.assert_same()


@pytest.mark.parametrize("one_way", [False, True])
def test_a_bad_cable_leaves_to_python_what_crosses_it_and_nothing_else(one_way):
    twins = Twins()
    devices = twins.plain.devices
    host = devices.fabric["h1/1"].slot
    for item in (twins.plain, twins.quick):
        faults.degrade(item.devices, devices.fabric["leaf1/3"].slot, 1e-12, one_way=one_way)
    for path, is_taken in (([1, 3], False), ([1, 4], True)):
        mad = bytearray(256)
        mad[0:8], mad[16:18] = bytes((1, 0x81, 1, 1, 0, 0, 0, 2)), int(A.NODE_INFO).to_bytes(2, "big")
        mad[32:36], mad[129:131] = b"\xff" * 4, bytes(path)
        twins.taken.clear()
        assert twins.send(host, bytes(mad)) is not None
        assert bool(twins.taken) is is_taken


def test_the_kernel_takes_all_that_a_sweep_is_made_of():
    """Otherwise the test above would prove nothing."""
    draw, twins = random.Random(3), Twins()
    for _ in range(6_000):
        slot = draw.choice(twins.slots)
        twins.send(slot, smp(draw, twins.plain.devices, slot))
    assert twins.taken == HOT
    twins.assert_same()


def test_a_table_that_somebody_read_while_it_was_empty_stops_no_kernel():
    """A subnet manager that takes over reads multicast tables that were never written."""
    subnet = Subnet(weft.load(SPEC), clock=ManualClock())
    assert subnet.devices.tables.mft.size == 0
    assert FastPathState(subnet).state().mft.size == 0


@pytest.mark.parametrize(
    ("attribute", "modifier"),
    [
        (SmpAttribute.P_KEY_TABLE, 1 << 16),
        (SmpAttribute.SL_TO_VL_MAPPING_TABLE, 0x0101),
        (SmpAttribute.VL_ARBITRATION_TABLE, 1 << 16 | 1),
        (SmpAttribute.LINEAR_FORWARDING_TABLE, 0),
        (SmpAttribute.MULTICAST_FORWARDING_TABLE, 0),
    ],
)
def test_the_kernel_leaves_a_table_without_memory_to_python(attribute, modifier):
    subnet = Subnet(weft.load(SPEC), clock=ManualClock())
    mad = DirectedSmp.pack(
        method=Method.GET, attribute_id=attribute, attribute_modifier=modifier, hop_count=1, initial_path=b"\0\1"
    )
    at_hand = np.frombuffer(bytearray(mad), np.uint8)
    assert not answer_one(FastPathState(subnet).state(), subnet.devices.fabric["h1/1"].slot, at_hand)


def set_port_info(twins: Twins, port: str = "h1/1", **changes: int) -> bool:
    """Set PortInfo of a port from its node itself; return whether the kernel took it."""
    host = twins.plain.devices.fabric[port].slot
    mad = bytearray(256)
    mad[0:8], mad[16:18], mad[32:36] = bytes((1, 0x81, 1, 2, 0, 0, 0, 0)), b"\0\x15", b"\xff" * 4
    info = bytearray(twins.plain.devices.info(host))
    for name, value in ({"port_state": 0, "port_physical_state": 0, "lid": 6, "master_sm_lid": 1} | changes).items():
        getattr(PortInfo, name).set(info, value)
    mad[64:128] = info
    twins.taken.clear()
    assert twins.send(host, bytes(mad)) is not None
    return bool(twins.taken)


def test_the_kernel_sets_a_base_port_and_ignores_states():
    twins = Twins()
    for item in (twins.plain, twins.quick):
        SwitchInfo.enhanced_port_0.set(item.devices.switch_info[item.devices.fabric.node_index["leaf1"]], 0)
    assert set_port_info(twins, "leaf1/0", port_state=PortState.ACTIVE)
    twins.assert_same()


@pytest.mark.parametrize(
    ("state", "requested", "is_taken"),
    [
        (PortState.INITIALIZE, 0, True),
        (PortState.ACTIVE, 0, True),
        (PortState.INITIALIZE, PortState.ARMED, True),
        (PortState.ARMED, PortState.ARMED, True),
        (PortState.ACTIVE, PortState.ARMED, False),
        (PortState.INITIALIZE, PortState.ACTIVE, False),
        (PortState.ARMED, PortState.ACTIVE, True),
        (PortState.ACTIVE, PortState.ACTIVE, True),
        (PortState.ACTIVE, PortState.DOWN, False),
    ],
)
def test_the_kernel_takes_the_states_that_follow_each_other(state, requested, is_taken):
    twins = Twins()
    for item in (twins.plain, twins.quick):
        PortInfo.port_state.set(item.devices.info(item.devices.fabric["h1/1"].slot), state)
    assert set_port_info(twins, port_state=requested) is is_taken
    twins.assert_same()


@pytest.mark.parametrize(
    ("changes", "left"), [({}, 1), ({"m_key_lease_period": 7}, 1), ({"lid": 7}, 0), ({"lmc": 1}, 0)]
)
def test_paths_by_lid_are_forgotten_when_lids_change_and_only_then(changes, left):
    twins = Twins()
    assert set_port_info(twins)
    transit.lid_path(twins.quick.devices, twins.quick.devices.fabric["h1/1"].slot, 6, smp=True)
    assert len(twins.quick.devices.lid_paths) == 1
    assert set_port_info(twins, **changes)
    assert len(twins.quick.devices.lid_paths) == left
