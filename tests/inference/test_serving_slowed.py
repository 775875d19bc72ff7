"""Steps beside jobs of other tenants; exchanges are compared with the packet engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.inference.test_serving_beside import BUSY_S, MESSAGE_BYTES, SPEC, job, ports_of

import weft
from weft.fabric.model import Fabric
from weft.inference.deployment import find_deployment
from weft.inference.serving.beside import Beside
from weft.inference.serving.disturbances import Disturbance, phases_of
from weft.inference.serving.load import Lengths, poisson
from weft.inference.serving.placement import Placement, build_service, limits_of
from weft.inference.serving.run import serve
from weft.inference.serving.slowed import EngineBeside, slow_steps, tables_beside
from weft.sim.flow.engine import FlowEngine
from weft.sim.perftest import prepare
from weft.sim.traffic import Traffic

BULK_BYTES, SMALL_BYTES, FULL_S = 8 << 20, 8, 0.4e-3
Pairs = list[tuple[int, int]]


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return prepare(weft.load(SPEC))


def exchange_of(kind: str, fabric: Fabric) -> Pairs:
    """Return the flows between two servers on different leaves: on each rail, or from each rail to all."""
    first, _, second, _ = ports_of(fabric)
    one_way = list(zip(first, second, strict=True)) if kind == "rails" else [(a, b) for a in first for b in second]
    return one_way + [(b, a) for a, b in one_way]


def job_of(kind: str, fabric: Fabric) -> Pairs:
    _, other, second, far = ports_of(fabric)
    return {
        "other": list(zip(other, far, strict=True)),
        "one": [(other[0], far[0])],
        "all": [(a, b) for a in other for b in far],
        "incast": [(a, second[0]) for a in other],
        "inside": [(a, b) for ports in (other, far) for a in ports for b in ports if a != b],
    }[kind]


def exchange(fabric: Fabric, pairs: Pairs, size_bytes: int) -> Traffic:
    src, dst = np.array(pairs, np.int32).T
    return Traffic.make(src, dst, size_bytes, description="an exchange")


def latencies_s(fabric: Fabric, pairs: Pairs, size_bytes: int, jobs: Pairs, share: float) -> np.ndarray:
    """Return the time of each message beside jobs."""
    names = [fabric.port(src).name for src, _ in pairs]
    engine = EngineBeside(FlowEngine(), Beside(fabric=fabric, jobs=job(jobs, share)), names, {})
    return 1e-12 * engine.run(fabric, exchange(fabric, pairs, size_bytes)).latency_ps


def in_packets_s(fabric: Fabric, pairs: Pairs, size_bytes: int, jobs: Pairs, share: float, begin_s: float = 0.0):
    """Return the same by the packet engine, with messages of jobs that arrive at their share of line rate."""
    gap_s = MESSAGE_BYTES / (0.97 * 50e9 * share)
    begins_s = np.arange(0.0, BUSY_S, gap_s) if share < 1 else np.zeros(int(BUSY_S / gap_s))
    ends = np.array(jobs).repeat(len(begins_s), axis=0)
    own, rest = np.array(pairs), len(ends)
    traffic = Traffic.make(
        np.concatenate((own[:, 0], ends[:, 0])).astype(np.int32),
        np.concatenate((own[:, 1], ends[:, 1])).astype(np.int32),
        np.repeat([size_bytes, MESSAGE_BYTES], [len(own), rest]),
        start_ps=(np.append(np.full(len(own), begin_s), np.tile(begins_s, len(jobs))) * 1e12).astype(np.int64),
        qp=np.repeat([0, 1], [len(own), rest]),
        description="an exchange beside jobs",
    )
    return 1e-12 * weft.simulate(fabric, traffic, engine="packet").latency_ps[: len(own)]


CASES = [
    ("rails", "other", 1.0),
    ("rails", "other", 0.3),
    ("rails", "one", 0.8),
    ("rails", "all", 0.25),
    ("rails", "incast", 1.0),
    ("rails", "incast", 0.3),
    ("pairs", "other", 1.0),
    ("pairs", "other", 0.3),
    ("pairs", "all", 0.25),
]


@pytest.mark.parametrize(("kind", "jobs", "share"), CASES)
def test_exchanges_beside_jobs_take_as_long_as_in_the_packet_engine(fabric, kind, jobs, share):
    pairs, others = exchange_of(kind, fabric), job_of(jobs, fabric)
    size_bytes = BULK_BYTES * 8 // len(pairs)
    predicted_s = latencies_s(fabric, pairs, size_bytes, others, share).max()
    assert predicted_s == pytest.approx(in_packets_s(fabric, pairs, size_bytes, others, share).max(), rel=0.02)


@pytest.mark.parametrize("jobs", ["one", "incast"])
def test_a_part_of_the_flows_of_a_sender_beside_jobs_is_at_most_a_quarter_too_long(fabric, jobs):
    """Flows that meet no job leave the buffers of their sender to the others, and end before them."""
    pairs, others = exchange_of("pairs", fabric), job_of(jobs, fabric)
    size_bytes = BULK_BYTES * 8 // len(pairs)
    packets_s = in_packets_s(fabric, pairs, size_bytes, others, 1.0).max()
    assert packets_s < latencies_s(fabric, pairs, size_bytes, others, 1.0).max() < 1.25 * packets_s


def test_a_small_message_waits_for_buffers_that_jobs_fill(fabric):
    pairs, others = exchange_of("rails", fabric), job_of("incast", fabric)
    alone_s = latencies_s(fabric, pairs, SMALL_BYTES, job_of("inside", fabric), 1.0)
    waits_s = latencies_s(fabric, pairs, SMALL_BYTES, others, 1.0) - alone_s
    packets_s = in_packets_s(fabric, pairs, SMALL_BYTES, others, 1.0, begin_s=FULL_S) - alone_s
    assert waits_s.max() > 2e-6
    assert waits_s == pytest.approx(packets_s, rel=0.25, abs=0.1e-6)


def test_jobs_on_other_links_change_nothing(fabric):
    pairs = exchange_of("rails", fabric)
    result = FlowEngine().run(fabric, exchange(fabric, pairs, BULK_BYTES))
    assert (latencies_s(fabric, pairs, BULK_BYTES, job_of("inside", fabric), 1.0) == 1e-12 * result.latency_ps).all()


# -- services ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def placement(fabric) -> Placement:
    """Return the placement of two replicas of two servers: one on one leaf, one over both."""
    spec = "fat-tree:hosts=8,radix=16,server=hgx-h100-4,oversubscription=2"
    deployment = find_deployment("llama3-70b", spec, servers="hgx1,hgx2,hgx3,hgx5", tp=8)
    cabled = deployment.site.ranks.fabric
    ports = ports_of(cabled)
    jobs = job(list(zip(ports[3], ports[5], strict=True)), 1.0)
    return Placement(deployment=deployment, both=2, beside=Beside(fabric=cabled, jobs=jobs))


def test_only_replicas_that_share_links_with_a_job_take_longer(placement):
    load = poisson(rate=2, seconds=20, prompt=Lengths(500), output=Lengths(50), seed=1)
    tables = placement.tables(load.mean_tokens)
    near, far = tables_beside(placement, load.mean_tokens)
    assert (near.parts_s == tables[0].parts_s).all()
    slower = far.parts_s - near.parts_s
    assert (slower[far.parts.index("all_reduce")] > 0).all()
    assert not np.delete(slower, far.parts.index("all_reduce"), axis=0).any()
    service = slow_steps(build_service(placement, tables, limits_of(placement.deployment)), (near, far))
    requests = serve(service, load).requests
    tpot_s = (requests.finished_s - requests.first_s) / 49
    fast, slow = (tpot_s[requests.replica == row] for row in (0, 1))
    assert np.sort(slow)[:5].mean() > np.sort(fast)[:5].mean()


def test_steps_stay_beside_jobs_when_an_uplink_is_cut(placement):
    whole = replace(placement, beside=replace(placement.beside, jobs=()))
    fault = Disturbance.parse("cut:leaf1/13@1s-2s", 3)
    slowed, alone = (phases_of(fault, placed, 1000.0)[0].tables for placed in (placement, whole))
    assert len(slowed) == 2
    assert len(alone) == 1
    assert slowed[1].step_s(64) > 1.02 * slowed[0].step_s(64)
