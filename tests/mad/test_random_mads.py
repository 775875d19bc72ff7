"""No random MAD makes an agent fail or changes a read-only field."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.mad.local import ManualClock
from weft.mad.subnet import Subnet
from weft.wire.cc import CcAttribute
from weft.wire.mad import RESPONSE, Method, MgmtClass
from weft.wire.perf import PerfAttribute
from weft.wire.smp import SmpAttribute

CLASSES = [int(one) for one in MgmtClass]
METHODS = [1, 2] * 10 + [int(one) for one in Method]
ATTRIBUTES = {
    mgmt_class: [
        int(one).to_bytes(2, "big") for one in {4: PerfAttribute, 0x21: CcAttribute}.get(mgmt_class, SmpAttribute)
    ]
    for mgmt_class in range(256)
}
MODIFIERS = [
    one.to_bytes(4, "big")
    for one in (0, 0, 1, 2, 4, 5, 255, 0x0101, 1 << 16, 4 << 16 | 1, 0xFFFF_FFFF, 1 << 28, 0x8000_0000)
]

LIDS = [0xFFFF, 0xFFFF, 1, 2, 3, 0, 300, 0xC000]
PATHS = [bytes(random.Random(seed).choices((1, 1, 1, 2, 3, 4, 0), k=64)) for seed in range(4_000)]


def pick(draw: random.Random, of: Sequence[Any]) -> Any:
    """Return a random item like `draw.choice`, in a quarter of its time."""
    return of[int(draw.random() * len(of))]


def one_mad(draw: random.Random) -> bytes:
    """Return a random MAD that is likely to reach an agent."""
    mad = bytearray(draw.randbytes(256))
    mad[1] = pick(draw, (0x81, 0x81, 0x81, 1, 4, 0x21, pick(draw, CLASSES)))
    mad[0], mad[2] = 1 if draw.random() < 0.95 else 9, (2 if mad[1] == 0x21 else 1) if draw.random() < 0.95 else 3
    mad[3] = pick(draw, METHODS)
    mad[4:6] = b"\0\0"
    mad[7] = pick(draw, (0, 1, 1, 2, 2, 3, 4, 4, 63, 64, 255))
    if draw.random() < 0.95:  # else any at all
        mad[16:18] = pick(draw, ATTRIBUTES[mad[1]])
    mad[20:24] = pick(draw, MODIFIERS)
    for first, end, value, chance in (
        (24, 32, bytes(8), 0.9),  # M_Key
        (32, 36, b"\xff" * 4, 0.8),  # DrSLID and DrDLID
        (64, 72, bytes(8), 0.99),  # a PortInfo without M_Key: with one no port would answer
        (97, 98, b"\2", 0.99),  # and without disabling the port
    ):
        if draw.random() < chance:
            mad[first:end] = value
    mad[128:192] = pick(draw, PATHS)
    return bytes(mad) if draw.random() < 0.93 else bytes(mad[: pick(draw, (0, 24, 255))])


def sources(subnet: Subnet) -> list[int]:
    devices = subnet.devices
    return [devices.first[node] + (not devices.is_switch[node]) for node in devices.nodes]


def storm(seed: int, count: int) -> Iterator[Subnet]:
    draw = random.Random(seed)
    subnet = Subnet(weft.load("fat-tree:hosts=8,radix=4"), seed=seed, clock=ManualClock())
    slots = sources(subnet)
    for _ in range(count):
        mad = one_mad(draw)
        reply = subnet.send(pick(draw, slots), mad, pick(draw, LIDS))
        if reply is not None:
            assert len(reply) == 256
            assert reply[3] == mad[3] | RESPONSE or reply[3] == Method.GET_RESP
            assert reply[6:16] == mad[6:16] or mad[1] == 0x81
            assert reply[8:24] == mad[8:24]
            assert not subnet.lost
        if draw.random() < 0.01:
            subnet.due(draw.random() * 1e6)
        yield subnet


def check_still_sound(subnet: Subnet) -> None:
    devices = subnet.devices
    for slot, far in enumerate(devices.cable):
        assert far == -1 or (devices.peer(slot) == -1) == (devices.peer(far) == -1)
    fresh = Subnet(weft.load("fat-tree:hosts=8,radix=4")).devices
    assert devices.node_info == fresh.node_info
    assert devices.cable == fresh.cable
    subnet.devices.count_mads()


@pytest.mark.parametrize("seed", range(4))
def test_random_mads_never_make_an_agent_fail(seed):
    subnet = collections.deque(storm(seed, 5_000), maxlen=1).pop()
    check_still_sound(subnet)
    assert subnet.devices.odd["size"] > 50
    assert subnet.devices.odd["version"] > 50


@pytest.mark.slow
def test_a_hundred_thousand_random_mads_never_make_an_agent_fail():
    for seed in range(20):
        check_still_sound(collections.deque(storm(100 + seed, 5_000), maxlen=1).pop())


@settings(max_examples=150)
@given(st.binary(min_size=0, max_size=300), st.integers(0, 0xFFFF))
def test_any_bytes_at_all_are_carried_or_lost(raw, dlid):
    subnet = Subnet(weft.load("star:hosts=2"), clock=ManualClock())
    reply = subnet.send(sources(subnet)[0], raw, dlid)
    assert reply is None or len(reply) == 256
    assert len(raw) == 256 or (subnet.lost and subnet.devices.odd["size"] == 1)


@pytest.mark.parametrize("mgmt_class", [0x81, 4, 0x21])
def test_the_storm_reaches_every_agent(mgmt_class):
    """Otherwise the test would prove nothing."""
    draw = random.Random(7)
    subnet = Subnet(weft.load("fat-tree:hosts=8,radix=4"), clock=ManualClock())
    slots, good = sources(subnet), set()
    for _ in range(4_000):
        mad = one_mad(draw)
        reply = subnet.send(pick(draw, slots), mad)
        if reply is not None and mad[1] == mgmt_class and not reply[4] & 0x7F and not reply[5]:
            good.add((mad[3], mad[16:18]))
    assert len(good) >= 8
