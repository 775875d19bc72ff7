"""Steps beside hand-offs, which share links with exchanges between a replica's servers, against the packet engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.inference.serving_cases import disaggregated, exchanging, table
from tests.inference.test_serving_beside import BUSY_S, MESSAGE_BYTES, job

import weft
from weft.fabric.model import Fabric
from weft.inference.deployment import find_deployment
from weft.inference.serving.beside import Beside, exchange_ends
from weft.inference.serving.figures import breakdown
from weft.inference.serving.load import Lengths, Load, poisson
from weft.inference.serving.placement import ADAPTER_SHARE, Placement, build_service, limits_of
from weft.inference.serving.run import Served, serve
from weft.inference.serving.service import Phase, Service, adapters
from weft.inference.table import LOADS
from weft.sim.perftest import prepare
from weft.sim.traffic import Traffic

STEP_S, HANDOFF_S, BULK_BYTES = 5e-3, 40e-3, 4 << 20
EVEN = replace(table(base_s=STEP_S, token_s=0.0, pair_s=0.0, room=10**6), kv_s_per_token=0.0)  # equal steps


def even(most: float = 1.0, **exchanges: float) -> Service:
    """Return a service whose steps are exchanges, and hand-offs that take a share of a link at most."""
    rate_byte_s = 1000 * EVEN.kv_bytes_per_token / HANDOFF_S / most
    service = disaggregated(1, 1, routes=adapters([rate_byte_s] * 2, most * rate_byte_s), setup_s=0.0)
    pools = tuple(replace(pool, table=EVEN) for pool in service.pools)
    return exchanging(replace(service, pools=pools), rate_byte_s, **exchanges)


def one_answer_beside_handoffs(others: int = 1) -> Load:
    """Return a long answer, while which other requests are handed over at once."""
    return Load(
        arrival_s=np.array([0.0, *[0.1] * others]),
        prompt=np.array([1, *[1000] * others]),
        output=np.array([100, *[2] * others]),
    )


def longer_s(service: Service, load: Load) -> tuple[float, Served]:
    """Return by how much hand-offs delay the long answer."""
    slowed, alone = (
        serve(each, load) for each in (service, replace(service, routes=replace(service.routes, exchanges=None)))
    )
    return float(slowed.requests.finished_s[0] - alone.requests.finished_s[0]), slowed


def wire_s(served: Served) -> float:
    requests = served.requests
    return float((requests.first_s - requests.handoff_s)[1:].max())


# -- closed forms -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "exchanges", "load"),
    [
        (1.0, {}, 1.0),  # two queue pairs share the link
        (0.75, {}, 1.0),  # the hand-off would take more than half
        (0.25, {}, 1 / 3),  # exchanges get all that it leaves
        (1.0, {"weight": 3.0}, 1 / 3),  # three queue pairs beside one
        (1.0, {"least": 0.25}, 3.0),  # hand-offs have a lane with three quarters
        (1.0, {"slack": 1.5}, 1 / 3),  # another link limits exchanges to two thirds of this one
    ],
)
def test_steps_get_the_share_of_links_that_handoffs_leave(most, exchanges, load):
    late_s, served = longer_s(even(most, **exchanges), one_answer_beside_handoffs())
    assert wire_s(served) == pytest.approx(HANDOFF_S)
    assert late_s == pytest.approx(HANDOFF_S * load / (1 + load))
    assert served.late_s[1] == pytest.approx(late_s)
    assert served.replicas.busy_s[1] == pytest.approx(100 * STEP_S - STEP_S + late_s)


def test_between_tokens_only_the_steps_beside_a_handoff_are_longer():
    _, served = longer_s(even(), one_answer_beside_handoffs())
    bins = np.flatnonzero(served.gaps)
    assert served.gaps.sum() == 99 + 1
    assert served.gaps[bins[0]] == pytest.approx(99 + 1 - 4, abs=1)  # 40 ms at half the pace: four steps
    assert breakdown(served)["decode: beside hand-offs"] > 0


# -- fabrics ----------------------------------------------------------------------------------------------------------


def placed(spec: str, servers: str, prefill: int) -> tuple[Placement, Fabric]:
    """Return replicas of tensor ranks on two servers each, or of attention ranks on four."""
    fabric = prepare(weft.load(spec))
    layout = {"name": "llama3-70b", "tp": 8}
    if spec == LARGE_SWITCH:
        layout = {"name": "deepseek-v3", "dp": 16, "ep": 16, "weights": "fp8"}
    deployment = find_deployment(layout.pop("name"), fabric, servers=servers, **layout)
    return Placement(deployment=deployment, prefill=prefill, decode=1), fabric


def in_packets(placement: Placement, fabric: Fabric, row: int) -> float:
    """Return how many times as long an exchange of a replica takes beside hand-offs, by the packet engine."""
    slots = placement.ports(fabric)[0]
    own = np.column_stack(exchange_ends(slots[row], placement.gpus_of[row], 4))
    ranks = slice(None) if len(placement.parts) == 1 else slice(1, 2)  # one attention rank for each request
    pairs = np.concatenate([np.column_stack((slots[p], slots[-1]))[ranks] for p in range(placement.prefill)])
    begins_s = np.arange(0.0, BUSY_S, MESSAGE_BYTES / (0.97 * 50e9 * ADAPTER_SHARE))

    def exchange_ps(ends: np.ndarray) -> int:
        rest = len(ends) * len(begins_s)
        both = np.concatenate((own, ends.repeat(len(begins_s), axis=0))).astype(np.int32)
        traffic = Traffic.make(
            both[:, 0],
            both[:, 1],
            np.repeat([BULK_BYTES, MESSAGE_BYTES], [len(own), rest]),
            start_ps=(np.append(np.zeros(len(own)), np.tile(begins_s, len(ends))) * 1e12).astype(np.int64),
            qp=np.repeat([0, 1], [len(own), rest]),
            description="an exchange beside hand-offs",
        )
        return int(weft.simulate(fabric, traffic, engine="packet").latency_ps[: len(own)].max())

    return exchange_ps(pairs) / exchange_ps(pairs[:0])


LARGE_SWITCH, EIGHT = "star:hosts=8,server=hgx-h100-4", ",".join(f"hgx{i}" for i in range(1, 9))
ONE_SWITCH, LEAVES = "star:hosts=6,server=hgx-h100-4", "fat-tree:hosts=6,radix=12,server=hgx-h100-4,oversubscription=2"
CASES = {
    "received by both servers": (ONE_SWITCH, "hgx1,hgx2,hgx3,hgx4", 1, True, 0.03),
    "sent by both servers": (ONE_SWITCH, "hgx1,hgx2,hgx3,hgx4", 1, False, 0.03),
    "received from two replicas": (ONE_SWITCH, "hgx1,hgx2,hgx3,hgx4,hgx5,hgx6", 2, True, 0.03),
    "from another leaf": (LEAVES, "hgx1,hgx3,hgx5,hgx4", 1, True, 0.03),
    "from two servers over the same uplinks, which are full": (LEAVES, "hgx1,hgx2,hgx3,hgx5", 1, True, 0.09),
    "received by one GPU of four servers": (LARGE_SWITCH, EIGHT, 1, True, 0.08),
}


@pytest.mark.parametrize(("spec", "servers", "prefill", "receives", "off"), CASES.values(), ids=CASES)
def test_exchanges_beside_handoffs_take_as_long_as_in_the_packet_engine(spec, servers, prefill, receives, off):
    """A long answer, or a long prompt in chunks, goes on during hand-offs; its steps are exchanges only."""
    placement, fabric = placed(spec, servers, prefill)
    step = replace(EVEN, slowed_s=np.outer(LOADS, np.full(4, STEP_S)), kv_bytes_per_token=16e6)
    limits = limits_of(placement.deployment, max_num_seqs=8, max_num_batched_tokens=1000)
    service = build_service(placement, step, limits, fabric=fabric, setup_s=0.0)
    load = one_answer_beside_handoffs(prefill)
    if not receives:
        load = Load(arrival_s=np.zeros(2), prompt=np.array([1000, 50_000]), output=np.array([2, 2]))
    slowed, alone = (
        serve(each, load).requests
        for each in (service, replace(service, routes=replace(service.routes, exchanges=None)))
    )
    late_s = slowed.finished_s[0] - alone.finished_s[0] if receives else slowed.prefilled_s[1] - alone.prefilled_s[1]
    on_wire_s = (slowed.first_s - slowed.handoff_s)[1 if receives else 0]
    lost = late_s / on_wire_s
    assert 1 / (1 - lost) == pytest.approx(in_packets(placement, fabric, prefill if receives else 0), rel=off)


def test_a_job_on_the_links_of_an_exchange_leaves_it_less():
    placement, fabric = placed(ONE_SWITCH, "hgx1,hgx2,hgx3,hgx4", 1)
    slots = placement.ports(fabric)[0]
    jobs = job([(int(slots[0][0]), int(slots[1][0]))], 1.0)
    besides = (None, *(Beside(fabric=fabric, jobs=jobs, lane=lane) for lane in (None, 0.75)))
    alone, shared, on_lane = (replace(placement, beside=beside).routes(fabric)[0].exchanges for beside in besides)
    assert shared.byte_s.min() == pytest.approx(alone.byte_s.min() / 2)
    assert shared.weight.max() == 2 * alone.weight.max()
    assert (alone.least, shared.least, on_lane.least) == (0, 0, 0.25)


def test_a_replica_that_fails_beside_a_handoff_loses_the_step_under_way_alone():
    """A hand-off takes 15 ms: the first 0.04 end a step, which gets that much longer, and 10 are a whole step."""
    dead = Phase(start_s=0.12, alive=np.array([True, False]))
    load, back = one_answer_beside_handoffs(), Phase(start_s=1.0)
    served = serve(even(), load, phases=(dead, back))
    assert served.requests.retries[0] == 1
    assert served.late_s[1] == pytest.approx(5.04e-3)


# -- nothing shared ---------------------------------------------------------------------------------------------------


def test_handoffs_on_other_links_change_nothing():
    """A decode replica without hand-offs on its links has the same times, bit for bit."""
    service = disaggregated(1, 1)
    load = poisson(rate=30, seconds=3, prompt=Lengths(50, 300), output=Lengths(20), seed=1)
    apart = exchanging(service)
    apart = replace(apart, routes=replace(apart.routes, capacity_byte_s=np.append(apart.routes.capacity_byte_s, 1e9)))
    elsewhere = replace(apart.routes.exchanges, link=np.full(4, 4, np.int32))
    apart = replace(apart, routes=replace(apart.routes, exchanges=elsewhere))
    alone, shared = serve(service, load), serve(apart, load)
    assert (alone.requests.finished_s == shared.requests.finished_s).all()
    assert (alone.replicas.busy_s == shared.replicas.busy_s).all()
    assert not shared.late_s.any()


def test_replicas_inside_servers_have_no_exchanges_on_the_fabric():
    deployment = find_deployment("llama3-70b", gpus=16, tp=8)
    placement = Placement(deployment=deployment, prefill=1, decode=1)
    routes, _ = placement.routes(prepare(deployment.site.fabric))
    assert routes.exchanges is None
    assert all(table.slowed_s is None for table in placement.tables(1000.0))


def test_steps_of_experts_on_several_servers_take_longer_beside_handoffs():
    """Two-batch overlap hides a part of it, and the rest is linear where bytes set the time."""
    deployment = find_deployment("deepseek-v3", gpus=32, dp=16, ep=16, weights="fp8")
    placement = Placement(deployment=deployment, prefill=1, decode=1)
    steps = placement.tables(2000.0)[0]
    assert (steps.slowed_s > 0).all()
    exchanged_s = steps.parts_s[[steps.parts.index(name) for name in ("dispatch", "combine")]].sum(axis=0)
    assert (steps.slowed_s[0] < exchanged_s).all()
    assert steps.slowed_s[1, -1] == pytest.approx(3 * steps.slowed_s[0, -1], rel=1e-3)
    load = poisson(rate=6, seconds=20, prompt=Lengths(4000), output=Lengths(50), seed=1)
    service = build_service(placement, placement.tables(load.mean_tokens), limits_of(deployment))
    served = serve(service, load)
    alone = serve(replace(service, routes=replace(service.routes, exchanges=None)), load)
    assert served.late_s.min() > 0
    assert served.replicas.busy_s.sum() > alone.replicas.busy_s.sum()
