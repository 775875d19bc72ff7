"""Test the tests: change one place of the source at a time, and list the changes that no test notices.

    python -m tests.mutate sm --sample 40 --seed 1
    python -m tests.mutate src/weft/sm/ucast/lids.py

Each mutant is made in a copy of `src`, so the working tree never has one. It changes an operator, a
number or a condition, or drops an error or an assignment. The tests that run are the files that import the module, and
those in the package's own test folder that import it through others, nearest first, until one fails.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.import_graph import ROOT, ImportGraph

COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
CONDITIONS = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
OPERATIONS = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&")}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """A change of the source: the bytes from `start` to `end` of a file become `text`."""

    path: Path
    line: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Return the changed source."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def describe(self, source: bytes) -> str:
        """Return the place and the change in one line."""
        old = " ".join(source[self.start : self.end].decode().split())
        line = source.splitlines()[self.line - 1].decode().strip()
        return f"{self.path.relative_to(ROOT)}:{self.line}: {old} -> {self.text.strip() or 'nothing'}   in: {line}"


class _Finder:
    """A walk over the syntax tree of a file that yields its mutants."""

    def __init__(self, path: Path) -> None:
        self.path, self.source = path, path.read_bytes()
        self.offsets = [0]
        for line in self.source.splitlines(keepends=True):
            self.offsets.append(self.offsets[-1] + len(line))

    def mutants(self) -> Iterator[Mutant]:
        """Yield every mutant of the file."""
        yield from self._walk(ast.parse(self.source))

    def _walk(self, node: ast.AST) -> Iterator[Mutant]:
        yield from self._mutate(node)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):  # types, and arguments of decorators
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._walk(child)

    def _mutate(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield from self._swap(node, left, right, COMPARISONS[type(operator)])
            case ast.BoolOp(op=operator, values=[left, right]):
                yield from self._swap(node, left, right, CONDITIONS[type(operator)])
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATIONS:
                yield from self._swap(node, left, right, OPERATIONS[type(operator)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._mutant(node, self._start(node), self._start(operand), "")
            case ast.Constant(value=bool(value)):
                yield self._mutant(node, self._start(node), self._end(node), str(not value))
            case ast.Constant(value=int(value)):
                yield self._mutant(node, self._start(node), self._end(node), str(value + 1))
            case ast.Constant(value=float(value)):
                yield self._mutant(node, self._start(node), self._end(node), repr(value * 1.5 + 0.1))
            case ast.Call(func=ast.Name(id=name) as function) if name in CALLS:
                yield self._mutant(node, self._start(function), self._end(function), CALLS[name])
            case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break():
                yield self._mutant(node, self._start(node), self._end(node), "pass")
            case ast.Assign(targets=[ast.Subscript() | ast.Attribute()]):
                yield self._mutant(node, self._start(node), self._end(node), "pass")

    def _swap(self, node: ast.AST, left: ast.AST, right: ast.AST, operators: tuple[str, str]) -> Iterator[Mutant]:
        """Yield the mutant with another operator between two operands."""
        start, end = self._end(left), self._start(right)
        between = self.source[start:end].decode()
        if between.count(operators[0]) == 1:
            yield self._mutant(node, start, end, between.replace(*operators))

    def _mutant(self, node: ast.AST, start: int, end: int, text: str) -> Mutant:
        return Mutant(self.path, node.lineno, start, end, text)  # type: ignore[attr-defined]

    def _start(self, node: ast.AST) -> int:
        return self.offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return self.offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]


def find_mutants(path: Path) -> list[Mutant]:
    """Return the mutants of a file in their order."""
    return sorted(_Finder(path).mutants())


# -- running -----------------------------------------------------------------------------------------------------------


def run_tests(tests: list[Path], sources: Path, timeout_s: float) -> bool:
    """Return whether the tests pass with a copy of the sources; a run beyond the time limit has failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", *map(str, tests)]
    environment = os.environ | {"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait(timeout_s) in (0, 5)  # 5: no test was collected
        except subprocess.TimeoutExpired:
            return False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def list_sources(target: str) -> list[Path]:
    """Return the files of a package ("sm"), or of a path."""
    path = (ROOT / target if "/" in target or target.endswith(".py") else ROOT / "src/weft" / target).resolve()
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    if not files:
        sys.exit(f"{target}: no such package; give the name of a folder in src/weft, or a path")
    return files


def main() -> int:
    """Run the mutants of a package; return 1 if one survives."""
    parser = argparse.ArgumentParser(description="List changes of the source that no test notices.")
    parser.add_argument("target", help="a package such as sm, or a path such as src/weft/sm/ucast/lids.py")
    parser.add_argument("--sample", type=int, default=40, help="number of mutants to run (0: all)")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the sample")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="time limit for the tests of one mutant")
    options = parser.parse_args()
    mutants = [mutant for path in list_sources(options.target) for mutant in find_mutants(path)]
    total = len(mutants)
    if 0 < options.sample < total:
        mutants = sorted(random.Random(options.seed).sample(mutants, options.sample))
    graph, survivors = ImportGraph(), 0
    passes: dict[tuple[Path, ...], bool] = {}  # without a mutant
    with tempfile.TemporaryDirectory(prefix="weft-mutate-") as folder:
        sources = Path(folder) / "src"
        shutil.copytree(ROOT / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
        for mutant in mutants:
            tests = graph.tests_of(mutant.path)
            if tests and tuple(tests) not in passes:
                passes[tuple(tests)] = run_tests(tests, sources, options.timeout_s)
                if not passes[tuple(tests)]:
                    sys.exit(f"the tests of {mutant.path.relative_to(ROOT)} fail without a mutant; repair them first")
            copy = sources / mutant.path.relative_to(ROOT / "src")
            original = copy.read_bytes()
            copy.write_bytes(mutant.apply(original))
            if run_tests(tests, sources, options.timeout_s) if tests else True:
                survivors += 1
                print(mutant.describe(original), "" if tests else "(no test imports it)", flush=True)
            copy.write_bytes(original)
    print(f"{len(mutants)} of {total} mutants run, {survivors} survived")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
