"""Compiling functions that only kernels call: numba links their code into kernels, and nothing else is done with it.

Otherwise numba optimises each function together with all that it calls, and translates it into machine code that
nothing runs. Kernels with many levels of parts would pay that for every level.
"""

from __future__ import annotations

from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _InnerLibrary(JITCodeLibrary):
    """The code of a function and of all that it calls, before the optimiser has seen them together."""

    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return 0, numba's value for a function without machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """Return the library itself, so that numba stores no environment in machine code that does not exist."""
        return self

    def set_env(self, name: str, environment: Any) -> None:
        pass


class InnerCompiler(Compiler):
    """A compiler of functions that only kernels call."""

    def __init__(self, typing_context: Any, target_context: Any, library: Any, *more: Any) -> None:
        library = library or _InnerLibrary(target_context.codegen(), "inner")  # type: ignore[no-untyped-call]
        super().__init__(typing_context, target_context, library, *more)  # type: ignore[no-untyped-call]


class _KernelLibrary(JITCodeLibrary):
    """The code of a kernel and of all that it calls."""

    def _optimize_final_module(self) -> None:
        """Make the linked parts internal first: LLVM removes arguments that an internal function does not read.

        Numba passes the state of a simulation, dozens of arrays, by value, and a part reads a few of them.
        """
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.internal
        super()._optimize_final_module()  # type: ignore[no-untyped-call]


class KernelCompiler(Compiler):
    """A compiler of kernels with parts."""

    def __init__(self, typing_context: Any, target_context: Any, library: Any, *more: Any) -> None:
        if library is None:
            library = _KernelLibrary(target_context.codegen(), "kernel")  # type: ignore[no-untyped-call]
            library.enable_object_caching()
        super().__init__(typing_context, target_context, library, *more)  # type: ignore[no-untyped-call]
