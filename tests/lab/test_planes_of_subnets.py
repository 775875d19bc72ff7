"""A lab of two subnets with two planes: each plane has a manager in each subnet and a router of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.lab.rdma import Host, load_shm_paths, pair
from tests.lab.test_planes import sent, slot
from tests.lab.test_subnets import PREFIXES, exchange, knows, managed
from tests.lab.test_subnets import hosts as programs
from tests.patience import wait_until

import weft
from weft.lab.lab import Lab
from weft.mad.administrator import path_request
from weft.sm.conf.options import Options
from weft.sm.process import warm_up
from weft.verbs import enums as e
from weft.wire.mad import Status
from weft.wire.sa import SaMad

ROUTERS = ("p1-router1/2", "p2-router1/2")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    warm_up(Options())
    load_shm_paths()
    with ExitStack() as stack:
        up = stack.enter_context(Lab(weft.load("subnets:2,of=star:hosts=2,planes=2"), f"both{time.monotonic_ns()}"))
        managers = {
            (subnet, plane): stack.enter_context(managed(up, f"s{subnet}-h1/{plane}", PREFIXES[subnet - 1]))
            for subnet in (1, 2)
            for plane in (1, 2)
        }
        up.managers = managers
        wait_until(lambda: reaching(up, 1) + reaching(up, 2) == 4)
        yield up


def reaching(lab: Lab, plane: int) -> int:
    """Return the number of administrators of a plane that know the other subnet."""
    near, far = (lab.managers[subnet, plane] for subnet in (1, 2))
    return knows(near, PREFIXES[1]) + knows(far, PREFIXES[0])


@pytest.fixture
def hosts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Host, Host]]:
    with programs(lab, monkeypatch) as both:
        yield both
    lab.fix()
    wait_until(lambda: reaching(lab, 1) + reaching(lab, 2) == 4)


def test_every_plane_of_every_subnet_is_a_subnet(lab):
    devices = lab.subnet.devices
    ends = {name: devices.subnet_of[slot(lab, name)] for name in ("s1-h1/1", "s1-h1/2", "s2-h1/1", "s2-h1/2")}
    assert len(set(ends.values())) == 4
    for subnet, plane in lab.managers:
        assert devices.subnet_of[slot(lab, f"p{plane}-router1/{subnet}")] == ends[f"s{subnet}-h1/{plane}"]


def test_packets_to_another_subnet_take_turns_over_planes(lab, hosts):
    near, far = hosts
    qp, far_qp = pair(e.IBV_QPT_RC, near, far, is_global=True)
    exchange(near, far, qp, far_qp, b"routers answer now")
    before = [sent(lab, port) for port in ROUTERS]
    for number in range(50):
        exchange(near, far, qp, far_qp, b"message %d" % number)
    more = [sent(lab, port) - count for port, count in zip(ROUTERS, before, strict=True)]
    assert min(more) >= 45, more


@pytest.mark.parametrize("dead", ["p1-router1/2", "p1-router1/1", "p2-router1/2"])
def test_a_plane_without_a_router_costs_no_connection(lab, hosts, dead):
    """A path that the first plane's administrator no longer has is requested from the second plane's."""
    near, far = hosts
    qp, far_qp = pair(e.IBV_QPT_RC, near, far, is_global=True)
    exchange(near, far, qp, far_qp, b"both planes")
    lab.break_cable(dead)
    exchange(near, far, qp, far_qp, b"one plane")
    wait_until(lambda: reaching(lab, int(dead[1])) == 0)
    exchange(near, far, qp, far_qp, b"one plane again")
    answers: list[bytes | None] = []
    request = path_request(*(int.from_bytes(host.ctx.query_gid(1, 0).raw, "big") for host in hosts))
    lab.server.call(lambda: lab.verbs.ask_administrator(slot(lab, "s1-h2/1"), request, answers.append))
    wait_until(lambda: answers)
    assert answers[0] is not None
    assert SaMad.unpack(answers[0]).status == Status.OK


def test_traffic_and_load_use_the_router_that_is_left(lab, hosts):
    def rates() -> tuple[float, float]:
        (job,) = lab.load("across=ring:s1-h2,s2-h2", speed=0)["jobs"]
        return job["gbit_s"], job["slowest"]

    def shares() -> list[float]:
        before = [sent(lab, port) for port in ROUTERS]
        report = lab.traffic("all-to-all", 1000 * 4096)
        assert (report["delivered"], report["without_path"]) == (12, 0)
        new = [sent(lab, port) - count for port, count in zip(ROUTERS, before, strict=True)]
        return [count / sum(new) for count in new]

    whole, slowest = rates()
    assert (whole, slowest) == pytest.approx((2 * 392, 1.0), rel=0.02), "two hosts of 2 x 200 Gbit/s"
    assert shares() == pytest.approx([0.5, 0.5], abs=0.05)
    lab.break_cable("p1-router1/2")
    wait_until(lambda: reaching(lab, 1) == 0)
    assert rates() == pytest.approx((whole / 2, 0.5), rel=0.02)
    assert shares() == pytest.approx([0.0, 1.0], abs=0.05)
    lab.unload()
