from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import ConfigError
from weft.tenants.guids import guid_of_client_id, guid_of_mac, mac_of_guid

GUID = 0x08C0EB0300123456


@pytest.mark.parametrize(
    "prefix", ["ff:00:00:00:00:00:02:00:00:02:c9:00:", "FF:00:00:00:00:00:02:00:00:02:C9:00:", "20:"]
)
def test_a_client_id_ends_with_the_guid(prefix):
    assert guid_of_client_id(prefix + "08:c0:eb:03:00:12:34:56") == GUID


@pytest.mark.parametrize(
    "client_id", ["", "ff:00:00", "08:c0:eb:03:00:12:34:56", "20:08:c0:eb:03:00:12:34", "01:52:54:00:11:22:33"]
)
def test_an_invalid_client_id_is_refused(client_id):
    with pytest.raises(ConfigError, match=r"client-id .* must be"):
        guid_of_client_id(client_id)


def test_a_mac_is_the_guid_without_its_middle_bytes():
    assert mac_of_guid(GUID) == "08:c0:eb:12:34:56"


@given(st.integers(1, 2**64 - 1), st.integers(1, 2**64 - 1))
def test_a_port_is_found_by_its_mac(guid, other):
    ports = [guid, other] if mac_of_guid(guid) != mac_of_guid(other) else [guid]
    assert guid_of_mac(mac_of_guid(guid).upper(), ports) == guid


def test_an_unknown_mac_is_that_of_a_virtual_function():
    assert guid_of_mac("52:54:00:12:34:56", [GUID]) == 0x5254000000123456


def test_an_ambiguous_mac_is_refused():
    with pytest.raises(ConfigError, match="fits several ports: 0x08c0eb0300123456, 0x08c0eb0400123456"):
        guid_of_mac("08:c0:eb:12:34:56", [GUID, 0x08C0EB0400123456])


@pytest.mark.parametrize("mac", ["", "08:c0:eb:12:34", "08c0eb123456", "08:c0:eb:12:34:5g"])
def test_an_invalid_mac_is_refused(mac):
    with pytest.raises(ConfigError, match=r"MAC address .* must be six bytes"):
        guid_of_mac(mac)
