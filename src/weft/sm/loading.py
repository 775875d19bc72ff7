"""Kernels from the cache without what only compiling needs.

Before it looks into its cache numba sets up its compiler, all that it knows of Python and numpy: a quarter of a second,
more than all kernels of a sweep together. Machine code that is there already needs none of it. One that is not in the
cache is compiled by a compiler that sets itself up.
"""

from __future__ import annotations

from typing import Any

from numba.core.caching import Cache
from numba.core.runtime.nrt import rtsys


def load_without_compiler() -> None:
    """From now on, in this process."""
    Cache.load_overload = _load_overload  # type: ignore[method-assign]


def _load_overload(self: Any, signature: Any, target_context: Any) -> Any:
    """As numba's own but for the compiler; what counts references to arrays must be there."""
    rtsys.initialize(target_context)
    with self._guard_against_spurious_io_errors():
        return self._load_overload(signature, target_context)
