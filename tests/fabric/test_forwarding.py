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
    """Change a few ports and tables at random."""
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


@pytest.mark.parametrize(
    ("p_key", "reason"),
    [(0xFFFF, "ARRIVED"), (0x7FFF, "ARRIVED"), (0x8001, "INBOUND"), (0, "INBOUND"), (0x8000, "INBOUND")],
)
def test_the_first_switch_refuses_partitions_that_its_port_is_not_in(p_key, reason):
    """Empty entries of a P_Key table are 0, which is the key of no partition."""
    devices = configured("fat-tree:hosts=8,radix=4")
    for slot, info in enumerate(devices.port_info):
        if info is not None and devices.is_switch[devices.node_of[slot]]:
            PortInfo.partition_enforcement_inbound.set(info, 1)
            devices.tables.pkey[slot, 0] = 0xFFFF
    hosts = hosts_of(devices)
    packets = np.array([(src, devices.lid(dst), 0, p_key, 64) for src in hosts for dst in hosts if dst != src])
    walks = walk_all(arrays(devices.fabric), packets)
    assert set(walks.reason.tolist()) == {Reason[reason]}
    assert [reason for *_, reason in paths(devices, packets)] == walks.reason.tolist()
    first_hop = [int(devices.cable[src]) for src in packets[:, 0]]
    assert (walks.end.tolist() == first_hop) == (reason == "INBOUND")


def test_a_switch_drops_packets_to_lids_above_the_top_of_its_table():
    devices = configured("fat-tree:hosts=288,radix=36")
    for info in devices.switch_info.values():
        SwitchInfo.linear_fdb_top.set(info, 0x0110)
    hosts = hosts_of(devices)
    lids = [devices.lid(slot) for slot in hosts[1:]]
    walks = walk_all(arrays(devices.fabric), np.array([(hosts[0], lid, 0, 0xFFFF, 64) for lid in lids]))
    assert max(lids) > 0x0110
    expected = [Reason.ARRIVED if lid <= 0x0110 else Reason.NO_ROUTE for lid in lids]
    assert walks.reason.tolist() == expected


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
