"""Counters as programs read and reset them."""

from __future__ import annotations

import pytest

from weft.fabric.counters import Counter
from weft.mad.carrier import Address, ask
from weft.wire.mad import ClassPortInfo, Method, PlainMad, Status
from weft.wire.perf import (
    ALL_PORTS,
    ATTRIBUTES,
    PerfAttribute,
    PerfCapability,
    PortCounters,
    PortCountersExtended,
    PortExtendedSpeedsCounters,
    PortRcvErrorDetails,
    PortSamplesControl,
    PortSamplesResult,
    PortVLXmitWaitCounters,
    PortXmitDataSL,
    PortXmitDiscardDetails,
)

GET, SET = Method.GET, Method.SET
COUNTERS, EXTENDED = PerfAttribute.PORT_COUNTERS, PerfAttribute.PORT_COUNTERS_EXTENDED
SAMPLED = (PerfAttribute.CLASS_PORT_INFO, PerfAttribute.PORT_SAMPLES_CONTROL, PerfAttribute.PORT_SAMPLES_RESULT)
OLD = {  # field of PortCounters and of PortCountersExtended -> column
    "symbol_error_counter": Counter.SYMBOL_ERROR,
    "link_error_recovery_counter": Counter.LINK_ERROR_RECOVERY,
    "link_downed_counter": Counter.LINK_DOWNED,
    "port_rcv_errors": Counter.PORT_RCV_ERRORS,
    "port_rcv_remote_physical_errors": Counter.PORT_RCV_REMOTE_PHYSICAL_ERRORS,
    "port_rcv_switch_relay_errors": Counter.PORT_RCV_SWITCH_RELAY_ERRORS,
    "port_xmit_discards": Counter.PORT_XMIT_DISCARDS,
    "port_xmit_constraint_errors": Counter.PORT_XMIT_CONSTRAINT_ERRORS,
    "port_rcv_constraint_errors": Counter.PORT_RCV_CONSTRAINT_ERRORS,
    "local_link_integrity_errors": Counter.LOCAL_LINK_INTEGRITY_ERRORS,
    "excessive_buffer_overrun_errors": Counter.EXCESSIVE_BUFFER_OVERRUN_ERRORS,
    "vl15_dropped": Counter.VL15_DROPPED,
    "port_xmit_data": Counter.PORT_XMIT_DATA_WORDS,
    "port_rcv_data": Counter.PORT_RCV_DATA_WORDS,
    "port_xmit_pkts": Counter.PORT_XMIT_PKTS,
    "port_rcv_pkts": Counter.PORT_RCV_PKTS,
    "port_xmit_wait": Counter.PORT_XMIT_WAIT,
}


def fill(bench, port: str) -> None:
    """Set each counter to a value by its column, small enough for all widths."""
    bench.devices.fabric.counters[bench.slot_of(port)] = [1 + column % 13 for column in range(len(Counter))]


def test_error_correction_shows_its_counters_and_a_set_resets_them(running):
    slot, speeds = running.slot_of("leaf1/2"), PerfAttribute.PORT_EXTENDED_SPEEDS_COUNTERS
    running.devices.fec[slot] = [5, 6, 7, 8, *(0,) * 8, 21, 3, 1 << 40]
    status, result = running.perf("leaf1", GET, speeds, PortExtendedSpeedsCounters(port_select=2))
    assert status == 0
    assert result.fec_correctable_block_ctr_lane[:5] == (5, 6, 7, 8, 0)
    assert (result.port_fec_correctable_block_ctr, result.port_fec_uncorrectable_block_ctr) == (21, 3)
    assert result.port_fec_corrected_symbol_ctr == (1 << 32) - 1, "it sticks"
    running.perf("leaf1", SET, speeds, PortExtendedSpeedsCounters(port_select=2, counter_select=(1 << 64) - 1))
    assert not running.devices.fec[slot].any()


@pytest.mark.parametrize(("form", "attribute"), [(PortCounters, COUNTERS), (PortCountersExtended, EXTENDED)])
def test_every_field_shows_its_counter(running, form, attribute):
    fill(running, "leaf1/2")
    status, result = running.perf("leaf1", GET, attribute, form(port_select=2))
    assert status == 0
    for name, column in OLD.items():
        assert getattr(result, name) == 1 + column % 13, name


