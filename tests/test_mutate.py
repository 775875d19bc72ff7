"""The mutation tester: the changes it makes, the tests it selects, and how it runs them."""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.import_graph import ROOT
from tests.mutants import find_function, find_mutants
from tests.mutate import (
    CallRecord,
    Outcome,
    as_compiled,
    choose_mutants,
    fork,
    list_sources,
    outcome_of,
    patch_functions,
    select_mutants,
)

SOURCE = """
LIMIT = 8

def take(queue, size: int = 1):
    if size > LIMIT and not queue:
        raise ValueError(size)
    queue[0] = min(size, 3)
"""


def test_operators_numbers_errors_and_assignments_are_changed_one_at_a_time(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(SOURCE)
    mutated = [mutant.apply(path.read_bytes()).decode() for mutant in find_mutants(path)]
    for old, new in (
        ("LIMIT = 8", "LIMIT = 9"),
        ("size > LIMIT", "size >= LIMIT"),
        ("and not", "or not"),
        ("not queue", "queue"),
        ("raise ValueError(size)", "pass"),
        ("queue[0] = min(size, 3)", "pass"),
        ("min(size", "max(size"),
    ):
        assert SOURCE.replace(old, new) in mutated
    assert len(mutated) == len(set(mutated)) == 10  # and the numbers 0, 1 and 3
    for source in mutated:
        compile(source, "module.py", "exec")


def test_messages_and_checks_of_equal_lengths_have_no_mutants(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("""class A(frozen=True): ...\nzip(a, b, strict=True)\nf"{a + 1}"\nraise ValueError("1" + "")\n""")
    assert [mutant.text for mutant in find_mutants(path)] == ["pass"]  # in place of the error


def test_a_line_belongs_to_the_innermost_function_and_a_signature_to_none():
    source = b"LIMIT = 8\ndef outer(\n    size=1,\n):\n    def inner():\n        return 1\n    return inner\n"
    functions = [find_function(source, line) for line in range(1, 8)]
    assert [function and function.name for function in functions] == [None] * 3 + [None, "outer", "inner", "outer"]


def test_kernels_and_the_constants_that_they_import_run_interpreted_and_all_else_compiled():
    files = list_sources("src/weft/sim/packet")
    mutants = [mutant for path in files for mutant in find_mutants(path)]
    interpreted = select_mutants(mutants, files, in_kernels=True)
    assert sorted(interpreted + select_mutants(mutants, files, in_kernels=False)) == mutants
    lines = {mutant.path.read_text().splitlines()[mutant.line - 1].strip() for mutant in interpreted}
    assert {"if run.left == 0:", "RETRIES = 7  # the maximum of the 3-bit retry_cnt"} <= lines
    assert not [mutant for mutant in interpreted if mutant.path.name in ("explain.py", "deadlock.py")]


@pytest.mark.parametrize(("only", "parts"), [(None, [9]), ("functions", [9, 9])])
def test_a_sample_is_of_both_kinds_of_code_or_of_one(only, parts):
    files = [*list_sources("src/weft/tenants/pair_kernels.py"), *list_sources("src/weft/tenants/violations.py")]
    options = argparse.Namespace(sample=9, seed=1, only=only)
    compiled, interpreted = (choose_mutants(files, options, in_kernels=in_kernels) for in_kernels in (False, True))
    sizes = [len(compiled), len(interpreted)]
    assert (sizes if only else [sum(sizes)]) == parts
    assert select_mutants(interpreted, files, in_kernels=True) == interpreted
    assert choose_mutants(files, argparse.Namespace(**vars(options) | {"seed": 2}), in_kernels=True) != interpreted


def test_make_passes_its_variables_on():
    words = ["make", "--dry-run", "mutate", "PACKAGE=sm", "MUTANTS=5", "SEED=7", "ONLY=kernels", "TESTS=a.py b.py"]
    printed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    command = " ".join(printed.replace("\\\n", " ").split())
    assert "tests.mutate sm --sample 5 --seed 7 --limit-s 20 --only kernels --tests a.py b.py" in command


def test_tests_that_call_the_fewest_functions_run_first_and_those_that_fail_do_not_run(tmp_path):
    path = tmp_path / "module.py"
    record = CallRecord(
        [
            *(f"call\ta.py::many\t{path}:{line}" for line in (3, 9)),
            f"call\tb.py::single\t{path}:3",
            f"call\tb.py::broken\t{path}:3",
            f"setup\tc.py::first\t{path}:9",
            *(f"passed\t{test}\t0.1" for test in ("a.py::many", "b.py::single", "b.py::other", "c.py::first")),
            "failed\tb.py::broken\t0.1",
        ]
    )
    assert record.tests_of(path, 3) == ["b.py::single", "a.py::many", "b.py::other"]
    assert record.tests_of(path, 9) == ["c.py::first", "a.py::many"]
    assert set(record.tests_of(path, None)) == {"a.py::many", "b.py::single", "b.py::other", "c.py::first"}
    assert record.tests_of(tmp_path / "other.py", 3) == []


def test_a_test_that_takes_too_much_cpu_time_does_not_displace_quick_ones(tmp_path):
    path = tmp_path / "module.py"
    tests = {"a.py::first": 19.0, "a.py::second": 19.0, "a.py::third": 0.5}
    lines = [f"call\t{test}\t{path}:3" for test in tests] + [f"passed\t{test}\t{s}" for test, s in tests.items()]
    assert CallRecord(lines).tests_of(path, 3) == ["a.py::first", "a.py::third"]
    assert CallRecord(lines, limit_s=19.4).tests_of(path, 3) == ["a.py::first"]
    assert CallRecord(lines, limit_s=38.5).tests_of(path, 3) == [*tests]


@pytest.mark.parametrize(("interpreted", "status"), [("", 1), ("1", 0)])
def test_a_division_by_zero_ends_no_test_of_interpreted_kernels(interpreted, status, tmp_path, monkeypatch):
    """As in compiled ones: NumPy would warn, and warnings are errors in tests."""
    test = tmp_path / "test_division.py"
    test.write_text("import numpy as np\n\n\ndef test_division():\n    assert np.float64(1) / np.float64(0) > 1\n")
    monkeypatch.delenv("NUMBA_DISABLE_JIT", raising=False)
    if interpreted:
        monkeypatch.setenv("NUMBA_DISABLE_JIT", interpreted)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *as_compiled(), str(test)]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == status


def test_a_changed_source_replaces_the_code_of_functions_that_are_imported_already(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("class Limit:\n    @property\n    def most(self):\n        return 1\n")
    spec = importlib.util.spec_from_file_location("module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    limit = module.Limit()
    assert patch_functions(path, path.read_bytes().replace(b"return 1", b"return 2"))
    assert limit.most == 2
    assert not patch_functions(tmp_path / "other.py", b"")


def test_a_fork_returns_its_status_and_ends_at_its_limit_of_cpu_time():
    assert fork(lambda: 0, 1) == 0
    assert fork(lambda: 3, 1) == 3
    assert fork(_raise, 1) == 1
    assert outcome_of(fork(_spin, 0)) is Outcome.TIMED_OUT


def test_a_mutant_past_a_time_limit_is_neither_killed_nor_a_survivor():
    assert outcome_of(fork(_sleep, 1, wall_limit_s=0.1)) is Outcome.TIMED_OUT
    assert [outcome_of(status) for status in (0, 5)] == [Outcome.SURVIVED] * 2  # all pass; no test was collected
    assert [outcome_of(status) for status in (1, 2, -signal.SIGSEGV)] == [Outcome.KILLED] * 3


def _sleep() -> int:
    time.sleep(60)
    return 0


def _raise() -> int:
    os.close(2)  # its traceback
    raise ValueError


def _spin() -> int:
    while True:
        time.sleep(0)
