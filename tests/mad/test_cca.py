"""Congestion control: each device stores its settings, protected by the CC_Key."""

from __future__ import annotations

import pytest

from weft.mad.carrier import Address, ask
from weft.wire.cc import (
    CACongestionEntry,
    CACongestionSetting,
    CcAttribute,
    CcMad,
    CongestionControlTable,
    CongestionControlTableEntry,
    CongestionInfo,
    CongestionKeyInfo,
    SwitchCongestionSetting,
    SwitchPortCongestionSetting,
    SwitchPortCongestionSettingElement,
    TimeStamp,
    congestion_log,
)
from weft.wire.mad import ClassPortInfo, Method, Status
from weft.wire.smp import PKeyTable

GET, SET = Method.GET, Method.SET
KEY = 0x1234
SETTINGS = {
    "switch": ("leaf2", CcAttribute.SWITCH_CONGESTION_SETTING, 0, SwitchCongestionSetting(control_map=3, threshold=9)),
    "switch port": (
        "leaf2",
        CcAttribute.SWITCH_PORT_CONGESTION_SETTING,
        1,
        SwitchPortCongestionSetting(element=[SwitchPortCongestionSettingElement(valid=1, threshold=4)] * 48),
    ),
    "adapter": (
        "h3",
        CcAttribute.CA_CONGESTION_SETTING,
        0,
        CACongestionSetting(control_map=0xFFFF, entry=[CACongestionEntry(ccti_timer=5)]),
    ),
    "table": (
        "h3",
        CcAttribute.CONGESTION_CONTROL_TABLE,
        1,
        CongestionControlTable(ccti_limit=127, entry=[CongestionControlTableEntry(cct_shift=1, cct_multiplier=9)] * 64),
    ),
}


def tell(bench, to, method, attribute, modifier=0, data=b"", key=0, version=2):
    """Send a congestion control MAD; return the status and the answer, or None without one."""
    mad = CcMad.pack(
        method=method, attribute_id=attribute, attribute_modifier=modifier, cc_key=key, data=data, class_version=version
    )
    answer = ask(bench.carrier, mad, Address(bench.lid(to)), timeout_ms=10, retries=0)
    return None if answer is None else (answer[4] << 8 | answer[5], answer)


@pytest.mark.parametrize("which", SETTINGS)
def test_a_setting_is_kept_by_node_and_block(running, which):
    to, attribute, block, record = SETTINGS[which]
    assert tell(running, to, SET, attribute, block, record.raw)[0] == 0
    status, answer = tell(running, to, GET, attribute, block)
    assert (status, type(record).unpack(answer, 64)) == (0, record)
    other = "leaf1" if to == "leaf2" else "h4"
    assert not any(tell(running, other, GET, attribute, block)[1][64:])


@pytest.mark.parametrize("which", SETTINGS)
def test_switches_and_adapters_have_their_own_settings(running, which):
    to, attribute, block, record = SETTINGS[which]
    wrong = "h3" if to == "leaf2" else "leaf2"
    assert tell(running, wrong, SET, attribute, block, record.raw)[0] == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED


def test_pkeys_are_not_touched(running):
    """ibsim mistakes the class for subnet management and overwrites them."""
    before = running.get([1, 3, 2, 1], PKeyTable)
    to, attribute, block, record = SETTINGS["adapter"]
    tell(running, to, SET, attribute, block, record.raw)
    assert running.get([1, 3, 2, 1], PKeyTable) == before


def test_capabilities_of_a_node_are_reported(running):
    assert CongestionInfo.unpack(tell(running, "h3", GET, CcAttribute.CONGESTION_INFO)[1], 64).control_table_cap == 2
    assert CongestionInfo.unpack(tell(running, "leaf2", GET, CcAttribute.CONGESTION_INFO)[1], 64).control_table_cap == 0
    assert ClassPortInfo.unpack(tell(running, "h3", GET, CcAttribute.CLASS_PORT_INFO)[1], 64).class_version == 2


def test_a_block_or_limit_beyond_the_table_is_refused(running):
    table = CcAttribute.CONGESTION_CONTROL_TABLE
    assert tell(running, "h3", GET, table, 2)[0] == Status.INVALID_FIELD
    assert tell(running, "h3", SET, table, 0, CongestionControlTable(ccti_limit=128).raw)[0] == Status.INVALID_FIELD
    assert tell(running, "leaf2", GET, CcAttribute.SWITCH_PORT_CONGESTION_SETTING, 8)[0] == Status.INVALID_FIELD


def test_time_stamps_and_logs_go_with_the_clock(running):
    running.clock.sleep(1.024)
    stamp = TimeStamp.unpack(tell(running, "h3", GET, CcAttribute.TIME_STAMP)[1], 64)
    assert stamp.timestamp == pytest.approx(1e6, rel=0.01)
    log = congestion_log(CcMad.unpack(tell(running, "h3", GET, CcAttribute.CONGESTION_LOG)[1]))
    assert (log.log_type, log.current_time_stamp) == (2, stamp.timestamp)
    assert congestion_log(CcMad.unpack(tell(running, "leaf2", GET, CcAttribute.CONGESTION_LOG)[1])).log_type == 1
    assert tell(running, "h3", SET, CcAttribute.TIME_STAMP)[0] == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED


def test_with_a_key_nobody_sets_without_it_and_the_key_is_not_shown(running):
    attribute = CcAttribute.CONGESTION_KEY_INFO
    assert tell(running, "h3", SET, attribute, data=CongestionKeyInfo(cc_key=KEY).raw)[0] == 0
    assert tell(running, "h3", SET, attribute, data=CongestionKeyInfo(cc_key=9).raw) is None
    info = CongestionKeyInfo.unpack(tell(running, "h3", GET, attribute)[1], 64)
    assert (info.cc_key, info.cc_key_violations) == (0, 1)
    assert CongestionKeyInfo.unpack(tell(running, "h3", GET, attribute, key=KEY)[1], 64).cc_key == KEY
    assert tell(running, "h3", SET, attribute, data=CongestionKeyInfo().raw, key=KEY)[0] == 0
    assert tell(running, "h3", SET, attribute, data=CongestionKeyInfo().raw)[0] == 0


def test_a_protected_key_hides_everything_until_its_lease_ends(running):
    attribute = CcAttribute.CONGESTION_KEY_INFO
    expected = CongestionKeyInfo(cc_key=KEY, cc_key_protect_bit=1, cc_key_lease_period=10)
    assert tell(running, "h3", SET, attribute, data=expected.raw)[0] == 0
    assert tell(running, "h3", GET, CcAttribute.CONGESTION_INFO) is None
    running.clock.sleep(11)
    assert tell(running, "h3", GET, CcAttribute.CONGESTION_INFO)[0] == 0
    assert tell(running, "h3", SET, attribute, data=expected.raw) is None


def test_other_versions_methods_and_attributes_are_refused(running):
    assert tell(running, "h3", GET, CcAttribute.CONGESTION_INFO, version=1)[0] == Status.BAD_VERSION
    assert tell(running, "h3", Method.GET_TABLE, CcAttribute.CONGESTION_INFO)[0] == Status.METHOD_NOT_SUPPORTED
    assert tell(running, "h3", GET, 0x99)[0] == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
