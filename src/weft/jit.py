"""Numba kernels, compiled once and cached where the cache cannot go stale.

Numba's own file cache looks at the file of a kernel alone: it misses edits in what that file calls, and the
bounds-check flag. So the kernels of a module are cached in a folder named after a hash of its source, of all that it
imports from weft, and of the flag. An edit compiles anew what can see it and nothing else; checkouts with the same
sources share what was compiled.
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
from llvmlite import ir
from numba.core import caching, cgutils, types
from numba.extending import intrinsic

Kernel = Callable[..., Any]  # numba infers the types
_ROOT = Path(__file__).parent
# What a module imports as it is loaded: not in a function, and not for type checkers, which are both indented.
_IMPORTS = re.compile(r"^from (weft[\w.]*) import (\([^)]*\)|.*)", re.M)
BOUNDSCHECK = os.environ.get("NUMBA_BOUNDSCHECK") == "1"


@functools.cache
def _source(module: str) -> str | None:
    """The text of a module of weft; None if there is none of that name."""
    path = _ROOT.joinpath(*module.split(".")[1:])
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file.read_text(encoding="utf-8")
    return None


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
    """Where the compiled kernels of a module of weft are kept."""
    digest = hashlib.sha256(f"{numba.__version__} boundscheck={BOUNDSCHECK}".encode())
    for name, text in sorted(sources(module).items()):
        digest.update(f"{name}\n{text}".encode())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "weft" / "kernels" / f"{module.removeprefix('weft.')}-{digest.hexdigest()[:16]}"


@functools.cache
def _say_that_it_takes_time() -> None:
    if sys.stderr.isatty():
        print("weft: compiling kernels, once; this takes up to a minute", file=sys.stderr)


class _Locator(caching._CacheLocator):
    """Tells numba where the kernels of weft are cached; other people's stay where numba puts them."""

    def __init__(self, function: Kernel) -> None:
        self._folder = cache_folder(function.__module__)
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Kernel, py_file: str) -> _Locator | None:
        if not Path(py_file).is_relative_to(_ROOT):
            return None
        made = cls(py_func)
        if not made._folder.exists():
            _say_that_it_takes_time()
        try:
            made.ensure_cache_path()  # type: ignore[no-untyped-call]
        except OSError:  # a home that cannot be written: numba looks for another place
            return None
        return made

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._folder.name

    def get_disambiguator(self) -> str:
        return str(self._line)


caching.CacheImpl._locator_classes.insert(0, _Locator)  # type: ignore[arg-type]


# Counting references to arrays costs 30 times what a simulation step does: kernels that make no array do without.
_LEAN: dict[str, Any] = {"_nrt": False, "boundscheck": BOUNDSCHECK, "error_model": "numpy"}
_INNER = _LEAN | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Kernel) -> Kernel:
    """Compile on first call, or take it from the cache. Other threads run meanwhile."""
    compiled: Kernel = numba.njit(cache=True, nogil=True, boundscheck=BOUNDSCHECK)(function)
    return compiled


def lean_kernel(function: Kernel) -> Kernel:
    """The same for a kernel that makes no array: it changes those that it is given. Other threads run meanwhile."""
    compiled: Kernel = numba.njit(cache=True, nogil=True, **_LEAN)(function)
    return compiled


def quick_kernel(function: Kernel) -> Kernel:
    """The same for one that is over before another thread could run: to let them would cost more than it does.

    Only such a kernel may let them run itself, for the part of it that takes long.
    """
    compiled: Kernel = numba.njit(cache=True, **_LEAN)(function)
    return compiled


def handler(function: Kernel) -> Kernel:
    """A part of a lean kernel that runs rarely, or is large."""
    compiled: Kernel = numba.njit(**_INNER)(function)
    return compiled


def part(function: Kernel) -> Kernel:
    """A small part of a lean kernel, inlined by LLVM, which takes a tenth of the time that numba's own way takes."""
    compiled: Kernel = numba.njit(forceinline=True, **_INNER)(function)
    return compiled


def inlined(function: Kernel) -> Kernel:
    """A small helper of kernels: inlined at the call, which a plain kernel is not."""
    compiled: Kernel = numba.njit(inline="always", boundscheck=BOUNDSCHECK)(function)
    return compiled


def entry(function: Kernel, *arguments: Any) -> Kernel:
    """What a kernel is compiled to for arguments like these: calling that is half the work of finding it each time."""
    found: Kernel = function.compile(tuple(numba.typeof(one) for one in arguments))  # type: ignore[attr-defined, no-untyped-call]
    return found


def _prefetch(_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of `array[index]`, which will be needed soon; does nothing interpreted.

    An index that is nowhere does no harm.
    """
    place = types.intp if array.ndim == 1 else types.UniTuple(types.intp, array.ndim)  # type: ignore[no-untyped-call]

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        made = context.make_array(kind)(context, builder, args[0])
        indices = cgutils.unpack_tuple(builder, args[1]) if kind.ndim > 1 else [args[1]]  # type: ignore[no-untyped-call]
        item = cgutils.get_item_pointer(  # type: ignore[no-untyped-call]
            context, builder, kind, made, indices, wraparound=False
        )
        pointer = builder.bitcast(item, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        takes = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], takes)
        builder.call(function, [pointer, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(array, place), emit


prefetch: Kernel = (lambda _array, _index: None) if numba.config.DISABLE_JIT else intrinsic(_prefetch)  # type: ignore[attr-defined]
