"""Programs over fabrics: closed forms, engines that agree, rounds that are left out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.collectives import run as module
from weft.collectives.ranks import place
from weft.collectives.run import run_program, shortened
from weft.collectives.schedules.program import Run
from weft.collectives.schedules.ring import ring_all_reduce
from weft.errors import ConfigError
from weft.fabric.nvlink import join_nvlinks
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import route
from weft.sim.packet.engine import PacketEngine


def ranks_of(spec: str):
    return place(join_nvlinks(route(weft.load(spec), RoutingOptions(adaptive=True)).fabric))


@pytest.fixture(scope="module")
def pod():
    return ranks_of("superpod:su=1,servers=4")


def test_a_large_ring_through_all_gpus_is_bound_by_one_adapter(pod):
    timing = run_program(ring_all_reduce(32), pod, 1 << 28)
    assert timing.bus_gbyte_s == pytest.approx(49.05, rel=0.01)
    assert timing.rounds_run == 62


def test_packets_and_flows_agree_on_a_ring(pod):
    flow, packet = (run_program(ring_all_reduce(32), pod, 1 << 22, engine=engine) for engine in (None, PacketEngine()))
    assert flow.time_ps == pytest.approx(packet.time_ps, rel=0.01)


@pytest.mark.parametrize(("size_bytes", "within"), [(1 << 26, 1e-6), (1 << 20, 0.03)])
def test_rounds_that_repeat_need_not_all_be_run(pod, monkeypatch, size_bytes, within):
    whole = run_program(ring_all_reduce(32), pod, size_bytes)
    monkeypatch.setattr(module, "MOST_SENDS", 100)
    part = run_program(ring_all_reduce(32), pod, size_bytes)
    assert part.rounds_run < whole.rounds_run
    assert part.time_ps == pytest.approx(whole.time_ps, rel=within)


@pytest.mark.parametrize(
    ("end_ps", "window", "more_ps", "steady"),
    [([10, 20, 30], 1, 970, True), ([10, 20, 40], 1, 1940, False), ([5, 10, 105, 110, 205], 2, 4750, True)],
)
def test_rounds_are_left_out_once_the_last_two_periods_take_equally_long(end_ps, window, more_ps, steady):
    whole, short = (SimpleNamespace(runs=[Run(first=0, n_rounds=n)]) for n in (100, len(end_ps)))
    assert module._rest(whole, short, np.array(end_ps), window) == (more_ps, steady)


def test_a_shortened_program_keeps_the_first_rounds_of_each_run():
    ring = ring_all_reduce(16)
    short = shortened(ring, 3)
    assert [run.n_rounds for run in short.runs] == [3, 3]
    assert (short.make_round(3).src_chunk == ring.make_round(15).src_chunk).all()
    assert shortened(ring, 15) is ring


def test_work_between_steps_counts_once_for_each(pod):
    quick, slow = (run_program(ring_all_reduce(32), pod, 1 << 20, step_ps=step_ps) for step_ps in (0, 5_000_000))
    assert slow.time_us - quick.time_us == pytest.approx(61 * 5, rel=0.01)


def test_pxn_keeps_the_network_in_its_rails(pod):
    """A ring whose ranks are dealt out so that every hop changes rails."""
    import numpy as np

    from weft.collectives.kinds import Collective
    from weft.collectives.schedules.program import Program, Sends, in_runs

    ranks = np.arange(32)
    item = Program(
        name="to the next rail of the next server",
        collective=Collective.SEND_RECV,
        n_ranks=32,
        n_chunks=1,
        runs=in_runs(1),
        make_round=lambda _: Sends.make(ranks, (ranks + 9) % 32 // 8 * 8 + (ranks + 1) % 8, 0, add=False),
    )
    across, aligned = (run_program(item, pod, 1 << 20, pxn=pxn).result for pxn in (False, True))
    assert len(across.traffic) == 32
    assert len(aligned.traffic) == 64, "each takes a hop over NVLink"
    spines = [node.index for node in pod.fabric.switches if node.name.startswith("spine")]
    sent = [int(result.use.xmit_bytes[np.isin(result.fabric.ports.node, spines)].sum()) for result in (across, aligned)]
    assert sent[0] > 32 << 20
    assert sent[1] < 1 << 16, "only acknowledgements, if anything"


def test_invalid_run_is_refused(pod):
    with pytest.raises(ConfigError, match="16 ranks, the job has 32"):
        run_program(ring_all_reduce(16), pod, 1 << 20)
    with pytest.raises(ConfigError, match="32 chunks, 31 bytes"):
        run_program(ring_all_reduce(32), pod, 31)
    bare = place(route(weft.load("superpod:su=1,servers=4")).fabric)
    with pytest.raises(ConfigError, match="join_nvlinks"):
        run_program(ring_all_reduce(32), bare, 1 << 20)
