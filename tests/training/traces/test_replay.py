"""Traces on fabrics: programs keep their time, computing its critical path, and flows on a link share it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from tests.training.traces.made import MS, as_goal, compute, goal, random_goal, routed, talk, trace

from weft.collectives.kinds import Collective
from weft.collectives.nccl.cluster import from_fabric
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.measure import measure
from weft.collectives.ranks import place
from weft.collectives.run import run_program
from weft.collectives.schedules.writers import program
from weft.errors import ConfigError
from weft.sim.engine import Memory, Options
from weft.sim.engines import find_engine
from weft.sim.traffic import Traffic
from weft.training.traces import replay as module
from weft.training.traces.link import link
from weft.training.traces.replay import replay
from weft.training.traces.together import lay_out, run_together
from weft.training.traces.trace import Kind, Node


@pytest.mark.parametrize("engine", ["flow", "packet"])
def test_a_ring_in_goal_takes_what_its_program_takes(engine):
    fabric, ring = routed("star:hosts=4"), program("all_reduce", "ring", nodes=4)
    result = replay(as_goal(ring, 1 << 20), fabric, engine=engine)
    timed = run_program(ring, place(fabric), 1 << 20, engine=find_engine(engine))
    assert result.total_s == pytest.approx(timed.time_ps * 1e-12, rel=1e-12)


@pytest.mark.parametrize("engine", ["flow", "packet", "analytic"])
def test_a_collective_takes_what_its_program_takes(engine):
    fabric, size_bytes = routed("star:hosts=4"), 1 << 20
    result = replay(trace(*([talk(1, size_bytes)] for _ in range(4))), fabric, engine=engine.title())
    assert result.engine == engine
    ring = program("all_reduce", "ring", nodes=4)
    timed = run_program(ring, place(fabric), size_bytes, engine=find_engine(engine))
    assert result.total_s == pytest.approx(timed.time_ps * 1e-12, rel=1e-12)


def test_small_collectives_take_few_rounds_with_one_rank_per_host():
    fabric = routed("star:hosts=8")
    result = replay(trace(*([talk(1, 1 << 10)] for _ in range(8))), fabric)
    few = run_program(program("all_reduce", "recursive-doubling", nodes=8), place(fabric), 1 << 10)
    assert result.total_s == pytest.approx(few.time_ps * 1e-12, rel=1e-12)


@pytest.mark.parametrize("engine", ["flow", "analytic"])
def test_computing_alone_takes_its_critical_path(engine):
    """Two lanes: 1 then 4 ms after 2 ms of the other, which goes on for 3."""
    nodes = [
        compute(1, 1 * MS, lane="a"),
        compute(2, 2 * MS, lane="b"),
        compute(3, 4 * MS, 2, lane="a"),
        compute(4, 3 * MS, lane="b"),
    ]
    result = replay(trace(nodes), routed("star:hosts=2"), engine=engine)
    assert result.total_s == pytest.approx(6e-3)
    assert result.ranks[0].compute_s == pytest.approx(6e-3)
    assert result.ranks[0].exposed_s == result.ranks[0].waiting_s == 0


@pytest.mark.parametrize("engine", ["flow", "packet"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_message_starts_when_the_last_thing_it_waits_for_is_over(engine, seed):
    """Random computing time before every message, compared with a run with given start times."""
    result = random_goal(world=4, rounds=5, seed=seed)
    fabric, linked, clock = routed("star:hosts=4"), link(result), find_engine(engine)
    ranks = place(fabric)
    times, runs = run_together(linked, ranks, clock, Options())
    assert runs > 1  # the first guess is not always right
    for at, node in enumerate(linked.nodes):
        waits = [times.end_ps[other] for other in linked.before[at]]
        waits += [times.begin_ps[other] for other in linked.begun[at]]
        assert times.begin_ps[at] == max(waits, default=0)
        if node.kind is Kind.COMPUTE:
            assert times.end_ps[at] == times.begin_ps[at] + node.duration_ps
        if node.kind is Kind.RECV:
            assert times.end_ps[at] == max(times.begin_ps[at], times.end_ps[linked.partner[at]])
    sends = [at for at, node in enumerate(linked.nodes) if node.kind is Kind.SEND]
    laid = lay_out(linked, ranks)
    messages = Traffic.make(
        laid.src, laid.dst, laid.size_bytes, qp=laid.qp, start_ps=[times.begin_ps[at] for at in sends]
    )
    assert clock.run(fabric, messages).finish_ps.tolist() == [times.end_ps[at] for at in sends]


def test_a_start_may_wait_for_a_start():
    """irequires: the second computation begins with the first, not after it."""
    result = replay(goal(1, {0: ["a: calc 5000", "b: calc 7000", "b irequires a"]}), routed("star:hosts=2"))
    assert result.total_s == pytest.approx(7e-6)


def test_collectives_and_sends_have_connections_of_their_own():
    """On a shared connection a message waits for those before it."""
    sends = [Node(id=10 + n, name="send", kind=Kind.SEND, lane=f"{n}", size_bytes=8, peer=1, tag=n) for n in range(3)]
    receives = [dataclasses.replace(send, kind=Kind.RECV, peer=0) for send in sends]
    both = trace([talk(1, 1 << 20), *sends], [talk(1, 1 << 20), *receives])
    laid = lay_out(link(both), place(routed("star:hosts=2")))
    connections = list(zip(laid.src.tolist(), laid.dst.tolist(), laid.qp.tolist(), strict=True))
    assert len({*connections[-3:]}) == 3
    assert not {*connections[:-3]} & {*connections[-3:]}


def test_collective_waits_for_the_latest_rank():
    """Rank 0 computes for 1 ms first; the others wait that long, and then all take what the collective takes.

    What need not go through rank 0 goes before, so that one of them is through a little earlier.
    """
    fabric, size_bytes = routed("star:hosts=4"), 1 << 20
    late = [compute(1, MS), talk(2, size_bytes, 1)]
    result = replay(trace(late, *([talk(2, size_bytes)] for _ in range(3))), fabric)
    alone = replay(trace(*([talk(2, size_bytes)] for _ in range(4))), fabric)
    assert result.total_s == pytest.approx(1e-3 + alone.total_s, rel=1e-9)
    assert result.ranks[0].waiting_s == pytest.approx(0, abs=1e-9)
    assert result.ranks[0].compute_s == pytest.approx(1e-3)
    for rank in result.ranks[1:]:
        assert 1e-3 <= rank.waiting_s < 1e-3 + alone.total_s / 10
        assert rank.compute_s == 0
        assert rank.exposed_s == pytest.approx(result.total_s - rank.waiting_s)
    waits = [span for span in result.spans if span.kind == "wait"]
    assert {span.track for span in waits} == {"rank 1", "rank 2", "rank 3"}


def test_a_collective_beside_computing_is_hidden():
    """It runs while the rank computes: nothing of it is exposed, and the computation decides."""
    nodes = [talk(1, 1 << 20), compute(2, MS), compute(3, MS, 1)]
    result = replay(trace(nodes, nodes), routed("star:hosts=2"))
    assert result.total_s == pytest.approx(2e-3)
    assert result.ranks[1].exposed_s == 0


def test_collectives_at_once_share_the_network_and_in_closed_form_do_not():
    size_bytes, groups = 8 << 20, {"a": ((0, 1, 2, 3),), "b": ((0, 1, 2, 3),)}
    nodes = [talk(1, size_bytes, group="a"), talk(2, size_bytes, group="b")]
    both = trace(nodes, nodes, nodes, nodes, groups=groups)
    item = trace(*([nodes[0]] for _ in range(4)), groups=groups)
    fabric = routed("star:hosts=4")
    times = {
        engine: [replay(result, fabric, engine=engine).total_s for result in (item, both)]
        for engine in ("flow", "analytic")
    }
    assert times["flow"][1] > 1.9 * times["flow"][0]
    assert times["analytic"][1] == times["analytic"][0]


def test_groups_in_a_server_talk_over_nvlink():
    """Two servers of 8: a group of each server's GPUs is far faster than one across."""
    fabric, size_bytes = routed("superpod:su=1"), 64 << 20
    inside = {"g": (tuple(range(8)), tuple(range(8, 16)))}
    across = {"g": tuple((gpu, gpu + 8) for gpu in range(8))}
    nodes = [talk(1, size_bytes, group="g")]
    near, far = (replay(trace(*([nodes] * 16), groups=groups), fabric).total_s for groups in (inside, across))
    assert near < far / 3


