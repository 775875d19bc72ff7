"""The sources of kernels: the folder of a module's compiled kernels is named after them, so no entry goes stale.

Numba's own file cache checks only the file of a kernel: it misses edits in the functions that the kernel calls, and the
bounds-check flag. So the kernels of a module are cached in a folder named after a hash of its source, of all modules of
weft that it imports, and of the flag. An edit recompiles only the kernels that depend on it; checkouts with the same
sources share compiled kernels.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba

from weft.user_cache import root

ROOT = Path(__file__).parent.parent
# Imports at the top level of a module; those in functions and for type checkers are indented.
_IMPORTS = re.compile(r"^from (weft[\w.]*) import (\([^)]*\)|.*)", re.M)
BOUNDSCHECK = os.environ.get("NUMBA_BOUNDSCHECK") == "1"
plugin_functions: list[Callable[..., Any]] = []  # functions outside weft that are cached here too


@functools.cache
def _source(module: str) -> str | None:
    """Return the source of a module of weft or of a plugin; None if it has no file, such as a prompt's."""
    path = ROOT.joinpath(*module.split(".")[1:])
    if not module.startswith("weft."):
        path = Path(getattr(sys.modules.get(module), "__file__", None) or "")
        return path.read_text(encoding="utf-8") if module != "__main__" and path.is_file() else None
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return None


def has_source(function: Callable[..., Any]) -> bool:
    """Return whether the source of a function is known; without it the function cannot be cached."""
    return _source(function.__module__) is not None


def _imports(module: str) -> Iterator[str]:
    for owner, names in _IMPORTS.findall(_source(module) or ""):
        yield owner
        yield from (f"{owner}.{name}" for name in re.findall(r"\w+", names))


def sources(module: str) -> dict[str, str]:
    """Return the sources of a module and of all modules of weft that it imports, directly or not, by dotted name."""
    texts: dict[str, str] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in texts and (text := _source(name)) is not None:
            texts[name] = text
            todo += _imports(name)
    return texts


@functools.cache
def cache_folder(module: str) -> Path:
    """Return the folder of a module's compiled kernels."""
    digest = hashlib.sha256(f"{numba.__version__} boundscheck={BOUNDSCHECK}".encode())
    for name, text in sorted(sources(module).items()):
        digest.update(f"{name}\n{text}".encode())
    return root() / "kernels" / f"{module.removeprefix('weft.')}-{digest.hexdigest()[:16]}"
