"""Two readings: known values are true, unknown ones have a reason, and every reason is reported."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.monitor.watched import delta

import weft
from weft.errors import ConfigError
from weft.monitor.change import Change, between
from weft.monitor.columns import TRAFFIC, Column
from weft.monitor.poll import Reading
from weft.monitor.ports import Ports

FABRIC = weft.load("star:hosts=4")
C = Column
ROUND = 1 << 32
NARROW = [*range(TRAFFIC.start, TRAFFIC.stop), C.PORT_XMIT_WAIT]


def make_ports(fabric=FABRIC, *, is_long: bool = True, rate_gbit_s: float = 400.0) -> Ports:
    n, peer = len(fabric.ports), fabric.ports.peer
    ints, yes = np.ones(n, np.int64), np.full(n, True)
    return Ports(
        fabric=fabric,
        lid=ints,
        number=fabric.ports.number,
        peer=peer,
        far_guid=np.where(peer >= 0, fabric.nodes.guid[fabric.ports.node[peer]], np.uint64(0)),
        far_number=np.where(peer >= 0, fabric.ports.number[peer], 0).astype(np.int16),
        rate_gbit_s=np.full(n, rate_gbit_s),
        width_active=ints,
        width_supported=ints,
        speed_active=ints,
        speed_supported=ints,
        state=ints,
        physical=ints,
        is_long=yes & is_long,
        is_longest=yes & is_long,
        has_wait=yes,
        has_qp1_dropped=yes,
        has_fec=yes,
        has_rs_fec=yes,
    )


def make_reading(ports: Ports, counters, known=True, *, at_s: float = 0.0, stamp_s: float = 0.0) -> Reading:
    shape = len(ports), len(Column)
    flags = np.broadcast_to(np.asarray(known) & ports.is_polled[:, None], shape).copy()
    counts = np.where(flags, np.broadcast_to(np.asarray(counters, np.int64), shape), 0)
    return Reading(at_s=at_s, stamp_s=stamp_s, ports=ports, counters=counts, known=flags, oddities=())


def recabled(fabric, a: str, b: str):
    """Return the fabric with the other ends of two cables exchanged."""
    links, item, two = fabric.links, fabric.find_port(a).slot, fabric.find_port(b).slot
    ends = {item: two, two: item}
    swapped = replace(links, a=np.array([ends.get(slot, slot) for slot in links.a.tolist()], np.int32))
    assert not np.array_equal(swapped.a, links.a)
    n = fabric.nodes
    return type(fabric).assemble(
        "recabled", n, swapped, fabric.ports.guid, fabric.models, fabric.servers, fabric.groups
    )


def kinds(change: Change) -> set[tuple[str, str]]:
    return {(event.kind, event.port) for event in change.events}


counts = st.integers(0, 1 << 40)


@given(data=st.data())
def test_reported_changes_are_correct(data):
    """Counters are reset, wrap and become unreadable; a known difference is the true one, or less after a reset."""
    is_long = data.draw(st.booleans())
    ports = make_ports(is_long=is_long)
    seconds = data.draw(st.sampled_from([0.0, 0.001, 0.1, 1.0, 60.0]))
    slots = np.flatnonzero(ports.is_polled)
    most = int(seconds * 400e9 / 32)
    shape = len(ports), len(Column)
    start, came, reset = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
    heard = np.ones((2, *shape), bool)
    for slot in slots:
        for column in (C.SYMBOL_ERROR, C.PORT_XMIT_DATA_WORDS, C.PORT_RCV_PKTS, C.PORT_XMIT_WAIT):
            narrow = not is_long and column in NARROW
            start[slot, column] = data.draw(st.integers(0, (ROUND if narrow else 1 << 40) - 1))
            came[slot, column] = data.draw(st.integers(0, most if column in NARROW else 1 << 20))
        reset[slot] = data.draw(st.booleans())
        heard[:, slot] = data.draw(st.tuples(st.booleans(), st.booleans()).map(lambda pair: np.array(pair)[:, None]))
    end = np.where(reset, came, start + came)
    if not is_long:
        end[:, NARROW] %= ROUND
    change = between(
        make_reading(ports, start, heard[0], at_s=5.0, stamp_s=9e8),
        make_reading(ports, end, heard[1], at_s=5.0 + seconds, stamp_s=1.0),
    )
    assert change.seconds == pytest.approx(seconds)
    assert (change.delta >= 0).all()
    assert not change.known[~(heard.all(axis=0))].any()
    trusted = change.known & ~reset & ~change.is_reset[:, None]
    if is_long:
        trusted_columns = slice(None)
        assert change.known[slots][heard.all(axis=0)[slots]].all()  # and no gap is invented
    else:
        wide = [column for column in range(len(Column)) if column not in NARROW]
        trusted_columns = wide if most >= ROUND else slice(None)  # a line that goes round twice cannot be told
    np.testing.assert_array_equal(
        change.delta[:, trusted_columns][trusted[:, trusted_columns]],
        came[:, trusted_columns][trusted[:, trusted_columns]],
    )
    lower = change.known & reset
    if is_long:
        assert (change.delta[lower] <= came[lower]).all()


@given(before=counts, after=counts)
def test_decreased_counter_was_reset_and_counted_since(before, after):
    ports = make_ports()
    change = between(make_reading(ports, before), make_reading(ports, after, at_s=1.0))
    expected = after - before if after >= before else after
    assert delta(change, "h1/1", C.SYMBOL_ERROR) == expected
    assert bool(change.is_reset.any()) == (after < before)
    assert (("reset", "h1/1") in kinds(change)) == (after < before)


@given(
    before=st.integers(0, ROUND - 2),
    came=st.integers(1, ROUND - 1),
    rate_gbit_s=st.sampled_from([10.0, 100.0, 400.0]),
)
def test_32_bits_go_round(before, came, rate_gbit_s):
    """A line that just carried `came` words, and could not carry a round more, tells the truth when it wraps."""
    ports = make_ports(is_long=False, rate_gbit_s=rate_gbit_s)
    seconds = came * 32 / (rate_gbit_s * 1e9) * 1.001
    after = (before + came) % ROUND
    change = between(make_reading(ports, before), make_reading(ports, after, at_s=seconds))
    assert delta(change, "h1/1", C.PORT_XMIT_DATA_WORDS) == came
    assert (("wrapped", "h1/1") in kinds(change)) == (after < before)
    if after < before:
        assert delta(change, "h1/1", C.SYMBOL_ERROR) == after  # errors stick at their end: they were reset


def test_32_bits_that_may_have_gone_round_twice_are_not_known():
    ports = make_ports(is_long=False)
    change = between(make_reading(ports, 1000), make_reading(ports, 10, at_s=60.0))
    assert delta(change, "h1/1", C.PORT_XMIT_DATA_WORDS) is None
    assert ("wrapped", "h1/1") in kinds(change)


def test_32_bits_that_had_time_to_go_round_exactly_twice_are_not_known_and_before_that_they_are():
    """Twice round from 1,000 to 10 takes 27.5 s at 10 Gbit/s."""
    ports = make_ports(is_long=False, rate_gbit_s=10.0)
    twice_s = (2 * ROUND - 990) * 32 / 10e9
    for at_s, expected in ((twice_s * 1.0001, None), (twice_s * 0.9999, ROUND - 990)):
        change = between(make_reading(ports, 1000), make_reading(ports, 10, at_s=at_s))
        assert delta(change, "h1/1", C.PORT_XMIT_DATA_WORDS) == expected


def test_32_bits_that_no_line_could_have_carried_were_reset():
    """Wrapping from 1,000 to 10 takes 13.7 s at 10 Gbit/s."""
    ports = make_ports(is_long=False, rate_gbit_s=10.0)
    change = between(make_reading(ports, 1000), make_reading(ports, 10, at_s=13.5))
    assert delta(change, "h1/1", C.PORT_XMIT_DATA_WORDS) == 10
    assert ("reset", "h1/1") in kinds(change)


@given(step_s=st.floats(-1e9, 1e9))
def test_a_clock_that_is_set_changes_no_interval(step_s):
    ports = make_ports()
    change = between(
        make_reading(ports, 5, at_s=100.0, stamp_s=1.7e9), make_reading(ports, 9, at_s=110.0, stamp_s=1.7e9 + step_s)
    )
    assert change.seconds == 10.0
    assert delta(change, "h1/1", C.SYMBOL_ERROR) == 4
    assert not change.events


def test_a_reading_against_itself_is_nothing_in_no_time():
    reading = make_reading(make_ports(), 7)
    change = between(reading, reading)
    assert change.seconds == 0
    assert not change.delta.any()
    assert not change.events


def test_readings_in_the_wrong_order_are_refused():
    ports = make_ports()
    with pytest.raises(ConfigError, match="in order of time"):
        between(make_reading(ports, 0, at_s=3.0), make_reading(ports, 0, at_s=2.0))


def test_a_port_on_another_cable_is_another_port():
    """And its neighbours, whose cables stayed, are known."""
    moved = recabled(FABRIC, "h1/1", "h2/1")
    change = between(make_reading(make_ports(), 5), make_reading(make_ports(moved), 9, at_s=1.0))
    for port in ("h1/1", "h2/1"):
        assert delta(change, port, C.SYMBOL_ERROR) is None
        assert ("moved", port) in kinds(change)
        assert delta(change, str(FABRIC.find_port(port).peer), C.SYMBOL_ERROR) is None
    assert delta(change, "h3/1", C.SYMBOL_ERROR) == 4


def test_ports_are_found_by_guid_wherever_their_rows_are():
    """A host leaves: rows move, and those that stay are compared with themselves."""
    keep = np.array([name != "h2" for name in FABRIC.nodes.name])
    fewer = FABRIC.subset(keep)
    assert fewer.find_port("h3/1").slot != FABRIC.find_port("h3/1").slot
    before = np.arange(len(FABRIC.ports))[:, None] * np.ones(len(Column), np.int64)
    rows = np.flatnonzero(keep[FABRIC.ports.node])
    ports = make_ports(fewer).with_cables_of(make_ports())
    change = between(make_reading(make_ports(), before), make_reading(ports, before[rows] + 3, at_s=1.0))
    for port in ("h1/1", "h3/1", str(FABRIC.find_port("h2/1").peer)):
        assert delta(change, port, C.SYMBOL_ERROR) == 3
    assert kinds(change) == {("gone", "h2/1")}
    back = between(make_reading(ports, before[rows]), make_reading(make_ports(), before, at_s=1.0))
    assert delta(back, "h2/1", C.SYMBOL_ERROR) is None
    assert delta(back, "h3/1", C.SYMBOL_ERROR) == 0
    assert ("new", "h2/1") in kinds(back)
