"""LIDs: kept if present, restored if known from before, new otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sm.conftest import Net

from weft.mad.walk import walk
from weft.sm.discovery.view import make_view
from weft.sm.ucast.lids import choose_lids
from weft.wire.bulk import fill
from weft.wire.port_info import PortInfo


@pytest.fixture(scope="module")
def view():
    return make_view(walk(Net("fat-tree:hosts=16,radix=8")))


def with_lids(view, lids):
    """Return the view with these LIDs at its end ports."""
    result = view.port_info.copy()
    rows = result[view.end_ports]
    fill(rows, PortInfo.lid, np.array(lids, np.int64))
    result[view.end_ports] = rows
    from dataclasses import replace

    return replace(view, port_info=result)


def guid(view, end):
    return int(view.fabric.ports.guid[view.end_ports[end]])


def blocks(view, chosen):
    """Return every LID of every port."""
    ends = view.end_ports
    return [lid + i for lid, lmc in zip(chosen.lid[ends], chosen.lmc[ends], strict=True) for i in range(1 << lmc)]


def test_a_fresh_subnet_gets_the_lowest_lids(view):
    chosen = choose_lids(view, {})
    assert sorted(chosen.lid[view.end_ports]) == list(range(1, len(view.end_ports) + 1))
    assert not len(chosen.changed)


def test_lids_that_ports_have_stay(view):
    lids = [1000 + 7 * i for i in range(len(view.end_ports))]
    chosen = choose_lids(with_lids(view, lids), {})
    assert chosen.lid[view.end_ports].tolist() == lids


def test_the_highest_unicast_lid_is_kept_and_the_one_above_is_not(view):
    lids = [0] * len(view.end_ports)
    lids[:2] = 0xBFFF, 0xC000
    chosen = choose_lids(with_lids(view, lids), {})
    assert chosen.lid[view.end_ports[0]] == 0xBFFF
    assert chosen.changed.tolist() == [view.end_ports[1]]


def test_a_port_that_was_away_gets_its_lid_back_and_others_do_not_take_it(view):
    absent = 0x1234
    chosen = choose_lids(view, {guid(view, 3): 40, absent: 1})
    assert chosen.lid[view.end_ports[3]] == 40
    assert 1 not in chosen.lid[view.end_ports]


def test_of_two_ports_with_one_lid_the_remembered_one_keeps_it(view):
    lids = [0] * len(view.end_ports)
    lids[2] = lids[5] = 77
    chosen = choose_lids(with_lids(view, lids), {guid(view, 5): 77})
    assert chosen.lid[view.end_ports[5]] == 77
    assert chosen.changed.tolist() == [view.end_ports[2]]


def test_with_honor_what_is_remembered_goes_before_what_ports_have(view):
    lids = [0] * len(view.end_ports)
    lids[2] = 77
    chosen = choose_lids(with_lids(view, lids), {guid(view, 2): 9}, honor=True)
    assert chosen.lid[view.end_ports[2]] == 9
    assert choose_lids(with_lids(view, lids), {guid(view, 2): 9}).lid[view.end_ports[2]] == 77


def test_reassign_forgets_everything(view):
    chosen = choose_lids(with_lids(view, range(500, 500 + len(view.end_ports))), {guid(view, 1): 9}, reassign=True)
    assert sorted(chosen.lid[view.end_ports]) == list(range(1, len(view.end_ports) + 1))


def test_when_lids_run_out_the_rest_has_none_and_absent_ports_lose_theirs(view, monkeypatch):
    monkeypatch.setattr("weft.sm.ucast.lids._LIDS", 16)
    chosen = choose_lids(view, {0x1234: 3})
    given_out = chosen.lid[view.end_ports]
    assert sorted(given_out[given_out > 0]) == list(range(1, 16))
    assert len(chosen.without) == len(view.end_ports) - 15


@settings(max_examples=60)
@given(st.data(), st.integers(0, 3))
def test_lid_blocks_are_distinct_aligned_and_legal(data, lmc):
    view = _view()
    n = len(view.end_ports)
    result = data.draw(st.lists(st.integers(0, 0xFFFF), min_size=n, max_size=n))
    remaining = data.draw(st.dictionaries(st.integers(0, n - 1), st.integers(1, 0xBFFF), max_size=n))
    chosen = choose_lids(with_lids(view, result), {guid(view, end): lid for end, lid in remaining.items()}, lmc=lmc)
    used = blocks(view, chosen)
    assert len(set(used)) == len(used)
    assert min(used) > 0
    assert max(used) < 0xC000
    lids = chosen.lid[view.end_ports]
    assert (lids % (1 << chosen.lmc[view.end_ports].astype(int)) == 0).all()


_made = []


def _view():
    if not _made:
        _made.append(make_view(walk(Net("fat-tree:hosts=16,radix=8"))))
    return _made[0]
