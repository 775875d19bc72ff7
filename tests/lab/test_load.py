"""A steady load and degraded cables in a running lab, under weft's own subnet manager."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import numpy as np
import pytest
from tests.lab.rdma import all_active, managed
from tests.patience import wait_until

import weft
from weft.errors import ConfigError, UnknownName
from weft.fabric.counters import Counter, FecCounter
from weft.lab.lab import Lab
from weft.mad.ibsim_client import IbsimCarrier
from weft.monitor.busiest import busiest
from weft.monitor.change import between
from weft.monitor.poll import Poller

TREE = "fat-tree:hosts=16,radix=8"
EVERYBODY = "all=all-to-all@90%"


@pytest.fixture(scope="module")
def shared():
    with Lab(weft.load(TREE)) as running, managed(running) as manager:
        yield running, manager


@pytest.fixture
def lab(shared):
    """The shared lab without faults and load, with counters at 0."""
    running, _ = shared
    running.fix()
    running.unload()
    wait_until(lambda: all_active(running))
    wait_until(lambda: running.load(EVERYBODY, speed=0)["jobs"][0]["slowest"] > 0.99, "a routed fabric")
    running.fabric.counters[:] = 0
    return running


def grown(lab, name):
    counters = lab.fabric_now().counters[lab.fabric[name].slot]
    return {counter.name: int(counters[counter]) for counter in Counter if counters[counter]}


def slowest(lab):
    return lab.load_state()["jobs"][0]["slowest"]


def test_an_hour_under_load_is_counted_at_the_ports(lab):
    (job,) = lab.advance(3600)["jobs"]
    assert job["gbit_s"] == pytest.approx(job["wanted_gbit_s"])
    assert grown(lab, "h1/1")["PORT_XMIT_DATA_WORDS"] * 32 / 3600e9 == pytest.approx(0.9 * 394.92, rel=1e-3)
    assert lab.load_state()["seconds"] >= 3600


def test_a_broken_cable_stops_jobs_until_the_manager_routes_around_it(lab):
    lab.break_cable("leaf1/5")
    wait_until(lambda: 0.5 < slowest(lab) < 0.9, "routes around the cable, which three are fewer than four")
    lab.fix()
    wait_until(lambda: slowest(lab) > 0.99, "all four again")


def test_a_one_way_cable_errs_at_the_port_that_was_named_alone(lab):
    assert lab.degrade("leaf1/5", 1e-9, one_way=True) == ["leaf1/5"]
    lab.advance(60)
    near, far = grown(lab, "leaf1/5"), grown(lab, lab.fabric["leaf1/5"].peer.name)
    assert near["SYMBOL_ERROR"] > near["PORT_RCV_ERRORS"] > 10_000
    assert "SYMBOL_ERROR" not in far
    details = lab.subnet.devices.details
    assert details[lab.fabric["leaf1/5"].slot, "port_local_physical_errors", 0] >= near["PORT_RCV_ERRORS"]


def test_a_cable_that_flaps_is_counted_at_both_ends_and_the_manager_hears_of_it(lab, shared):
    traps = shared[1].state.log.counts["TRAP"]
    lab.degrade("leaf1/5", flaps=60)
    lab.advance(3600)
    near, far = grown(lab, "leaf1/5"), grown(lab, lab.fabric["leaf1/5"].peer.name)
    assert 30 <= near["LINK_DOWNED"] <= 90
    assert near["LINK_DOWNED"] == far["LINK_DOWNED"] == near["LINK_ERROR_RECOVERY"]
    wait_until(lambda: shared[1].state.log.counts["TRAP"] > traps, "a trap")
    wait_until(lambda: slowest(lab) > 0.99, "the link is Active again")


def test_a_narrow_cable_says_so_and_carries_less(lab):
    lab.degrade("leaf1/5", to="1xNDR")
    assert lab.fabric_now()["leaf1/5"].link.label == "1xNDR"
    wait_until(lambda: 0.1 < slowest(lab) < 0.5, "a quarter of the width")
    assert lab.fix() == ["leaf1/5"]
    wait_until(lambda: slowest(lab) > 0.99, "all of it again")


def test_an_overloaded_host_makes_the_switch_wait(lab):
    assert lab.degrade("h3", drain=0.2) == ["h3/1"]
    assert lab.state()["degraded"] == [lab.fabric["h3/1"].peer.name]
    lab.advance(10)
    waits = grown(lab, lab.fabric["h3/1"].peer.name)["PORT_XMIT_WAIT"] * 22e-9 / 10
    assert waits == pytest.approx(0.8, rel=0.01)


def test_time_passes_by_itself(lab):
    before = lab.load_state()["seconds"]
    lab.load(EVERYBODY, speed=600)
    wait_until(lambda: lab.load_state()["seconds"] > before, "a tick")
    assert lab.unload()["jobs"] == []


def test_a_clock_that_has_been_told_to_end_is_followed_by_another(lab):
    lab._load._clock = threading.current_thread()  # its thread has not ended yet
    before = lab.load_state()["seconds"]
    lab.load(EVERYBODY, speed=600)
    wait_until(lambda: lab.load_state()["seconds"] > before, "a tick")


def test_by_the_clock_of_the_lab_no_port_sends_more_than_its_line_carries(lab):
    """Simulated time runs a hundred times faster than real time, and at real speed when the simulation ends."""
    lab.load("train=ring@50%", speed=100)
    with closing(IbsimCarrier("h2", lab.sockname)) as carrier:
        poller = Poller(carrier, clock=lab.now_s)
        before = poller.poll()
        wait_until(lambda: lab.now_s() > before.at_s + 100, "100 s")
        (row,) = busiest(between(before, poller.poll()), "load", 1)
    assert 0.3 < row.load <= 1  # 0.5, less headers; a busy machine may be late by a tick
    lab.unload()
    real_s, now_s = time.monotonic(), lab.now_s()
    wait_until(lambda: lab.now_s() > now_s, "a moment")
    assert lab.now_s() - now_s <= time.monotonic() - real_s
    lab.load(EVERYBODY, speed=0)
    now_s = lab.now_s()
    lab.advance(3600)
    assert 3600 < lab.now_s() - now_s < 7200


def test_the_same_seed_counts_the_same():
    def count(name):
        with Lab(weft.load("star:hosts=4"), name) as star, managed(star):
            star.load("a=ring@50%", "b=incast:h[1-3]@10%", seed=5, speed=0)
            star.degrade("h2", 1e-10)
            before = star.fabric_now().counters.copy()
            star.advance(60)
            return star.fabric.counters - before

    item, other = count("load-one"), count("load-other")
    errors = [Counter.SYMBOL_ERROR, Counter.PORT_RCV_ERRORS, Counter.PORT_XMIT_WAIT]
    assert item[:, Counter.SYMBOL_ERROR].any()
    assert (item[:, errors] == other[:, errors]).all()


def test_a_torus_that_needs_lanes_carries_what_its_tables_let_through():
    with Lab(weft.load("torus:6x6,hosts=2"), "load-torus") as torus, managed(torus):
        (job,) = torus.load("all=all-to-all@5%", speed=0)["jobs"]
    assert len(job["hosts"]) == 72
    assert job["gbit_s"] == pytest.approx(job["wanted_gbit_s"], rel=1e-6)


def test_jobs_do_not_cross_partitions(tmp_path):
    fabric, conf = weft.load(TREE), tmp_path / "partitions.conf"
    guids = [int(fabric.ports.guid[fabric[f"h{number}/1"].slot]) for number in range(2, 12)]
    tenants = [", ".join(f"0x{guid:016x}=full" for guid in guids[5 * item : 5 * item + 5]) for item in range(2)]
    lines = ["Default=0x7fff : ALL, SELF=full ;", *(f"t{n}=0x{n + 1:x} : {owner} ;" for n, owner in enumerate(tenants))]
    conf.write_text("\n".join(lines) + "\n")
    with Lab(fabric, "load-tenants") as divided, managed(divided, partition_config_file=conf):
        within, across = divided.load("in=ring:h[2-6]@50%", "across=ring:h[5-8]@50%", speed=0)["jobs"]
        divided.advance(60)
    refused = divided.fabric.counters[:, [Counter.PORT_RCV_CONSTRAINT_ERRORS, Counter.PORT_XMIT_CONSTRAINT_ERRORS]]
    assert not refused.any(), "who gets no path does not try"
    assert within["gbit_s"] == pytest.approx(within["wanted_gbit_s"])
    assert across["slowest"] == 0
    assert across["gbit_s"] == pytest.approx(across["wanted_gbit_s"] / 2), "h5 to h6 and h7 to h8 are of one tenant"


def test_a_dump_of_a_real_fabric_carries_a_load(ndr_dump):
    with Lab(weft.load(str(ndr_dump)), "load-dump") as real, managed(real, at=""):
        (job,) = real.load("all=permutation@50%", speed=0)["jobs"]
        real.advance(60)
    assert job["gbit_s"] > 0.5 * job["wanted_gbit_s"] > 0
    assert real.fabric.counters[:, Counter.PORT_XMIT_DATA_WORDS].max() * 32 / 60e9 > 100


def test_error_correction_counts_more_on_a_bad_cable_and_spreads_over_its_lanes(lab):
    lab.degrade("leaf1/5", 1e-9, one_way=True)
    before = lab.subnet.devices.fec.copy()
    lab.advance(60)
    fec, port = lab.subnet.devices.fec - before, lab.fabric["leaf1/5"]
    bad, good = fec[port.slot], fec[port.peer.slot]
    assert bad[FecCounter.UNCORRECTED_BLOCKS] == grown(lab, "leaf1/5")["SYMBOL_ERROR"] > 0
    assert bad[FecCounter.CORRECTED_BLOCKS] > 100 * good[FecCounter.CORRECTED_BLOCKS] > 0
    assert (bad[:4] > 0).all()
    assert not bad[4:12].any()
    assert bad[:4].sum() == bad[FecCounter.CORRECTED_SYMBOLS]


def test_a_fabric_has_a_past_only_if_it_is_given_one():
    """Cables were replaced before the monitor started; a monitor that starts with the load would report them as new."""
    with Lab(weft.load("fat-tree:hosts=128,radix=16"), "load-past") as old:
        old.load({"name": "a", "pattern": "ring", "hosts": ["h1", "h2"]}, speed=0)
        assert not old.fabric.counters.any()
        old.seed_history()
    links, downs = old.fabric.links, old.fabric.counters[:, Counter.LINK_DOWNED]
    assert 0 < (downs > 0).sum() < 0.2 * len(downs)
    assert (downs[links.a] == downs[links.b]).all()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "no fault was given"),
        ({"one_way": True, "to": "1xNDR"}, "--one-way needs --ber"),
        ({"flaps": 0}, "--flaps must be above 0"),
        ({"drain": 1.2}, "--drain must be between 0 and 1"),
        ({"drain": 0.5}, "leaf1/5 has no host at either end"),
        ({"to": "4xXDR", "bit_error_rate": 1e-9}, "cannot fall back to 4xXDR: it runs at 4xNDR"),
        ({"bit_error_rate": 7}, "must be in"),
    ],
)
def test_impossible_link_fault_is_refused(lab, words, said):
    with pytest.raises(ConfigError, match=said):
        lab.degrade("leaf1/5", **words)
    assert lab.state()["degraded"] == []


@pytest.mark.parametrize(
    ("spec", "kind", "said"),
    [
        ("a=ring:h1,h2@x", ConfigError, "share must be 0 to 1, got 'x'"),
        ("a=rings", UnknownName, "ring"),
        ("a b", ConfigError, "is no job: write NAME=PATTERN:HOSTS@SHARE"),
        ("a=ring:h1,h99", UnknownName, "h99"),
        ("a=ring:leaf1,h1", ConfigError, "leaf1 cannot take part"),
        ({"name": "a", "pattern": "ring", "sise": 3}, ConfigError, "a job has no sise"),
    ],
)
def test_a_job_that_cannot_be_is_refused(lab, spec, kind, said):
    with pytest.raises(kind, match=said):
        lab.load(spec, speed=0)
    assert [job["name"] for job in lab.load_state()["jobs"]] == ["all"], "what ran before goes on"


def test_two_jobs_of_one_name_are_refused(lab):
    with pytest.raises(ConfigError, match="two jobs are called a"):
        lab.load("a=ring", "a=incast", speed=0)
    with pytest.raises(ConfigError, match="speed -1"):
        lab.load("a=ring", speed=-1)
    assert np.isfinite(lab.advance(1)["seconds"])
