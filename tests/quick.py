"""Run the tests that a change can affect, selected by the import graph.

    python -m tests.quick                     # changes since the branch left main, committed or not
    python -m tests.quick --base HEAD         # uncommitted changes alone
    python -m tests.quick --list              # print the selection
    python -m tests.quick -- -x -m "not slow" # options of pytest

A changed module selects the test files and the documents that depend on it (`tests.import_graph`); a document its own
test; any file the tests that name it or read all of its kind ("*.py"), and data in a package what its modules select.
A change of pyproject.toml, of tests/conftest.py or of what that imports from tests selects everything.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.documents import DOCUMENTS, read_blocks
from tests.import_graph import ROOT, ImportGraph

_EVERYTHING = {ROOT / "pyproject.toml", ROOT / "tests/conftest.py"}
_DOCUMENT_TESTS = ROOT / "tests/examples/test_documents.py"
_DOCUMENT_TEST = "test_the_blocks_of_a_document_run"


@dataclass(frozen=True, slots=True)
class Selection:
    """The test files to run, and the documents among them that need not run."""

    tests: list[Path]
    skipped_documents: list[Path]

    def arguments(self) -> list[str]:
        """Return the selection as arguments of pytest."""
        file = _DOCUMENT_TESTS.relative_to(ROOT)
        ids = [f"{file}::{_DOCUMENT_TEST}[{path.relative_to(ROOT)}]" for path in self.skipped_documents]
        return [str(test.relative_to(ROOT)) for test in self.tests] + [f"--deselect={name}" for name in ids]


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.split("\0")


def changed_files(base: str) -> list[Path]:
    """Return the files that differ from the commit where this branch left the base, and new ones."""
    start = _git("merge-base", "HEAD", base)[0].strip()
    names = _git("diff", "--name-only", "-z", "--no-renames", start) + _git(
        "ls-files", "--others", "--exclude-standard", "-z"
    )
    return sorted({ROOT / name for name in names if name})


def _nearest_modules(path: Path) -> Iterator[Path]:
    """Yield the modules of the nearest folder that has any: they may read the file."""
    for folder in path.parents:
        if modules := sorted(folder.glob("*.py")):
            yield from modules
            return


def select(changed: Iterable[Path], graph: ImportGraph | None = None) -> Selection:
    """Return the tests that changes of these files can affect."""
    graph = graph or ImportGraph()
    tests = {path for path in graph.words if path.name.startswith("test_")}
    changed = set(changed)
    in_tests = {path for path in changed if path.is_relative_to(ROOT / "tests")}
    if (changed | graph.dependents(in_tests)) & _EVERYTHING:
        return Selection(sorted(tests), [])
    roots, affected = set(changed), set()
    for path in changed:
        parts = path.relative_to(ROOT).parts
        if parts[0] in ("src", "tests") and path.suffix != ".py":
            roots |= set(_nearest_modules(path))
        elif parts[0] == "src" and graph.dependents([path]) <= {path} | tests:  # a package's docstring, a program
            affected |= {test for test in tests if test.is_relative_to(ROOT / "tests" / parts[2])}
        names = {path.name, f"*{path.suffix}", *parts[: parts[0] in ("benchmarks", "examples", "web")]} - {"*"}
        readers = tests if path.suffix == ".py" else graph.words.keys()
        roots |= {test for test in readers if names & graph.words[test]}
    affected |= graph.dependents(roots)
    return _with_documents(affected, tests, whole=_DOCUMENT_TESTS in graph.dependents(in_tests))


def _with_documents(affected: set[Path], tests: set[Path], *, whole: bool) -> Selection:
    """Return the tests among the affected files, and of the test of all documents those that are affected."""
    documents = [
        path
        for path in DOCUMENTS
        if any(read_block.language in ("console", "python") for read_block in read_blocks(path))
    ]
    skipped = [] if whole else [path for path in documents if path not in affected]
    selected = affected & tests
    if len(skipped) < len(documents):
        selected.add(_DOCUMENT_TESTS)
    return Selection(sorted(selected), skipped if _DOCUMENT_TESTS in selected else [])


def main() -> int:
    """Run pytest on the selected tests; return its status."""
    parser = argparse.ArgumentParser(description="Run the tests that a change can affect.")
    parser.add_argument("--base", default="main", help="compare with the commit where HEAD left this one")
    parser.add_argument("--list", action="store_true", help="print the selected tests and run none")
    parser.add_argument("options", nargs="*", help="options of pytest, after --")
    options = parser.parse_args()
    changed = changed_files(options.base)
    selection = select(changed)
    if options.list:
        print("\n".join(selection.arguments()))
        return 0
    print(f"{len(changed)} changed files since {options.base} affect {len(selection.tests)} test files", flush=True)
    if selection.tests:
        command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "worksteal", *options.options]
        os.execv(sys.executable, [*command, *selection.arguments()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
