"""The cache of compiled kernels: when several processes need a kernel at once, one compiles it, and loading is quick.

Loading skips the steps that only compiling needs: numba would first set up its compiler (a quarter of a second) and
read each kernel a second time as bitcode. A comment at each skipped step says why it is not needed; kernels of other
packages take all steps.
"""

from __future__ import annotations

import fcntl
import functools
import os
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from llvmlite import binding as llvm
from numba.core import caching, environment
from numba.core.runtime import nrtdynmod
from numba.core.runtime.nrt import rtsys

from weft.jit.sources import ROOT, cache_folder, plugin_functions
from weft.user_cache import Announcer, mark_used, remove_unused

_LONGEST_TURN_S, _LOOKS_PER_S = 300, 20
_COMPILER_SYMBOLS = (b"_numba_hashsecret_", b"numba_parallel_for")  # symbols that exist once numba's compiler is set up
_compiling = Announcer("compiling kernels")


class _Locator(caching._CacheLocator):
    """A cache locator for the kernels of weft and of plugins; numba locates all others.

    Numba's own locator ignores the package of a module and the functions of weft that it calls.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._folder = cache_folder(function.__module__)
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator | None:
        if not Path(py_file).is_relative_to(ROOT) and py_func not in plugin_functions:
            return None
        locator = cls(py_func)
        is_new = not locator._folder.exists()
        locator.ensure_cache_path()
        if is_new:
            remove_unused(locator._folder)
        else:
            mark_used(locator._folder)
        return locator

    def ensure_cache_path(self) -> None:
        """Create the folder if the cache may be written; an image's cache is only read."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Unpickler(pickle.Unpickler):
    """A reader of cached kernels."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numba.core.environment", "_rebuild_env"):
            return _rebuild_environment
        return super().find_class(module, name)


def _rebuild_environment(module: str, constants: list[Any], name: str) -> Any:
    """Rebuild an environment as numba does, but without importing the numba module of an inlined function.

    Machine code reads only the constants, such as exceptions.
    """
    if module in sys.modules or not module.startswith("numba."):
        return environment._rebuild_env(module, constants, name)  # type: ignore[no-untyped-call]
    rebuilt = environment.lookup_environment(name)  # type: ignore[no-untyped-call]
    if rebuilt is None:
        rebuilt = environment.Environment({"__name__": module})
        rebuilt.consts[:], rebuilt.env_name = constants, name
        environment.Environment._memo[name] = rebuilt
    return rebuilt


class _CacheFile(caching.IndexDataCacheFile):
    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # type: ignore[no-untyped-call]
            return _Unpickler(file).load()


class _MachineCode(caching.CompileResultCacheImpl):
    """A cached kernel: machine code, and the bitcode that is needed only to compile a kernel that calls it."""

    _locator_classes = (_Locator, *caching.CacheImpl._locator_classes)  # type: ignore[assignment]

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        (name, kind, (machine_code, bitcode)), description, *rest = payload
        if any(symbol in machine_code for symbol in _COMPILER_SYMBOLS):
            target_context.refresh()
        names = (description.llvm_func_name, description.llvm_cpython_wrapper_name, description.llvm_cfunc_wrapper_name)
        target_context.codegen()._engine._defined_symbols.update(names)  # numba reads them from the bitcode
        payload = ((name, kind, (machine_code, _no_bitcode())), description, *rest)
        result = super().rebuild(target_context, payload)  # type: ignore[no-untyped-call]
        result.library._get_module_for_linking = functools.cache(lambda: llvm.parse_bitcode(bitcode))
        return result


@functools.cache
def _no_bitcode() -> bytes:
    return bytes(llvm.parse_assembly("").as_bitcode())


class _Cache(caching.Cache):
    """A cache that is only read where its folder cannot be written: in an image, or as another user."""

    def save_overload(self, sig: Any, data: Any) -> None:
        if os.access(self._cache_path, os.W_OK):
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


class KernelCache(_Cache, caching.FunctionCache):
    """The cache of one kernel."""

    _impl_class = _MachineCode

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._turn: IO[bytes] | None = None
        self._is_announced = False
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, stamp)  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel without starting the compiler; only the runtime that counts references to arrays is needed."""
        _start_runtime(target_context)
        with self._guard_against_spurious_io_errors():
            overload = self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            if overload is None and not self._is_announced:
                self._is_announced = True
                _compiling.begin()
            if overload is None and self._wait_for_turn():
                overload = self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            return overload

    def _wait_for_turn(self) -> bool:
        """Wait for the lock to compile; return whether another process held it, and so may have compiled the kernel."""
        if self._turn is not None:  # recursive, or compiled for other argument types on the way
            return False
        try:
            self._turn = open(Path(self._cache_path) / f"{self._impl.filename_base}.lock", "wb")  # noqa: SIM115
        except OSError:
            return False
        waited = 0
        while waited < _LONGEST_TURN_S * _LOOKS_PER_S:
            try:
                fcntl.flock(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(1 / _LOOKS_PER_S)
                waited += 1
        return waited > 0

    def end_turn(self) -> None:
        if self._is_announced:
            self._is_announced = False
            _compiling.end()
        if self._turn is not None:
            with suppress(OSError):
                fcntl.flock(self._turn, fcntl.LOCK_UN)  # closing would leave the lock with a process forked meanwhile
            self._turn.close()
            self._turn = None


class LaterCache:
    """A kernel cache that is created on the kernel's first call: most imported kernels are never called."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    @functools.cached_property
    def _cache(self) -> KernelCache:
        return KernelCache(self._function)


class _RuntimeFile(caching.CodeLibraryCacheImpl):
    _filename_prefix = "runtime"  # type: ignore[assignment]
    _locator_classes = _MachineCode._locator_classes  # type: ignore[assignment]


class _RuntimeCache(_Cache):
    _impl_class = _RuntimeFile  # type: ignore[assignment]


def _runtime(target_context: Any) -> Any:
    """Return numba's runtime, which counts references to arrays, from the cache.

    Numba compiles it in every process, which takes as long as ten kernels.
    """
    cache = _RuntimeCache(_runtime)  # type: ignore[no-untyped-call]
    library = cache._load_overload((), target_context)  # type: ignore[no-untyped-call]
    if library is None:
        module, library = nrtdynmod.create_nrt_module(target_context)  # type: ignore[no-untyped-call]
        library.enable_object_caching()
        library.add_ir_module(module)
        library.finalize()
        cache.save_overload((), library)
    return library


def _start_runtime(target_context: Any) -> None:
    own = nrtdynmod.compile_nrt_functions
    nrtdynmod.compile_nrt_functions = _runtime  # safe: numba's lock is held here
    try:
        rtsys.initialize(target_context)
    finally:
        nrtdynmod.compile_nrt_functions = own
