"""A sample of `benchmarks/random_runs.py`, which draws workloads with losses, dependencies, VLs, faults and flaps."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "random_runs.py"


@pytest.fixture(scope="module")
def random_runs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("random_runs", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_random_runs_end_the_same_on_one_two_and_three_threads(random_runs: ModuleType):
    seeds = range(30)
    expected = [random_runs.outcome(seed, divided=True) for seed in seeds]
    for threads in (2, 3):
        assert [random_runs.several(seed, threads) for seed in seeds] == expected
    options = [random_runs.draw(seed)[2] for seed in seeds]
    assert any(len(each.get("faults", ())) > 1 for each in options)  # flaps
    assert len({(each["network"], each["congestion_control"]) for each in options}) > 8


@pytest.mark.slow
def test_random_runs_interpreted_end_as_compiled(random_runs: ModuleType):
    command = [sys.executable, str(PATH), "6", "--print"]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    interpreted = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert interpreted.splitlines() == ["\t".join(pair) for pair in random_runs.lines(0, 6)]
