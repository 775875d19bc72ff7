"""Limits, verdicts and figures of scenarios, without their measurements."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ConfigError, SimulationBug
from weft.fabric import catalog
from weft.fabric.counters import Counter
from weft.scenarios import (
    bad_cable,
    bad_link,
    cable_plan,
    cxl_or_rdma,
    experiment,
    gpudirect,
    ib_vs_ethernet,
    incast,
    inference_fabric,
    mpi_allreduce,
    qos,
    real_jobs,
    real_workloads,
    sm_failover,
    sm_faults,
    tenants,
)
from weft.scenarios.bad_link import LinkRun
from weft.scenarios.incast import IncastFigures
from weft.scenarios.probe import Probe, run_probes


class Accepted(Exception):
    """The options are accepted: the measurement would begin."""


@pytest.mark.parametrize(
    ("module", "begins", "good", "bad"),
    [
        (
            bad_cable,
            "monitored_lab",
            [{"polls": 2}, {"every_s": 1}, {"fault": ""}],
            [{"polls": 1}, {"every_s": 0}, {"fault": "x"}],
        ),
        (
            bad_link,
            "load",
            [{"hosts": 8}, {"hosts": 12}, {"bit_error_rates": (1e-9,)}],
            [{"hosts": 4}, {"hosts": 9}, {"bit_error_rates": ()}, {"bit_error_rates": (1e-9, 0.0)}],
        ),
        (
            cable_plan,
            "read_prices",
            [{"servers": 10}, {"servers": 1000}, {"units": 1}, {"units": 4}],
            [{"servers": 9}, {"servers": 1001}, {"units": 0}, {"units": 5}],
        ),
        (cxl_or_rdma, "load", [{"expanders": 1}, {"expanders": 16}], [{"expanders": 0}, {"expanders": 17}]),
        (gpudirect, "load", [{"servers": 2}], [{"servers": 1}]),
        (
            ib_vs_ethernet,
            "_measure",
            [{"servers": 2}, {"servers": 16}, {"size_bytes": 1 << 20}],
            [{"servers": 1}, {"servers": 17}, {"size_bytes": (1 << 20) - 1}],
        ),
        (
            incast,
            "_measure",
            [{"senders": 2}, {"senders": 64}, {"size_bytes": 65536}],
            [{"senders": 1}, {"senders": 65}, {"size_bytes": 65535}],
        ),
        (
            inference_fabric,
            "_inside",
            [{"prompt": 1, "answer": 1, "users": 1}],
            [{"prompt": 0}, {"answer": 0}, {"users": 0}],
        ),
        (mpi_allreduce, "_all_reduce", [{"nodes": 2, "calls": 1}], [{"nodes": 1}, {"calls": 0}]),
        (
            qos,
            "_run_one",
            [{"servers": 1}, {"servers": 6}, {"messages": 6}],
            [{"servers": 0}, {"servers": 7}, {"messages": 5}],
        ),
        (real_jobs, "cable", [{"servers": 8}, {"servers": 12}], [{"servers": 4}, {"servers": 10}]),
        (
            real_workloads,
            "_run_here",
            [{"ranks": 2}, {"ranks": 64}, {"repeats": 1}, {"repeats": 1000}],
            [{"ranks": 1}, {"ranks": 65}, {"repeats": 0}, {"repeats": 1001}],
        ),
        (
            sm_failover,
            "_measure",
            [{"polling_ms": 10}, {"polling_ms": 10_000}, {"retries": 1}, {"retries": 10}],
            [{"polling_ms": 9}, {"polling_ms": 10_001}, {"retries": 0}, {"retries": 11}],
        ),
        (
            sm_faults,
            "ManagedSubnet",
            [
                {"links": 1, "switches": 0},
                {"links": 0, "switches": 1},
                {"links": 0, "switches": 0, "all_elements": True},
                {"seed": 0},
            ],
            [{"links": 0, "switches": 0}, {"links": -1}, {"switches": -1}, {"seed": -1}],
        ),
        (tenants, "compile_intent", [{"attempts": 1000}], [{"attempts": 999}]),
    ],
)
def test_options_are_accepted_up_to_their_limits(monkeypatch, module, begins, good, bad):
    def accept(*_: object, **__: object) -> None:
        raise Accepted

    monkeypatch.setattr(module, begins, accept)
    for options in good:
        with pytest.raises(Accepted):
            module.run(**options)
    for options in bad:
        with pytest.raises(ConfigError, match=r"^--"):
            module.run(**options)


# -- shared -----------------------------------------------------------------------------------------------------------


def test_a_run_in_which_messages_are_lost_is_no_finding(monkeypatch):
    result = SimpleNamespace(done=False, finish_ps=np.array([5, -1, -1]))
    monkeypatch.setattr(experiment, "PacketEngine", lambda: SimpleNamespace(run=lambda *_: result))
    traffic: Any = SimpleNamespace(description="two jobs", __len__=lambda: 3)

    class Traffic(list[int]):
        description = "two jobs"

    with pytest.raises(SimulationBug, match="two jobs: 2 of 3 messages never arrived"):
        experiment.run_packets(None, Traffic([1, 2, 3]), None)  # type: ignore[arg-type]
    result.done = True
    assert experiment.run_packets(None, traffic, None) is result  # type: ignore[arg-type]


class Answers:
    """A carrier whose answers come at once: those to even tokens are good, to odd ones there is none."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.waiting: list[int] = []

    def send(self, mad: bytes, to: object, *, timeout_ms: int, retries: int) -> int:
        assert (timeout_ms, retries) == (500, 0)
        self.sent.append(len(self.sent))
        self.waiting.append(self.sent[-1])
        return self.sent[-1]

    def poll(self) -> list[tuple[int, bytes | None]]:
        waiting, self.waiting = self.waiting, []
        return [(token, b"yes" if token % 2 == 0 else None) for token in waiting] + [(99, b"of another")]


