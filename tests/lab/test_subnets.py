"""A lab of two subnets with a manager each: RDMA programs reach the other subnet through the router."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from tests.lab.rdma import Host, load_shm_paths, pair
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.ids import Gid
from weft.lab.lab import Lab
from weft.lab.lost_way import why_lost
from weft.mad.ibsim_client import IbsimCarrier
from weft.sm.conf.options import Options
from weft.sm.discovery.adjacent import adjacent_prefixes
from weft.sm.process import warm_up
from weft.sm.run import SubnetManager
from weft.verbs import enums as e
from weft.verbs.pyverbs.addr import AH, GID, AHAttr, GlobalRoute

PREFIXES = (0xFEC0_0000_0000_0001, 0xFEC0_0000_0000_0002)


@contextmanager
def managed(lab: Lab, at: str, prefix: int = 0, options: Options | None = None) -> Iterator[SubnetManager]:
    """Run a subnet manager on a host of one subnet."""
    carrier = IbsimCarrier(at, lab.sockname)
    manager = SubnetManager(carrier, options or Options(subnet_prefix=prefix))
    thread = threading.Thread(target=manager.run, daemon=True)
    thread.start()
    try:
        yield manager
    finally:
        manager.stop()
        thread.join(PATIENCE_S)
        carrier.close()


def is_up(lab: Lab, number: int) -> bool:
    devices = lab.subnet.devices
    ports = [slot for slot, far in enumerate(devices.cable) if far >= 0 and devices.subnet_of[slot] == number]
    return all(devices.is_active(slot) for slot in ports)


def knows(manager: SubnetManager, prefix: int) -> bool:
    """Return whether the administrator of a manager has routers to a subnet."""
    return manager.state.view is not None and prefix in adjacent_prefixes(manager.state.view)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Return the lab with a manager in subnet 1 that stays; tests start one in subnet 2."""
    warm_up(Options())
    load_shm_paths()
    name = f"subnets{time.monotonic_ns() % 10**9}"
    with Lab(weft.load("subnets:2,of=star:hosts=2"), name) as up, managed(up, "s1-h1", PREFIXES[0]) as first:
        up.first = first
        yield up


@contextmanager
def both(lab: Lab) -> Iterator[SubnetManager]:
    """Run the manager of subnet 2 until both administrators know the other subnet."""
    with managed(lab, "s2-h1", PREFIXES[1]) as second:
        wait_until(lambda: is_up(lab, 1) and is_up(lab, 2))
        wait_until(lambda: knows(lab.first, PREFIXES[1]) and knows(second, PREFIXES[0]))
        yield second


@contextmanager
def hosts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Host, Host]]:
    near, far = Host(lab, "s1-h2", monkeypatch), Host(lab, "s2-h2", monkeypatch)
    try:
        yield near, far
    finally:
        near.close()
        far.close()


def slot_of(lab: Lab, port: str) -> int:
    return lab.fabric.find_port(port).slot


def exchange(near: Host, far: Host, qp, far_qp, text: bytes) -> None:
    """Send a message each way over a connection."""
    for a, b, own, other in ((near, far, qp, far_qp), (far, near, far_qp, qp)):
        b.post_receive(other, 64)
        a.send(own, text)
        assert [wc.status for wc in (*a.poll(), *b.poll())] == [e.IBV_WC_SUCCESS] * 2
        assert b.mr.read(len(text), 1 << 15) == text


def received(lab: Lab, port: str) -> int:
    lab.server.call(lab.metered_paths.collect)
    return int(lab.fabric.counters[slot_of(lab, port), Counter.PORT_RCV_PKTS])


def test_connection_crosses_the_router_without_a_manager_and_after_it_is_back(lab, monkeypatch):
    with both(lab) as second, hosts(lab, monkeypatch) as (near, far):
        assert [int.from_bytes(host.ctx.query_gid(1, 0).raw[:8], "big") for host in (near, far)] == list(PREFIXES)
        before = received(lab, "router1/1")
        qp, far_qp = pair(e.IBV_QPT_RC, near, far, is_global=True)
        exchange(near, far, qp, far_qp, b"managed")
        assert received(lab, "router1/1") > before
        second.stop()
        wait_until(lambda: not lab.subnet.devices.has_manager(slot_of(lab, "s2-h1/1")))
        lab.server.call(lab.metered_paths.close_all)
        exchange(near, far, qp, far_qp, b"not managed")
        with both(lab):
            exchange(near, far, qp, far_qp, b"managed again")
            exchange(near, far, *pair(e.IBV_QPT_RC, near, far, is_global=True), b"new")


