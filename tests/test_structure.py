"""Modules import as the layers of docs/architecture.md allow."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import weft

SOURCE = Path(weft.__file__).parent
DIAGRAM = Path(__file__).parents[1] / "docs" / "architecture.md"


def drawn_layers() -> list[set[str]]:
    """Return the modules of each line of the diagram, top to bottom."""
    layers = []
    for line in DIAGRAM.read_text(encoding="utf-8").splitlines():
        match = re.match(r"(\w+(?:(?: {1,3}| \| )\w+)*)(?:\s{4,}.*)?$", line)
        if match and all((SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file() for name in _words(match[1])):
            layers.append(set(_words(match[1])))
    return layers


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}


@cache
def files_imported() -> dict[str, set[str]]:
    """Return by module the files that it imports, at the top, in a function or for types alone."""
    return {name: _named(ast.parse(path.read_text(encoding="utf-8"))) - {name} for name, path in MODULES.items()}


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements without visiting expressions, which are ten times as many."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, part, ()):
            yield node
            yield from _statements(node)


def _named(tree: ast.Module) -> set[str]:
    result = set()
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            result |= inner & MODULES.keys() or {node.module}
        elif isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
    return result & MODULES.keys()


def test_every_module_is_in_the_diagram():
    """And the diagram has no module that does not exist."""
    present = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set().union(*drawn_layers()) == present - {"__init__", "__main__"}


def test_a_module_imports_only_from_layers_below():
    layers = drawn_layers()
    assert len(layers) >= 3
    depth = {name: index for index, layer in enumerate(layers) for name in layer}
    for name, targets in files_imported().items():
        for target in targets:
            owner, other = ((*item.split("."), "")[1] for item in (name, target))
            if owner in depth and other in depth and owner != other:
                assert depth[other] > depth[owner], f"{name} imports {target}"


def reached_from(start: str) -> set[str]:
    """Return all files that a file imports, directly or not."""
    graph, result, waiting = files_imported(), set[str](), [start]
    while waiting:
        new = graph[waiting.pop()] - result - {"weft"}  # weft loads its functions on first use
        result |= new
        waiting += new
    return result


def test_no_file_imports_itself_by_way_of_others():
    """To understand one file of an import cycle, a reader has to read all of them."""
    assert [name for name in MODULES if name in reached_from(name)] == []


def subpackages(package: str) -> list[str]:
    """Return the subpackages that the docstring of a package lists, top to bottom."""
    tree = ast.parse(MODULES[package].read_text(encoding="utf-8"))
    return re.findall(r"^(\w+)/? {2,}", ast.get_docstring(tree) or "", re.MULTILINE)


@pytest.mark.parametrize("package", ["weft.collectives", "weft.plan", "weft.sm", "weft.tenants", "weft.verbs"])
def test_a_subpackage_imports_only_from_those_below(package):
    drawn = subpackages(package)
    present = {name.split(".")[2] for name in MODULES if name.startswith(f"{package}.")}
    assert set(drawn) == present
    for name, targets in files_imported().items():
        if name.startswith(f"{package}.") and not name.endswith(".__main__"):  # a program, above all subpackages
            for target in targets:
                if target.startswith(f"{package}."):
                    above, below = (drawn.index(item.split(".")[2]) for item in (name, target))
                    assert above <= below, f"{name} imports {target}"


def test_names_that_say_nothing_are_absent():
    vague = {"core", "common", "utils", "helpers", "base", "manager", "types"}
    assert not vague & {path.stem for path in SOURCE.rglob("*")}


def _calls_select(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module == "select"
            and "select" in {name.name for name in node.names}
        ):
            return True
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "select.select":
            return True
    return False


def test_no_module_calls_select_which_fails_beyond_descriptor_1023():
    texts = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    calls = {name for name, text in texts.items() if "select" in text and _calls_select(ast.parse(text))}
    assert calls == set(), "use runtime.wait_ready"