def test_a_counter_sticks_at_the_width_of_who_asks(running):
    running.devices.fabric.counters[running.slot_of("leaf1/2")] = 1 << 40
    _, small = running.perf("leaf1", GET, COUNTERS, PortCounters(port_select=2))
    _, large = running.perf("leaf1", GET, EXTENDED, PortCountersExtended(port_select=2))
    for name in OLD:
        assert getattr(small, name) == (1 << PortCounters.fields[name].width) - 1
        assert getattr(large, name) == 1 << 40


SELECT = {name: 1 << bit for bit, name in enumerate(name for name in OLD if name != "port_xmit_wait")}


@pytest.mark.parametrize("name", OLD)
def test_counter_select_resets_one_and_no_other(running, name):
    fill(running, "leaf1/2")
    select = {"counter_select2": 1} if name == "port_xmit_wait" else {"counter_select": SELECT[name]}
    status, result = running.perf("leaf1", SET, COUNTERS, PortCounters(port_select=2, **select))
    assert status == 0
    assert {field for field in OLD if not getattr(result, field)} == {name}


@pytest.mark.parametrize(
    ("select", "name"),
    [
        ({"counter_select": 1}, "port_xmit_data"),
        ({"counter_select": 1 << 4}, "port_unicast_xmit_pkts"),
        ({"counter_select": 1 << 7}, "port_multicast_rcv_pkts"),
        ({"counter_select2": 1}, "symbol_error_counter"),
        ({"counter_select2": 1 << 12}, "port_xmit_wait"),
    ],
)
def test_counter_select_of_the_extended_has_two_parts(running, select, name):
    fill(running, "leaf1/2")
    _, result = running.perf("leaf1", SET, EXTENDED, PortCountersExtended(port_select=2, **select))
    output = [
        field for field in PortCountersExtended.fields if field.startswith(("port_", "sy", "li", "lo", "ex", "vl"))
    ]
    assert [field for field in output if not getattr(result, field)] == [name]


def test_a_set_writes_what_it_says(running):
    _, result = running.perf(
        "leaf1", SET, COUNTERS, PortCounters(port_select=2, counter_select=1, symbol_error_counter=7)
    )
    assert result.symbol_error_counter == 7
    assert running.counter("leaf1/2", Counter.SYMBOL_ERROR) == 7


def test_port_255_is_all_ports_added_up(running):
    for port in (1, 2, 3):
        running.devices.fabric.counters[running.slot_of(f"leaf1/{port}"), Counter.SYMBOL_ERROR] = 10 * port
    _, result = running.perf("leaf1", GET, COUNTERS, PortCounters(port_select=ALL_PORTS))
    assert result.symbol_error_counter == 60
    running.perf("leaf1", SET, COUNTERS, PortCounters(port_select=ALL_PORTS, counter_select=1))
    assert running.counter("leaf1/3", Counter.SYMBOL_ERROR) == 0


@pytest.mark.parametrize(("node", "port"), [("leaf1", 5), ("h2", 0), ("h2", 2), ("leaf1", 254)])
def test_a_port_that_is_not_there_is_refused(running, node, port):
    status, _ = running.perf(node, GET, COUNTERS, PortCounters(port_select=port))
    assert status == Status.INVALID_FIELD


def test_port_0_of_a_switch_has_counters(running):
    assert running.perf("leaf1", GET, COUNTERS, PortCounters(port_select=0))[0] == 0


def test_reading_counters_counts(running):
    """The query and the answer before it are packets too."""
    _, first = running.perf("h2", GET, COUNTERS, PortCounters(port_select=1))
    _, second = running.perf("h2", GET, COUNTERS, PortCounters(port_select=1))
    assert second.port_rcv_pkts == first.port_rcv_pkts + 1
    assert second.port_xmit_pkts == first.port_xmit_pkts + 1


@pytest.mark.parametrize("attribute", [one for one in ATTRIBUTES if one not in SAMPLED])
def test_every_attribute_is_answered_and_reset(running, attribute):
    form = ATTRIBUTES[attribute]
    names = [name for name in form.fields if "select" not in name]
    slot = running.slot_of("leaf1/2")
    running.devices.fabric.counters[slot] = running.devices.fec[slot] = 3
    for name in names:
        for index in range(16):
            running.devices.details[slot, name, index] = 3
    status, result = running.perf("leaf1", GET, attribute, form(port_select=2))
    assert (status, result.port_select) == (0, 2)
    for name in names:
        value = getattr(result, name)
        assert set(value) == {3} if isinstance(value, tuple) else value == 3, name
    everything = {name: (1 << field.width) - 1 for name, field in form.fields.items() if "counter_select" in name}
    _, cleared = running.perf("leaf1", SET, attribute, form(port_select=2, **everything))
    assert not any(any(value) if isinstance(value, tuple) else value for value in (getattr(cleared, n) for n in names))