@pytest.mark.parametrize("engine", ["flow", "analytic"])
def test_messages_in_a_server_go_over_nvlink(engine):
    """Rank 0 sends to rank 1 of its server, then to rank 8 of the next."""
    times = []
    for peer in (1, 8):
        lines = {rank: ["c: calc 1"] for rank in range(16)}
        lines[0] = [f"s: send {64 << 20}b to {peer} tag 0"]
        lines[peer] = [f"r: recv {64 << 20}b from 0 tag 0"]
        times.append(replay(goal(16, lines), routed("superpod:su=1"), engine=engine).total_s)
    assert times[0] < times[1] / 3


def test_the_closed_form_is_nccls():
    """Groups of one GPU on each of four servers: together they are the rings of all adapters."""
    fabric, size_bytes = routed("superpod:su=1"), 64 << 20
    groups = {"g": tuple(tuple(gpu + 8 * server for server in range(4)) for gpu in range(8))}
    nodes = [talk(1, size_bytes, group="g"), compute(2, MS, 1)]
    result = replay(trace(*([nodes] * 32), groups=groups), fabric, engine="analytic")
    servers = fabric.servers[:4]
    networks = measure(place(fabric, servers), Options(memory=Memory.GPUDIRECT)).networks
    one_gpu = dataclasses.replace(from_fabric(fabric, servers), gpus=1, nics=1)
    expected = estimate(one_gpu, Collective.ALL_REDUCE, size_bytes, networks=networks)
    assert result.method == "alone"
    assert result.total_s == pytest.approx(1e-3 + expected.time_us * 1e-6, rel=1e-9)


