"""MeteredPaths: granted for clean paths, revoked before any change, counted like packets."""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading

import pytest
from tests.lab.rdma import Host, all_active, pair, running, wait_until

from weft.diags.smpquery import perfquery
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.lab.metered_paths import Meters
from weft.mad.ibsim_client import IbsimCarrier
from weft.verbs import enums as e
from weft.verbs.carriers.lab.connection import METERS
from weft.verbs.pyverbs.cq import CQ, CompChannel

BTH, AETH, ICRC = 12, 4, 4
TRAFFIC = [column for column in Counter if "DATA" in column.name or column.name.endswith("_PKTS")]


@pytest.fixture(scope="module")
def lab():
    with running() as up:
        yield up


@pytest.fixture
def ends(lab, monkeypatch):
    """A pair of hosts on different leaves."""
    h1, h8 = Host(lab, "h1", monkeypatch), Host(lab, "h8", monkeypatch)
    yield h1, h8
    h1.close()
    h8.close()
    lab.fix()
    wait_until(lambda: all_active(lab))


def passage(host: Host, qp):
    return qp.core.shm_peer()


def counted(lab):
    """Return the counters of data packets, without MADs, whose counts are added on a query."""
    return lab.server.call(lambda: (lab.metered_paths.collect(), lab.fabric.counters[:, TRAFFIC].copy())[1])


