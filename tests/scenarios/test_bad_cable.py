"""A cable goes bad in secret, in a lab with a subnet manager, and the counters are asked which."""

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
    """Before `patient`: a lab of this process, as that one is."""
    return bad_cable.run(spec=SPEC, ill="width", seed=2)


@pytest.fixture(scope="module")
def patient(finding):
    with bad_cable.ward(SPEC) as patient:
        patient.lab.load("all-to-all@80%", speed=0)
        yield patient


def test_the_finding_has_what_was_done_what_was_found_and_what_it_cost(finding, tmp_path):
    figures = finding.figures
    assert figures["found"]
    assert figures["polls"] == 2
    assert sorted(figures["suspect"]["ends"]) == figures["injected"]["ends"]
    assert figures["job"]["slowest_pair_with_it"] < figures["job"]["slowest_pair"]
    bad_cable.draw(finding, tmp_path / "job.svg")
    assert "all cables good" in (tmp_path / "job.svg").read_text()


@pytest.mark.parametrize("ill", bad_cable.ILLS)
def test_the_cable_is_found_and_the_ill_is_named(patient, ill):
    bad = patient.make_ill(ill, np.random.default_rng(3))
    *_, last = patient.diagnoses(2, 600)
    patient.lab.fix()
    patient.sweep()
    (suspect,) = last.suspects
    assert frozenset(suspect.ends) == bad.ends
    assert suspect.kind == KINDS[ill]


def test_a_fabric_with_old_counts_and_good_cables_is_well(patient):
    *_, last = patient.diagnoses(2, 600)
    assert isinstance(last, Diagnosis)
    assert last.is_well


@pytest.mark.parametrize(("words", "why"), [({"ill": "rust"}, "cannot have 'rust'"), ({"polls": 1}, "show no change")])
def test_what_cannot_be_is_refused(words, why):
    with pytest.raises(ConfigError, match=why):
        bad_cable.run(spec=SPEC, **words)
