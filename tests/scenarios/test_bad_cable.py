"""Test the bad-cable scenario: a cable of a lab degrades, and the counters reveal which one."""

from __future__ import annotations

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.monitor.suspects import Diagnosis
from weft.scenarios import bad_cable

SPEC = "fat-tree:hosts=8,radix=4"
KINDS = {"errors": "bad cable", "one-way": "bad cable", "flaps": "flapping", "width": "degraded link"}


@pytest.fixture(scope="module")
def finding():
    """Run the scenario before `monitored` opens another lab in this process."""
    return bad_cable.run(spec=SPEC, fault="width", seed=2)


@pytest.fixture(scope="module")
def monitored(finding):
    with bad_cable.monitored_lab(SPEC) as monitored:
        monitored.lab.load("all-to-all@80%", speed=0)
        yield monitored


def test_the_finding_has_the_fault_the_suspect_and_the_cost(finding, tmp_path):
    figures = finding.figures
    assert figures["found"]
    assert figures["polls"] == 2
    assert sorted(figures["suspect"]["ends"]) == figures["injected"]["ends"]
    assert figures["job"]["slowest_pair_with_it"] < figures["job"]["slowest_pair"]
    bad_cable.draw(finding, tmp_path / "job.svg")
    assert "all cables good" in (tmp_path / "job.svg").read_text()


@pytest.mark.parametrize("fault", bad_cable.FAULT_KINDS)
def test_the_cable_and_its_fault_are_found(monitored, fault):
    bad = monitored.inject(fault, np.random.default_rng(3))
    *_, last = monitored.diagnoses(2, 600)
    monitored.lab.fix()
    monitored.sweep()
    (suspect,) = last.suspects
    assert frozenset(suspect.ends) == bad.ends
    assert suspect.kind == KINDS[fault]


def test_a_fabric_with_old_counts_and_good_cables_is_healthy(monitored):
    *_, last = monitored.diagnoses(2, 600)
    assert isinstance(last, Diagnosis)
    assert last.is_well


@pytest.mark.parametrize(("words", "why"), [({"fault": "rust"}, "got 'rust'"), ({"polls": 1}, "--polls must be 2")])
def test_invalid_options_are_refused(words, why):
    with pytest.raises(ConfigError, match=why):
        bad_cable.run(spec=SPEC, **words)