def test_datagram_is_answered_by_its_global_route(lab, monkeypatch):
    with both(lab), hosts(lab, monkeypatch) as (near, far):
        qp, far_qp = near.qp(e.IBV_QPT_UD), far.qp(e.IBV_QPT_UD)
        near.connect(qp, far, far_qp), far.connect(far_qp, near, qp)
        far.post_receive(far_qp, 128)
        near.send(qp, b"ping", AH(near.pd, attr=far.address(is_global=True)), far_qp.qp_num)
        near.poll()
        (wc,) = far.poll()
        assert wc.slid == lab.subnet.lid(slot_of(lab, "router1/2"))
        grh = far.mr.read(40, 1 << 15)
        assert grh[8:24] == near.ctx.query_gid(1, 0).raw
        near.post_receive(qp, 128)
        answer = AHAttr(dlid=wc.slid, gr=near.address(is_global=True).route, is_global=1)
        answer.route.hop_limit = 64
        far.send(far_qp, b"pong", AH(far.pd, attr=answer), qp.qp_num)
        far.poll()
        (wc,) = near.poll()
        assert wc.status == e.IBV_WC_SUCCESS


def test_hop_limit_of_one_loses_a_datagram_at_the_router(lab, monkeypatch):
    with both(lab), hosts(lab, monkeypatch) as (near, far):
        qp, far_qp = near.qp(e.IBV_QPT_UD), far.qp(e.IBV_QPT_UD)
        near.connect(qp, far, far_qp)
        address = far.address(is_global=True)
        address.route.hop_limit = 1
        address.dlid = lab.subnet.lid(slot_of(lab, "router1/1"))
        slot = slot_of(lab, "router1/1")
        before = int(lab.fabric.counters[slot, Counter.PORT_RCV_SWITCH_RELAY_ERRORS])
        near.send(qp, b"lost", AH(near.pd, attr=address), far_qp.qp_num)
        near.poll()
        wait_until(lambda: int(lab.fabric.counters[slot, Counter.PORT_RCV_SWITCH_RELAY_ERRORS]) == before + 1)


def test_router_port_that_goes_down_is_named_and_its_subnet_is_unknown_until_it_is_back(lab, monkeypatch):
    devices = lab.subnet.devices
    with both(lab), hosts(lab, monkeypatch) as (near, far):
        qp, far_qp = pair(e.IBV_QPT_RC, near, far, is_global=True)
        exchange(near, far, qp, far_qp, b"up")
        to = {"lid": lab.subnet.lid(slot_of(lab, "router1/1")), "sl": 0, "p_key": 0xFFFF, "mtu_bytes": 256}
        gid = int.from_bytes(far.ctx.query_gid(1, 0).raw, "big")

        def why() -> str:
            return lab.server.call(lambda: why_lost(devices, slot_of(lab, "s1-h2/1"), dgid=gid, hop_limit=64, **to))

        assert why() == ""
        lab.break_cable("router1/2")
        assert why() == (
            "at router1/1 a packet comes no further: the router has no Active port in the subnet of its DGID"
        )
        wait_until(lambda: not knows(lab.first, PREFIXES[1]))
        other = Host(lab, "s1-h1", monkeypatch)  # without a path record yet
        assert "knows no path to fec0:" in other.ctx.hardware.wrong_address(far.address(is_global=True))
        other.close()
        lab.fix()
        wait_until(lambda: is_up(lab, 2) and knows(lab.first, PREFIXES[1]))
        wait_until(lambda: why() == "")


def alias_of(lab: Lab, host: str) -> int:
    """Return the alias GID of a host: prefix, zeros, LID."""
    slot = slot_of(lab, f"{host}/1")
    return PREFIXES[int(host[1]) - 1] << 64 | lab.subnet.devices.lid(slot)


