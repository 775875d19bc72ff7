"""The ring of readings: rates with gaps, coarser with age, in a file that is safe from other users."""

from __future__ import annotations

import numpy as np
import pytest
from tests.monitor.test_change import FABRIC, make_ports, make_reading

from weft.errors import ConfigError
from weft.monitor.columns import Column
from weft.monitor.history import History

C = Column
PORTS = make_ports()


def filled(path=":memory:", *, counts, every_s=10.0, step_s=0.0, most=600, speed=1.0, known=lambda i: True) -> History:
    history = History(path, most=most)
    for i, count in enumerate(counts):
        stamp_s = 1.7e9 + every_s * i + (step_s if i >= len(counts) // 2 else 0.0)
        after_s = every_s * i
        history.add(make_reading(PORTS, count, known(i), at_s=7.0 + speed * after_s, stamp_s=stamp_s), 100.0 + after_s)
    return history


def test_rates_are_those_of_intervals():
    t, rate = filled(counts=[0, 10, 30, 30]).series("h1/1", C.SYMBOL_ERROR, 600)
    assert rate.tolist() == [1, 2, 0]
    assert t.tolist() == [1.7e9 + 10, 1.7e9 + 20, 1.7e9 + 30]
    assert filled(counts=[0, 0]).series("h1/1", C.SYMBOL_ERROR, 600)[1].tolist() == [0]


def test_a_reset_counts_from_zero_and_what_is_not_known_is_a_gap():
    t, rate = filled(counts=[100, 110, 40, 50, 60], known=lambda i: i != 3).series("h1/1", C.SYMBOL_ERROR, 600)
    assert rate[:2].tolist() == [1, 4]
    assert np.isnan(rate[2:]).all()
    assert len(t) == 4


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_tears_no_hole(step_s):
    t, rate = filled(counts=[10 * i for i in range(6)], step_s=step_s).series("h1/1", C.SYMBOL_ERROR, 600)
    assert np.diff(t).tolist() == [10] * 4
    assert rate.tolist() == [1] * 5
    assert t[-1] == 1.7e9 + 50 + step_s


def test_a_lab_whose_clock_is_faster_has_its_own_rates_at_our_times():
    t, rate = filled(counts=[0, 1000, 2000], speed=100).series("h1/1", C.SYMBOL_ERROR, 600)
    assert rate.tolist() == [1, 1]
    assert t.tolist() == [1.7e9 + 10, 1.7e9 + 20]


def test_only_what_was_asked_for():
    history = filled(counts=range(10))
    assert len(history.series("h1/1", C.SYMBOL_ERROR, 25)[0]) == 3
    assert np.isnan(history.series("h99/1", C.SYMBOL_ERROR, 600)[1]).all()
    assert len(History(":memory:").series("h1/1", C.SYMBOL_ERROR, 600)[0]) == 0


def test_values_are_counts_of_readings_from_the_first_of_the_period_on():
    history = filled(counts=[5, 6, 7, 8], known=lambda i: i != 2)
    t, value = history.values("h1/1", C.SYMBOL_ERROR, 20)
    assert t.tolist() == [1.7e9 + 10, 1.7e9 + 20, 1.7e9 + 30]
    assert value[[0, 2]].tolist() == [6, 8]
    assert np.isnan(value[1])
    assert len(History(":memory:").values("h1/1", C.SYMBOL_ERROR, 20)[0]) == 0


def test_the_past_becomes_coarser_and_stays_true():
    """Many readings in a ring of twenty: the newest are all there, the oldest are far back, and every rate is right."""
    t, rate = filled(counts=[10 * i for i in range(140)], most=20).series("h1/1", C.SYMBOL_ERROR, 1e6)
    assert len(t) < 20
    assert np.diff(t)[-9:].tolist() == [10] * 9
    assert 80 in np.diff(t)
    assert t[-1] - t[0] >= 400
    np.testing.assert_allclose(rate, 1)


def test_ports_are_found_by_name_after_a_new_walk():
    history = filled(counts=[0, 10])
    keep = np.array([name != "h2" for name in FABRIC.nodes.name])
    history.add(make_reading(make_ports(FABRIC.subset(keep)), 30, at_s=27.0, stamp_s=1.7e9 + 20), 120.0)
    assert history.series("h3/1", C.SYMBOL_ERROR, 600)[1].tolist() == [1, 2]
    assert np.isnan(history.series("h2/1", C.SYMBOL_ERROR, 600)[1][-1])


def test_a_restart_is_a_gap(tmp_path, monkeypatch):
    """The monotonic clock begins anew with the machine: no rate goes across."""
    filled(tmp_path / "h.db", counts=[0, 10]).close()
    monkeypatch.setattr("weft.monitor.history._boot", lambda: "another")
    history = History(tmp_path / "h.db")
    for i in range(2):
        at_s = 500.0 + 10 * i
        history.add(make_reading(PORTS, 10 * i, at_s=at_s, stamp_s=1.7e9 + 100 + 10 * i), at_s)
    t, rate = history.series("h1/1", C.SYMBOL_ERROR, 600)
    assert t.tolist() == [1.7e9 + 10, 1.7e9 + 100, 1.7e9 + 110]
    assert rate[[0, 2]].tolist() == [1, 1]
    assert np.isnan(rate[1])


def test_a_file_that_is_no_history_says_so(tmp_path):
    (tmp_path / "h.db").write_text("no database " * 100)
    with pytest.raises(ConfigError, match=r"history .*h\.db: file is not a database"):
        History(tmp_path / "h.db")
