"""The house stands as it is drawn in weft/__init__.py."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import weft

SOURCE = Path(weft.__file__).parent


def drawn_layers() -> list[set[str]]:
    """Top to bottom, the modules of each line of the diagram in weft's docstring."""
    layers = []
    for line in (weft.__doc__ or "").splitlines():
        match = re.match(r"    (\w+(?:(?: {1,3}| \| )\w+)*)(?:\s{4,}.*)?$", line)
        if match and all((SOURCE / name).is_dir() or (SOURCE / f"{name}.py").is_file() for name in _words(match[1])):
            layers.append(set(_words(match[1])))
    return layers


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def imports(path: Path) -> set[str]:
    """The weft modules that this file imports, at the top, in a function or for types alone."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "weft":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("weft.")}
    return found


def test_every_module_is_in_the_diagram():
    """And nothing is drawn that does not stand yet."""
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert set().union(*drawn_layers()) == there - {"__init__", "__main__"}


def test_a_module_imports_only_from_layers_below():
    layers = drawn_layers()
    assert len(layers) >= 3
    depth = {name: index for index, layer in enumerate(layers) for name in layer}
    for path in SOURCE.rglob("*.py"):
        owner = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for target in imports(path) & depth.keys():
            if owner in depth and owner != target:
                assert depth[target] > depth[owner], f"{path.relative_to(SOURCE)} imports weft.{target}"


def test_names_that_say_nothing_are_absent():
    vague = {"core", "common", "utils", "helpers", "base", "manager", "types"}
    assert not vague & {path.stem for path in SOURCE.rglob("*")}
