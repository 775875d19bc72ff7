"""Address resolution after the creation of an object: AddrInfo.get_addrinfo, CMID.resolve_addrinfo."""

from __future__ import annotations

import errno

import pytest

from weft.verbs.enums import IBV_QPT_RC
from weft.verbs.enums.cm import (
    RAI_DNS,
    RAI_NUMERICHOST,
    RAI_PASSIVE,
    RAI_SA,
    RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_ADDRINFO_ERROR,
    RDMA_CM_EVENT_ADDRINFO_RESOLVED,
    RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_PS_TCP,
    RDMA_PS_UDP,
)
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel
from weft.verbs.pyverbs.qp import QPCap, QPInitAttr

HOST, PORT = "127.0.0.1", 18515
GID = 0xFFFF_7F00_0001


def test_positions_are_those_of_pyverbs():
    """Addresses first, then services."""
    info = AddrInfo(HOST, "127.0.0.2", "1", "2")
    assert (info.src, info.dst, info.src_port, info.dst_port) == (GID, GID + 1, 1, 2)


def test_an_empty_one_can_be_filled_and_filled_again():
    info = AddrInfo()
    assert (info.src, info.dst, info.flags) == (None, None, 0)
    info.get_addrinfo(src=HOST, src_service="7471", port_space=RDMA_PS_UDP, flags=RAI_PASSIVE)
    assert (info.src, info.src_port, info.dst, info.port_space, info.flags) == (
        GID,
        7471,
        None,
        RDMA_PS_UDP,
        RAI_PASSIVE,
    )
    info.get_addrinfo(dst=HOST.encode(), dst_service=b"7472")
    assert (info.src, info.dst, info.dst_port, info.port_space, info.flags) == (None, GID, 7472, 0, 0)


def test_a_name_that_is_none_changes_nothing():
    info = AddrInfo(dst=HOST)
    with pytest.raises(PyverbsRDMAError, match="Failed to get Address Info"):
        info.get_addrinfo(dst="not a host", flags=RAI_NUMERICHOST)
    assert info.dst == GID


@pytest.fixture
def channel():
    return CMEventChannel()


def resolved(cmid: CMID, channel: CMEventChannel, **words) -> AddrInfo:
    cmid.resolve_addrinfo(**words)
    assert CMEvent(channel).event_type == RDMA_CM_EVENT_ADDRINFO_RESOLVED
    return cmid.query_addrinfo()


def test_an_identifier_tells_when_it_has_found_an_address(channel):
    cmid = CMID(channel)
    present = resolved(cmid, channel, node=HOST, service="7471", port_space=RDMA_PS_TCP)
    assert (present.src, present.dst, present.dst_port, present.port_space) == (None, GID, 7471, RDMA_PS_TCP)
    local = resolved(cmid, channel, node=HOST, service=b"7471", flags=RAI_PASSIVE)
    assert (local.src, local.src_port, local.dst, bool(local.flags & RAI_PASSIVE)) == (GID, 7471, None, True)


def test_resolved_address_connects(channel):
    listener, asking = CMID(channel), CMID(other := CMEventChannel())
    listener.bind_addr(resolved(listener, channel, node=HOST, flags=RAI_PASSIVE))
    listener.listen()
    asking.resolve_addr(resolved(asking, other, node=HOST, service=str(listener._own_port)))
    asking.resolve_route()
    kinds = [CMEvent(other).event_type for _ in range(2)]
    assert kinds == [RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED]
    init = QPInitAttr(qp_type=IBV_QPT_RC, cap=QPCap())
    asking.create_qp(init)
    asking.connect()
    request = CMEvent(channel)
    assert request.event_type == RDMA_CM_EVENT_CONNECT_REQUEST
    answering = CMID(request, listen_id=listener)
    answering.create_qp(init)
    answering.accept()
    assert CMEvent(other).event_type == CMEvent(channel).event_type == RDMA_CM_EVENT_ESTABLISHED
    for item in (asking, answering, listener):
        item.close()


def test_an_address_that_is_not_found_is_an_event_too(channel):
    cmid = CMID(channel)
    cmid.resolve_addrinfo(node="not a host", flags=RAI_NUMERICHOST)
    event = CMEvent(channel)
    assert (event.event_type, event.status) == (RDMA_CM_EVENT_ADDRINFO_ERROR, -errno.ENODEV)
    with pytest.raises(PyverbsRDMAError, match="Failed to Query AddrInfo"):
        cmid.query_addrinfo()


@pytest.mark.parametrize(("flags", "code"), [(RAI_SA, errno.EOPNOTSUPP), (RAI_SA | RAI_DNS, errno.EINVAL)])
def test_services_are_not_looked_up_at_the_subnet_administrator(channel, flags, code):
    with pytest.raises(PyverbsRDMAError) as raised:
        CMID(channel).resolve_addrinfo(service="7471", flags=flags)
    assert raised.value.error_code == code


def test_an_identifier_without_a_channel_waits_and_says_what_is_wrong():
    cmid = CMID()
    cmid.resolve_addrinfo(node=HOST, service="1")
    assert cmid.query_addrinfo().dst == GID
    with pytest.raises(PyverbsRDMAError, match="Failed to Resolve AddrInfo"):
        cmid.resolve_addrinfo(node="not a host", flags=RAI_NUMERICHOST)
