"""The engines obey a subnet manager's settings of ports and tables: P_Keys, MTU, rates, VLs, states."""

from __future__ import annotations

import numpy as np
import pytest
from tests.fabric.running import configured

from weft.errors import ConfigError
from weft.fabric.tables import HostPaths
from weft.sim.engine import Options
from weft.sim.engines import find_engine
from weft.sim.traffic import Traffic
from weft.wire.port_info import Mtu, PortInfo, PortState

H1, H8 = "h1/1", "h8/1"


@pytest.fixture
def devices():
    return configured("fat-tree:hosts=8,radix=4")


@pytest.fixture(params=["packet", "flow"])
def engine(request):
    return find_engine(request.param)


def send(engine, devices, size_bytes=1 << 20):
    fabric = devices.fabric
    return engine.run(fabric, Traffic.of(fabric, [("h1", "h8", size_bytes)]))


def ports(devices):
    return [devices.fabric[name].slot for name in (H1, H8)]


def test_all_arrives_with_the_configured_tables(engine, devices):
    assert send(engine, devices).report()["delivered"] == 1


def test_nothing_crosses_partitions(engine, devices):
    for slot, p_key in zip(ports(devices), (0x8001, 0x8002), strict=True):
        devices.tables.pkey[slot] = 0
        devices.tables.pkey[slot, 0] = p_key
    with pytest.raises(ConfigError, match=r"from h1/1 to h8/1 ends at h8/1: no P_Key of the port matches"):
        send(engine, devices)


def test_a_filtering_switch_drops_the_packet_at_its_input(engine, devices):
    leaf = devices.cable[ports(devices)[0]]
    PortInfo.partition_enforcement_inbound.set(devices.info(leaf), 1)
    devices.tables.pkey[leaf] = 0
    with pytest.raises(ConfigError, match=r"ends at leaf1/1: the switch's inbound P_Key enforcement drops it"):
        send(engine, devices)


def test_two_limited_members_do_not_talk_by_the_key_that_both_hold(engine, devices):
    devices.tables.pkey[ports(devices), 0] = 0x7FFF
    with pytest.raises(ConfigError, match=r"no P_Key of the port matches"):
        send(engine, devices)
    devices.tables.pkey[ports(devices), 1] = 0x8009
    slots = np.array(ports(devices))
    devices.tables.paths = HostPaths.of(slots, devices.tables.lid[slots[::-1]], [0, 0], [0x8009] * 2, [4096] * 2)
    assert send(engine, devices).report()["delivered"] == 1


def test_packets_are_as_long_as_the_path_takes(devices):
    engine, slots = find_engine("packet"), np.array(ports(devices))
    full = send(engine, devices).report()["packets"]
    PortInfo.neighbor_mtu.set(devices.info(devices.cable[slots[1]]), Mtu.BYTES_2048)
    with pytest.raises(ConfigError, match=r"it is longer than the MTU of the link"):
        send(engine, devices)
    devices.tables.paths = HostPaths.of(slots, devices.tables.lid[slots[::-1]], [0, 0], [0xFFFF] * 2, [2048] * 2)
    assert 1.9 < send(engine, devices).report()["packets"] / full < 2.1


def test_a_port_that_is_not_active_or_has_too_few_lanes_passes_nothing_on(engine, devices):
    devices.tables.sl2vl[:, 0] = 1
    assert send(engine, devices).report()["delivered"] == 1
    for slot, info in enumerate(devices.port_info):
        if info is not None and slot not in ports(devices):
            PortInfo.operational_vls.set(info, 1)
    with pytest.raises(ConfigError, match=r"the switch maps its SL to no VL of the port by which it would leave"):
        send(engine, devices)
    devices.tables.sl2vl[:] = 0
    for name in ("leaf1/3", "leaf1/4"):
        PortInfo.port_state.set(devices.info(devices.fabric[name].slot), PortState.ARMED)
    with pytest.raises(ConfigError, match=r"ends at leaf1/[34]: the port has no link, or is not Active"):
        send(engine, devices)


def test_a_sender_without_a_path_record_is_refused(engine, devices):
    devices.tables.paths = HostPaths.of([], [], [], [], [])
    with pytest.raises(ConfigError, match=r"h1/1 has no path record for LID \d+ from the subnet administrator"):
        send(engine, devices)


@pytest.mark.parametrize("control", ["none", "ib"])
def test_a_sender_with_a_slow_path_record_sends_no_faster(devices, control):
    """A slow cable far away: packets wait at their sender, and not in the buffers of switches that others need."""
    engine, slots = find_engine("packet"), np.array(ports(devices))
    lids = devices.tables.lid[slots[::-1]]
    traffic = Traffic.of(devices.fabric, [("h1", "h8", 1 << 20)])
    options = Options(congestion_control=control)
    goodput_gbit_s = {}
    for rate_gbit_s in (100.0, 400.0, np.inf):
        devices.tables.paths = HostPaths.of(slots, lids, [0, 0], [0xFFFF] * 2, [4096] * 2, rate_gbit_s)
        goodput_gbit_s[rate_gbit_s] = engine.run(devices.fabric, traffic, options).goodput_gbit_s
    assert 90 < goodput_gbit_s[100.0] < 100
    assert goodput_gbit_s[400.0] == goodput_gbit_s[np.inf] > 200


def test_a_sender_with_a_slow_path_record_sends_no_burst_after_a_pause(devices):
    engine, slots = find_engine("packet"), np.array(ports(devices))
    lids, later_ps = devices.tables.lid[slots[::-1]], 1_000_000_000
    devices.tables.paths = HostPaths.of(slots, lids, [0, 0], [0xFFFF] * 2, [4096] * 2, 100.0)
    alone, again = (
        engine.run(devices.fabric, Traffic.make([slots[0]] * n, [slots[1]] * n, 1 << 15, start_ps=[0, later_ps][:n]))
        for n in (1, 2)
    )
    assert again.finish_ps.tolist() == [alone.finish_ps[0], alone.finish_ps[0] + later_ps]
