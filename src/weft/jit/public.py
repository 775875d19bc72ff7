"""Kernels by numba's public interface, for versions of numba whose internals weft was not tested with.

They compile and load more slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from weft.jit.sources import cache_folder

PARTS: dict[str, Any] = {}  # options of functions that only kernels call


def make_kernel(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """Return a kernel that is compiled, or loaded from the cache, on its first call."""
    own = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(cache_folder(function.__module__))  # type: ignore[attr-defined]
    try:
        compiled: Callable[..., Any] = numba.njit(cache=True, **options)(function)
    finally:
        numba.config.CACHE_DIR = own  # type: ignore[attr-defined]
    return compiled
