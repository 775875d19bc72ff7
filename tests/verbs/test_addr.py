"""Addresses as text, as bytes, and as handles."""

from __future__ import annotations

import ctypes
import errno
import ipaddress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.enums import IBV_GID_TYPE_SYSFS_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_WC_GRH
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs.addr import AH, GID, GRH, AHAttr, GlobalRoute, read_route

GIDS = ["fe80:0000:0000:0000:0000:0000:0000:0001", "0000:0000:0000:0000:0000:ffff:7f00:0001"]


class FakeDomain(PyverbsCM):
    """A protection domain of an adapter with one port and two GIDs."""

    def __init__(self, link_layer: int) -> None:
        self.link_layer = link_layer
        self._is_open = True
        self.ctx = self

    def query_port(self, port_num: int) -> SimpleNamespace:
        if port_num != 1:
            raise PyverbsRDMAError("Failed to query port", errno.EINVAL)
        return SimpleNamespace(link_layer=self.link_layer, gid_tbl_len=len(GIDS))

    def query_gid(self, port_num: int, index: int) -> GID:
        return GID(GIDS[index])

    def query_gid_type(self, port_num: int, index: int) -> int:
        return IBV_GID_TYPE_SYSFS_ROCE_V2


@pytest.fixture
def roce() -> FakeDomain:
    return FakeDomain(IBV_LINK_LAYER_ETHERNET)


@given(st.binary(min_size=16, max_size=16))
def test_a_gid_is_the_same_as_text_and_as_bytes(raw):
    text = GID.of(raw).gid
    assert text == ipaddress.IPv6Address(raw).exploded
    assert GID(text).raw == raw


@pytest.mark.parametrize("text", ["::1", "", "fe80:0:0:0:0:0:0:1", GIDS[0] + ":0000"])
def test_a_gid_has_eight_groups_of_four_digits(text):
    with pytest.raises(PyverbsUserError, match="Invalid GID value"):
        GID(text)


@pytest.mark.parametrize(("field", "value"), [("port_num", 256), ("sl", -1), ("dlid", 1 << 16)])
def test_value_too_large_for_a_field_is_refused(field, value):
    with pytest.raises(OverflowError, match=field):
        AHAttr(**{field: value})


def test_the_global_part_of_a_local_address_is_none():
    attr = AHAttr(dlid=7)
    assert (attr.dgid, attr.sgid_index, attr.hop_limit) == (None, None, None)


def test_a_global_address_has_the_route_that_it_was_given():
    gr = GlobalRoute(GID(GIDS[0]), flow_label=5, sgid_index=1, hop_limit=64, traffic_class=3)
    attr = AHAttr(is_global=1, gr=gr)
    gr.hop_limit = 1
    assert (attr.dgid, attr.flow_label, attr.sgid_index, attr.hop_limit, attr.traffic_class) == (GIDS[0], 5, 1, 64, 3)
    attr.dgid = GIDS[1]
    assert attr.dgid == GIDS[1]
    assert "dgid                  : " + GIDS[1] in str(attr)


def test_the_text_of_a_route_has_its_gid_once():
    route = GlobalRoute(dgid=GID(GIDS[0]), hop_limit=9)
    assert "raw_dgid" not in repr(route) + str(route)
    assert str(route).count(GIDS[0]) == 1


def test_a_global_address_needs_a_route():
    with pytest.raises(PyverbsUserError, match="gr parameter is None"):
        AHAttr(is_global=1)


def test_an_ethernet_port_refuses_an_address_without_a_route(roce):
    with pytest.raises(PyverbsRDMAError, match=r"Failed to create AH\..*Invalid argument") as refusal:
        AH(roce, attr=AHAttr(is_global=0, port_num=1))
    assert refusal.value.error_code == errno.EINVAL
    AH(FakeDomain(IBV_LINK_LAYER_INFINIBAND), attr=AHAttr(dlid=3))


@pytest.mark.parametrize(("port_num", "sgid_index"), [(2, 0), (1, 2)])
def test_a_port_or_gid_that_is_not_there_is_refused(roce, port_num, sgid_index):
    gr = GlobalRoute(GID(GIDS[0]), sgid_index=sgid_index)
    with pytest.raises(PyverbsRDMAError, match="Failed to create AH"):
        AH(roce, attr=AHAttr(is_global=1, gr=gr, port_num=port_num))


def test_a_handle_does_not_change_with_what_it_was_made_of(roce):
    attr = AHAttr(is_global=1, gr=GlobalRoute(GID(GIDS[0])))
    ah = AH(roce, attr=attr)
    attr.sl = 5
    attr.dgid = GIDS[1]
    assert (ah.attr.sl, ah.attr.dgid) == (0, GIDS[0])


def test_the_domain_closes_its_handles(roce):
    ah = AH(roce, attr=AHAttr(is_global=1, gr=GlobalRoute(GID(GIDS[0]))))
    roce.close()
    assert ah.pd is None


def test_the_way_back_of_a_datagram_is_in_the_header_before_its_data(roce):
    header = bytes.fromhex("60300007 0010 1b 40") + GID(GIDS[1]).raw + GID(GIDS[0]).raw
    buffer = ctypes.create_string_buffer(header, 40)
    wc = SimpleNamespace(wc_flags=IBV_WC_GRH, slid=9, sl=2, dlid_path_bits=1)
    attr = AH(roce, wc=wc, grh=ctypes.addressof(buffer), port_num=1).attr
    assert (attr.dlid, attr.sl, attr.src_path_bits, attr.is_global) == (9, 2, 1, 1)
    assert (attr.dgid, attr.sgid_index, attr.flow_label, attr.traffic_class) == (GIDS[1], 0, 7, 3)


def test_over_ipv4_the_header_is_in_the_last_twenty_bytes():
    ipv4 = bytes.fromhex("45 08 0030 0000 4000 40 11 0000 0a000001 0a000002")
    route, own = read_route(bytes(20) + ipv4)
    assert route.dgid == "0000:0000:0000:0000:0000:ffff:0a00:0001"
    assert own[-4:] == bytes([10, 0, 0, 2])
    assert route.traffic_class == 8


def test_a_datagram_to_somebody_else_cannot_be_answered(roce):
    buffer = ctypes.create_string_buffer(b"\x60" + bytes(39), 40)
    wc = SimpleNamespace(wc_flags=IBV_WC_GRH, slid=0, sl=0, dlid_path_bits=0)
    with pytest.raises(PyverbsRDMAError, match="does not have"):
        AH(roce, wc=wc, grh=ctypes.addressof(buffer), port_num=1)


def test_a_header_prints_its_fields():
    grh = GRH(GID(GIDS[0]), GID(GIDS[1]), hop_limit=9)
    grh.sgid = GIDS[1]
    assert [line.split()[-1] for line in str(grh).splitlines()] == [GIDS[1], GIDS[1], "0", "0", "0", "9"]
