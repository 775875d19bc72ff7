"""A lab of planes: an SMI and a GSI device for each adapter, a manager for each plane, and RDMA over all of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.lab.rdma import Host, load_shm_paths, pair
from tests.lab.test_subnets import managed
from tests.patience import wait_until

import weft
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.lab.adapters import Role, adapters_of, find_port
from weft.lab.lab import Lab
from weft.lab.managers import managers_of
from weft.lab.planes import choose_port, leading_port, planarize, usable_ports, whole_rate_gbit_s
from weft.sm.conf.options import Options
from weft.sm.process import warm_up
from weft.verbs import enums as e
from weft.wire.port_info import Capability

SPEC = "star:hosts=2,planes=2"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Return a lab of two planes with a manager each."""
    warm_up(Options())
    load_shm_paths()
    with both(f"planes{time.monotonic_ns() % 10**9}") as up:
        yield up


@contextmanager
def both(name: str, *, timed: bool = False) -> Iterator[Lab]:
    """Run a lab with a manager in each plane."""
    prefix = Options().subnet_prefix
    with Lab(weft.load(SPEC), name, timed=timed) as up, managed(up, "h1/1", prefix), managed(up, "h1/2", prefix):
        wait_until(lambda: is_whole(up))
        yield up


def is_whole(lab: Lab) -> bool:
    return all(len(usable_ports(lab.subnet.devices, slot(lab, f"h{number}/1"))) == 2 for number in (1, 2))


@pytest.fixture(autouse=True)
def repaired(lab: Lab) -> Iterator[None]:
    yield
    if lab.subnet.devices.broken:
        lab.fix()
    wait_until(lambda: is_whole(lab))


def slot(lab: Lab, port: str) -> int:
    return lab.fabric.find_port(port).slot


def sent(lab: Lab, port: str) -> int:
    lab.server.call(lab.metered_paths.collect)
    return int(lab.fabric.counters[slot(lab, port), Counter.PORT_XMIT_PKTS])


def exchange(near: Host, far: Host, qp, far_qp, text: bytes) -> None:
    far.post_receive(far_qp, 64)
    near.send(qp, text)
    assert [wc.status for wc in (*near.poll(), *far.poll())] == [e.IBV_WC_SUCCESS] * 2
    assert far.mr.read(len(text), 1 << 15) == text


# -- devices ----------------------------------------------------------------------------------------------------------


def test_plane_ports_have_one_guid_and_switches_their_own():
    fabric = planarize(weft.load(SPEC))
    guids = fabric.ports.guid
    one, two = (guids[fabric.find_port(name).slot] for name in ("h2/1", "h2/2"))
    assert one == two
    assert guids[fabric.find_port("h1/1").slot] != one
    assert len(set(fabric.nodes.guid.tolist())) == len(fabric.nodes)
    star = weft.load("star:hosts=2")
    assert planarize(star) is star


def test_sysfs_pairs_devices_as_libibumad_does(lab):
    """Devices with the same port GUID are a pair: the one with its SMI disabled is the GSI device."""
    files = lab.sysfs("h2")["files"]
    pairs: dict[str, dict[str, str]] = defaultdict(dict)
    for path, text in files.items():
        if not path.endswith("/gids/0") or "/ports/1/" not in path:
            continue
        port = path.removesuffix("/gids/0")
        disabled = int(files[f"{port}/cap_mask"], 16) & Capability.IS_SM_DISABLED
        pairs[text[20:]]["gsi" if disabled else "smi"] = path.split("/")[4]
    assert list(pairs.values()) == [{"gsi": "mlx5_0", "smi": "smi0"}]
    rates = {path.split("/infiniband/")[1]: text for path, text in files.items() if path.endswith("/rate")}
    assert rates == {
        "mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        "smi0/ports/1/rate": "200 Gb/sec (2X NDR)\n",
        "smi0/ports/2/rate": "200 Gb/sec (2X NDR)\n",
    }
    assert [path for path in files if "/net/" in path and path.endswith("/address")] == [
        "devices/pci1000:00/1000:01:00.0/net/ib0/address"
    ]


