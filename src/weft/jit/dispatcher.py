"""Kernels that load their machine code on the first call, by numba's internals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher

from weft.jit.cache import LaterCache
from weft.jit.inner import InnerCompiler, KernelCompiler

PARTS: dict[str, Any] = {"pipeline_class": InnerCompiler}  # options of functions that only kernels call


class _Kernel(CPUDispatcher):
    """A kernel that loads its machine code on the first call."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions={"nopython": True, **options}, pipeline_class=KernelCompiler)
        self._cache = LaterCache(function)

    def compile(self, sig: Any) -> Any:
        with global_compiler_lock:  # until `end_turn`: another thread would take the lock for its own
            try:
                return super().compile(sig)
            finally:
                self._cache.end_turn()

    def _compilation_chain_init_hook(self) -> None:
        """Skip numba's extensions: kernels of weft use none, and numba searches all installed packages for them."""


def make_kernel(function: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    """Return a kernel that is compiled, or loaded from the cache, on its first call."""
    return _Kernel(function, options)
