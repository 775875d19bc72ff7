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


# -- one cause each, on four hosts of one switch -----------------------------------------------------------------------


def reasons(devices: Devices, *, p_key: int = 0xFFFF, sl: int = 0) -> list[list[Reason]]:
    """Return why packets from each host to each host end, by the kernel, which agrees with Python."""
    hosts = hosts_of(devices)
    packets = np.array([(src, devices.lid(dst), sl, p_key, 64) for src in hosts for dst in hosts])
    walks = walk_all(arrays(devices.fabric), packets)
    assert [reason for *_, reason in paths(devices, packets)] == walks.reason.tolist()
    return [[Reason(code) for code in row] for row in walks.reason.reshape(len(hosts), -1).tolist()]


def expected(target: int, reason: Reason) -> list[list[Reason]]:
    """Return `reason` for all packets to a host but its own, and arrival for the others."""
    return [[reason if dst == target != src else Reason.ARRIVED for dst in range(4)] for src in range(4)]


def switch_port(devices: Devices, host: int) -> int:
    return int(devices.cable[hosts_of(devices)[host]])


@pytest.mark.parametrize("state", [PortState.INITIALIZE, PortState.ARMED])
def test_a_port_that_is_not_active_sends_nothing_and_the_others_do(state):
    devices = configured("star:hosts=4")
    assert reasons(devices) == expected(-1, Reason.ARRIVED)
    PortInfo.port_state.set(devices.info(switch_port(devices, 2)), int(state))
    assert reasons(devices) == expected(2, Reason.INACTIVE)


@pytest.mark.parametrize(("p_key", "passes"), [(0xFFFF, False), (0x8001, True), (0x0001, True), (0x8002, False)])
def test_only_a_port_that_enforces_partitions_keeps_out_packets_of_others(p_key, passes):
    devices = configured("star:hosts=4")
    port = switch_port(devices, 2)
    devices.tables.pkey[port] = 0
    devices.tables.pkey[port, 1] = 0x8001
    for host in hosts_of(devices):
        devices.tables.pkey[host, 1:4] = (0x8001, 0x8002, 0xFFFF)
    assert reasons(devices, p_key=p_key) == expected(-1, Reason.ARRIVED)
    PortInfo.partition_enforcement_outbound.set(devices.info(port), 1)
    assert reasons(devices, p_key=p_key) == expected(2, Reason.ARRIVED if passes else Reason.OUTBOUND)


def test_a_service_level_without_a_data_vl_ends_at_the_adapter_or_in_the_switch():
    devices = configured("star:hosts=4")
    first, switch = arrays(devices.fabric).first_pair, int(devices.node_of[switch_port(devices, 0)])
    devices.tables.sl2vl[first[switch] :, 3] = 15
    assert reasons(devices, sl=2) == expected(-1, Reason.ARRIVED)
    assert {reason for row in reasons(devices, sl=3) for reason in row} == {Reason.ARRIVED, Reason.NO_RELAY}
    devices.tables.sl2vl[:, 3] = 15
    assert {reason for row in reasons(devices, sl=3) for reason in row} == {Reason.ARRIVED, Reason.NO_VL}


def test_a_switch_knows_no_lid_above_the_top_of_its_table():
    devices = configured("star:hosts=4")
    lids = sorted(devices.lid(host) for host in hosts_of(devices))
    (info,) = devices.switch_info.values()
    SwitchInfo.linear_fdb_top.set(info, lids[2])
    ends = reasons(devices)
    for src, dst in ((src, dst) for src in range(4) for dst in range(4) if src != dst):
        known = devices.lid(hosts_of(devices)[dst]) <= lids[2]
        assert ends[src][dst] is (Reason.ARRIVED if known else Reason.NO_ROUTE)


def test_a_fabric_without_devices_may_have_addresses_in_the_range_of_multicast():
    """As the ports of an Ethernet network: a number of each port, of which there may be more than LIDs."""
    alone, above = arrays(route(weft.load("star:hosts=4")).fabric), 0xC000
    lft = np.full((1, above + alone.lft.shape[1]), 255, np.uint8)
    lft[:, above:] = alone.lft
    moved = alone._replace(lft=lft, lid=np.where(alone.lid > 0, alone.lid + above, 0).astype(np.int32))
    hosts = np.flatnonzero((alone.lid > 0) & (alone.row[alone.node] == NONE))
    packets = np.array([(src, moved.lid[dst], 0, 0xFFFF, 64) for src in hosts for dst in hosts])
    assert (walk_all(moved, packets).reason == Reason.ARRIVED).all()
