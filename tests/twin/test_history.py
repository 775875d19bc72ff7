"""A history returns the state of every moment, and survives the end of its writer."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from tests.databases import empty_database
from tests.patience import wait_until

from weft.errors import ConfigError
from weft.twin.history import Difference, History, compare

LINK = ("link", "leaf1/5")


OPEN: list[History] = []


@pytest.fixture(autouse=True)
def close_histories():
    yield
    while OPEN:
        OPEN.pop().close()


def new_history() -> History:
    """Return an empty history, in memory unless a server is given."""
    url = empty_database(Path(), "") if "WEFT_TEST_POSTGRESQL" in os.environ else "sqlite://"
    OPEN.append(History(url))
    return OPEN[-1]


subjects = st.tuples(st.sampled_from(["link", "lid"]), st.sampled_from(["a", "b", "c"]))
states = st.dictionaries(subjects, st.sampled_from(["1", "2"]))


@given(st.lists(states, min_size=1, max_size=8))
@settings(max_examples=30, deadline=None)
def test_the_state_of_every_poll_can_be_read_again(polls):
    history = new_history()
    for at, facts in enumerate(polls, 1):
        differences = history.record(at, facts)
        assert differences == (compare(at, polls[at - 2], facts) if at > 1 else [])
    for at, facts in enumerate(polls, 1):
        assert history.state(at) == history.state(at + 0.5) == facts
    assert history.state() == polls[-1]
    assert history.span() == (1, len(polls))
    expected = [each for at in range(2, len(polls) + 1) for each in compare(at, polls[at - 2], polls[at - 1])]
    assert history.changes() == expected
    assert history.changes(name="a", since_s=3) == [each for each in expected if each.name == "a" and each.at_s >= 3]


def test_a_cable_that_moved_is_found_by_its_port():
    history = new_history()
    for at, far in ((1, "spine1/1"), (2, "spine1/1"), (3, "spine2/4"), (4, None)):
        history.record(at, {LINK: far, ("lid", "h1/1"): "7"} if far else {("lid", "h1/1"): "7"})
    moved, removed = history.changes(name="leaf1/5")
    assert moved == Difference(at_s=3, kind="link", name="leaf1/5", before="spine1/1", after="spine2/4")
    assert str(moved) == "link leaf1/5: spine1/1 -> spine2/4"
    assert (removed.at_s, str(removed)) == (4, "link leaf1/5: spine2/4 -> gone")
    history.record(5, {LINK: "spine1/1"})
    assert [str(each) for each in history.changes(since_s=5)] == ["lid h1/1: 7 -> gone", "link leaf1/5: new, spine1/1"]


def test_a_clock_that_is_set_back_keeps_the_order_of_polls():
    history = new_history()
    history.record(100.0, {LINK: "a"})
    (change,) = history.record(50.0, {LINK: "b"})
    assert change.at_s > 100
    assert history.state(100.0) == {LINK: "a"}


def test_old_facts_are_forgotten_and_present_ones_stay():
    history = new_history()
    for at, value in ((1, "a"), (2, "b"), (10, "c")):
        history.record(at, {LINK: value})
    assert history.forget(5) == 1
    assert history.state(3) == {LINK: "b"}
    assert history.state() == {LINK: "c"}


def test_a_killed_writer_leaves_whole_polls(tmp_path):
    """Facts a and b always change together."""
    url = empty_database(tmp_path, "fabric")
    program = (
        "import itertools, sys; from weft.twin.history import History\n"
        "history = History(sys.argv[1])\n"
        "for n in itertools.count(1):\n"
        "    history.record(n, {('link', 'a'): str(n), ('link', 'b'): str(n)})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, url]) as writer:
        wait_until(lambda: len(_read(url)) == 2 and int(_read(url)["link", "a"]) > 20, "polls")
        os.kill(writer.pid, signal.SIGKILL)
    facts = _read(url)
    assert facts["link", "a"] == facts["link", "b"]
    history = History(url)
    assert history.span()[1] == int(facts["link", "a"])
    history.close()


def _read(url):
    try:
        history = History(url, must_exist=True)
    except ConfigError:  # the writer is creating it
        return {}
    state = history.state()
    history.close()
    return state


def test_wrong_databases_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no history .*: `weft follow --database"):
        History(str(tmp_path / "none.db"), must_exist=True)
    with pytest.raises(ConfigError, match="weft does not support the database mysql"):
        History("mysql://host/x")
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(ConfigError, match=r"cannot use .* as a history: file is not a database"):
        History(str(tmp_path / "text.db"))
    with pytest.raises(ConfigError, match="unable to open"):
        History(str(tmp_path / "none" / "x.db"))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("://fabric.db", r"invalid database URL '://fabric.db'; examples: fabric.db, sqlite:///fabric.db, postgresql:"),
        ("oracle://host/x", "weft does not support the database oracle"),
        ("postgresql://user@127.0.0.1:1/none?connect_timeout=1", "cannot use postgresql://user@127.0.0.1:1/none"),
        ("sqlite:///none/x.db", "unable to open"),
    ],
)
def test_a_url_without_a_history_is_refused(url, reason):
    with pytest.raises(ConfigError, match=reason):
        History(url)


def test_a_reader_needs_a_history_and_writes_nothing(tmp_path):
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(ConfigError, match=r"cannot use .*: no such table: polls"):
        History(f"sqlite:///{path}", must_exist=True)
    assert path.read_bytes() == b""
    writer = History(f"sqlite:///{path}")
    assert (writer.span(), writer.state(), writer.changes()) == (None, {}, [])
    writer.close()
    assert History(str(path), must_exist=True).span() is None


def test_a_fact_holds_from_its_poll_until_the_next_and_changes_are_chosen_by_both_ends():
    history = new_history()
    for at, value in ((10, "a"), (20, "b"), (30, "c")):
        history.record(at, {LINK: value})
    assert [history.state(at) for at in (9.9, 10, 19.9, 20)] == [{}, {LINK: "a"}, {LINK: "a"}, {LINK: "b"}]
    both = [each.at_s for each in history.changes()]
    assert both == [20, 30] == [each.at_s for each in history.changes(since_s=20, until_s=30)]
    assert [each.at_s for each in history.changes(since_s=20.1)] == [30]
    assert [each.at_s for each in history.changes(until_s=29.9)] == [20]
    assert history.changes(name="leaf1/6") == []
    assert (history.forget(20), history.forget(20.1), history.state(15)) == (0, 1, {})


def test_a_poll_at_the_time_of_the_last_one_is_later():
    history = new_history()
    history.record(10.0, {LINK: "a"})
    (change,) = history.record(10.0, {LINK: "b"})
    assert 10 < change.at_s < 10.001
    assert history.record(11.0, {LINK: "b"}) == []
    assert history.span() == (10.0, 11.0)
    assert history.record(10.5, {}) == compare(11.000001, {LINK: "b"}, {})


def test_changes_at_one_moment_are_in_the_order_of_their_subjects():
    history = new_history()
    history.record(1, {})
    history.record(2, {("link", "b"): "1", ("lid", "c"): "1", ("link", "a"): "1"})
    assert [(each.kind, each.name) for each in history.changes()] == [("lid", "c"), ("link", "a"), ("link", "b")]


def test_a_file_is_read_while_it_is_written(tmp_path):
    """SQLite keeps changes in a log beside the file until readers are done."""
    path = tmp_path / "fabric.db"
    History(str(path)).record(1, {LINK: "1"})
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_days_of_changes_stay_bounded(tmp_path):
    """A cable flaps a hundred times a day; facts that ended more than a day ago are forgotten."""
    history = History(empty_database(tmp_path, "fabric"))
    base = {("link", f"leaf{number}/1"): f"spine1/{number}" for number in range(200)}
    sizes = []
    for day in range(6):
        for number in range(100):
            at_s = day * 86_400 + number * 864 + 1
            history.record(at_s, base)
            history.record(at_s + 1, base | {LINK: f"spine1/{number}"})
        history.forget(at_s - 86_400)
        with history._engine.connect() as connection:
            sizes.append(connection.execute(text("SELECT count(*) FROM facts")).scalar())
    assert sizes[-1] == sizes[1] <= 200 + 2 * 100 + 2
    assert history.span() == (1, at_s + 1)
    assert len(history.state()) == 201
    history.close()