def fill(meter, sizes, mtu_bytes: int = 1024) -> None:
    """Count on the meter as a sender does for a SEND of each size."""
    for size in sizes:
        packets = max(1, -(-size // mtu_bytes))
        meter.requests += packets
        meter.request_bytes += packets * (BTH + ICRC) + size + -size % 4
        meter.responses += 1
        meter.response_bytes += BTH + AETH + ICRC


@pytest.mark.parametrize("is_global", [False, True])
def test_messages_by_lane_and_by_packets_count_the_same_at_every_port(lab, ends, is_global):
    h1, h8 = ends
    item, other = pair(e.IBV_QPT_RC, h1, h8, is_global=is_global)
    sizes, before = (0, 1, 1024, 3001), counted(lab)
    for size in sizes:
        h8.post_receive(other, size)
        h1.send(item, bytes(size))
        assert len(h1.poll() + h8.poll()) == 2
    by_packets = counted(lab) - before
    before = counted(lab)
    fill(passage(h1, item).meter, sizes)
    by_lane = counted(lab) - before
    assert by_packets.any(axis=1).sum() >= 8, "four links each way, some of them the same, with two ports"
    assert (by_lane == by_packets).all()


def test_counters_read_by_mad_include_metered_packets(lab, ends):
    h1, h8 = ends
    item, _ = pair(e.IBV_QPT_RC, h1, h8)
    meter = passage(h1, item).meter
    carrier, lid = IbsimCarrier("h3", lab.sockname), lab.subnet.lid(lab.fabric["h8/1"].slot)

    def received() -> int:
        return int(re.search(r"PortRcvPkts:\.*(\d+)", perfquery(carrier, ["-x", str(lid), "1"]))[1])

    before = received()
    fill(meter, [1000] * 50_000)
    assert 50_000 <= received() - before < 50_100, "and some MADs"
    carrier.close()


@pytest.mark.parametrize("change", ["break", "degrade", "fix", "set"])
def test_lanes_are_closed_by_whatever_may_change_a_way(lab, ends, change):
    h1, h8 = ends
    item, _ = pair(e.IBV_QPT_RC, h1, h8)
    meter = wait_until(lambda: passage(h1, item)).meter
    assert meter.is_open == 1
    if change == "set":
        lab.server.call(lambda: lab.subnet.send(lab.fabric["h1/1"].slot, set_of_port_info()))
    else:
        {"break": lab.break_cable, "degrade": lambda name: lab.degrade(name, 1e-9), "fix": lab.fix}[change]("spine1")
    assert meter.is_open == 0


def set_of_port_info() -> bytes:
    from weft.wire.mad import Method
    from weft.wire.smp import DirectedSmp, SmpAttribute

    return DirectedSmp(method=Method.SET, attribute_id=SmpAttribute.PORT_INFO).raw


def test_a_bad_cable_on_the_way_means_packets_and_a_good_one_a_lane_again(lab, ends):
    h1, h8 = ends
    item, _ = pair(e.IBV_QPT_RC, h1, h8)
    first = passage(h1, item)
    lab.degrade("h8/1", 1e-9)
    assert passage(h1, item) is None
    lab.fix("h8/1")
    wait_until(lambda: passage(h1, item))
    assert first.meter.is_open == 1, "who still looks at the old one may use it: it is of the same way"


def test_a_host_that_talks_to_itself_has_a_lane_that_no_port_counts(lab, ends):
    h1, _ = ends
    item, _ = pair(e.IBV_QPT_RC, h1, h1)
    before = counted(lab)
    fill(passage(h1, item).meter, [100])
    assert (counted(lab) == before).all()


def test_a_meter_that_says_nonsense_breaks_nothing(lab, ends):
    h1, h8 = ends
    item, _ = pair(e.IBV_QPT_RC, h1, h8)
    meter, before = passage(h1, item).meter, counted(lab)
    meter.requests = meter.request_bytes = meter.responses = meter.response_bytes = -(1 << 62)
    assert (counted(lab) == before).all()
    line = h1.ctx.adapter.carrier.line
    assert "no 4096" in refusal(line, meter=METERS, lid=1, sl=0, path_bits=0, p_key=0xFFFF, mtu_bytes=1024)
    assert "that is no question" in refusal(line, meter=1)
    wrong_sl = {"meter": 1, "lid": 2, "sl": 99, "path_bits": 0, "p_key": 0xFFFF, "mtu_bytes": 1024}
    assert "that is no question" in refusal(line, **wrong_sl)


def test_late_counts_of_a_refused_path_reach_the_ports(lab, ends):
    """A request in progress is counted after its path was closed, and after the lab refused to reopen it."""
    h1, h8 = ends
    item, _ = pair(e.IBV_QPT_RC, h1, h8)
    meter, before, slot = passage(h1, item).meter, counted(lab), lab.fabric["h1/1"].slot
    lab.degrade("h8/1", 1e-9)
    assert passage(h1, item) is None
    fill(meter, [100] * 3)
    lab.fix("h8/1")
    wait_until(lambda: passage(h1, item))
    fill(meter, [100] * 4)
    assert (counted(lab) - before)[slot, TRAFFIC.index(Counter.PORT_XMIT_PKTS)] == 7


@pytest.mark.parametrize("wrong", [{"lid": 0xBFFF}, {"sl": 99}], ids=["no route", "no SL"])
def test_a_meter_is_closed_and_counted_while_the_lab_refuses_its_path(lab, ends, wrong):
    """A request whose answer is late is repeated, and the first one may have opened the meter."""
    h1, h8 = ends
    item, _ = pair(e.IBV_QPT_RC, h1, h8)
    meter, grants, before = passage(h1, item).meter, h1.ctx.adapter.carrier.grants, counted(lab)
    (index,) = (index for index in grants._ends if ctypes.addressof(grants._meters[index]) == ctypes.addressof(meter))
    path = {"lid": 1, "sl": 0, "path_bits": 0, "p_key": 0xFFFF, "mtu_bytes": 1024} | wrong
    with contextlib.suppress(ConfigError):
        assert h1.ctx.adapter.carrier.line.ask("metered_path", meter=index, **path)["guid"] == 0
    assert meter.is_open == 0
    fill(meter, [100] * 5)
    assert (counted(lab) - before)[lab.fabric["h1/1"].slot, TRAFFIC.index(Counter.PORT_XMIT_PKTS)] == 5


def test_the_meters_of_a_program_are_closed_with_its_connection(lab):
    paths, meters, slot, end = lab.metered_paths, Meters(), lab.fabric["h2/1"].slot, lab.fabric["h7/1"].slot
    path = {"lid": lab.subnet.lid(end), "sl": 0, "path_bits": 0, "p_key": 0xFFFF, "mtu_bytes": 1024}
    assert lab.server.call(lambda: paths.open(meters, 0, slot, **path)).path.end == end
    lab.server.call(lambda: paths.forget(meters))
    assert meters.records[0].is_open == 0


def refusal(line, **words) -> str:
    with pytest.raises(ConfigError) as refused:
        line.ask("metered_path", **words)
    return str(refused.value)


def test_a_timed_lab_says_how_long_the_links_take(monkeypatch):
    with running(timed=True) as lab:
        h1, h2, h8 = (Host(lab, name, monkeypatch) for name in ("h1", "h2", "h8"))
        far, _ = pair(e.IBV_QPT_RC, h1, h8)
        near, _ = pair(e.IBV_QPT_RC, h1, h2)
        meters = [passage(h1, qp).meter for qp in (near, far)]
        assert 0 < meters[0].latency_ns < meters[1].latency_ns < 2000
        assert meters[1].byte_ps == pytest.approx(20, rel=0.1), "400 Gbit/s"


def test_messages_go_by_lane_by_themselves_and_ports_count_them(lab, ends):
    h1, h8 = ends
    item, other = pair(e.IBV_QPT_RC, h1, h8, retry_cnt=1)
    before = counted(lab)
    for turn in range(40):
        h8.post_receive(other, 100)
        h1.send(item, bytes((turn,)) * 100)
        assert [done.status for done in h1.poll() + h8.poll()] == [e.IBV_WC_SUCCESS] * 2
        assert h8.mr.read(100, 1 << 15) == bytes((turn,)) * 100
    assert item.core.shm_path is not None
    slot, meters = lab.fabric["h1/1"].slot, [(path.counted, path.planes) for path in lab.metered_paths._paths.values()]
    new = dict(zip(TRAFFIC, (counted(lab) - before)[slot].tolist(), strict=True))
    assert new[Counter.PORT_XMIT_PKTS] == new[Counter.PORT_RCV_PKTS] == 40, (meters, passage(h1, item).meter.requests)
    assert new[Counter.PORT_XMIT_DATA_WORDS] == 40 * (8 + BTH + 100 + ICRC) // 4
    lab.break_cable("h8/1")
    h8.post_receive(other, 100)
    h1.send(item, b"lost")
    assert [done.status for done in h1.poll()] == [e.IBV_WC_RETRY_EXC_ERR]


def test_lane_wakes_a_thread_that_sleeps_on_a_channel(lab, ends):
    h1, h8 = ends
    channel = CompChannel(h8.ctx)
    h8.cq = CQ(h8.ctx, 16, channel=channel)
    item, other = pair(e.IBV_QPT_RC, h1, h8)
    assert item.core.find_shm_path(at_once=True) is not None
    h8.post_receive(other, 100)
    h8.cq.req_notify()
    threading.Timer(0.2, lambda: h1.send(item, b"wake up")).start()
    channel.get_cq_event(h8.cq)
    h8.cq.ack_events(1)
    assert len(h8.poll()) == 1
