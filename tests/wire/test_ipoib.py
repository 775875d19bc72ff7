"""IPoIB's headers have the bytes of RFC 4391, and its groups the GIDs."""

from __future__ import annotations

import pytest

from weft.ids import Gid
from weft.sm.pkey.partitions import broadcast_mgid
from weft.wire.ipoib import ETHER_TYPE_ARP, ArpOperation, Ipoib, IpoibAddress, IpoibArp, group_of
from weft.wire.roce import EtherType

GID = Gid.parse("fe80::2:c903:0:101")


def test_the_encapsulation_has_the_ethertype_and_two_reserved_bytes():
    assert Ipoib.pack(ether_type=EtherType.IPV4) == bytes.fromhex("08000000")
    assert Ipoib.pack(ether_type=ETHER_TYPE_ARP) == bytes.fromhex("08060000")


def test_a_hardware_address_is_flags_the_queue_pair_and_the_gid():
    raw = IpoibAddress.pack(qpn=0x48, gid=int(GID))
    assert raw == bytes.fromhex("00000048" + "fe800000000000000002c90300000101")
    assert IpoibAddress.unpack(raw).qpn == 0x48


def test_arp_has_hardware_type_32_and_addresses_of_20_bytes():
    arp = IpoibArp(sender_qpn=2, sender_gid=int(GID), sender_ip=0x0A010001, target_ip=0x0A010003)
    head = "0020" + "0800" + "14" + "04" + "0001"
    sender = "00000002" + "fe800000000000000002c90300000101" + "0a010001"
    assert arp.raw == bytes.fromhex(head + sender + "00" * 20 + "0a010003")
    assert IpoibArp.unpack(arp.raw).operation == ArpOperation.REQUEST


@pytest.mark.parametrize("p_key", [0x7FFF, 0xFFFF, 0x0101, 0x8101])
def test_the_broadcast_group_is_that_of_the_subnet_manager(p_key):
    assert group_of(p_key) == int(broadcast_mgid(p_key & 0x7FFF))


def test_multicast_keeps_the_low_28_bits_of_the_address():
    assert group_of(0xFFFF, 0xE0000001) == int(Gid.parse("ff12:401b:ffff::1"))
    assert group_of(0xFFFF, 0xEFFFFFFF) == int(Gid.parse("ff12:401b:ffff::fff:ffff"))
