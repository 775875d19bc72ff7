"""Forwarding decisions: in Python and as a kernel, on arbitrary tables and ports."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fabric.running import configured

import weft
from weft.fabric.forwarding import ANY, DATA_VLS, NONE, Plane, Reason, walk
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.mad import faults
from weft.mad.devices import Devices
from weft.routing.route import route
from weft.wire.port_info import Mtu, PortInfo, PortState
from weft.wire.smp import SwitchInfo

SPECS = ["fat-tree:hosts=8,radix=4", "torus:3x3", "star:hosts=4", "dragonfly:p=1,a=2,h=1"]
KEYS = (0xFFFF, 0x7FFF, 0x8001, 0x0001, 0x8002, 0x0002, 0)
SIZES_BYTES = (64, 256 + 124, 256 + 125, 4096 + 124, 4096 + 125)


def disturb(devices: Devices, random: np.random.Generator) -> None:
    """Corrupt a few ports and tables."""
    tables, slots = devices.tables, [slot for slot, info in enumerate(devices.port_info) if info is not None]
    for slot in random.choice(slots, 6).tolist():
        info = devices.info(slot)
        match int(random.integers(5)):
            case 0:
                PortInfo.port_state.set(info, int(random.choice([PortState.INITIALIZE, PortState.ARMED])))
            case 1:
                PortInfo.operational_vls.set(info, int(random.integers(1, len(DATA_VLS))))
            case 2:
                PortInfo.neighbor_mtu.set(info, int(random.choice(list(Mtu))))
            case 3:
                PortInfo.partition_enforcement_inbound.set(info, int(random.integers(2)))
                PortInfo.partition_enforcement_outbound.set(info, int(random.integers(2)))
            case 4 if devices.peer(slot) != NONE:
                faults.pull_cable(devices, slot)
    for slot in random.choice(slots, 6).tolist():
        tables.pkey[slot, : len(KEYS)] = random.choice(KEYS, len(KEYS))
    for _ in range(3):
        tables.lft[random.integers(len(tables.lft)), random.integers(tables.lft.shape[1])] = random.integers(12)
    tables.sl2vl[:] = random.choice([0, 0, 0, 1, 3, 7, 14, 15], tables.sl2vl.shape)
    SwitchInfo.linear_fdb_top.set(next(iter(devices.switch_info.values())), int(random.integers(tables.lft.shape[1])))


def hosts_of(devices: Devices) -> list[int]:
    return [slot for slot, far in enumerate(devices.cable) if far != NONE and devices.own_slot(slot) == slot]


def paths(plane: Plane, packets: np.ndarray) -> list[tuple[list[int], list[int], int, Reason]]:
    names = ("dlid", "sl", "p_key", "size_bytes")
    result = []
    for slot, *rest in packets.tolist():
        out, vls, end, reason = walk(plane, slot, **dict(zip(names, rest, strict=True)))
        result.append((list(out), list(vls), end, reason))
    return result


@pytest.mark.parametrize("spec", SPECS)
@given(seed=st.integers(0, 1 << 32), calm=st.booleans())
def test_kernel_and_python_give_the_same_paths(spec, seed, calm):
    devices, random = configured(spec), np.random.default_rng(seed)
    if not calm:
        disturb(devices, random)
    n = 40
    packets = np.column_stack(
        (
            random.choice(hosts_of(devices), n),
            random.integers(0, devices.tables.lft.shape[1] + 2, n),
            random.integers(0, 16, n),
            random.choice([*KEYS[:-1], ANY], n),
            random.choice(SIZES_BYTES, n),
        )
    )
    walks = walk_all(arrays(devices.fabric), packets)
    for row, (out, vls, end, reason) in enumerate(paths(devices, packets)):
        hops = int(walks.hops[row])
        assert (Reason(int(walks.reason[row])), int(walks.end[row])) == (reason, end), packets[row]
        assert walks.out[row, :hops].tolist() == out
        assert walks.vls[row, :hops].tolist() == vls


@pytest.mark.parametrize("spec", SPECS)
def test_without_devices_tables_alone_decide(spec):
    """Every cable is up in a fabric that is not running, and its paths are those of an undisturbed running one."""
    alone = route(weft.load(spec)).fabric
    assert not alone.tables.runs
    devices = configured(spec)
    lids = alone.tables.lid[alone.tables.lid > 0]
    packets = np.array([(slot, lid, 0, 0xFFFF, 64) for slot in hosts_of(devices) for lid in lids.tolist()])
    walks = walk_all(arrays(alone), packets)
    assert (walks.reason == Reason.ARRIVED).all()
    for row, (out, vls, end, _) in enumerate(paths(devices, packets)):
        assert walks.out[row, : walks.hops[row]].tolist() == out
        assert walks.vls[row, : walks.hops[row]].tolist() == vls
        assert walks.end[row] == end
