"""The mutation tester: the changes it makes, and the tests it selects."""

from __future__ import annotations

from tests.import_graph import ROOT, ImportGraph
from tests.mutate import find_mutants

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


def test_nearest_tests_of_a_module_come_first_and_other_packages_run_direct_imports_only():
    tests = [str(test.relative_to(ROOT)) for test in ImportGraph().tests_of(ROOT / "src/weft/sm/ucast/lids.py")]
    assert "tests/sm/test_lids.py" in tests
    assert tests.index("tests/sm/test_lids.py") < tests.index("tests/sm/test_sweep.py")
    assert not [test for test in tests if test.startswith("tests/serve/")]
