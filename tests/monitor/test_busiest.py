"""The first rows of `weft top`."""

from __future__ import annotations

import numpy as np
import pytest
from tests.monitor.test_change import FABRIC, make_ports, make_reading

from weft.monitor.busiest import busiest
from weft.monitor.change import between
from weft.monitor.columns import Column
from weft.monitor.health import health

C = Column
PORTS = make_ports()


def changed(*counts: tuple[str, Column, int], seconds: float = 10.0, silent: str = ""):
    after, recorded = np.zeros((len(PORTS), len(Column)), np.int64), np.full((len(PORTS), 1), True)
    for port, column, count in counts:
        after[FABRIC.find_port(port).slot, column] = count
    if silent:
        recorded[FABRIC.find_port(silent).slot] = False
    return between(make_reading(PORTS, 0), make_reading(PORTS, after, recorded, at_s=seconds))


def test_errors_come_before_load_and_load_before_nothing():
    rows = busiest(changed(("h3/1", C.PORT_RCV_ERRORS, 1), ("h2/1", C.PORT_XMIT_DATA_WORDS, 10**10)))
    assert [row.port for row in rows[:2]] == ["h3/1", "h2/1"]
    assert rows[0].rcv_errors == 1


def test_every_link_is_there_once():
    rows = busiest(changed())
    assert len(rows) == len(FABRIC.links)
    assert len({frozenset((row.port, row.peer)) for row in rows}) == len(rows)
    assert len(busiest(changed(), count=2)) == 2


def test_load_is_a_share_of_the_line_and_the_busier_way_counts():
    words = int(400e9 / 32 * 10 / 4)  # a quarter of 400 Gbit/s for 10 s
    for seconds, share in ((10.0, 0.25), (0.5, 1.0)):
        row = busiest(changed(("h2/1", C.PORT_RCV_DATA_WORDS, words), seconds=seconds), "load")[0]
        assert (row.port, row.in_gbit_s, row.out_gbit_s) == ("h2/1", pytest.approx(400 * share), 0)
        assert row.load == pytest.approx(share)


def test_waiting_is_a_share_of_the_time():
    row = busiest(changed(("h2/1", C.PORT_XMIT_WAIT, int(5 / 22e-9)), ("h1/1", C.SYMBOL_ERROR, 5)), "wait")[0]
    assert row.port == "h2/1"
    assert row.wait == pytest.approx(0.5)


def test_unknown_rates_are_none_and_come_last():
    rows = busiest(changed(silent="h2/1"), count=99)
    by_port = {row.port: row for row in rows}
    assert "h2/1" not in by_port  # the other end of its cable is known
    assert by_port[str(FABRIC.find_port("h2/1").peer)].symbol_errors == 0


def test_no_time_is_no_rate():
    row = busiest(changed(seconds=0.0))[0]
    assert (row.load, row.wait, row.out_gbit_s) == (None, None, None)


def test_no_port_sends_or_waits_more_than_all_of_the_time():
    """The time of a reading is not exact: a busy machine may read counters later than the clock."""
    words = int(1.1 * 400e9 / 32 * 10)
    change = changed(("h2/1", C.PORT_XMIT_DATA_WORDS, words), ("h2/1", C.PORT_XMIT_WAIT, int(11 / 22e-9)))
    row = busiest(change, "load")[0]
    assert (row.out_gbit_s, row.load, row.wait) == (400.0, 1.0, 1.0)
    well, slot = health([change]), FABRIC.find_port("h2/1").slot
    assert (well.load[slot], well.wait_share[slot]) == (1.0, 1.0)


def test_a_port_without_a_rate_has_no_load_and_comes_last():
    ports = make_ports()
    ports.rate_gbit_s[FABRIC.find_port("h2/1").slot] = 0.0
    ports.rate_gbit_s[FABRIC.find_port("h2/1").peer.slot] = 0.0
    rows = busiest(between(make_reading(ports, 0), make_reading(ports, 0, at_s=10.0)), "load")
    assert [row.load for row in rows] == [0, 0, 0, None]
    assert rows[-1].rate_gbit_s == 0