def test_ports_without_a_name_are_those_of_the_smi_device(lab):
    devices = lab.subnet.devices
    adapters = adapters_of(devices, "h1")
    assert [(each.name, each.role, each.last_port) for each in adapters] == [
        ("mlx5_0", Role.GSI, 1),
        ("smi0", Role.SMI, 2),
    ]
    assert find_port(devices, adapters, "", 0) == (adapters[1], 1)
    assert find_port(devices, adapters, "", 2) == (adapters[1], 2)
    assert find_port(devices, adapters, "mlx5_0", 0) == (adapters[0], 1)


def test_a_port_of_a_plane_is_a_device_with_that_port_alone(lab):
    """OpenSM binds by port GUID, which is the same for the ports of all planes."""
    devices = lab.subnet.devices
    (adapter,) = adapters_of(devices, "h1/2")
    assert (adapter.name, adapter.role, adapter.first_port, adapter.last_port) == ("smi0", Role.SMI, 2, 2)
    assert lab.host("h1/2")["umad_host"] == "h1/2"
    assert [lab.host(name)["umad_host"] for name in ("h1", "h1/1", "p2-leaf1")] == ["h1", "h1/1", "p2-leaf1"]


def test_a_lost_plane_shows_in_the_rate_and_not_in_the_state(lab):
    devices = lab.subnet.devices
    assert whole_rate_gbit_s(devices, slot(lab, "h2/1")) == 400
    lab.break_cable("p1-leaf1/2")
    wait_until(lambda: not devices.is_active(slot(lab, "h2/1")))
    assert leading_port(devices, slot(lab, "h2/1")) == slot(lab, "h2/2")
    assert whole_rate_gbit_s(devices, slot(lab, "h2/1")) == 200
    rates = [text for path, text in lab.sysfs("h2")["files"].items() if path.endswith("mlx5_0/ports/1/rate")]
    assert rates == ["200 Gb/sec (2X NDR)\n"]


def test_simulated_traffic_takes_turns_over_planes_and_avoids_a_dead_one(lab):
    """Both planes carry half of 4 MB; without the first the second carries all."""
    size_bytes = 1000 * 4096

    def sent_share() -> list[float]:
        words = [Counter.PORT_XMIT_DATA_WORDS] * 2
        slots = [slot(lab, f"h1/{plane}") for plane in (1, 2)]
        before = lab.fabric_now().counters[slots, words].copy()
        report = lab.traffic("shift", size_bytes)
        assert (report["delivered"], report["without_path"]) == (2, 0)
        return (4 * (lab.fabric_now().counters[slots, words] - before) / size_bytes).tolist()

    assert sent_share() == pytest.approx([0.5, 0.5], abs=0.05)
    lab.break_cable("h1/1")
    assert sent_share() == pytest.approx([0.0, 1.0], abs=0.05)
    with pytest.raises(ConfigError, match="multicast of a lab works on one subnet, and star:hosts=2,planes=2 has 2"):
        lab.traffic("multicast")


def test_load_moves_to_the_planes_that_are_left(lab):
    """At half of the line rate one plane carries everything; at the full rate a dead plane costs half."""

    def rates(share: str) -> tuple[float, float, float]:
        (job,) = lab.load(f"ring=ring@{share}", speed=0)["jobs"]
        return job["wanted_gbit_s"], job["gbit_s"], job["slowest"]

    def counted() -> list[int]:
        before = [sent(lab, f"h1/{plane}") for plane in (1, 2)]
        lab.advance(1.0)
        return [sent(lab, f"h1/{plane}") - count for plane, count in zip((1, 2), before, strict=True)]

    wanted, got, slowest = rates("100%")
    assert wanted == pytest.approx(2 * 395, rel=0.01), "two hosts of 2 x 200 Gbit/s"
    assert (got, slowest) == pytest.approx((wanted, 1.0))
    one, two = counted()
    assert one == pytest.approx(two, rel=0.01)
    lab.break_cable("p2-leaf1/2")
    assert rates("100%") == pytest.approx((wanted, wanted / 2, 0.5))
    assert rates("50%") == pytest.approx((wanted / 2, wanted / 2, 1.0))
    both_planes, nothing = counted()
    assert both_planes == pytest.approx(one, rel=0.01)
    assert nothing < 100
    with pytest.raises(ConfigError, match="lists a host twice"):
        lab.load("ring=ring:h1,h1/2@50%")
    lab.unload()