def test_details_say_why_packets_were_dropped(running):
    details = running.devices.details
    details[running.slot_of("leaf1/2"), "port_inactive_discards", 0] = 4
    details[running.slot_of("leaf1/2"), "port_dlid_mapping_errors", 0] = 70_000
    attribute = PerfAttribute.PORT_XMIT_DISCARD_DETAILS
    _, result = running.perf("leaf1", GET, attribute, PortXmitDiscardDetails(port_select=2))
    assert result.port_inactive_discards == 4
    _, errors = running.perf("leaf1", GET, PerfAttribute.PORT_RCV_ERROR_DETAILS, PortRcvErrorDetails(port_select=2))
    assert errors.port_dlid_mapping_errors == 0xFFFF


@pytest.mark.parametrize(
    ("form", "attribute", "name"),
    [
        (PortVLXmitWaitCounters, PerfAttribute.PORT_VL_XMIT_WAIT_COUNTERS, "port_vl_xmit_wait"),
        (PortXmitDataSL, PerfAttribute.PORT_XMIT_DATA_SL, "port_xmit_data_sl"),
    ],
)
def test_a_table_by_vl_or_sl_is_reset_entry_by_entry(running, form, attribute, name):
    for index in range(16):
        running.devices.details[running.slot_of("leaf1/2"), name, index] = 5
    _, result = running.perf("leaf1", SET, attribute, form(port_select=2, counter_select=1 << 3))
    assert getattr(result, name) == (5, 5, 5, 0, *(5,) * 12)


def test_the_class_says_what_it_can(running):
    status, info = running.perf("leaf1", GET, PerfAttribute.CLASS_PORT_INFO, ClassPortInfo())
    assert status == 0
    assert info.capability_mask & PerfCapability.EXTENDED_WIDTH
    assert info.capability_mask & PerfCapability.ALL_PORT_SELECT
    assert running.perf("leaf1", SET, PerfAttribute.CLASS_PORT_INFO, ClassPortInfo())[0] == 12


def test_other_attributes_methods_and_versions_are_refused(running):
    to = Address(running.lid("leaf1"))

    def status(**header: int) -> int:
        answer = ask(running.carrier, PlainMad.pack(mgmt_class=4, **header), to)
        assert answer is not None
        return answer[5]

    assert status(method=GET, attribute_id=0x99) == Status.METHOD_ATTRIBUTE_NOT_SUPPORTED
    assert status(method=Method.GET_TABLE, attribute_id=COUNTERS) == Status.METHOD_NOT_SUPPORTED
    assert status(method=GET, attribute_id=COUNTERS, class_version=3) == Status.BAD_VERSION
    assert running.devices.odd["version"] == 1


def test_a_sample_counts_what_grows_in_its_interval(running):
    control = PortSamplesControl(
        port_select=2, sample_start=1_000_000, sample_interval=2_000_000, tag=77, counter_select=(1, 4)
    )
    attribute = PerfAttribute.PORT_SAMPLES_CONTROL
    ours = running.devices.fabric.counters[running.slot_of("leaf1/2")]

    def result() -> PortSamplesResult:
        return running.perf("leaf1", GET, PerfAttribute.PORT_SAMPLES_RESULT, PortSamplesResult())[1]

    _, waiting = running.perf("leaf1", SET, attribute, control)
    assert (waiting.sample_status, waiting.tick) == (1, 0x80)
    ours[Counter.PORT_XMIT_DATA_WORDS] += 1000  # before the sampling starts
    running.clock.sleep(1.1)
    assert result().sample_status == 2
    ours[Counter.PORT_XMIT_DATA_WORDS] += 72
    ours[Counter.PORT_RCV_PKTS] += 5
    _, busy = running.perf("leaf1", SET, attribute, control.replace(tag=78))
    assert busy.tag == 77  # only one sampling at a time
    running.clock.sleep(2.1)
    done = result()
    assert (done.sample_status, done.tag, done.counter[:3]) == (0, 77, (72, 5, 0))
    _, empty = running.perf("leaf1", SET, attribute, control.replace(sample_start=0, sample_interval=0))
    assert empty.sample_status == 0
