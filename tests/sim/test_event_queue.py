"""The event queue, policies and error correction of the packet simulator, interpreted, against plain Python."""

from __future__ import annotations

import heapq
import random
from math import comb
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft.sim import fec
from weft.sim.adaptive import POLICIES
from weft.sim.layout.records import Selection, records
from weft.sim.packet import delay_lines
from weft.sim.packet.policies import adaptive, ecmp, spray
from weft.sim.packet.state import CHUNK_EVENTS, DELAY_LINE, EMPTY, ENTRY, EVENT, RUN

DELAYS_PS = (5, 1, 3, 1)
CHUNKS = 12


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Replace compiled functions by their sources: numba gives parts of kernels no wrapper for Python."""
    for module in (delay_lines, adaptive, ecmp, spray):
        for name, function in vars(module).items():
            if hasattr(function, "py_func"):
                monkeypatch.setattr(module, name, function.py_func)


@pytest.fixture
def queue():
    lines, run = records(len(DELAYS_PS), DELAY_LINE), records(1, RUN)
    lines.delay_ps = DELAYS_PS
    lines.head = lines.tail = np.arange(len(DELAYS_PS)) * CHUNK_EVENTS
    run.free_chunk, run.free_chunks, run.rival = len(DELAYS_PS), CHUNKS - len(DELAYS_PS), EMPTY
    return SimpleNamespace(
        run=run,
        lines=lines,
        tree=np.full(8, EMPTY, np.int64),
        events=records(CHUNKS * CHUNK_EVENTS, EVENT),
        next_chunk=np.arange(1, CHUNKS + 1, dtype=np.int32),
        agenda=records(300, ENTRY),
    )


def pop(queue) -> tuple[int, int, int, int]:
    key = delay_lines.first_key(queue)
    line = delay_lines.line_of(key)
    begin, end = delay_lines.contiguous_events(queue, line)
    assert begin < end <= begin + CHUNK_EVENTS
    event = queue.events[begin]
    taken = int(event.time_ps), int(line), int(event.a), int(event.b)
    assert key >> delay_lines.DELAY_LINE_BITS == taken[0]
    delay_lines.drop(queue, line, begin + 1)
    delay_lines.set_head(queue.tree, line, delay_lines.head_key(queue, line))
    return taken


def test_events_happen_by_time_then_by_line_then_in_the_order_in_which_they_were_caused(queue):
    rng, expected, a = random.Random(1), [], 0
    for phase, pushes in ((1, 0.7), (2, 0.3)):
        for _ in range(400):
            if rng.random() < pushes and len(expected) < 250:
                line = rng.choice((0, 1, 1, 1, 2, 3))
                delay_lines.push(queue, line, a, phase)
                heapq.heappush(expected, (int(queue.run[0].now_ps) + DELAYS_PS[line], line, a, phase))
                a += 1
            elif expected:
                event = heapq.heappop(expected)
                assert pop(queue) == event
                queue.run[0].now_ps = event[0]
            heads = [delay_lines.head_key(queue, line) for line in range(4)]
            assert delay_lines.first_key(queue) == min(heads)
            for line in range(4):
                assert delay_lines.second_key(queue.tree, line) == min(heads[:line] + heads[line + 1 :])
    while expected:
        assert pop(queue) == heapq.heappop(expected)
    assert delay_lines.first_key(queue) == EMPTY
    assert queue.run[0].free_chunks == CHUNKS - len(DELAYS_PS)
    assert a > 5 * CHUNK_EVENTS


def test_the_earliest_head_since_the_last_check_is_noted(queue):
    delay_lines.push(queue, 0, 0, 0)
    delay_lines.push(queue, 2, 0, 0)
    delay_lines.push(queue, 2, 0, 0)
    assert queue.run[0].rival == (3 << delay_lines.DELAY_LINE_BITS) | 2


def test_the_agenda_is_in_order_of_time_and_equal_times_in_order_of_entry(queue):
    rng, expected = random.Random(2), []
    for number in range(600):
        if rng.random() < 0.6 and len(expected) < 250:
            entry = (rng.randrange(40), number, rng.randrange(9))
            delay_lines.schedule(queue, entry[0], entry[2], entry[1], -entry[1])
            heapq.heappush(expected, entry)
        elif expected:
            time_ps, own, kind = heapq.heappop(expected)
            assert queue.agenda[0].time_ps == time_ps
            assert tuple(map(int, delay_lines.take_first(queue))) == (kind, own, -own)
    while expected:
        _, own, kind = heapq.heappop(expected)
        assert tuple(map(int, delay_lines.take_first(queue))) == (kind, own, -own)
    assert queue.run[0].agenda == 0


# -- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queued", "number", "chosen"),
    [
        ((3, 1, 2), 0, 1),
        ((3, 1, 2), 2, 1),
        ((2, 2, 2), 1, 1),  # equal: the random one
        ((2, 1, 1), 2, 2),
        ((1, 2, 1), 1, 2),  # equal: the next after the random one
        ((0, 0, 5), 2, 0),
        ((4, 5, 3), 0, 2),
        ((0, 0, 0), 2, 2),
    ],
)
def test_adaptive_routing_takes_the_shortest_queue_and_of_equal_ones_the_first_from_a_random_one(
    queued, number, chosen
):
    loads = {10 + i: SimpleNamespace(bytes=each) for i, each in enumerate(queued)}
    assert adaptive.choose(loads, tuple(loads), number) == chosen
    assert (spray.choose(loads, tuple(loads), number), ecmp.choose(loads, tuple(loads), number + 6)) == (number, number)


def test_only_ecmp_keeps_the_packets_of_a_flow_on_one_path():
    selections = {name: POLICIES[name].selection for name in ("table", "adaptive", "ecmp", "spray")}
    assert selections == {
        "table": Selection.TABLE,
        "adaptive": Selection.BY_PACKET,
        "ecmp": Selection.BY_FLOW,
        "spray": Selection.BY_PACKET,
    }


# -- error correction -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("symbol_error_rate", [1e-3, 4e-3, 1e-2])
def test_blocks_fail_with_more_than_15_wrong_symbols_of_544(symbol_error_rate):
    p = symbol_error_rate
    fails = sum(comb(544, k) * p**k * (1 - p) ** (544 - k) for k in range(16, 120))
    assert fec.symbol_error_rate(np.array([fails / 5440])) == pytest.approx(p, rel=1e-3)


def test_good_cables_have_raw_rates_of_their_own_and_bad_ones_those_of_their_failures():
    after = np.array([1e-9] + [1e-15] * 2000)
    rates = fec.raw_rates(after, worst_good=1e-12, seed=1)
    assert rates[0] == fec.symbol_error_rate(after[:1])[0]
    assert np.median(rates[1:]) == pytest.approx(1e-7, rel=0.1)  # ten bits
    assert np.std(np.log10(rates[1:])) == pytest.approx(0.7, rel=0.05)
    assert rates[1:].max() <= 1e-5
    assert (rates == fec.raw_rates(after, worst_good=1e-12, seed=1)).all()
    assert (rates[1:] != fec.raw_rates(after, worst_good=1e-12, seed=2)[1:]).any()


@pytest.mark.parametrize(("speed", "corrected"), [("NDR", True), ("EDR", False)])
def test_pam4_lines_are_corrected_where_a_cable_is(speed, corrected):
    fabric = weft.load(f"star:hosts=2,speed={speed}")
    cabled = fabric.ports.link >= 0
    assert (fec.has_fec(fabric)[cabled] == corrected).all()
    assert not fec.has_fec(fabric)[~cabled].any()
