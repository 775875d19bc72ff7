"""Hand-offs beside other traffic (jobs of other tenants, exchanges of steps, VLs), against the packet engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.inference.serving_cases import table

import weft
from weft.collectives.ranks import adapters_by_host
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.inference.deployment import find_deployment
from weft.inference.serving.beside import Beside, bytes_of_token, exchanges_of
from weft.inference.serving.disturbances import Disturbance, phases_of
from weft.inference.serving.load import Lengths, offline, poisson
from weft.inference.serving.placement import Placement, build_service, limits_of
from weft.inference.serving.run import serve
from weft.sim.perftest import prepare
from weft.sim.steady import LoadJob
from weft.sim.traffic import Traffic

# Two servers on each of two leaves; a leaf has half as many uplinks as ports of servers.
SPEC = "fat-tree:hosts=4,radix=12,server=hgx-h100-4,oversubscription=2"
PROMPT, MESSAGE_BYTES, BUSY_S = 1024, 1 << 16, 2.5e-3
HANDOFF_SL, HANDOFF_VL = 1, 1
RAW = {"setup_s": 0.0, "adapter_share": 1.0}  # without the engine's own costs


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return prepare(weft.load(SPEC))


@pytest.fixture(scope="module")
def placement(fabric: Fabric) -> Placement:
    deployment = find_deployment("llama3-8b", fabric, servers="hgx1,hgx3", tp=4)
    return Placement(deployment=deployment, prefill=1, decode=1)


def ports_of(fabric: Fabric) -> list[list[int]]:
    """Return the slots of the ports of each server."""
    return [[int(fabric.first_port[node]) + 1 for node in nodes] for nodes in adapters_by_host(fabric).values()]


def job(pairs: list[tuple[int, int]], share: float) -> tuple[LoadJob, ...]:
    """Return jobs of one flow each."""
    return tuple(
        LoadJob(name=f"job{i}", pattern="incast", hosts=np.array([target, source]), share=share)
        for i, (source, target) in enumerate(pairs)
    )


def handoff_s(placement: Placement, fabric: Fabric, beside: Beside | None) -> float:
    placed = replace(placement, beside=beside)
    step = replace(table(room=10**6), kv_bytes_per_token=placement.deployment.kv_bytes_per_token)
    service = build_service(placed, step, limits_of(placement.deployment), fabric=fabric, **RAW)
    requests = serve(service, offline(requests=1, prompt=Lengths(PROMPT), output=Lengths(2), seed=1)).requests
    return float((requests.first_s - requests.prefilled_s)[0])


def in_packets_s(placement: Placement, pairs: list[tuple[int, int]], share: float, lane: float | None) -> float:
    """Return the time of the hand-off beside messages that arrive at a share of line rate, by the packet engine."""
    fabric = prepare(weft.load(SPEC))
    if lane is not None:
        fabric.tables.sl2vl[:, HANDOFF_SL] = HANDOFF_VL
        fabric.tables.vl_arbitration[:] = 0
        weight = round(256 * lane)
        fabric.tables.vl_arbitration[:, 0, 0] = (0, 256 - weight)
        fabric.tables.vl_arbitration[:, 0, 1] = (HANDOFF_VL, weight)
    sources, targets = (slots[0] for slots in np.split(np.array(placement.ports(fabric)[0]), 2))
    size_bytes = int(PROMPT * placement.deployment.kv_bytes_per_token / len(sources))
    gap_s = MESSAGE_BYTES / (0.97 * 50e9 * share)
    begins = np.arange(0.0, BUSY_S, gap_s) if share < 1 else np.zeros(int(BUSY_S / gap_s))
    ends = np.array(pairs).repeat(len(begins), axis=0)
    offset_s = np.random.default_rng(1).random(len(pairs)).repeat(len(begins)) * gap_s * (share < 1)
    starts_ps = ((np.tile(begins, len(pairs)) + offset_s) * 1e12).astype(np.int64)
    own, rest = len(sources), len(ends)
    traffic = Traffic.make(
        np.concatenate((sources, ends[:, 0])).astype(np.int32),
        np.concatenate((targets, ends[:, 1])).astype(np.int32),
        np.repeat([size_bytes, MESSAGE_BYTES], [own, rest]),
        start_ps=np.concatenate((np.zeros(own, np.int64), starts_ps)),
        qp=np.repeat([0, 1], [own, rest]),
        sl=np.repeat([HANDOFF_SL, 0], [own, rest]) if lane is not None else -1,
        description="a hand-off beside jobs",
    )
    return 1e-12 * float(weft.simulate(fabric, traffic, engine="packet").finish_ps[:own].max())


CASES = {
    "line rate over the same uplinks": ("other", 1.0, None),
    "less than a fair share": ("other", 0.3, None),
    "more than a fair share": ("other", 0.8, None),
    "three quarters guaranteed": ("other", 1.0, 0.75),
    "a quarter guaranteed": ("other", 1.0, 0.25),
    "a quarter guaranteed, more left over": ("other", 0.3, 0.25),
    "the adapters of the prefill replica": ("own", 1.0, None),
    "the same, on another lane": ("own", 1.0, 0.75),
    "incast to a port of the decode replica": ("incast", 1.0, None),
    "the same incast, on another lane": ("incast", 1.0, 0.75),
    "four flows of each sender": ("all", 1.0, None),
}


@pytest.mark.parametrize(("kind", "share", "lane"), CASES.values(), ids=CASES)
def test_handoffs_beside_jobs_take_as_long_as_in_the_packet_engine(fabric, placement, kind, share, lane):
    prefill, other, decode, far = ports_of(fabric)
    pairs = {
        "other": list(zip(other, far, strict=True)),
        "own": list(zip(prefill, far, strict=True)),
        "incast": [(port, decode[0]) for port in other],
        "all": [(port, target) for port in other for target in far],
    }[kind]
    beside = Beside(fabric=fabric, jobs=job(pairs, share), lane=lane)
    predicted_s = handoff_s(placement, fabric, beside)
    assert predicted_s == pytest.approx(in_packets_s(placement, pairs, share, lane), rel=0.02)


@pytest.mark.parametrize("lane", [None, 0.5])
def test_another_tenant_on_other_links_changes_nothing(fabric, placement, lane):
    _, other, _, far = ports_of(fabric)
    pairs = [(ports[i], ports[j]) for ports in (other, far) for i in range(4) for j in range(4) if i != j]
    beside = Beside(fabric=fabric, jobs=job(pairs, 1.0), lane=lane)
    load = poisson(rate=200, seconds=1, prompt=Lengths(500, 1500), output=Lengths(20), seed=1)
    step = replace(table(room=10**6), kv_bytes_per_token=1e6)
    alone, shared = (
        serve(build_service(placed, step, limits_of(placed.deployment), fabric=fabric), load).requests
        for placed in (placement, replace(placement, beside=beside))
    )
    assert (alone.first_s == shared.first_s).all()
    assert (alone.finished_s == shared.finished_s).all()


def test_a_job_slows_handoffs_of_all_replicas_and_a_lane_protects_them(fabric):
    """Two prefill replicas of two GPUs hand over to a decode replica: each rail has one hand-off of either."""
    deployment = find_deployment("llama3-8b", fabric, servers="hgx1,hgx3", tp=2)
    placement = Placement(deployment=deployment, prefill=2, decode=1)
    _, other, _, far = ports_of(fabric)
    jobs = job(list(zip(other, far, strict=True)), 1.0)
    load = offline(requests=2, prompt=Lengths(PROMPT), output=Lengths(2), seed=1)
    step = replace(table(room=10**6), kv_bytes_per_token=1e6)

    def longest_s(**beside) -> float:
        placed = replace(placement, beside=Beside(fabric=fabric, **beside))
        service = build_service(placed, step, limits_of(deployment), fabric=fabric, **RAW)
        requests = serve(service, load).requests
        return float((requests.first_s - requests.prefilled_s).max())

    alone_s = longest_s()  # both share the adapters of the decode replica
    assert longest_s(jobs=jobs) == pytest.approx(1.5 * alone_s, rel=0.01)
    assert longest_s(jobs=jobs, lane=0.8) == pytest.approx(alone_s / 0.8, rel=0.01)


# -- exchanges of steps -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def experts() -> Placement:
    deployment = find_deployment("deepseek-v3", gpus=32, dp=16, ep=16, weights="fp8")
    return Placement(deployment=deployment, prefill=1, decode=1)


def test_exchanges_of_steps_leave_handoffs_the_rest_of_an_adapter(experts):
    fabric = prepare(experts.deployment.site.fabric)
    alone_s = handoff_s(experts, fabric, None)
    line_byte_s = experts.routes(fabric, 1.0)[0].most_byte_s.max()
    for used in (0.2, 0.4, 0.8):
        beside = Beside(fabric=fabric, exchanged_byte_s=(8 * used * line_byte_s, 0.0))
        expected = max(1 - used * 50e9 * 0.9873 / 50e9, 0.5)
        assert alone_s / handoff_s(experts, fabric, beside) == pytest.approx(expected, rel=0.03)


def test_exchanges_follow_from_the_tokens_of_a_run(experts):
    step = table(room=10**6)
    load = poisson(rate=5, seconds=10, prompt=Lengths(500), output=Lengths(50), seed=1)
    service = build_service(experts, step, limits_of(experts.deployment))
    served = serve(service, load)
    prefill_byte_s, decode_byte_s = exchanges_of(served, experts.pools)
    of_token = bytes_of_token(experts.deployment)
    assert prefill_byte_s == pytest.approx(500 * len(load) * of_token / served.replicas.busy_s[0])
    assert decode_byte_s == pytest.approx(50 * len(load) * of_token / served.replicas.busy_s[1])


@pytest.mark.parametrize(
    ("model", "layout", "of_replica"),
    [
        # each of 58 layers sends 7,168 values of one byte and receives as many of two, if one of 8 experts is there
        ("deepseek-v3", {"dp": 16, "ep": 16, "weights": "fp8"}, 58 * (1 - 2**-8) * 7_168 * 3),
        ("llama3-70b", {"tp": 16}, 80 * 2 * 2 * 8_192 * 2),  # two all-reduces a layer, each value goes and comes back
        ("llama3-70b", {"tp": 8, "pp": 2}, 8_192 * 2),
    ],
)
def test_a_token_is_sent_to_experts_in_all_reduces_and_between_stages(model, layout, of_replica):
    assert bytes_of_token(find_deployment(model, gpus=16, **layout)) == pytest.approx(of_replica / 2)  # two servers


def test_replicas_in_one_server_exchange_nothing(placement):
    assert bytes_of_token(placement.deployment) == 0.0


def test_attention_ranks_take_turns_so_a_job_on_one_rail_slows_one_of_them(experts):
    fabric = prepare(experts.deployment.site.fabric)
    slots = experts.ports(fabric)[0]
    beside = Beside(fabric=fabric, jobs=job([(int(slots[0][3]), int(slots[0][3 + 8]))], 1.0))
    step = replace(table(room=10**6), kv_bytes_per_token=1e6)
    service = build_service(replace(experts, beside=beside), step, limits_of(experts.deployment), fabric=fabric, **RAW)
    load = poisson(rate=2, seconds=40, prompt=Lengths(500), output=Lengths(2), seed=1)
    requests = serve(service, load).requests
    waits = requests.first_s - requests.prefilled_s
    slow = waits > 1.5 * np.median(waits)
    assert set(np.flatnonzero(slow) % 16) == {3}
    assert slow.sum() == pytest.approx(len(load) / 16, abs=1)


# -- faults and errors ------------------------------------------------------------------------------------------------


def test_jobs_stay_beside_handoffs_when_an_uplink_is_cut(fabric):
    _, other, _, far = ports_of(fabric)
    beside = Beside(fabric=fabric, jobs=job(list(zip(other, far, strict=True)), 0.5))
    deployment = find_deployment("llama3-8b", SPEC, servers="hgx1,hgx3", tp=4)
    placed = Placement(deployment=deployment, prefill=1, decode=1, beside=beside)
    fault = Disturbance.parse("cut:leaf1/9@1s-2s", 3)
    during, after = phases_of(fault, placed, 1000.0)
    assert during.routes is not None
    assert during.routes.others > 0
    assert after.routes is None
    assert during.routes.most_byte_s[1] < placed.routes(fabric)[0].most_byte_s[1]


@pytest.mark.parametrize("lane", [0.0, 1.5])
def test_a_lane_without_a_share_is_refused(fabric, lane):
    with pytest.raises(ConfigError, match="--handoff-lane"):
        Beside(fabric=fabric, lane=lane)
