"""Services: registered, found, changed and ended by permitted requesters, and deleted when their lease expires."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sm.desk import SA_KEY, Desk

from weft.ids import Gid
from weft.sm.sa.services import answer_class_port_info
from weft.sm.state import FOR_EVER, Services
from weft.wire.mad import ClassPortInfo, Method
from weft.wire.sa import SaAttribute, SaStatus, ServiceRecord

ALL = "service_id service_gid service_p_key service_lease service_key service_name"
NO_P_KEY = ALL.replace(" service_p_key", "")


@pytest.fixture
def desk():
    return Desk("star:hosts=4")


def service(desk, number=1, who="h1", **fields):
    usual = {"service_id": number, "service_gid": desk.gid(who), "service_p_key": 0xFFFF, "service_lease": FOR_EVER}
    return ServiceRecord(**usual | {"service_name": f"osmt.srvc.{number}".encode().ljust(64, b"\0")} | fields)


def register(desk, names=ALL, who="h1", number=1, **fields):
    return desk.ask(who, Method.SET, SaAttribute.SERVICE_RECORD, service(desk, number, who, **fields), names)


def delete(desk, record, who="h1", names="service_name"):
    return desk.ask(who, Method.DELETE, SaAttribute.SERVICE_RECORD, record, names)


def find(desk, names="", who="h1", sm_key=0, **fields):
    record = ServiceRecord(**fields)
    return desk.ask(who, Method.GET_TABLE, SaAttribute.SERVICE_RECORD, record, names, sm_key=sm_key)[1]


def test_a_service_is_found_by_what_was_told_of_it(desk):
    register(desk, number=1)
    data = ALL + " service_data8[0] service_data32[1]"
    register(desk, data, number=2, service_data8=(9, *[0] * 15), service_data32=(0, 77, 0, 0))
    assert [item.service_id for item in find(desk)] == [1, 2]
    for names, fields, ids in (
        ("service_id", {"service_id": 2}, [2]),
        ("service_id", {"service_id": 3}, []),
        ("service_name", {"service_name": b"osmt.srvc.1".ljust(64, b"\0")}, [1]),
        ("service_id service_name", {"service_id": 2, "service_name": b"osmt.srvc.1".ljust(64, b"\0")}, []),
        ("service_data8[0]", {"service_data8": (9, *[0] * 15)}, [2]),
        ("service_data32[1]", {"service_data32": (0, 78, 0, 0)}, []),
        ("service_gid", {"service_gid": desk.gid("h1")}, [1, 2]),
    ):
        assert [item.service_id for item in find(desk, names, **fields)] == ids


def test_id_and_gid_are_needed_and_the_rest_has_defaults(desk):
    assert register(desk, "service_id service_name")[0] == SaStatus.REQUEST_INVALID
    status, (messages,) = register(desk, "service_id service_gid", service_lease=5, service_p_key=0)
    assert (status, messages.service_lease, messages.service_p_key) == (0, FOR_EVER, 0xFFFF)


def test_the_same_id_gid_and_p_key_is_the_same_service(desk):
    """As in osmtest: registered without a key, then with a key and another name."""
    register(desk, NO_P_KEY, number=5, service_p_key=0, service_name=b"five".ljust(64, b"\0"))
    register(desk, NO_P_KEY, number=5, service_p_key=0, service_key=7, service_name=b"six".ljust(64, b"\0"))
    assert [item.service_name.rstrip(b"\0") for item in find(desk)] == [b"six"]
    assert not find(desk, "service_name service_key", service_name=b"six".ljust(64, b"\0"), service_key=0)
    assert find(desk, "service_name service_key", service_name=b"six".ljust(64, b"\0"), service_key=7)


def test_leases_run_and_end(desk):
    register(desk, number=1, service_lease=10)
    register(desk, number=2)
    desk.net.clock.sleep(4)
    assert [item.service_lease for item in find(desk)] == [6, FOR_EVER]
    desk.net.clock.sleep(5.9)
    assert len(find(desk)) == 2
    desk.net.clock.sleep(0.1)
    assert [item.service_id for item in find(desk)] == [2]
    assert delete(desk, service(desk, 1))[0] == SaStatus.NO_RECORDS


def test_to_register_again_renews_the_lease(desk):
    register(desk, service_lease=10)
    desk.net.clock.sleep(8)
    register(desk, service_lease=10)
    desk.net.clock.sleep(8)
    assert len(find(desk)) == 1


def test_keys_are_for_trusted_eyes(desk):
    assert register(desk, service_key=99)[1][0].service_key == 0
    assert [item.service_key for item in find(desk)] == [0]
    assert [item.service_key for item in find(desk, sm_key=SA_KEY)] == [99]


def test_others_need_the_key_to_change_or_end_a_service(desk):
    """The owner of a service needs no key: osmtest deletes by the name alone."""
    register(desk, service_key=99)
    theirs = service(desk, 1, "h1", service_key=98)
    assert desk.ask("h2", Method.SET, SaAttribute.SERVICE_RECORD, theirs, ALL)[0] == SaStatus.REQUEST_INVALID
    assert delete(desk, service(desk, 1), "h2")[0] == SaStatus.REQUEST_INVALID
    assert len(find(desk)) == 1
    assert delete(desk, service(desk, 1, service_key=99), "h2")[0] == 0
    register(desk, service_key=99)
    status, (removed,) = delete(desk, service(desk, 1))
    assert (status, removed.service_id, removed.service_key, find(desk)) == (0, 1, 0, [])


def test_partitions_divide_services(desk):
    desk.put_into_partition("h1", 0x8001)
    desk.put_into_partition("h2", 0x0001, 0x7FFF)
    desk.put_into_partition("h3", 0xFFFF)
    assert register(desk, service_p_key=0x8002)[0] == SaStatus.REQUEST_INVALID
    assert register(desk, service_p_key=0x8001, service_gid=desk.gid("h3"))[0] == SaStatus.REQUEST_INVALID
    assert register(desk, service_p_key=0x8001, service_gid=int(Gid.of(0x77)))[0] == SaStatus.REQUEST_INVALID
    assert register(desk, service_p_key=0x8001)[0] == 0
    assert register(desk, who="h2", number=2)[0] == 0
    observed = {owner: [item.service_id for item in find(desk, who=owner)] for owner in ("h1", "h2", "h3")}
    assert observed == {"h1": [1], "h2": [1, 2], "h3": [2]}


def test_a_service_may_be_of_a_multicast_group(desk):
    assert register(desk, service_gid=int(Gid.parse("ff12:a01b::1")))[0] == 0


def services_at(services, now_s):
    return [service.at(now_s) for service in services.by_key.values()]


@given(leases=st.lists(st.integers(1, 100) | st.just(FOR_EVER), max_size=10), passed=st.integers(0, 120))
def test_a_copy_ends_when_the_original_does(leases, passed):
    services, copy = Services(), Services()
    for number, lease in enumerate(leases):
        services.register(ServiceRecord(service_id=number, service_lease=lease), 1000.0)
    services.expire(1000.0 + passed)
    copy.load_records(services_at(services, 1000.0 + passed), 5.0)
    left = {number for number, lease in enumerate(leases) if lease > passed}
    assert {record.service_id for record in services_at(copy, 5.0)} == left
    ends = {number: lease - passed for number, lease in enumerate(leases) if number in left and lease != FOR_EVER}
    for number, rest in ends.items():
        assert copy.by_key[number, 0, 0xFFFF].ends_s == 5.0 + rest


@pytest.mark.parametrize(("timeout_ms", "code"), [(0.008192, 1), (200, 16), (268, 16), (269, 17), (1e9, 31)])
@pytest.mark.parametrize("has_qos", [False, True])
def test_capabilities_are_those_that_are_served(timeout_ms, code, has_qos):
    options = SimpleNamespace(transaction_timeout_ms=timeout_ms)
    sa = SimpleNamespace(state=SimpleNamespace(options=options, qos=object() if has_qos else None))
    info = ClassPortInfo.unpack(answer_class_port_info(sa, None, 0).records)
    served = {bit for bit in range(27) if info.capability_mask2 >> bit & 1}
    assert served == {3, 6, 7, 10, 12, 13, 15, 17} | ({1} if has_qos else set())
    assert info.capability_mask == 1 << 9 | 1 << 10 | 1 << 13
    assert (info.class_version, info.resp_time_value) == (2, code)
    assert (info.redirect_qp, info.redirect_q_key, info.trap_q_key) == (1, 0x80010000, 0x80010000)
