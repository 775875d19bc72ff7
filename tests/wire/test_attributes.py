"""Attributes that MADs carry."""

from __future__ import annotations

import pytest

from weft.wire import cc, cm, perf, sa, smp
from weft.wire.attributes import CLASSES, parse_mad
from weft.wire.format import Malformed
from weft.wire.mad import ClassPortInfo, Mad, MgmtClass, PlainMad, VendorMad
from weft.wire.notice import BadKeyDetails, GidDetails, LinkStateDetails, Notice, Trap, details
from weft.wire.port_info import Capability, LinkSpeed, Mtu, PortInfo, PortState, join_speeds, split_speeds
from weft.wire.roce import FRAMING_BYTES


@pytest.mark.parametrize("mgmt_class", CLASSES)
def test_every_attribute_is_found_in_a_mad_of_its_class(mgmt_class):
    form, attributes = CLASSES[mgmt_class]
    for number, kind in attributes.items():
        carried = kind.unpack(bytes(range(1, kind.size + 1)))
        mad = form(mgmt_class=mgmt_class, attribute_id=number, data=carried.raw)
        assert parse_mad(mad.raw) == (mad, carried)


def test_a_mad_is_of_its_class_by_default():
    smps = {smp.Smp: (1, 1), smp.DirectedSmp: (0x81, 1)}
    classes = smps | {sa.SaMad: (3, 2), cm.CmMad: (7, 2), cc.CcMad: (0x21, 2)}
    assert {form: (form().mgmt_class, form().class_version) for form in classes} == classes
    assert {form().base_version for form in classes} == {1}


def test_attributes_fit_into_the_data_of_their_mads():
    for form, attributes in CLASSES.values():
        room = form.fields["data"].width // 8
        assert all(kind.size <= room for kind in attributes.values())


def test_unknown_attributes_stay_bytes():
    unknown = Mad(mgmt_class=0x0B, attribute_id=0x11, data=b"vendor")
    assert parse_mad(unknown.raw) == (unknown, None)
    assert parse_mad(PlainMad(mgmt_class=MgmtClass.PERF, attribute_id=0x99).raw)[1] is None
    assert isinstance(parse_mad(VendorMad(mgmt_class=MgmtClass.OPENIB_PING, oui=0x1405).raw)[0], VendorMad)
    with pytest.raises(Malformed, match="a MAD has 256 bytes, not 255"):
        parse_mad(bytes(255))


def test_a_congestion_log_is_a_switchs_or_an_adapters():
    for log in (cc.CongestionLogSwitch(log_events_counter=7), cc.CongestionLogCA(threshold_event_counter=9)):
        mad = cc.CcMad(attribute_id=cc.CcAttribute.CONGESTION_LOG, log_data=log.raw[:32], data=log.raw[32:])
        assert parse_mad(mad.raw)[1] == log


def test_a_notice_has_the_details_of_its_trap():
    messages = LinkStateDetails(lid_addr=9)
    notice = Notice(trap_number=Trap.LINK_STATE_CHANGED, data_details=messages.raw)
    assert details(notice) == messages
    assert isinstance(details(notice.replace(trap_number=Trap.BAD_Q_KEY)), BadKeyDetails)
    assert isinstance(details(notice.replace(trap_number=Trap.MGID_DESTROYED)), GidDetails)
    assert details(notice.replace(trap_number=1000)) is None
    assert details(notice.replace(is_generic=0)) is None


def test_a_port_reads_as_an_operator_knows_it():
    port = PortInfo(lid=4, port_state=PortState.ACTIVE, mtu_cap=Mtu.BYTES_4096)
    assert "port_state=ACTIVE" in repr(port)
    assert Mtu(port.mtu_cap).size_bytes == 4096


def test_counters_start_with_the_port_they_are_of():
    starts = [kind for kind in perf.ATTRIBUTES.values() if kind not in (ClassPortInfo, perf.PortSamplesResult)]
    assert {kind.fields["port_select"].bit for kind in starts} == {8}


def test_speeds_of_four_fields_are_joined_and_split():
    for speeds in (LinkSpeed.XDR.up_to, LinkSpeed.FDR10, LinkSpeed.QDR | LinkSpeed.FDR, LinkSpeed.XDR):
        assert join_speeds(*split_speeds(speeds)) == speeds
    assert split_speeds(LinkSpeed.XDR.up_to) == (7, 15, 1, 1)
    assert join_speeds(4, 8, 0, 3) == LinkSpeed.QDR | LinkSpeed.FDR10 | LinkSpeed.NDR  # FDR10 is the lowest bit


def test_bits_of_the_capability_mask_are_in_the_order_of_the_standard():
    positions = [flag.bit_length() - 1 for flag in Capability.__members__.values()]
    assert positions == list(range(1, 1 + len(positions)))


def test_a_frame_takes_24_bytes_more_on_the_wire_than_in_a_capture():
    assert FRAMING_BYTES == 24  # preamble, checksum and the gap between frames (IEEE 802.3)