def test_a_slow_plane_holds_back_the_others_of_its_pair(lab):
    lab.degrade("p2-leaf1/2", to="1xNDR")
    wait_until(lambda: is_whole(lab))
    (job,) = lab.load("ring=ring", speed=0)["jobs"]
    assert job["slowest"] == pytest.approx(0.5, rel=0.01)
    assert job["gbit_s"] == pytest.approx(job["wanted_gbit_s"] / 2, rel=0.01)
    lab.unload()
    lab.fix("p2-leaf1/2")


# -- RDMA -------------------------------------------------------------------------------------------------------------


def test_programs_see_one_device_and_packets_take_turns(lab, monkeypatch):
    near, far = Host(lab, "h1", monkeypatch), Host(lab, "h2", monkeypatch)
    assert [device["name"] for device in lab.verbs.devices_of("h1")] == ["mlx5_0"]
    qp, far_qp = pair(e.IBV_QPT_RC, near, far)
    before = [sent(lab, f"h1/{plane}") for plane in (1, 2)]
    for number in range(100):
        exchange(near, far, qp, far_qp, b"message %d" % number)
    more = [sent(lab, f"h1/{plane}") - count for plane, count in zip((1, 2), before, strict=True)]
    assert min(more) >= 45, more
    near.close(), far.close()


@pytest.mark.parametrize("dead", ["p1-leaf1", "p2-leaf1", "h1/1", "h2/1", "h2/2"])
def test_a_dead_plane_costs_no_connection(lab, monkeypatch, dead):
    near, far = Host(lab, "h1", monkeypatch), Host(lab, "h2", monkeypatch)
    qp, far_qp = pair(e.IBV_QPT_RC, near, far)
    exchange(near, far, qp, far_qp, b"all planes")
    lab.break_cable(dead)
    for text in (b"one plane", b"one plane again"):
        exchange(near, far, qp, far_qp, text)
    exchange(near, far, *pair(e.IBV_QPT_RC, near, far), b"new connection")
    near.close(), far.close()


def test_packets_take_turns_over_planes_that_lead_to_the_destination(lab):
    devices = lab.subnet.devices
    home, dlid = slot(lab, "h1/1"), devices.lid(slot(lab, "h2/1"))
    assert [choose_port(devices, home, turn, dlid=dlid, sl=0) - home for turn in range(4)] == [0, 1, 0, 1]
    lab.break_cable("h2/1")  # plane 1 is still Active at h1
    assert devices.is_active(home)
    assert {choose_port(devices, home, turn, dlid=dlid, sl=0) - home for turn in range(4)} == {1}


def test_a_timed_path_has_the_rate_of_all_planes_that_are_left(monkeypatch):
    """Bandwidth falls by one plane's share: half of two planes."""
    warm_up(Options())
    load_shm_paths()
    with both(f"timed{time.monotonic_ns() % 10**9}", timed=True) as up:
        near, far = Host(up, "h1", monkeypatch), Host(up, "h2", monkeypatch)
        qp, far_qp = pair(e.IBV_QPT_RC, near, far)

        def byte_ps() -> int:
            exchange(near, far, qp, far_qp, b"metered")
            paths = [path for path in up.metered_paths._paths.values() if path.meter.is_open]
            return max((path.meter.byte_ps for path in paths), default=0)

        wait_until(lambda: byte_ps() > 0)
        whole = byte_ps()
        up.break_cable("p2-leaf1")
        wait_until(lambda: byte_ps() > whole)
        assert byte_ps() == pytest.approx(2 * whole, abs=2)
        near.close(), far.close()


# -- weft up ----------------------------------------------------------------------------------------------------------


def test_up_starts_a_manager_in_each_plane():
    fabric = planarize(weft.load("star:hosts=2,planes=4,radix=64"))
    assert [host for host, _ in managers_of(fabric, Options(), "")] == ["h1/1", "h1/2", "h1/3", "h1/4"]
    with pytest.raises(ConfigError, match="h1 is in 4 planes, which need a manager each"):
        managers_of(fabric, Options(), "h1")