def test_probes_send_at_their_ticks_and_record_what_came_back(monkeypatch):
    now_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda wait_s: now_s.__setitem__(0, now_s[0] + wait_s))
    monkeypatch.setattr("weft.scenarios.probe.time", clock)
    monkeypatch.setattr("weft.scenarios.probe.TICK_S", 1 / 128)  # sums of it are exact
    every, seldom = Answers(), Answers()
    probes = [Probe(carrier, lambda: (b"", None), lambda answer: answer == b"yes") for carrier in (every, seldom)]  # type: ignore[arg-type]
    probes[1].every = 3
    run_probes(probes, until=lambda now_s, began_s: now_s - began_s >= 6 / 128)
    assert (len(every.sent), len(seldom.sent)) == (7, 3)
    assert [good for _, _, good in probes[0].done] == [True, False] * 3
    run_probes(probes, until=lambda now_s, began_s: now_s - began_s >= 1 / 128, sends=False)
    assert (len(every.sent), [good for _, _, good in probes[0].done][6:], probes[0].under_way) == (7, [True], {})


def test_requests_are_counted_from_the_begin_of_an_interval_to_before_its_end():
    probe = Probe(None, None, None, done=[(1.0, 1.5, True), (2.0, 2.1, False), (3.0, 3.5, True)])  # type: ignore[arg-type]
    assert [probe.count(*span) for span in ((1.0, 3.0), (1.0, 3.1), (1.1, 2.0), (0.0, 1.0))] == [
        (2, 1),
        (3, 2),
        (0, 0),
        (0, 0),
    ]
    assert [probe.first_good(since_s) for since_s in (0.0, 1.0, 1.1, 3.0, 3.1)] == [(1.0, 1.5)] * 2 + [
        (3.0, 3.5)
    ] * 2 + [None]


# -- a bad cable ------------------------------------------------------------------------------------------------------


def link_run(routing: str, rate: float, a_ms: float, b_ms: float, **errors: int) -> LinkRun:
    return LinkRun(routing=routing, bit_error_rate=rate, step_ms=(a_ms, b_ms), sent_again=(3, 4), errors=errors)


def test_a_run_is_compared_with_the_good_cable_of_the_same_routing():
    runs = [link_run("static", 0.0, 2, 4), link_run("adaptive", 0.0, 1, 2), link_run("static", 1e-7, 3, 4, p1=5, p2=6)]
    assert bad_link._slowdowns(runs[2], runs) == (1.5, 1.0)
    assert bad_link._row(runs[2], runs) == ("static", "1e-07", 11, 3, 3, 1.5, 4, 1.0)
    assert bad_link._row(runs[1], runs)[1] == "good cable"


