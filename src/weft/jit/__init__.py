"""Numba kernels, compiled once and kept (`cache`): how functions of Python become some, and what only they can do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numba
from llvmlite import binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from weft.errors import ConfigError
from weft.jit.cache import BOUNDSCHECK as BOUNDSCHECK
from weft.jit.cache import LaterCache, has_source, of_plugins
from weft.jit.cache import cache_folder as cache_folder

Kernel = Callable[..., Any]  # numba infers the types
_pointed: list[Any] = [None] * 16  # what has an address; interpreted it is the place here. No real one is so small


class _Kernel(CPUDispatcher):
    """A kernel whose first call finds its machine code."""

    def __init__(self, function: Kernel, options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions={"nopython": True, **options})
        self._cache = LaterCache(function)

    def compile(self, sig: Any) -> Any:
        with global_compiler_lock:  # to the end of the turn, which another thread would take for its own
            try:
                return super().compile(sig)
            finally:
                self._cache.end_turn()

    def _compilation_chain_init_hook(self) -> None:
        """Kernels of weft use no extension of numba, which are looked for among all that is installed."""


def _cached(function: Kernel, **options: Any) -> Kernel:
    return function if numba.config.DISABLE_JIT else _Kernel(function, options)  # type: ignore[attr-defined]


# Counting references to arrays costs 30 times what a simulation step does: kernels that make no array do without.
_LEAN: dict[str, Any] = {"_nrt": False, "boundscheck": BOUNDSCHECK, "error_model": "numpy"}
_INNER = _LEAN | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Kernel) -> Kernel:
    """Compile on first call, or take it from the cache. Other threads run meanwhile."""
    return _cached(function, nogil=True, boundscheck=BOUNDSCHECK)


def lean_kernel(function: Kernel) -> Kernel:
    """The same for a kernel that makes no array: it changes those that it is given. Other threads run meanwhile."""
    return _cached(function, nogil=True, **_LEAN)


def quick_kernel(function: Kernel) -> Kernel:
    """The same for one that is over before another thread could run: to let them would cost more than it does.

    Only such a kernel may let them run itself, for the part of it that takes long.
    """
    return _cached(function, **_LEAN)


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


def object_code(kernels: Mapping[str, Kernel]) -> bytes:
    """Return an object file with kernels of whole numbers, for a linker and any processor of this architecture.

    They have these names and the calling convention of numba: `int name(result *, void **error, int64_t, ...)`.
    """
    whole = llvm.parse_assembly("")
    for name, function in kernels.items():
        takes = (types.int64,) * function.py_func.__code__.co_argcount  # type: ignore[attr-defined]
        function.compile(takes)  # type: ignore[attr-defined]
        found: Any = function.overloads[takes]  # type: ignore[attr-defined]
        module = found.library._get_module_for_linking().clone()
        for inner in module.functions:
            if not inner.is_declaration:
                inner.linkage = "internal"
        wanted = module.get_function(found.fndesc.llvm_func_name)
        wanted.name, wanted.linkage = name, "external"
        whole.link_in(module)
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3, reloc="pic", codemodel="default")
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()  # wrappers for Python, which only Python could link
    passes.run(whole, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(whole))


@functools.cache
def address_of(function: Kernel, signature: Any, what: str) -> int:
    """Where `call` and `ask` find a function of somebody else, compiled for these arguments or taken from the cache."""
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        _pointed.append(function)
        return len(_pointed) - 1
    bare = getattr(function, "py_func", function)
    of_plugins.append(bare)
    compiled = _Kernel(bare, _LEAN) if has_source(bare) else numba.njit(**_LEAN)(bare)
    try:
        compiled.compile(signature)
    except NumbaError as error:
        raise ConfigError(f"{what} is no kernel that numba can compile:\n{error}") from error
    found: Any = compiled.overloads[signature.args]
    address: int = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    _pointed.append(compiled)  # or its machine code would go
    return address


def _through(returns: Any) -> Kernel:
    """Call the function at an address with three arguments: records, arrays or whole numbers."""

    def typed(_context: Any, address: Any, a: Any, b: Any, c: Any) -> Any:
        takes = tuple(types.int64 if isinstance(one, types.Integer) else one for one in (a, b, c))

        def emit(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            convention = context.call_conv
            pointer = builder.inttoptr(args[0], convention.get_function_type(returns, takes).as_pointer())
            status, found = convention.call_function(builder, pointer, returns, takes, args[1:])
            with cgutils.if_unlikely(builder, status.is_error):  # type: ignore[no-untyped-call]
                convention.return_status_propagate(builder, status)
            return found

        return returns(types.int64, *takes), emit

    return intrinsic(typed)


def _interpret(address: int, *arguments: Any) -> Any:
    return _pointed[address](*arguments)


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    call = ask = _interpret
else:
    call, ask = _through(types.none), _through(types.int64)


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
