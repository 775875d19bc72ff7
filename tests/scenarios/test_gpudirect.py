"""GPUDirect: the cost of a copy, counted."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.fabric.timing import timings
from weft.scenarios import gpudirect
from weft.scenarios.gpudirect import NAMES, REDUCED, SIZES
from weft.sim.engine import Memory

HOST, DIRECT, STAGED = (NAMES[memory] for memory in Memory)


@pytest.fixture(scope="module")
def finding():
    return gpudirect.run()


@pytest.mark.parametrize("memory", [Memory.GPUDIRECT, Memory.STAGED])
def test_a_small_message_waits_for_both_ends(finding, memory):
    more_us = finding.figures[NAMES[memory]]["latency_us"][SIZES[0]] - finding.figures[HOST]["latency_us"][SIZES[0]]
    assert more_us == pytest.approx(2 * timings().memory[memory].latency_ns / 1000, abs=0.05)


def test_large_messages_go_at_the_speed_of_the_copy_or_of_the_line(finding):
    rates = {name: each["gbit_s"][SIZES[-1]] for name, each in finding.figures.items()}
    assert rates[STAGED] == pytest.approx(timings().memory[Memory.STAGED].gbit_s, rel=0.02)
    assert rates[DIRECT] == rates[HOST] == pytest.approx(392, abs=2)


def test_an_all_reduce_is_slower_without_gpudirect_at_every_size(finding):
    direct, staged = (finding.figures[name]["all_reduce_us"] for name in (DIRECT, STAGED))
    assert list(direct) == list(staged) == list(REDUCED)
    assert all(staged[size] > direct[size] for size in REDUCED)
    assert not finding.figures[HOST]["all_reduce_us"]


def test_one_server_is_refused():
    with pytest.raises(ConfigError, match="--servers must be 2 or more"):
        gpudirect.run(servers=1)


def test_gpus_are_counted_by_the_template():
    assert "all-reduces of all 144 GPUs" in gpudirect.run(server="gb200-nvl72").ran
