"""A walk that is brought up to date equals a whole one, and costs less."""

from __future__ import annotations

import numpy as np
import pytest
from tests.random_faults import RandomFaults

from weft.mad import faults
from weft.mad.rewalk import rewalk
from weft.mad.walk import walk

ARRAYS = "node_info", "switch_info", "path", "hops", "first", "port_info", "port_guid", "peer"


def assert_same(update, fresh):
    assert update.description == fresh.description
    for name in ARRAYS:
        assert np.array_equal(getattr(update, name), getattr(fresh, name)), name
        assert getattr(update, name).dtype == getattr(fresh, name).dtype, name
    assert (update.start_port, update.oddities) == (fresh.start_port, fresh.oddities)


def nodes_of(bench, before, names):
    """Return the nodes of a walk with these names."""
    guids = {int(bench.devices.fabric.nodes.guid[bench.node(name)]) for name in names}
    held = before.node_info[:, 12:20].copy().view(">u8")[:, 0].tolist()
    return np.array([node for node, guid in enumerate(held) if guid in guids], np.int64)


@pytest.mark.parametrize("spec", ["fat-tree:hosts=8,radix=4", "torus:3x3,hosts=1"])
@pytest.mark.parametrize("seed", range(3))
def test_a_walk_brought_up_to_date_after_random_faults_equals_a_fresh_one(make_bench, spec, seed):
    bench = make_bench(spec)
    random_faults, before, updates = RandomFaults(bench.devices, bench.slot, seed), walk(bench.carrier), 0
    for _ in range(40):
        names = set().union(*(random_faults.apply_one() for _ in range(random_faults.rng.randint(1, 3))))
        update, fresh = rewalk(bench.carrier, before, nodes_of(bench, before, names)), walk(bench.carrier)
        if update is not None:
            assert_same(update, fresh)
            updates += 1
        before = fresh
    assert updates > 30


def test_no_mad_is_sent_into_a_link_that_is_down(running):
    before, sent = walk(running.carrier), running.clock.now_s
    faults.pull_cable(running.devices, running.slot_of("leaf1/3"))  # the spine behind it has another path
    update = rewalk(running.carrier, before, np.arange(len(before)))
    assert running.clock.now_s == sent
    assert_same(update, walk(running.carrier))


class WithSilentNode:
    """A carrier on which the node at the end of a path does not answer; links to it stay up."""

    def __init__(self, carrier, path, hops):
        self.carrier, self.path, self.hops = carrier, path, int(hops)

    def exchange(self, mads, to=None, **options):
        answers, came = self.carrier.exchange(mads, to, **options)
        silent = (mads[:, 7] == self.hops) & (mads[:, 128 : 128 + 64] == self.path).all(axis=1)
        answers[silent] = 0
        return answers, came & ~silent


def test_a_silent_node_and_a_walk_with_oddities_need_a_whole_walk(running):
    before = walk(running.carrier)
    (leaf,) = nodes_of(running, before, ["leaf1"])
    silent = WithSilentNode(running.carrier, before.path[leaf], before.hops[leaf])
    for named in (["leaf1"], ["spine1"], ["h1"]):  # it, a node behind it, and a node before it
        update = rewalk(silent, before, nodes_of(running, before, named))
        assert (update is None) == (named != ["spine1"])
    fresh = walk(silent)
    assert fresh.oddities
    assert rewalk(running.carrier, fresh, np.arange(1)) is None
    assert_same(rewalk(running.carrier, before, np.arange(len(before))), before)


def test_nodes_that_are_not_named_are_not_read(running):
    before = walk(running.carrier)
    running.devices.describe(running.node("h2"), "renamed")
    assert_same(rewalk(running.carrier, before, nodes_of(running, before, ["h3"])), before)
    assert "renamed" in rewalk(running.carrier, before, nodes_of(running, before, ["h2"])).description