@pytest.mark.parametrize(
    ("b_ms", "other"),
    [(2.009, "job B, which never crosses leaf1/5, notices nothing"), (2.011, "job B becomes 1.01 times slower too")],
)
def test_a_slowdown_of_half_a_percent_is_reported(b_ms, other):
    runs = [
        link_run(routing, rate, *times)
        for routing in ("static", "adaptive")
        for rate, times in ((0.0, (1.0, 2.0)), (1e-7, (3.0, b_ms)))
    ]
    figures = {"ports_with_errors": ["a", "b"], "found": True, "ack_timeout_ms": 67.1}
    text = bad_link._sentence("leaf1/5", runs, figures)
    assert text.startswith("At a bit error rate of 1e-07 and with static routes, job A becomes 3 times slower")
    assert other in text
    assert text.endswith("67.1 ms. SymbolErrorCounter names the cable: a and b count errors, no other port does.")
    assert "names no port" in bad_link._sentence("leaf1/5", runs, figures | {"found": False, "ports_with_errors": []})


@pytest.mark.parametrize(
    ("errors", "found"), [({"leaf1/5": 1}, True), ({}, False), ({"leaf1/5": 1, "leaf1/6": 1}, False)]
)
def test_a_cable_is_found_if_its_ports_alone_count_errors(errors, found):
    fabric = weft.load("fat-tree:hosts=8,radix=8,levels=2")
    cable = next(port.name for port in map(fabric.port, range(len(fabric.ports))) if port.name == "leaf1/5")
    runs = [link_run(routing, rate, 1, 1, **errors) for routing in ("static", "adaptive") for rate in (0.0, 1e-7)]
    figures = bad_link._figures(fabric, cable, runs, {"ack_timeout_exponent": 14})
    assert (figures["found"], figures["ports_with_errors"]) == (found, sorted(errors))
    assert figures["cable"] == ["leaf1/5", str(fabric["leaf1/5"].peer)]
    assert figures["ack_timeout_ms"] == pytest.approx(67.108864)
    assert len(figures["runs"]) == 4


def test_errors_are_listed_by_port_the_most_first():
    fabric = weft.load("star:hosts=3")
    fabric.counters[:] = 9
    counts = {"h1/1": 2, "h2/1": 5}

    def write() -> None:
        for name, count in counts.items():
            fabric.counters[fabric[name].slot, Counter.SYMBOL_ERROR] = count

    result: Any = SimpleNamespace(fabric=fabric, write_counters=write)
    assert [*bad_link.count_errors(result).items()] == [("h2/1", 5), ("h1/1", 2)]


def test_jobs_have_half_of_each_leaf():
    assert bad_link.jobs(8) == (["h1", "h2", "h5", "h6"], ["h3", "h4", "h7", "h8"])