def test_managers_give_ports_alias_gids_that_reach_the_other_subnet(lab, monkeypatch):
    with both(lab), hosts(lab, monkeypatch) as (near, far):
        for host, name in ((near, "s1-h2"), (far, "s2-h2")):
            alias = alias_of(lab, name).to_bytes(16, "big")
            wait_until(lambda host=host, alias=alias: host.ctx.query_gid(1, 1).raw == alias)
        asked = lab.subnet.devices.routers.ask
        lab.subnet.devices.routers.neighbors.clear()
        lab.subnet.devices.routers.ask = lambda slot, gid: pytest.fail("the LID is in the GID")
        try:
            qp, far_qp = pair(e.IBV_QPT_RC, near, far, is_global=True, gid_index=1)
            exchange(near, far, qp, far_qp, b"by alias GIDs")
        finally:
            lab.subnet.devices.routers.ask = asked


def sent_packets(lab: Lab, port: str) -> int:
    return int(lab.fabric_now().counters[slot_of(lab, port), Counter.PORT_XMIT_PKTS])


def test_simulated_traffic_crosses_the_router_and_counts_at_its_ports(lab):
    """Every host sends 100 packets to every other: the router forwards those of four pairs in each direction."""
    with both(lab):
        before = sent_packets(lab, "router1/1"), sent_packets(lab, "router1/2")
        report = lab.traffic("all-to-all", 100 * 4096)
        assert (report["delivered"], report["without_path"]) == (12, 0)
        after = sent_packets(lab, "router1/1"), sent_packets(lab, "router1/2")
    for count in np.subtract(after, before):
        assert 400 <= count < 1_000, "data one way, acknowledgements the other"
    with pytest.raises(ConfigError, match="multicast of a lab works on one subnet"):
        lab.traffic("multicast")


def test_group_that_hosts_of_two_subnets_join_reaches_those_of_the_sender_alone(lab, monkeypatch):
    """Both managers accept the join of one MGID with site-local scope, and report that the group ends at the router."""
    mgid = 0xFF15 << 112 | 0xA01C << 96 | 0x77
    with both(lab) as second, hosts(lab, monkeypatch) as (near, far):
        ends = [host.qp(e.IBV_QPT_UD) for host in (near, far)]
        for host, qp in zip((near, far), ends, strict=True):
            host.connect(qp, host, qp)
            host.post_receive(qp, 100)
            own = int.from_bytes(host.ctx.query_gid(1, 0).raw, "big")
            assert host.ctx.adapter.carrier.join(mgid, own) is not None
            host.ctx.adapter.join(qp.core, mgid)
        for manager in (lab.first, second):
            assert any(f"{Gid(mgid)} stays in this subnet" in line for line in manager.state.log.recent)
        address = AHAttr(
            gr=GlobalRoute(dgid=GID.of(mgid.to_bytes(16, "big")), sgid_index=0, hop_limit=255), is_global=1
        )
        near.send(ends[0], b"to all", AH(near.pd, attr=address), 0xFFFFFF)
        assert len(near.poll(2)) == 2, "the completion, and the sender's own copy"
        assert far.poll(seconds=0.05) == []
        assert not lab.fabric_now().counters[slot_of(lab, "router1/1"), Counter.PORT_MULTICAST_RCV_PKTS]
        for host, qp in zip((near, far), ends, strict=True):
            host.ctx.adapter.leave(qp.core, mgid)


def test_load_of_pairs_in_two_subnets_shares_the_router(lab):
    """Four hosts in a ring over both subnets: two flows cross the router, one in each direction; two stay."""
    with both(lab):
        state = lab.load("ring=ring:s1-h1,s1-h2,s2-h1,s2-h2@50%", speed=0)
        (job,) = state["jobs"]
        assert job["slowest"] == pytest.approx(1.0)
        before = sent_packets(lab, "router1/1"), sent_packets(lab, "router1/2")
        lab.advance(1.0)
        after = sent_packets(lab, "router1/1"), sent_packets(lab, "router1/2")
        data = np.subtract(after, before)
        assert data[0] == pytest.approx(data[1], rel=0.01)
        assert data[0] * 4096 * 8 == pytest.approx(job["wanted_gbit_s"] / 4 * 1e9, rel=0.02)
        crowded = lab.load("many=all-to-all:s1-h1,s1-h2,s2-h1,s2-h2", speed=0)["jobs"][0]
        assert crowded["slowest"] == pytest.approx(0.75, abs=0.01), "four flows of a third each on one router port"
        lab.unload()
    wait_until(lambda: not lab.subnet.devices.has_manager(slot_of(lab, "s2-h1/1")))
