"""Test the bad-cable scenario: a cable of a lab degrades, and the counters reveal which one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

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


# -- without a lab ----------------------------------------------------------------------------------------------------

INJECTED = bad_cable.InjectedFault(
    kind="errors", port="a/1", ends=frozenset({"b/2", "a/1"}), parameters={"bit_error_rate": 1.5e-9, "both": True}
)


def diagnosis(*ends: str) -> Any:
    suspect = SimpleNamespace(
        name=" - ".join(ends), kind="bad cable", ends=ends, confidence=0.9, evidence=("12 errors",), action="replace it"
    )
    return SimpleNamespace(seconds=30.0, suspects=(suspect,) if ends else ())


def job(gbit_s: float, slowest: float) -> dict[str, float]:
    return {"gbit_s": gbit_s, "slowest": slowest}


@pytest.mark.parametrize(
    ("ends", "found", "text"),
    [
        (("a/1", "b/2"), True, "After 3 polls the first suspect is a/1 - b/2, which it was: bad cable. 12 errors"),
        (("a/1", "c/3"), False, "but it was a/1 - b/2 (bit_error_rate 1.5e-09, both True): bad cable."),
        ((), False, "The cable was a/1 - b/2 (bit_error_rate 1.5e-09, both True); 3 polls show no suspect."),
    ],
)
def test_a_suspect_is_found_if_it_has_both_ends_of_the_cable(ends, found, text):
    seen = [diagnosis("x/1", "y/1"), diagnosis(*ends)]
    figures = bad_cable._figures(INJECTED, seen, job(400, 0.8), job(300, 0.5))
    assert (figures["found"], figures["polls"], figures["injected"]["ends"]) == (found, 3, ["a/1", "b/2"])
    assert (figures["suspect"] or {}).get("ends") == ([*ends] if ends else None)
    assert figures["job"] == {
        "gbit_s": 400, "gbit_s_with_it": 300, "slowest_pair": 0.8, "slowest_pair_with_it": 0.5,
    }  # fmt: skip
    sentence = bad_cable._sentence(INJECTED, seen[-1], figures)
    assert text in sentence
    assert sentence.startswith("The job has 300 Gbit/s of 400, its slowest pair 50.0% of its demand instead of 80.0%.")
    row = bad_cable._row(7, seen[-1])
    assert row == ((7, 30.0, 1, " - ".join(ends), "bad cable") if ends else (7, 30.0, 0, None, None))


@pytest.mark.parametrize(
    ("kind", "after", "start"),
    [
        ("flaps", 0.5, "While the link is down, the job has"),
        ("errors", bad_cable.FELT, "The job has"),
        ("errors", bad_cable.FELT + 0.001, "The job loses less than"),
    ],
)
def test_a_loss_that_is_felt_is_reported(kind, after, start):
    injected = bad_cable.InjectedFault(kind=kind, port="a/1", ends=frozenset({"a/1", "b/2"}), parameters={})
    figures = bad_cable._figures(injected, [diagnosis("a/1", "b/2")], job(400, 1.0), job(300, after))
    assert bad_cable._sentence(injected, diagnosis("a/1", "b/2"), figures).startswith(start)