def test_groups_of_one_name_share_thin_uplinks_in_closed_form():
    """A single pair of servers across the spines has the uplinks to itself; sixteen pairs, three to one, have not."""
    fabric = routed("fat-tree:hosts=16,radix=8,oversubscription=3,server=dgx-h100")
    far = len(fabric.servers) // 2
    nodes, idle = [talk(1, 1 << 30, group="g")], [compute(1, 1)]
    pairs = tuple((8 * server, 8 * (server + far)) for server in range(far))
    times = []
    for groups in (pairs[:1], pairs):
        busy = {rank for pair in groups for rank in pair}
        ranks = [nodes if rank in busy else idle for rank in range(8 * 2 * far)]
        times.append(replay(trace(*ranks, groups={"g": groups}), fabric, engine="analytic").total_s)
    assert times[1] > 1.3 * times[0]


def test_a_trace_too_large_to_run_is_estimated_and_not_run_packet_by_packet(monkeypatch):
    monkeypatch.setattr(module, "MOST_MESSAGES", 10)
    result = trace(*([talk(1, 1 << 20)] for _ in range(4)))
    fabric = routed("star:hosts=4")
    assert replay(result, fabric, engine="flow").method == "alone"
    with pytest.raises(ConfigError, match="too many to run packet by packet: use --engine flow"):
        replay(result, fabric, engine="packet")


def test_ranks_that_do_the_same_are_run_once_where_they_are_many(monkeypatch):
    """A single rank represents all, and all have its times."""
    nodes = (compute(1, MS), talk(2, 1 << 20, 1))
    result = trace(*([] for _ in range(4)))
    same = type(result)(source="made", format="made", files=result.files, ranks=(nodes,) * 4, groups=result.groups)
    fabric = routed("star:hosts=4")
    whole = replay(same, fabric, engine="analytic")
    monkeypatch.setattr(module, "MOST_MESSAGES", 3)
    short = replay(same, fabric, engine="analytic")
    assert short.total_s == whole.total_s
    assert [(rank.rank, rank.exposed_s) for rank in short.ranks] == [
        (rank.rank, rank.exposed_s) for rank in whole.ranks
    ]
    assert len(short.spans) == len(whole.spans) / 4


def test_more_ranks_than_gpus_are_refused():
    with pytest.raises(ConfigError, match=r"has 5 ranks, and star:hosts=4 has 4 on its 4 servers"):
        replay(trace(*([compute(1, MS)] for _ in range(5))), routed("star:hosts=4"))


def test_a_trace_longer_than_engines_count_is_refused():
    nodes = [compute(1, 9 * 10**14), compute(2, 9 * 10**14), talk(3, 8, 2)]
    result, fabric = trace(nodes, nodes), routed("star:hosts=2")
    with pytest.raises(ConfigError, match="takes over 1,000 s: run less of it, or use the analytic engine"):
        replay(result, fabric)
    assert replay(result, fabric, engine="analytic").total_s == pytest.approx(1800, rel=1e-6)


def test_a_group_with_unequal_shares_of_servers_is_refused():
    nodes = [talk(1, 1 << 20)]
    with pytest.raises(ConfigError, match="has 8 on dgx1 and 4 on dgx2"):
        replay(trace(*([nodes] * 12)), routed("superpod:su=1"))


@pytest.mark.parametrize("kind", [one for one in Collective if one is not Collective.SEND_RECV])
def test_every_collective_runs(kind):
    nodes = [talk(1, 4096, what=kind)]
    result = replay(trace(*([nodes] * 4)), routed("star:hosts=4"))
    assert result.total_s > 0
    assert np.ptp([item.compute_s + item.exposed_s + item.waiting_s for item in result.ranks]) < 1e-12
