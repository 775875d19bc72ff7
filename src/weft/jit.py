"""Numba kernels, compiled once and cached where the cache cannot go stale.

Numba's own file cache looks at the file of a kernel alone: it misses edits in what that file calls, and the
bounds-check flag. So the cache folder is named after a hash of all kernel sources, of what they import, and the flag.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Kernel = Callable[..., Any]  # numba infers the types
_ROOT = Path(__file__).parent
BOUNDSCHECK = os.environ.get("NUMBA_BOUNDSCHECK") == "1"


def _sources() -> dict[str, bytes]:
    """Every module of weft that holds kernels, and all that those import, by dotted name."""
    modules = {}
    for path in _ROOT.rglob("*.py"):
        parts = path.relative_to(_ROOT).with_suffix("").parts
        modules[".".join(("weft", *(p for p in parts if p != "__init__")))] = path.read_bytes()
    found: dict[str, bytes] = {}
    todo = [name for name, text in modules.items() if b"from weft.jit import" in text]
    while todo:
        name = todo.pop()
        if name in modules and name not in found:
            found[name] = modules[name]
            todo += [match.decode() for match in re.findall(rb"from (weft[\w.]*) import", modules[name])]
    return found


def _cache_folder() -> Path:
    digest = hashlib.sha256(f"{numba.__version__} boundscheck={BOUNDSCHECK}".encode())
    for name, text in sorted(_sources().items()):
        digest.update(name.encode() + text)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "weft" / f"kernels-{digest.hexdigest()[:16]}"


def _use_cache(folder: Path) -> None:
    if not folder.exists() and sys.stderr.isatty():
        print("weft: compiling kernels, once; this takes up to a minute", file=sys.stderr)
    numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]


_use_cache(_cache_folder())


# Counting references to arrays costs 30 times what a simulation step does: kernels that make no array do without.
_LEAN: dict[str, Any] = {"_nrt": False, "boundscheck": BOUNDSCHECK, "error_model": "numpy"}
_INNER = _LEAN | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Kernel) -> Kernel:
    """Compile on first call, or take it from the cache. Other threads run meanwhile."""
    compiled: Kernel = numba.njit(cache=True, nogil=True, boundscheck=BOUNDSCHECK)(function)
    return compiled


def lean_kernel(function: Kernel) -> Kernel:
    """The same for a kernel that makes no array: it changes those that it is given."""
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
