"""perftest's figures against calculations by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.errors import ConfigError
from weft.fabric.timing import timings
from weft.sim import perftest
from weft.sim.engine import Memory, Network, Options
from weft.sim.perftest import BandwidthRow, LatencyRow, Settings, Test, measure, prepare
from weft.sim.traffic import Transport
from weft.verbs.perftest.kinds import ALL_SIZES, Connection, parse_test
from weft.verbs.perftest.plan import Plan

HEADERS = 8 + 12 + 4 + 2  # LRH, BTH, ICRC, VCRC
RETH = 16
INFINIBAND = timings().adapter["infiniband"]
NDR = timings().of_line("NDR")


@pytest.fixture(scope="module")
def star():
    return prepare(weft.load("star:hosts=2"))


def bandwidth(fabric, size_bytes, *, test=Test.WRITE_BW, **settings) -> BandwidthRow:
    (row,) = measure(fabric, "h1", "h2", Settings(test=test, **{"iterations": 200} | settings), [size_bytes])
    assert isinstance(row, BandwidthRow)
    return row


def latency(fabric, size_bytes, *, test=Test.WRITE_LAT, **settings) -> LatencyRow:
    (row,) = measure(fabric, "h1", "h2", Settings(test=test, **{"iterations": 5} | settings), [size_bytes])
    assert isinstance(row, LatencyRow)
    return row


def test_large_messages_fill_the_line_less_headers_and_overhead(star):
    size = 1 << 20
    packets = size // 4096
    expected = 400 * (1 - NDR.overhead) * size / (size + packets * HEADERS + RETH)
    assert bandwidth(star, size, iterations=20).average_gbit_s == pytest.approx(expected, rel=1e-3)


def test_small_messages_go_at_the_rate_that_a_core_posts(star):
    assert bandwidth(star, 2).message_rate_mpps == pytest.approx(1000 / INFINIBAND.gap_ns, rel=1e-3)
    assert bandwidth(star, 2, qps=2).message_rate_mpps == pytest.approx(2000 / INFINIBAND.gap_ns, rel=1e-3)


def test_bandwidth_is_message_rate_times_size(star):
    for size in (64, 4096, 65536):
        row = bandwidth(star, size)
        assert row.average_gbit_s == pytest.approx(row.message_rate_mpps * size * 8 / 1000)
        assert row.peak_gbit_s >= row.average_gbit_s


def test_the_peak_is_that_of_the_fastest_quarter_of_the_test(star, monkeypatch):
    """After a warm-up, 80 messages take 2 us each and 40 of them, a third of all, take 1 us."""

    def run(_fabric, _ends, _settings, _size_bytes, way, **_more):
        gaps_ps = np.repeat([2_000_000, 1_000_000, 2_000_000], [len(way) - 80, 40, 40])
        return SimpleNamespace(acked_ps=np.cumsum(gaps_ps))

    monkeypatch.setattr(perftest, "_run", run)
    row = bandwidth(star, 1000, iterations=120, tx_depth=1)
    assert row.average_gbit_s == pytest.approx(8 / 200 * 120)
    assert row.peak_gbit_s == pytest.approx(8)


def test_a_message_that_waits_for_the_last_acknowledgement_leaves_the_line_idle(star):
    """64 KiB take 1.34 µs on the wire, the way there and back and the acknowledgement about 1 µs more."""
    alone, two, many = (bandwidth(star, 65536, tx_depth=depth).average_gbit_s for depth in (1, 2, 128))
    assert 0.4 * many < alone < 0.8 * many
    assert two == pytest.approx(many, rel=0.01)


def test_both_directions_carry_twice_as_much(star):
    each, both = bandwidth(star, 65536), bandwidth(star, 65536, bidirectional=True)
    assert both.average_gbit_s == pytest.approx(2 * each.average_gbit_s, rel=5e-3)


def test_more_outstanding_reads_hide_the_way_there_and_back(star):
    few, many = (bandwidth(star, 4096, test=Test.READ_BW, outs=n) for n in (1, 16))
    assert many.average_gbit_s > 4 * few.average_gbit_s


def test_two_bytes_take_the_adapters_the_cables_and_the_switch(star):
    """The catalog has post, copy, 2 cables of 3 m, switch, error correction and receive; 44 bytes go twice over a
    link.
    """
    model = star.models[star.nodes.model[star.of_kind(1)[0]]]
    switch_ns = timings().switch_ns(model, "infiniband")
    cables_ns = 2 * round(3 * 4.5)
    wire_ns = (4 + HEADERS + RETH) * 8 / (400 * (1 - NDR.overhead))
    expected_ns = INFINIBAND.post_ns + 2 * INFINIBAND.inline_ns + cables_ns + switch_ns + NDR.fec_ns
    expected_ns += INFINIBAND.receive_ns + wire_ns
    assert latency(star, 2).typical_us * 1000 == pytest.approx(expected_ns, abs=1)


def test_a_read_takes_a_whole_round_trip_and_a_memory_access(star):
    write, read = latency(star, 2).typical_us, latency(star, 2, test=Test.READ_LAT).typical_us
    path_us = write - (INFINIBAND.post_ns + 2 * INFINIBAND.inline_ns + INFINIBAND.receive_ns) / 1000
    assert read == pytest.approx(write + path_us + INFINIBAND.read_ns / 1000, abs=0.02)


def test_payload_that_does_not_go_with_the_doorbell_is_read_from_memory(star):
    inlined, read = (latency(star, INFINIBAND.inline_bytes + more).typical_us for more in (0, 4))
    assert read - inlined > 0.8 * (INFINIBAND.read_ns - INFINIBAND.inline_ns * INFINIBAND.inline_bytes) / 1000


def test_an_idle_fabric_has_no_jitter(star):
    row = latency(star, 1024, iterations=20)
    assert row.min_us == row.max_us == row.typical_us == row.p999_us
    assert row.deviation_us == pytest.approx(0, abs=1e-9)
    assert row.iterations == 20


def test_gpu_memory_is_farther_and_copies_through_the_host_farther_still(star):
    host, direct, staged = (latency(star, 8192, options=Options(memory=kind)).typical_us for kind in Memory)
    assert host < direct < staged


def test_the_kernel_costs_tens_of_microseconds_and_a_connection_has_one_core():
    ethernet = prepare(weft.load("star:hosts=2,speed=100GbE"))
    tcp = Options(network=Network.TCP)
    assert latency(ethernet, 2, test=Test.SEND_LAT, options=tcp).typical_us > 10 * latency(ethernet, 2).typical_us
    lone_us = latency(ethernet, 1 << 20, test=Test.SEND_LAT, options=tcp).typical_us
    assert lone_us == pytest.approx((1 << 20) * 8e-3 / timings().tcp.copy_gbit_s, rel=0.1)
    each = bandwidth(ethernet, 1 << 20, iterations=8, options=tcp).average_gbit_s
    assert each == pytest.approx(timings().tcp.copy_gbit_s, rel=0.05)
    assert bandwidth(ethernet, 1 << 20, iterations=8, qps=4, options=tcp).average_gbit_s > 3 * each


def test_a_dgx_a100_posts_as_slowly_as_its_processors():
    dgx = prepare(weft.load("star:hosts=2,server=dgx-a100"))
    (row,) = measure(dgx, "dgx1", "dgx2", Settings(test=Test.WRITE_BW, iterations=100), [2])
    assert isinstance(row, BandwidthRow)
    assert row.message_rate_mpps == pytest.approx(1000 / timings().adapter["dgx-a100/ConnectX-6"].gap_ns, rel=1e-3)


def test_datagrams_and_unreliable_connections_need_no_acknowledgement(star):
    for kind in (Transport.UC, Transport.UD):
        row = bandwidth(star, 4096, test=Test.SEND_BW, connection=kind, tx_depth=1)
        assert row.message_rate_mpps == pytest.approx(1000 / INFINIBAND.gap_ns, rel=0.01)


def test_tests_are_named_as_the_programs_are():
    assert parse_test("ib_read_lat") is parse_test("read_lat") is Test.READ_LAT
    assert ALL_SIZES[0] == 2
    assert ALL_SIZES[-1] == 8 << 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"test": Test.WRITE_LAT, "qps": 2}, "one message in flight"),
        ({"test": Test.WRITE_BW, "connection": Transport.UD}, "send_bw"),
        ({"test": Test.READ_BW, "connection": Transport.UC}, "RC"),
        ({"test": Test.WRITE_BW, "tx_depth": 0}, "tx_depth 0"),
        ({"test": Test.ATOMIC_BW}, "no atomics. Run it with --live"),
    ],
)
def test_unsupported_settings_are_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        Settings(**arguments)


@pytest.mark.parametrize("connection", Connection)
@pytest.mark.parametrize("test", [test for test in Test if "ATOMIC" not in test.name])
@pytest.mark.parametrize("qps", [1, 2])
def test_simulated_and_live_tests_accept_the_same_settings(test, connection, qps):
    """And is refused with the same words."""
    texts = []
    for make, kind in ((Settings, Transport[connection.name]), (Plan, connection)):
        try:
            texts.append(make(test=test, connection=kind, qps=qps).test)
        except ConfigError as error:
            texts.append(str(error))
    assert texts[0] == texts[1]


def test_sizes_and_hosts_that_make_no_sense_are_refused(star):
    with pytest.raises(ConfigError, match="--size must be 1 byte"):
        bandwidth(star, 0)
    with pytest.raises(ConfigError, match="two hosts"):
        next(measure(star, "h1", "h1/1", Settings(test=Test.WRITE_BW), [2]))
    with pytest.raises(ConfigError, match="at most 4096 bytes"):
        bandwidth(star, 8192, test=Test.SEND_BW, connection=Transport.UD)
