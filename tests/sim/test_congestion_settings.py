"""Congestion control uses the settings of MADs: thresholds of switches, tables and timers of adapters."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.scenarios.managed import ManagedSubnet
from weft.sim.engine import CongestionControl
from weft.sim.engine import Options as RunOptions
from weft.sim.engines import find_engine
from weft.sim.layout import congestion
from weft.sim.patterns import make
from weft.sm.conf.options import Options
from weft.wire.cc import CcAttribute, SwitchPortCongestionSetting, SwitchPortCongestionSettingElement

SPEC = "star:hosts=5"
SIZE_BYTES = 4_000_000
MAP = 0b10100  # a switch's threshold with its packet size, and its marking rate
TABLE = tuple((1, index) for index in range(100))  # half a packet time more with every entry


def managed(**options):
    settings = {
        "congestion_control": True,
        "cc_sw_cong_setting_control_map": MAP,
        "cc_sw_cong_setting_threshold": 12,
        "cc_sw_cong_setting_marking_rate": 4,
        "cc_sw_cong_setting_packet_size": 2,
        "cc_ca_cong_setting_control_map": 0xFFFF,
        "cc_ca_cong_setting_ccti_timer": (20,) * 16,
        "cc_ca_cong_setting_ccti_increase": (3,) * 16,
        "cc_ca_cong_setting_ccti_min": (0,) * 16,
        "cc_cct": TABLE,
    } | options
    return ManagedSubnet(weft.load(SPEC), Options(**settings))


def incast(fabric, **options):
    traffic = make("incast", fabric, size_bytes=SIZE_BYTES, senders=4)
    return find_engine("packet").run(fabric, traffic, RunOptions(**options)).report()


def test_the_engine_reads_the_settings_of_the_manager():
    fabric = managed().connected()[0]
    leaf = fabric.find_port("leaf1/3").slot
    assert congestion.switch_marks(fabric)[leaf].tolist() == [12, 4, 128]
    adapters = congestion.adapters(fabric, 400)
    assert adapters.rate.tolist() == [1 / (1 + index / 2) for index in range(100)]
    assert set(adapters.increase.tolist()) == {3}
    assert set(adapters.timer_ps.tolist()) == {20 * 1_024_000}


def test_a_fabric_that_is_set_up_so_runs_so_without_being_asked():
    on = managed().connected()[0]
    assert incast(on)["options"]["congestion_control"] is CongestionControl.IB
    assert incast(on)["marked_packets"] > 0
    assert incast(on, congestion_control="none")["marked_packets"] == 0
    off = managed(congestion_control=False).connected()[0]
    assert incast(off)["options"]["congestion_control"] is CongestionControl.NONE


def test_thresholds_and_rates_have_their_effect():
    marked = [
        incast(managed(cc_sw_cong_setting_threshold=threshold).connected()[0])["marked_packets"]
        for threshold in (0, 1, 15)
    ]
    assert marked[0] == 0 < marked[1] <= marked[2]
    often, seldom = (
        incast(managed(cc_sw_cong_setting_marking_rate=rate).connected()[0])["marked_packets"] for rate in (1, 50)
    )
    assert often > seldom
    quick, slow = (
        incast(managed(cc_ca_cong_setting_ccti_timer=(timer,) * 16).connected()[0])["latency_us"]["max"]
        for timer in (1, 2000)
    )
    assert slow > 2 * quick


def test_a_least_index_slows_from_the_beginning_and_other_levels_do_not_hear():
    free = incast(managed(cc_ca_cong_setting_control_map=0).connected()[0])
    bound = incast(managed(cc_ca_cong_setting_ccti_min=(98,) * 16).connected()[0])
    assert free["marked_packets"] > 0, "switches mark; no sender slows down"
    assert bound["latency_us"]["max"] > 5 * free["latency_us"]["max"], "50 packet times between packets, four senders"


def test_a_port_may_have_a_threshold_of_its_own():
    net = managed()
    block = SwitchPortCongestionSetting(
        element=[SwitchPortCongestionSettingElement()] * 2
        + [SwitchPortCongestionSettingElement(valid=1, threshold=3, packet_size=8, cong_parm_marking_rate=7)]
    )
    fabric = net.connected()[0]
    switch = fabric.find_port("leaf1/2").slot - 2
    key = int(CcAttribute.SWITCH_PORT_CONGESTION_SETTING) << 16
    fabric.tables.congestion[switch, key] = bytearray(block.raw)
    marks = congestion.switch_marks(fabric)
    assert marks[switch + 2].tolist() == [3, 7, 512]
    assert marks[switch + 3].tolist() == [12, 4, 128]


def test_adapters_that_are_set_up_in_two_ways_are_refused_by_name():
    fabric = managed().connected()[0]
    slot = fabric.find_port("h3/1").slot
    key = int(CcAttribute.CONGESTION_CONTROL_TABLE) << 16
    fabric.tables.congestion[slot, key] = bytearray(np.zeros(192, np.uint8))
    with pytest.raises(ConfigError, match=r"h1/1 and h3/1 have different congestion control tables"):
        incast(fabric)
    assert incast(fabric, congestion_control="none")["delivered"] == 4  # the way out that the message tells
