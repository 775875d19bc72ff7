"""Stands where a program looks for pyverbs, and gives it weft's.

It is found by PYTHONPATH, so scripts, `-c`, `-m` and child processes have it. If the program's Python has no weft of
its own, the one that this file belongs to is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

__all__: list[str] = []

if importlib.util.find_spec("weft") is None:
    sys.path.append(str(Path(__file__).resolve().parents[4]))
if importlib.util.find_spec("numpy") is None:
    raise ImportError(f"weft's pyverbs needs numpy, which {sys.executable} does not have: install weft there")
del sys.modules[__name__]  # this module makes room for the one that takes its name
_hook = importlib.import_module("weft.verbs.pyverbs")
_hook.install()
importlib.import_module("pyverbs")
