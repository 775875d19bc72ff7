"""The selection of tests by the import graph, for changes and for mutants."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests import quick
from tests.import_graph import ROOT, ImportGraph, module_name
from tests.quick import Selection, changed_files, select


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    return ImportGraph()


def names(selection: Selection) -> set[str]:
    """Return the names of the selected files, and of the documents that are tested."""
    run = {str(path.relative_to(ROOT)) for path in selection.tests}
    return run | {f"no {path.relative_to(ROOT)}" for path in selection.skipped_documents}


@pytest.mark.parametrize(
    ("changed", "selected", "others"),
    [
        ("src/weft/cli/nccl.py", {"tests/cli/test_nccl.py", "tests/examples/test_documents.py"}, {"no docs/sm.md"}),
        ("src/weft/sm/ucast/lids.py", {"tests/sm/test_lids.py", "tests/cli/test_sm.py"}, {"tests/wire/test_crc.py"}),
        ("src/weft/diags/ibstat.py", {"tests/diags/test_diags.py"}, {"tests/test_ids.py"}),
        ("src/weft/sim/packet/congestion/dcqcn.py", {"tests/sim/test_congestion.py"}, {"tests/test_ids.py"}),
        ("src/weft/fabric/catalog/switches.toml", {"tests/fabric/test_catalog.py"}, {"tests/test_ids.py"}),
        ("src/weft/verbs/front/pyverbs/__init__.py", {"tests/verbs/test_launch.py"}, {"tests/wire/test_crc.py"}),
        ("tests/wire/conftest.py", {"tests/wire/test_crc.py"}, {"tests/sm/test_lids.py"}),
        ("docs/nccl.md", {"tests/examples/test_documents.py", "tests/test_site.py"}, {"tests/sm/test_lids.py"}),
        ("web/src/main.ts", {"tests/interop/test_console.py"}, {"tests/sm/test_lids.py"}),
        ("Dockerfile", {"tests/test_dockerfile.py"}, {"tests/sm/test_lids.py"}),
    ],
)
def test_a_changed_file_selects_the_tests_that_depend_on_it(graph, changed, selected, others):
    result = names(select([ROOT / changed], graph))
    assert selected <= result
    assert {name for name in others if name.startswith("no ")} <= result
    assert not {name for name in others if not name.startswith("no ")} & result


def test_a_document_that_runs_a_changed_command_is_not_skipped(graph):
    assert "no docs/nccl.md" not in names(select([ROOT / "src/weft/cli/nccl.py"], graph))


@pytest.mark.parametrize("changed", ["pyproject.toml", "tests/conftest.py", "tests/warm.py"])
def test_settings_of_all_tests_select_everything(graph, changed):
    assert select([ROOT / changed], graph) == Selection(sorted((ROOT / "tests").rglob("test_*.py")), [])


def test_skipped_documents_are_deselected(graph):
    words = select([ROOT / "docs/nccl.md"], graph).arguments()
    name = "tests/examples/test_documents.py::test_the_blocks_of_a_document_run"
    assert f"--deselect={name}[docs/sm.md]" in words
    assert f"--deselect={name}[docs/nccl.md]" not in words


def test_nearest_tests_of_a_module_come_first_and_other_packages_run_direct_imports_only(graph):
    tests = [str(test.relative_to(ROOT)) for test in graph.tests_of(ROOT / "src/weft/sm/ucast/lids.py")]
    assert "tests/sm/test_lids.py" in tests
    assert tests.index("tests/sm/test_lids.py") < tests.index("tests/sm/test_sweep.py")
    assert not [test for test in tests if test.startswith("tests/serve/")]


def test_changes_are_those_since_the_branch_left_the_base_and_new_files(tmp_path, monkeypatch):
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]

    def commit(name: str) -> None:
        (tmp_path / name).write_text("")
        for words in (["add", "."], ["commit", "-q", "-m", name]):
            subprocess.run([*git, *words], cwd=tmp_path, check=True)

    subprocess.run([*git, "init", "-q", "-b", "main"], cwd=tmp_path, check=True)
    commit("old")
    commit("edited")
    subprocess.run([*git, "switch", "-q", "-c", "branch"], cwd=tmp_path, check=True)
    commit("committed")
    (tmp_path / "edited").write_text("changed")
    (tmp_path / "new").write_text("")
    assert changed_files("main") == [tmp_path / name for name in ("committed", "edited", "new")]
    assert changed_files("HEAD") == [tmp_path / name for name in ("edited", "new")]


_IMPORTED = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps([name for name in sys.modules if name.startswith("weft.")]))
"""


@pytest.mark.parametrize("module", ["tests.serve.test_command", "tests.sim.test_congestion"])
def test_every_module_that_a_test_imports_selects_it(graph, module):
    command = [sys.executable, "-c", _IMPORTED, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    path = ROOT / f"{module.replace('.', '/')}.py"
    files = {module_name(file): file for file in (ROOT / "src/weft").rglob("*.py")}
    assert [name for name in json.loads(done.stdout) if path not in graph.dependents([files[name]])] == []
