"""Verdicts and sentences of scenarios from figures written by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import SimulationBug
from weft.scenarios import ib_vs_ethernet, mpi_allreduce, real_jobs, real_workloads, sm_failover, sm_faults
from weft.scenarios.ib_vs_ethernet import BUCKET_BYTES, LEAVES, RAILS, SMALL_BYTES, NetworkFigures
from weft.scenarios.probe import Probe
from weft.scenarios.sm_faults import Element, Fault

# -- networks compared ------------------------------------------------------------------------------------------------


USUAL = {SMALL_BYTES: 50.0, BUCKET_BYTES: 500.0}  # microseconds of all-reduces by size


def network(**changes: Any) -> NetworkFigures:
    same: dict[str, Any] = {"latency_us": 1.0, "one_gbit_s": 30.0, "gbit_s": 392.0, "cores": 0.01, "dropped": 0}
    same |= {"worst_slowdown": 4.0, "median_slowdown": 2.0, "incast_slowdown": 1.0}
    return NetworkFigures(**same | {"all_reduce_us": {RAILS: USUAL, LEAVES: USUAL}} | changes)


def verdicts(**changes: dict[str, Any]) -> dict[str, str]:
    """Return the verdicts by the start of their claims; the changes are those of networks."""
    names = dict(
        zip(
            ("ib", "ib_adaptive", "roce", "roce_adaptive", "roce_100", "tcp"),
            (kind.name for kind in ib_vs_ethernet.KINDS),
            strict=True,
        )
    )
    measured = {name: network(**changes.get(key, {})) for key, name in names.items()}
    return {f"{claim}|{document}": verdict for claim, document, _, verdict in ib_vs_ethernet._claims(measured, 16)}


def verdict_of(start: str, document: str = "", **changes: dict[str, Any]) -> str:
    (found,) = {
        verdict
        for claim, verdict in verdicts(**changes).items()
        if claim.startswith(start) and claim.endswith(document)
    }
    return found


def us(latency_us: float) -> dict[str, float]:
    return {"latency_us": latency_us}


def adaptive(ib: float, roce: float) -> dict[str, dict[str, float]]:
    return {"ib_adaptive": {"worst_slowdown": ib}, "roce_adaptive": {"worst_slowdown": roce}}


def reduces(size_bytes: int, roce_us: float, tcp_us: float) -> dict[str, dict[str, Any]]:
    """Return the changes of networks whose all-reduce of one size takes so long on rails."""
    rails = {"roce": USUAL | {size_bytes: roce_us}, "tcp": USUAL | {size_bytes: tcp_us}}
    return {name: {"all_reduce_us": {RAILS: times_us, LEAVES: USUAL}} for name, times_us in rails.items()}


@pytest.mark.parametrize(
    ("start", "document", "changes", "verdict"),
    [
        ("InfiniBand NDR | Latency", "", {"ib": us(0.5)}, "yes"),
        ("InfiniBand NDR | Latency", "", {"ib": us(0.49)}, "no"),
        ("InfiniBand NDR | Latency", "", {"ib": us(2.0)}, "yes"),
        ("InfiniBand NDR | Latency", "", {"ib": us(2.01)}, "no"),
        ("NDR InfiniBand | Latency", "", {"ib": us(0.5)}, "yes"),
        ("NDR InfiniBand | Latency", "", {"ib": us(1.0)}, "yes"),
        ("NDR InfiniBand | Latency", "", {"ib": us(1.01)}, "no"),
        ("(NDR) delivers", "", {"ib": us(1.0)}, "no"),
        ("(NDR) delivers", "", {"ib": us(0.99)}, "yes"),
        ("400G Ethernet | Latency", "", {"roce": us(10.0), "tcp": us(50.0)}, "yes"),
        ("400G Ethernet | Latency", "", {"roce": us(9.9), "tcp": us(10.0)}, "for TCP"),
        ("400G Ethernet | Latency", "", {"roce": us(50.0), "tcp": us(50.1)}, "for RoCE"),
        ("400G Ethernet | Latency", "", {"roce": us(50.1), "tcp": us(9.9)}, "no"),
        ("That 10-50x", "", {"ib": us(2.0), "roce": us(20.0), "tcp": us(100.0)}, "yes"),
        ("That 10-50x", "", {"ib": us(2.0), "roce": us(19.0), "tcp": us(101.0)}, "no"),
        ("RDMA also works", "", {"roce": us(1.1)}, "yes"),
        ("RDMA also works", "", {"roce": us(1.0)}, "no"),
        ("RoCEv2", "", {"roce_100": us(0.9)}, "yes"),
        ("RoCEv2", "", {"roce_100": us(1.0)}, "no"),
        ("Bandwidth: 400", "", {"ib": {"gbit_s": 351.0}, "tcp": {"gbit_s": 100.0}}, "yes"),
        ("Bandwidth: 400", "", {"ib": {"gbit_s": 350.0}, "tcp": {"gbit_s": 100.0}}, "no"),
        ("Bandwidth | 400", "", {"ib": {"gbit_s": 400.0}, "roce": {"gbit_s": 381.0}}, "yes"),
        ("Bandwidth | 400", "", {"ib": {"gbit_s": 400.0}, "roce": {"gbit_s": 380.0}}, "no"),
        ("Bandwidth | 400", "", {"ib": {"gbit_s": 400.0}, "roce": {"gbit_s": 421.0}}, "no"),
        ("CPU overhead", "", {"roce": {"cores": 0.6}, "tcp": {"cores": 0.6}}, "yes"),
        ("CPU overhead", "", {"roce": {"cores": 0.5}, "tcp": {"cores": 0.6}}, "for TCP"),
        ("CPU overhead", "", {"tcp": {"cores": 0.5}}, "no"),
        ("CPU overhead", "", {"ib": {"cores": 0.05}, "tcp": {"cores": 0.6}}, "no"),
        ("Congestion", "", {"roce": {"dropped": 1}, "tcp": {"dropped": 1}}, "yes"),
        ("Congestion", "", {"tcp": {"dropped": 1}}, "for TCP"),
        ("Congestion", "", {}, "no"),
        ("InfiniBand's advantages", "", adaptive(2.9, 3.6), "yes, and Ethernet's too"),
        ("InfiniBand's advantages", "", adaptive(2.9, 3.7), "yes"),
        ("InfiniBand's advantages", "", adaptive(3.0, 3.0), "no"),
        ("significantly faster", "", reduces(BUCKET_BYTES, 551.0, 551.0), "yes"),
        ("significantly faster", "", reduces(BUCKET_BYTES, 549.0, 551.0), "for TCP"),
        ("Under ~16 nodes", "", reduces(SMALL_BYTES, 54.9, 55.1), "for RoCE"),
        ("Under ~16 nodes", "", reduces(SMALL_BYTES, 54.9, 54.9), "yes"),
    ],
)  # fmt: skip
def test_claims_hold_up_to_their_limits(start, document, changes, verdict):
    assert verdict_of(start, document, **changes) == verdict


def test_times_of_large_and_crossing_all_reduces_are_told_apart():
    crossing = {RAILS: {SMALL_BYTES: 50.0, BUCKET_BYTES: 500.0}, LEAVES: {SMALL_BYTES: 50.0, BUCKET_BYTES: 700.0}}
    measured = {kind.name: network(all_reduce_us=crossing) for kind in ib_vs_ethernet.KINDS}
    texts = [text for _, _, text, _ in ib_vs_ethernet._job_claims(measured, 16)]
    assert texts == [
        "all-reduce of 25 MiB: NDR 500 µs, RoCE 1.00x, 100G TCP 1.0x; a leaf for two servers: NDR 1.40x, RoCE 1.40x",
        "16 servers, all-reduce of 8 bytes: NDR 50, RoCE 50, TCP 50 µs",
    ]


# -- MPI and programs -------------------------------------------------------------------------------------------------


def test_the_share_of_a_call_counts_its_own_time():
    assert mpi_allreduce._share(100.0, 10_000) == 0.5
    row: Any = SimpleNamespace(value=100.0, low=80.0, high=150.0)
    assert mpi_allreduce._factors(row) == "0.8 to 1.5"
    assert mpi_allreduce._row("TCP", row, 50.0, 5_000) == ("TCP", 100.0, "80.0 to 150.0", 10_000.0, "9%", "33%", 1.2)


@pytest.mark.parametrize(
    ("tcp_us", "roce_us", "bears", "needs"),
    [
        (200.0, 29.0, "TCP cannot bear that", "RDMA is what it needs"),
        (199.0, 32.1, "TCP bears that", "InfiniBand is ahead"),
    ],
)
def test_latency_dominates_from_half_of_the_time_and_a_tenth_is_significant(tcp_us, roce_us, bears, needs):
    took_us = {mpi_allreduce.SHARP: 5.0, mpi_allreduce.IB: 10.0, mpi_allreduce.ROCE: roce_us, mpi_allreduce.TCP: tcp_us}
    text = mpi_allreduce._sentence(took_us, {"nodes": 48, "ppn": 32, "size_bytes": 8, "calls": 5_000})
    assert text.startswith("1,536 ranks on 48 servers reduce 8 bytes in 10.0 µs on InfiniBand")
    assert bears in text
    assert needs in text
    assert "100,000 calls a second on with InfiniBand" in text


@pytest.mark.parametrize(
    ("needs", "speedup", "tuned", "text"),
    [
        (True, 8.0, 1.25, "yes: holds, 10x"),
        (True, 7.9, 1.25, "yes: holds, between 1.2x and 10x"),
        (True, 1.25, 1.24, "yes: holds unless TCP is tuned, between 1.2x and 10x"),
        (True, 1.24, 1.0, "yes: does not hold, 1.2x or less"),
        (False, 1.24, 1.24, "no: holds, 1.2x or less"),
        (False, 1.25, 1.24, "no: holds if TCP is tuned, between 1.2x and 10x"),
        (False, 8.0, 1.25, "no: does not hold, 10x"),
    ],
)
def test_a_statement_about_a_program_is_judged_at_both_ends_of_tcp(needs, speedup, tuned, text):
    assert real_workloads.verdict(SimpleNamespace(needs=needs), speedup, tuned) == text  # type: ignore[arg-type]


def test_a_program_is_compared_repeat_by_repeat(monkeypatch):
    replays = {real_workloads.FAST: (2.0, 1.5), real_workloads.SLOW: (5.5, 1.5)}

    def replay(trace: object, name: str, ranks: int, seed: int) -> Any:
        total_s, compute_s = replays[name]
        return SimpleNamespace(
            total_s=total_s, ranks=[SimpleNamespace(compute_s=compute_s), SimpleNamespace(compute_s=1.0)]
        )

    monkeypatch.setattr(real_workloads, "_replay", replay)
    workload: Any = SimpleNamespace(name="sort", says="x", needs=True)
    times: dict[str, Any] = {"tcp_s": [4.0, 9.0, 2.0], "rdma_s": [2.0, 3.0, 2.0], "tcp_result": [7], "rdma_result": [7]}
    figures = real_workloads._measure(workload, times, None, 2, 1)  # type: ignore[arg-type]
    assert [figures["here"][name] for name in ("speedup", "least", "most", "result")] == [2.0, 1.0, 3.0, 7]
    predicted = {
        "fast_s": 2.0,
        "slow_s": 5.5,
        "compute_s": 1.5,
        "speedup": 2.75,
        "speedup_tuned": 1.5,
        "fast_waits": 0.25,
    }
    assert {name: figures["predicted"][name] for name in predicted} == predicted
    assert figures["predicted"]["slow_waits"] == pytest.approx(4 / 5.5)
    assert real_workloads._row(workload, figures) == (
        "sort",
        2.0,
        "1.00 to 3.00",
        2.75,
        1.5,
        25.0,
        72.7,
        "yes: holds, between 1.2x and 10x",
    )
    replays[real_workloads.SLOW] = (2.1, 1.5)
    assert real_workloads._measure(workload, times, None, 2, 1)["predicted"]["speedup_tuned"] == 1.0  # type: ignore[arg-type]
    with pytest.raises(SimulationBug, match="sort: its result depends on the carrier"):
        real_workloads._measure(workload, times | {"rdma_result": [8]}, None, 2, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("least", "most", "start"), [(1.24, 8.0, "The whole"), (1.25, 8.0, "A part"), (1.24, 7.9, "A part")]
)
def test_the_range_of_programs_is_whole_from_little_to_much(least, most, start):
    figures = {
        name: {"predicted": {"speedup": speedup, "speedup_tuned": speedup / 2}, "here": {"speedup": here}}
        for name, speedup, here in (("a", least, 3.0), ("b", most, 2.0))
    }
    text = real_workloads._sentence(figures)
    assert text.startswith(f"{start} ")
    assert "gain from 2.00x to 3.0x (a)" in text


def test_the_waits_of_a_job_are_what_its_free_time_leaves():
    figures = real_jobs.waits(1.0, 2.0, 4.0, "why")
    assert (figures["speedup"], figures["fast_waits"], figures["slow_waits"]) == (2.0, 0.5, 0.75)


# -- the subnet manager -----------------------------------------------------------------------------------------------


def test_an_outage_ends_with_the_first_path_that_is_given_out():
    def probe(*done: tuple[float, float, bool]) -> Any:
        return Probe(None, None, None, done=list(done))  # type: ignore[arg-type]

    messages = [
        probe((8.0, 8.1, True), (11.0, 11.1, False), (12.0, 12.1, True)),
        probe((9.0, 9.1, True), (13.5, 13.6, True)),
    ]
    paths = probe((9.0, 9.2, True), (10.5, 11.0, False), (13.0, 13.2, True))
    figures = sm_failover._figures(messages, paths, probe((12.0, 12.5, True)), 10.0)
    assert figures["failover_s"] == pytest.approx(3.2)
    assert figures["master_s"] == pytest.approx(2.5)
    assert figures["messages"] == {
        "before": {"sent": 2, "delivered": 2},
        "outage": {"sent": 2, "delivered": 1},
        "after": {"sent": 1, "delivered": 1},
    }
    assert figures["path_queries"]["outage"] == {"sent": 1, "answered": 0}
    timeline = figures["timeline"]
    assert timeline["at_s"][0] == pytest.approx(-0.5)
    assert timeline["at_s"][1] - timeline["at_s"][0] == pytest.approx(0.1)
    assert (sum(timeline["messages"]), sum(timeline["paths_answered"]), sum(timeline["paths_failed"])) == (1, 0, 1)
    assert sm_failover._rows(figures)[1] == ("delivered messages", 2, 1, 1)


@pytest.mark.parametrize(
    ("service", "group", "text"),
    [
        (True, True, "the service and the group registered before"),
        (True, False, "the service registered before"),
        (False, True, "the group registered before"),
        (False, False, "nothing that hosts had registered"),
    ],
)
def test_registrations_that_survive_are_named(service, group, text):
    phases = {"outage": {"sent": 1000, "delivered": 999, "answered": 990}}
    figures = {
        "messages": phases,
        "path_queries": phases,
        "service_kept": service,
        "group_kept": group,
        "master_s": 1.5,
    }
    figures |= {"failover_s": 2.5, "lids_changed": 0, "routes_changed": 0, "pairs_missing": 0}
    sentence = sm_failover._sentence(figures)
    assert sentence.startswith("Without a subnet manager 999 of 1,000 messages arrived, and 10 of 1,000 path queries")
    assert sentence.endswith(f"knows {text}.")


def fault(**changes: Any) -> Fault:
    same: dict[str, Any] = {
        "name": "leaf1/5", "kind": "cable", "cut_off": 0, "into": 2, "through": 4, "changed": 4, "needless": 1,
        "cleared": 0, "reported": 4, "blocks": 3, "waves": 1, "dropped": 0, "mads": 50, "sweeps": 1,
        "engine": "fat-tree", "pairs": 100, "missing": 0, "credit_loop": (), "lids_changed": 0, "changed_back": 6,
        "returned": True,
    }  # fmt: skip
    return Fault(**same | changes)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"missing": 1}, "Reach"),
        ({"credit_loop": ("a",)}, "Deadlock"),
        ({"lids_changed": 1}, "LIDs"),
        ({"sweeps": 0}, "Traps"),
        ({"sweeps": 2}, "Traps"),
        ({"returned": False}, "Return"),
    ],
)
def test_a_fault_that_breaks_a_property_is_named(changes, name):
    results = [fault(), fault(name="spine2", pairs=90, **changes)]
    figures = {
        "entries": 1000,
        "through": 8,
        "into": 4,
        "changed": 8,
        "needless": 2,
        "table_blocks": 9,
        "busiest_link_pairs": {"before": 5, "after": 6},
    }
    lines = [*sm_faults._claims(results, figures)]
    bad = [line for line in lines if "not so" in line]
    assert bad == [f"{name}: not so with 1 of 2 faults, the first is spine2"]
    good = [*sm_faults._claims(results[:1], figures)]
    assert not any("not so" in line for line in good)
    assert good[0] == "Reach: after each of 1 faults all surviving pairs (100 to 100) arrive"
    assert good[5].startswith(
        "Change: 4 to 4 of 1,000 entries, 4 in the mean; 8 led through what failed, 4 pointed at it"
    )


def test_a_row_of_faults_has_means_and_extremes():
    results = [fault(), fault(cut_off=2, through=8, changed=10, needless=3, blocks=5, waves=3, dropped=7, mads=70)]
    assert sm_faults._row("cable", results) == ("cable", 2, 2, 6.0, 4, 7.0, 10, 2.0, 4.0, 3, 7, 60.0)


def test_figures_of_faults_count_the_entries_of_tables():
    lft = np.full((2, 70), 255, np.uint8)
    lft[:, :5] = 1
    net: Any = SimpleNamespace(fabric=SimpleNamespace(tables=SimpleNamespace(lft=lft)), moves=3)
    figures = sm_faults._figures(net, [fault(), fault(engine="up-down", sweeps=2)], [5.0, 6.0])
    assert (figures["entries"], figures["table_blocks"], figures["moves"]) == (8, 4, 3)
    assert (figures["changed"], figures["through"], figures["into"], figures["needless"]) == (8, 8, 4, 2)
    assert figures["engines"] == {"fat-tree": 1, "up-down": 1}
    assert figures["busiest_link_pairs"] == {"before": 5.0, "after": 6.0}
    assert figures["holds"] == {"Reach": True, "Deadlock": True, "LIDs": True, "Traps": False, "Return": True}


def test_elements_of_a_sample_are_in_their_order():
    elements = [Element(name=f"c{n}", kind="cable", slot=n) for n in range(9)] + [
        Element(name=f"s{n}", kind="switch", node=n) for n in range(4)
    ]
    chosen = [element.name for element in sm_faults._sample(elements, 3, 9, 1)]
    assert chosen[3:] == ["s0", "s1", "s2", "s3"]
    assert chosen[:3] == sorted(chosen[:3])
    assert len(set(chosen)) == 7
    assert sm_faults._sample(elements, 0, 0, 1) == []


@pytest.mark.parametrize(
    ("spec", "kinds"),
    [
        ("fat-tree:hosts=8,radix=4", {"cable leaf-spine": 8, "leaf switch": 4, "spine switch": 2}),
        ("torus:3x3,hosts=1", {"cable": 18, "switch": 9}),
    ],
)
def test_elements_are_cables_between_switches_and_switches_by_tier(spec, kinds):
    elements = [*sm_faults._elements(weft.load(spec))]
    assert {
        kind: sum(element.kind == kind for element in elements) for kind in dict.fromkeys(e.kind for e in elements)
    } == kinds
    assert all((element.node >= 0) != (element.slot >= 0) for element in elements)
    assert sm_faults._tier(4) == "tier 4"


def test_new_columns_of_a_table_were_empty_before():
    before, after = np.array([[1, 2]], np.uint8), np.array([[1, 3, 255, 4]], np.uint8)
    assert sm_faults._differs(before, after).tolist() == [[False, True, False, True]]
    assert sm_faults._differs(after, before).tolist() == [[False, True, False, True]]


def test_entries_are_those_of_connected_switches_to_ports_with_a_lid():
    """Node 0 is a switch, 1 a lost one; ports without a LID have no entry."""
    fabric = SimpleNamespace(
        ports=SimpleNamespace(node=np.array([0, 0, 1, 2, 3])), of_kind=lambda kind: np.array([0, 1])
    )
    net: Any = SimpleNamespace(lids=np.array([3, 0, 2, 1, 4]), fabric=fabric)
    left, gone = sm_faults._entries_of(net, np.array([True, False, True, False]), 5)
    assert left.tolist() == [[False, True, False, True, False], [False] * 5]
    assert gone.tolist() == [[False, False, True, False, True], [False] * 5]
