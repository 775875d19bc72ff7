"""The imports between the modules of weft, its tests and its documents, read from their sources without running them.

A file depends on the modules that it imports, at any place in it; on those that a string in it names, such as
"weft.sm.sweep:sweep" or a program for another process; a test or a document also on the
modules of the commands that it runs, and a test on the conftest.py of its folders.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from tests.documents import DOCUMENTS, read_blocks
from tests.syntax import walk

import weft
from weft.cli import COMMANDS, module_of

ROOT = Path(__file__).parents[1]
_MODULE = re.compile(r"\b(?:weft|tests)(?:\.\w+)+")
_COMMAND = re.compile(r"^(?:.*\bweft )?(?:--\S+ )*(\w+)(?!\S)", re.M)


@cache
def module_name(path: Path) -> str:
    """Return the dotted name of a module of weft or of a test."""
    parts = path.relative_to(ROOT / "src" if path.is_relative_to(ROOT / "src") else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_and_strings(tree: ast.AST) -> tuple[set[str], set[str]]:
    """Return the modules that a program may import, of `from a.b import c` both a.b and a.b.c; and its strings.

    `weft.time` is the module of that function: weft loads its functions on first use.
    """
    names, strings = set(), set()
    for node in walk(tree, docstrings=False):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                strings.add(node.value)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "weft":
            names |= {weft._MODULE_OF[node.attr]} if node.attr in weft._MODULE_OF else set()
    return names, strings


def _named_in(text: str) -> Iterator[str]:
    """Yield the modules that a string names; if it is the name of a package, each of its modules."""
    if "weft." not in text and "tests." not in text and "import " not in text:
        return
    yield from _MODULE.findall(text)
    package = ROOT / "src" / text.strip(".").replace(".", "/")
    if _MODULE.fullmatch(text.strip(".")) and package.is_dir() and package.name != "cli":  # see `commands_in`
        yield from (module_name(path) for path in package.glob("*.py"))
    if "import " in text:
        with suppress(SyntaxError):
            yield from imports_and_strings(ast.parse(text))[0]


def commands_in(text: str) -> Iterator[str]:
    """Yield the modules of the commands that a text may run: `weft nccl all_reduce`, or `nccl` alone."""
    for command in _COMMAND.findall(text):
        if command in COMMANDS:
            yield from ("weft.cli", f"weft.cli.{module_of(command)}")


class ImportGraph:
    """The files that import each module, and the strings of each test."""

    def __init__(self) -> None:
        self._importers: dict[str, set[Path]] = defaultdict(set)  # by import statements alone
        self._dependents: dict[str, set[Path]] = defaultdict(set)
        self.words: dict[Path, set[str]] = {}  # parts of the paths that a test's strings may be
        for path in sorted((ROOT / "src/weft").rglob("*.py")):
            if path != ROOT / "src/weft/__init__.py":  # it names the modules of its functions without importing them
                self._add(path)
        for path in sorted((ROOT / "tests").rglob("*.py")):
            self._add_test(path)
        for path in DOCUMENTS:
            self._add_document(path)

    def _add(self, path: Path) -> set[str]:
        names, texts = imports_and_strings(ast.parse(path.read_bytes()))
        for name in names:
            self._importers[name].add(path)
        self._add_names(path, names)
        self._add_names(path, (name for text in texts for name in _named_in(text)))
        return texts

    def _add_test(self, path: Path) -> None:
        texts = self._add(path)
        self._add_names(path, (name for text in texts for name in commands_in(text)))
        self.words[path] = {word for text in texts for word in text.split("/")}
        for folder in path.parents[: len(path.relative_to(ROOT).parts) - 2]:
            if path != folder / "conftest.py":
                self._add_names(path, [module_name(folder / "conftest")])

    def _add_document(self, path: Path) -> None:
        for block in read_blocks(path):
            if block.language == "console":
                self._add_names(path, commands_in(block.text))
            elif block.language == "python":
                self._add_names(path, imports_and_strings(ast.parse(block.text))[0])

    def _add_names(self, path: Path, names: Iterable[str]) -> None:
        for name in names:
            self._dependents[name].add(path)
            while "." in (name := name.rpartition(".")[0]):  # the packages that are imported on the way
                self._dependents[name].add(path)

    def dependents(self, paths: Iterable[Path]) -> set[Path]:
        """Return the files that depend on one of these, directly or not, and these."""
        reached = set(paths)
        queue = list(reached)
        while queue:
            path = queue.pop()
            if path.suffix == ".py":
                more = self._dependents[module_name(path)] - reached
                reached |= more
                queue += more
        return reached

    def tests_of(self, path: Path) -> list[Path]:
        """Return the test files of a module, nearest first.

        These are the files that import it or a package that exports it, and those in the package's own test folder that
        import it through other modules.
        """
        package = path.relative_to(ROOT / "src/weft").parts[0].removesuffix(".py")
        distance = {path: 0}
        queue = [path]
        for module in queue:
            for importer in sorted(self._importers[module_name(module)] - distance.keys()):
                distance[importer] = distance[module] + (importer.name != "__init__.py")
                queue.append(importer)
        tests = [
            test
            for test in distance
            if test.name.startswith("test_") and (distance[test] == 1 or test.is_relative_to(ROOT / "tests" / package))
        ]
        return sorted(tests, key=lambda test: (distance[test], test))
