"""Each package names its public modules, classes and functions in `__all__`, and they are documented."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.documents import ROOT, all_blocks

import weft

SOURCE = Path(weft.__file__).parents[1]
PACKAGES = sorted(".".join(path.parent.relative_to(SOURCE).parts) for path in (SOURCE / "weft").rglob("__init__.py"))
REPLACED = "weft.verbs.front.pyverbs"  # imports as pyverbs, not by this name


def find(package: ModuleType, name: str) -> object:
    """Return a public name: an attribute of the package, or a module in it."""
    try:
        return importlib.import_module(f"{package.__name__}.{name}") if package is not weft else getattr(weft, name)
    except ModuleNotFoundError:
        return getattr(package, name)


@pytest.mark.parametrize("name", [name for name in PACKAGES if not name.startswith(REPLACED)])
def test_every_public_name_exists_and_has_a_docstring(name):
    package = importlib.import_module(name)
    assert len(set(package.__all__)) == len(package.__all__)
    for public in package.__all__:
        item = find(package, public)
        if inspect.ismodule(item) or inspect.isclass(item) or inspect.isroutine(item):
            assert item.__doc__, f"{name}.{public}"
            assert not item.__doc__.startswith(f"{public}("), f"{name}.{public} has only the docstring of dataclasses"


def is_public(module: str) -> bool:
    """Return whether a module and the packages around it are public."""
    owner, _, name = module.rpartition(".")
    return owner in ("", "weft") or (name in importlib.import_module(owner).__all__ and is_public(owner))


def test_documents_and_examples_import_only_public_modules():
    texts = [block.text for block in all_blocks("python")]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "examples").rglob("*.py")]
    imported = {module for text in texts for module in re.findall(r"^ *from (weft\.[\w.]+) import", text, re.M)}
    assert len(imported) > 50
    assert {module for module in imported if not is_public(module)} == set()