@pytest.mark.parametrize(("words", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_words_are_listed_with_an_and(words, text):
    assert bad_link._series(words) == text


# -- incast -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("senders", "far", "near", "hot", "victim"),
    [(2, 1, 1, "h6", ("h2", "h5")), (3, 1, 2, "h8", ("h2", "h7")), (8, 4, 4, "h12", ("h5", "h11"))],
)
def test_roles_of_an_incast_fill_two_leaves(senders, far, near, hot, victim):
    roles = incast.assign_roles(senders)
    assert (len(roles.far), len(roles.near), roles.hot, roles.victim) == (far, near, hot, victim)
    assert roles.senders == roles.far + roles.near
    assert len({*roles.senders, hot, *victim}) == senders + 3


def test_a_rate_counts_the_pieces_that_have_arrived():
    finish_ps = np.array([100, 200, 300, 400])
    assert incast._rate_gbit_s(finish_ps, 300) == 3 * 65536 * 8000 / 300
    figures = {"incast_ms": 1.0, "all_send_ms": 1.0, "pauses": 0, "marked": 0, "dropped": 0, "sent_again": 0}
    figures |= {"victim_ms": [], "queue_ms": [], "queue_bytes": []}
    rates = [IncastFigures(alone_gbit_s=100.0, victim_gbit_s=rate, **figures).slowdown for rate in (25.0, 0.0)]  # type: ignore[arg-type]
    assert rates == [4.0, float("inf")]


def test_curves_of_an_incast_end_with_the_first_sender():
    roles = incast.assign_roles(8)
    same = {
        "incast_ms": 3.0,
        "alone_gbit_s": 100.0,
        "victim_gbit_s": 25.0,
        "pauses": 1,
        "marked": 2,
        "dropped": 3,
        "sent_again": 4,
    }
    measured = {
        "a": IncastFigures(
            **same, all_send_ms=6.0, victim_ms=[1.0, 2.0, 6.0, 9.0], queue_ms=[0.0, 6.0], queue_bytes=[0, 6000]
        ),  # type: ignore[arg-type]
        "b": IncastFigures(**same, all_send_ms=6.0, victim_ms=[], queue_ms=[], queue_bytes=[]),  # type: ignore[arg-type]
    }
    figures = incast._figures(roles, measured)
    assert figures["expected_slowdown_without_control"] == 20
    assert figures["slowdown"] == {"a": 4.0, "b": 4.0}
    curve = figures["curves"]["a"]
    assert (len(curve["time_ms"]), curve["time_ms"][-1]) == (61, 6.0)
    assert [curve["victim_mb"][at] / 0.065536 for at in (9, 10, 20, 59, 60)] == pytest.approx([0, 1, 2, 2, 3])
    assert curve["queue_kb"][10] == pytest.approx(1.0)
    assert figures["curves"]["b"]["queue_kb"] == [0.0] * 61
    assert incast._row("a", measured["a"]) == ("a", 3.0, 100.0, 25.0, 4.0, 1, 2, 3, 4)


# -- lanes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [qos.ONE, qos.TURNS, qos.FIRST, qos.LAST])
def test_a_policy_is_written_as_a_subnet_manager_writes_it(name):
    fabric = weft.load(qos.SPEC)
    tables = fabric.tables
    tables.sl2vl[:], tables.vl_arbitration[:], tables.vl_high_limit[:] = 0, 9, 3
    policy = next(policy for policy in qos.POLICIES if policy.name == name)
    qos.write_policy(fabric, policy)
    lanes = set(np.unique(tables.sl2vl[:, qos.MPI_SL]).tolist())
    assert lanes == ({0} if name == qos.ONE else {qos.MPI_VL})
    assert not np.delete(tables.sl2vl, qos.MPI_SL, axis=1).any()
    first = {qos.FIRST: qos.MPI_VL, qos.LAST: qos.STORAGE_VL}.get(name)
    if first is None:
        assert (tables.vl_arbitration == 9).all()
        assert (tables.vl_high_limit == 3).all()
    else:
        second = qos.STORAGE_VL if first == qos.MPI_VL else qos.MPI_VL
        assert (tables.vl_arbitration[:, :, 0] == [[second, 64], [first, 64]]).all()
        assert (tables.vl_high_limit == 255).all()


@pytest.mark.parametrize(("servers", "start"), [(1, "One storage stream into"), (2, "2 storage streams into")])
def test_storage_streams_are_counted_in_the_sentence(servers, start):
    us = {name: float(n) for n, name in enumerate((qos.IDLE, qos.ONE, qos.TURNS, qos.FIRST, qos.LAST), 1)}
    figures = {
        "p50_us": us,
        "p99_us": us,
        "storage_gbit_s": us,
        "full_buffers_bytes": 1_234_000,
        "full_buffers_us": 25.0,
    }
    text = qos._sentence(servers, 64, figures)
    assert text.startswith(start)
    assert "from 1.00 to 2.00 µs on one lane: it stands behind 1,234 kB of filled buffers, 25.0 µs" in text


# -- cables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("band", "text"), [((1.0, 1.0), "1"), ((1000.0, 2000.4), "1,000 to 2,000")])
def test_a_band_of_one_price_is_one_number(band, text):
    assert cable_plan._usd(band) == text


def test_savings_are_ordered():
    assert cable_plan._less({"usd": (100, 300)}, {"usd": (50, 290)}) == "10 to 50"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (64, "64 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1 << 20, "1 MiB"),
        ((1 << 20) - 1, "1023 KiB"),
        (1 << 30, "1 GiB"),
    ],
)
def test_sizes_are_named_in_the_largest_unit(size_bytes, text):
    assert cxl_or_rdma._size(size_bytes) == text


def test_a_long_read_follows_the_latency_of_a_short_one_at_the_rate_of_the_line(monkeypatch):
    monkeypatch.setattr(cxl_or_rdma, "bandwidth", lambda *_: SimpleNamespace(average_gbit_s=400.0))
    monkeypatch.setattr(cxl_or_rdma, "latency_us", lambda fabric, test, options, size_bytes: 2.0 + size_bytes / 1e6)
    read_us = cxl_or_rdma._rdma(None, None, 1)  # type: ignore[arg-type]
    most = 4 << 20
    assert read_us(64) == 2.000064
    assert read_us(most) == 2.0 + most / 1e6
    assert read_us(most + 50_000_000) == pytest.approx(2.0 + most / 1e6 + 1000)


def test_templates_with_gpus_are_needed_for_memory_of_gpus():
    assert not catalog.server("host").gpus
    check: Callable[..., object] = cxl_or_rdma.run
    with pytest.raises(ConfigError, match="--server host has no GPUs"):
        check(server="host")
