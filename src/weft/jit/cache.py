"""Where compiled kernels are kept so that they cannot go stale, and how they come back.

Numba's own file cache looks at the file of a kernel alone: it misses edits in what that file calls, and the
bounds-check flag. So the kernels of a module are cached in a folder named after a hash of its source, of all that it
imports from weft, and of the flag. An edit compiles anew what can see it and nothing else; checkouts with the same
sources share what was compiled. Of several processes that want a kernel at once, one compiles it.

What is in the cache is loaded without what only compiling needs: numba would set up its compiler first, all that it
knows of Python and numpy, a quarter of a second, and read each kernel a second time in the form that others link. Each
step of numba's own that is left out says why it may be; other people's kernels take them all.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numba
from llvmlite import binding as llvm
from numba.core import caching, environment
from numba.core.runtime import nrtdynmod
from numba.core.runtime.nrt import rtsys

from weft.kept import Announcer, home, replace_old, use

_ROOT = Path(__file__).parent.parent
# What a module imports as it is loaded: not in a function, and not for type checkers, which are both indented.
_IMPORTS = re.compile(r"^from (weft[\w.]*) import (\([^)]*\)|.*)", re.M)
BOUNDSCHECK = os.environ.get("NUMBA_BOUNDSCHECK") == "1"
_LONGEST_TURN_S, _LOOKS_PER_S = 300, 20
_OF_COMPILER = (b"_numba_hashsecret_", b"numba_parallel_for")  # symbols that are there once numba's compiler is
_compiling = Announcer("compiling kernels")
of_plugins: list[Callable[..., Any]] = []  # functions of somebody else that are kept here as well


@functools.cache
def _source(module: str) -> str | None:
    """The text of a module of weft, or of a plugin's; None if there is none of that name, as of what was typed in."""
    path = _ROOT.joinpath(*module.split(".")[1:])
    if not module.startswith("weft."):
        path = Path(getattr(sys.modules.get(module), "__file__", None) or "")
        return path.read_text(encoding="utf-8") if module != "__main__" and path.is_file() else None
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return None


def has_source(function: Callable[..., Any]) -> bool:
    """Whether it is known what it is made of; what is not cannot be kept."""
    return _source(function.__module__) is not None


def _imports(module: str) -> Iterator[str]:
    for owner, names in _IMPORTS.findall(_source(module) or ""):
        yield owner
        yield from (f"{owner}.{name}" for name in re.findall(r"\w+", names))


def sources(module: str) -> dict[str, str]:
    """A module of weft and all that it imports, directly or not, by dotted name."""
    found: dict[str, str] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in found and (text := _source(name)) is not None:
            found[name] = text
            todo += _imports(name)
    return found


@functools.cache
def cache_folder(module: str) -> Path:
    """Where the compiled kernels of a module are kept."""
    digest = hashlib.sha256(f"{numba.__version__} boundscheck={BOUNDSCHECK}".encode())
    for name, text in sorted(sources(module).items()):
        digest.update(f"{name}\n{text}".encode())
    return home() / "kernels" / f"{module.removeprefix('weft.')}-{digest.hexdigest()[:16]}"


class _Locator(caching._CacheLocator):
    """Tells numba where the kernels of weft and of its plugins are cached; others stay where numba puts them.

    Numba's own file for a kernel knows neither the package that its module is in nor what of weft it calls.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._folder = cache_folder(function.__module__)
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator | None:
        if not Path(py_file).is_relative_to(_ROOT) and py_func not in of_plugins:
            return None
        made = cls(py_func)
        is_new = not made._folder.exists()
        try:
            made.ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:  # a home that cannot be written: numba looks for another place
            return None
        if is_new:
            replace_old(made._folder)
        else:
            use(made._folder)
        return made

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Unpickler(pickle.Unpickler):
    """Reads a kernel from the cache."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numba.core.environment", "_rebuild_env"):
            return _rebuild_environment
        return super().find_class(module, name)


