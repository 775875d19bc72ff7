"""Mapping of Neutron's dictionaries. tests/interop/test_neutron.py runs Neutron itself."""

from __future__ import annotations

import pytest

from weft.clouds.openstack.members import LONGEST_PREFIX, Rules, guid_of, member_of, segments_of
from weft.errors import ConfigError

RULES = Rules(frozenset(["ib"]))
NETWORK = "2f6ba8b1-7d5b-4b9e-a4a1-0ad1f3a6f3c2"
CLIENT_ID = {"opt_name": "61", "opt_value": "ff:00:00:00:00:00:02:00:00:02:c9:00:08:c0:eb:03:00:12:34:56"}
PORT = {
    "binding:vnic_type": "baremetal",
    "binding:vif_type": "other",
    "binding:host_id": "node1",
    "binding:profile": {},
    "extra_dhcp_opts": [{"opt_name": "mtu", "opt_value": "2044"}, CLIENT_ID],
    "mac_address": "52:54:00:12:34:56",
}


def segment(kind: str = "vlan", physical: str | None = "ib", number: int | None = 100) -> dict[str, object]:
    return {"network_type": kind, "physical_network": physical, "segmentation_id": number}


def test_the_infiniband_segment_id_is_the_p_key():
    assert RULES.p_key([segment()]) == 100
    assert RULES.p_key([segment("vxlan", None, 7), segment(physical="eth"), segment(number=9)]) == 9
    assert RULES.p_key([segment(physical="eth"), segment("flat", "ib", None)]) is None
    with pytest.raises(ConfigError, match=r"2 segments on InfiniBand, \[1, 2\]; only one"):
        RULES.p_key([segment(number=1), segment(number=2)])


def test_a_network_of_the_api_has_one_segment_or_several():
    flat = {f"provider:{key}": value for key, value in segment().items()}
    assert segments_of({"id": NETWORK, **flat}) == [segment()]
    assert segments_of({"id": NETWORK, "segments": [flat, flat]}) == [segment(), segment()]


def test_the_prefix_of_a_name_identifies_the_owner():
    first, second = Rules(frozenset(["ib"]), "os"), Rules(frozenset(["ib"]), "os-b")
    name = second.partition(NETWORK, [segment()]).name
    assert name == "os-b-2f6ba8b17d5b4b9ea4a1"
    assert not second.partition(NETWORK, [segment()]).index0
    assert second.is_ours(name)
    assert not first.is_ours(name)
    assert not first.is_ours("os-somebody")


def test_names_fit_into_opensm_s_partitions_conf():
    longest = Rules(frozenset(["ib"]), "n" * LONGEST_PREFIX)
    assert len(longest.partition(NETWORK, [segment()]).name) == 31


def test_a_bare_metal_port_is_known_by_its_client_id():
    assert member_of(PORT) == 0x08C0EB0300123456
    assert member_of(PORT | {"extra_dhcp_opts": []}) is None


def test_a_machine_s_port_is_known_by_its_profile_its_client_id_or_its_mac():
    machine = PORT | {"binding:vnic_type": "direct"}
    assert member_of(machine | {"binding:profile": {"guid": "0xabc"}}) == 0xABC
    assert member_of(machine) == 0x08C0EB0300123456
    assert member_of(machine | {"extra_dhcp_opts": [{**CLIENT_ID, "opt_value": None}]}) == 0x5254000000123456


@pytest.mark.parametrize(
    "changed",
    [
        {"binding:vif_type": "unbound"},
        {"binding:vif_type": "binding_failed"},
        {"binding:host_id": ""},
        {"binding:vnic_type": "normal"},
    ],
)
def test_unbound_ports_and_ports_off_the_fabric_are_no_members(changed):
    assert member_of(PORT | changed) is None


def test_an_invalid_guid_is_no_member_and_guid_of_refuses_it():
    bad = PORT | {"binding:profile": {"guid": "none"}}
    assert member_of(bad) is None
    with pytest.raises(ConfigError, match="'none' is not a hexadecimal number"):
        guid_of(bad)
