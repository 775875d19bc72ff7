"""Recorded states: each is found by its time, older ones are thinned, and those with an event are kept."""

from __future__ import annotations

import random

import pytest

import weft
from weft.serve.console.events import FabricState, LinkStates
from weft.serve.console.layout import draw
from weft.serve.past.moments import Moments, superfluous_times
from weft.twin.history import History

DAY_S = 86_400.0


@pytest.fixture
def moments(tmp_path):
    history = History(f"sqlite:///{tmp_path}/past.db")
    yield Moments(history.engine)
    history.close()


DRAWING = draw(weft.load("star:hosts=3"))


def state(at_s: float, load: float = 0.5, revision: str = DRAWING.revision) -> FabricState:
    links = LinkStates(load=[load] * 3, wait=[None] * 3, errors=[0] * 3, state=["up"] * 3)
    return FabricState(
        t=at_s, revision=revision, seconds=1.0, links=links, jobs=[], sm=None, suspects=[], notes=[], drift=[], runs=[],
        trouble="",
    )  # fmt: skip


def test_the_latest_state_that_is_not_newer_is_found(moments):
    for at_s in (10.0, 20.0, 30.0):
        moments.add(state(at_s, load=at_s / 100), DRAWING, [])
    assert moments.at(9.9) is None
    assert moments.at(10.0).links.load == [0.1] * 3
    assert moments.at(29.9) == state(20.0, load=0.2)
    assert moments.at(1e9).t == 30.0
    assert moments.span() == (10.0, 30.0)
    assert moments.drawing(DRAWING.revision) == DRAWING
    assert moments.drawing("other") is None


def test_a_state_of_the_same_time_is_stored_once(moments):
    moments.add(state(10.0), DRAWING, [("link", "leaf1/5 is down")])
    moments.add(state(10.0, load=0.9), DRAWING, [("link", "leaf1/5 is down")])
    assert moments.at(10.0).links.load == [0.5] * 3
    assert [event.text for event in moments.events(most=10)] == ["leaf1/5 is down"]


def test_events_are_the_newest_in_order_of_time(moments):
    for at_s in (10.0, 20.0, 30.0):
        moments.add(state(at_s), DRAWING, [("alert", f"at {at_s:g}")])
    assert [event.text for event in moments.events(most=2)] == ["at 20", "at 30"]


def test_old_states_are_thinned_and_those_with_events_are_not():
    now_s, kept = 3 * DAY_S, []
    for second in range(int(now_s)):
        kept.append(float(second))
        if second % 60 == 0:
            gone = set(superfluous_times(kept, float(second)))
            kept = [at_s for at_s in kept if at_s not in gone]
    ages_s = [now_s - at_s for at_s in kept]
    assert 590 <= sum(age_s <= 600 for age_s in ages_s) <= 660
    assert 1400 <= sum(600 < age_s <= DAY_S for age_s in ages_s) <= 1440 + 61
    assert 280 <= sum(age_s > DAY_S for age_s in ages_s) <= 290


def test_a_moment_with_an_event_outlives_its_neighbours(moments):
    rng = random.Random(1)
    begin_s = 1_000.0
    event_at_s = begin_s + 47
    for second in range(1, 121):
        at_s = begin_s + second
        moments.add(state(at_s), DRAWING, [("link", "x is down")] if at_s == event_at_s else [])
    for second in range(120):  # two thinnings a day later
        moments.add(state(begin_s + DAY_S + second + rng.random() / 2), DRAWING, [])
    assert moments.at(event_at_s).t == event_at_s
    assert moments.at(event_at_s + 5).t == event_at_s  # its neighbours are gone


def test_forgotten_states_take_their_events_and_drawings_along(moments):
    other = draw(weft.load("star:hosts=4"))
    moments.add(state(10.0, revision=other.revision), other, [("link", "old")])
    moments.add(state(20.0), DRAWING, [("link", "new")])
    moments.forget(15.0)
    assert moments.at(19.0) is None
    assert moments.drawing(other.revision) is None
    assert moments.drawing(DRAWING.revision) is not None
    assert [event.text for event in moments.events(most=9)] == ["new"]