def _rebuild_environment(module: str, constants: list[Any], name: str) -> Any:
    """As numba's own, but a module of numba whose function went into a kernel is not imported: machine code reads
    only the constants, such as what to raise."""
    if module in sys.modules or not module.startswith("numba."):
        return environment._rebuild_env(module, constants, name)  # type: ignore[no-untyped-call]
    made = environment.lookup_environment(name)  # type: ignore[no-untyped-call]
    if made is None:
        made = environment.Environment({"__name__": module})
        made.consts[:], made.env_name = constants, name
        environment.Environment._memo[name] = made
    return made


class _CacheFile(caching.IndexDataCacheFile):
    def _load_data(self, name: str) -> Any:
        with open(self._data_path(name), "rb") as file:  # type: ignore[no-untyped-call]
            return _Unpickler(file).load()


class _MachineCode(caching.CompileResultCacheImpl):
    """A kernel as it is kept: machine code, and bitcode, which only a kernel that calls it needs to be compiled."""

    _locator_classes = (_Locator, *caching.CacheImpl._locator_classes)  # type: ignore[assignment]

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        (name, kind, (machine_code, bitcode)), what, *rest = payload
        if any(symbol in machine_code for symbol in _OF_COMPILER):
            target_context.refresh()
        names = (what.llvm_func_name, what.llvm_cpython_wrapper_name, what.llvm_cfunc_wrapper_name)
        target_context.codegen()._engine._defined_symbols.update(names)  # numba reads them from the bitcode
        payload = ((name, kind, (machine_code, _no_bitcode())), what, *rest)
        made = super().rebuild(target_context, payload)  # type: ignore[no-untyped-call]
        made.library._get_module_for_linking = functools.cache(lambda: llvm.parse_bitcode(bitcode))
        return made


@functools.cache
def _no_bitcode() -> bytes:
    return bytes(llvm.parse_assembly("").as_bitcode())


class KernelCache(caching.FunctionCache):
    """Of one kernel; other people's are numba's own."""

    _impl_class = _MachineCode

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._turn: IO[bytes] | None = None
        self._is_announced = False
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _CacheFile(self._cache_path, self._impl.filename_base, stamp)  # type: ignore[no-untyped-call]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Without a compiler, but with what counts references to arrays."""
        _start_runtime(target_context)
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            if found is None and not self._is_announced:
                self._is_announced = True
                _compiling.begin()
            if found is None and self._wait_for_turn():
                found = self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]
            return found

    def _wait_for_turn(self) -> bool:
        """To compile. True if another process did meanwhile: twice at once it would take both twice as long."""
        if self._turn is not None:  # it calls itself, or is compiled for other arguments on the way
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
                fcntl.flock(self._turn, fcntl.LOCK_UN)  # closing would leave it to a process that was forked meanwhile
            self._turn.close()
            self._turn = None


class LaterCache:
    """One that is looked for when the kernel is called: most of those that a program imports are not."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __getattr__(self, name: str) -> Any:
        return getattr(self._found, name)

    @functools.cached_property
    def _found(self) -> KernelCache:
        return KernelCache(self._function)


class _RuntimeFile(caching.CodeLibraryCacheImpl):
    _filename_prefix = "runtime"  # type: ignore[assignment]
    _locator_classes = _MachineCode._locator_classes  # type: ignore[assignment]


class _RuntimeCache(caching.Cache):
    _impl_class = _RuntimeFile  # type: ignore[assignment]


def _runtime(target_context: Any) -> Any:
    """What counts references to arrays: numba compiles it in every process, which takes as long as ten kernels."""
    cache = _RuntimeCache(_runtime)  # type: ignore[no-untyped-call]
    library = cache._load_overload((), target_context)  # type: ignore[no-untyped-call]
    if library is None:
        module, library = nrtdynmod.create_nrt_module(target_context)  # type: ignore[no-untyped-call]
        library.enable_object_caching()
        library.add_ir_module(module)
        library.finalize()
        cache.save_overload((), library)  # type: ignore[no-untyped-call]
    return library


def _start_runtime(target_context: Any) -> None:
    own = nrtdynmod.compile_nrt_functions
    nrtdynmod.compile_nrt_functions = _runtime  # for us: numba's lock is ours in here
    try:
        rtsys.initialize(target_context)
    finally:
        nrtdynmod.compile_nrt_functions = own
