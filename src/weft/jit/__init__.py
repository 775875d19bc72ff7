"""Numba kernels, compiled once and cached: decorators, addresses of compiled functions, and intrinsics.

`dispatcher`, `cache` and `inner` compile and load kernels quickly by numba's internals; with a numba that they are not
tested with, `public` does it by numba's public interface.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numba
from llvmlite import binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import NumbaError
from numba.extending import intrinsic

from weft.errors import ConfigError
from weft.jit.sources import BOUNDSCHECK as BOUNDSCHECK
from weft.jit.sources import cache_folder as cache_folder
from weft.jit.sources import has_source, plugin_functions

_OLDEST_TESTED, _NEWEST_TESTED = (0, 63), (0, 68)  # releases of numba
IS_TESTED = _OLDEST_TESTED <= tuple(int(number) for number in numba.__version__.split(".")[:2]) <= _NEWEST_TESTED
if IS_TESTED:
    from weft.jit.dispatcher import PARTS, make_kernel
else:
    from weft.jit.public import PARTS, make_kernel

__all__ = [
    "BOUNDSCHECK",
    "Kernel",
    "address_of",
    "cache_folder",
    "call_kernel",
    "compiled_address",
    "handler",
    "inlined",
    "kernel",
    "kernel_address",
    "lean_kernel",
    "object_code",
    "overload_for",
    "part",
    "prefetch",
    "quick_kernel",
    "replace_fields",
]

Kernel = Callable[..., Any]  # numba infers the types
# functions that have an address; interpreted, the address is the index here. Real addresses are larger
_pointed: list[Any] = [None] * 16


def _cached(function: Kernel, **options: Any) -> Kernel:
    return function if numba.config.DISABLE_JIT else make_kernel(function, options)  # type: ignore[attr-defined]


# Reference counts of arrays cost 30 times a simulation step: kernels that create no array do without.
_LEAN: dict[str, Any] = {"_nrt": False, "boundscheck": BOUNDSCHECK, "error_model": "numpy"}
_INNER = _LEAN | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **PARTS}


def kernel(function: Kernel) -> Kernel:
    """Compile a function on its first call, or load it from the cache. It releases the GIL."""
    return _cached(function, nogil=True, boundscheck=BOUNDSCHECK)


def lean_kernel(function: Kernel) -> Kernel:
    """Compile a kernel that creates no array, and so needs no reference counts. It releases the GIL."""
    return _cached(function, nogil=True, **_LEAN)


def quick_kernel(function: Kernel) -> Kernel:
    """Compile a lean kernel that keeps the GIL: it is too short for releasing it to pay off.

    Only such a kernel may itself release the GIL for a long part.
    """
    return _cached(function, **_LEAN)


def handler(function: Kernel) -> Kernel:
    """Compile a part of a lean kernel that runs rarely or is large."""
    compiled: Kernel = numba.njit(**_INNER)(function)
    return compiled


def part(function: Kernel) -> Kernel:
    """Compile a small part of a lean kernel. LLVM inlines it, in a tenth of the time that numba's inlining takes.

    With bounds checks LLVM decides what to inline: a check at every index, and all inlined, would compile six times as
    long.
    """
    compiled: Kernel = numba.njit(forceinline=not BOUNDSCHECK, **_INNER)(function)
    return compiled


def inlined(function: Kernel) -> Kernel:
    """Compile a small helper of kernels that numba inlines at the call."""
    compiled: Kernel = numba.njit(inline="always", boundscheck=BOUNDSCHECK)(function)
    return compiled


def overload_for(function: Kernel, *arguments: Any) -> Kernel:
    """Return a kernel compiled for arguments of these types: calling that skips the dispatch, half of the work."""
    overload: Kernel = function.compile(tuple(numba.typeof(argument) for argument in arguments))  # type: ignore[attr-defined, no-untyped-call]
    return overload


def object_code(kernels: Mapping[str, Kernel], *, features: str = "") -> bytes:
    """Return an object file with kernels of whole numbers, for a linker and any processor with LLVM's `features`.

    They have these names and the calling convention of numba: `int name(result *, void **error, int64_t, ...)`.
    """
    whole = llvm.parse_assembly("")
    for name, function in kernels.items():
        takes = (types.int64,) * function.py_func.__code__.co_argcount  # type: ignore[attr-defined]
        function.compile(takes)  # type: ignore[attr-defined]
        overload: Any = function.overloads[takes]  # type: ignore[attr-defined]
        module = overload.library._get_module_for_linking().clone()
        for inner in module.functions:
            if not inner.is_declaration:
                inner.linkage = "internal"
        kernel_function = module.get_function(overload.fndesc.llvm_func_name)
        kernel_function.name, kernel_function.linkage = name, "external"
        whole.link_in(module)
    machine = llvm.Target.from_default_triple().create_target_machine(
        features=features, opt=3, reloc="pic", codemodel="default"
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()  # wrappers for Python, which only Python could link
    passes.run(whole, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(whole))


@functools.cache
def address_of(function: Kernel, signature: Any, what: str) -> int:
    """Compile a plugin's function for these arguments, or load it; return its address for `call` and `ask`."""
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        _pointed.append(function)
        return len(_pointed) - 1
    bare = getattr(function, "py_func", function)
    plugin_functions.append(bare)
    compiled: Any = make_kernel(bare, _LEAN) if has_source(bare) else numba.njit(**_LEAN)(bare)
    try:
        compiled.compile(signature)
    except NumbaError as error:
        raise ConfigError(f"numba cannot compile {what}:\n{error}") from error
    overload: Any = compiled.overloads[signature.args]
    address: int = overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name)
    _pointed.append(compiled)  # keeps the machine code alive
    return address


def _call_address(returns: Any) -> Kernel:
    """Return an intrinsic that calls an address with three arguments: records, arrays or integers."""

    def typed(_context: Any, address: Any, a: Any, b: Any, c: Any) -> Any:
        takes = tuple(types.int64 if isinstance(argument, types.Integer) else argument for argument in (a, b, c))

        def emit(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return _emit_call(context, builder, returns, takes, args)

        return returns(types.int64, *takes), emit

    return intrinsic(typed)


def _call_with_hops(returns: Any) -> Kernel:
    """Return an intrinsic that calls an address with five arguments, as `call` and `ask` do with three."""

    def typed(_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        takes = (a, types.int64, c, d, e)

        def emit(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return _emit_call(context, builder, returns, takes, args)

        return returns(types.int64, *takes), emit

    return intrinsic(typed)


def _call_kernel(_context: Any, address: Any, state: Any, budget: Any) -> Any:
    """Call a kernel that takes a state and a number and returns a number, by its address: `kernel_address`."""
    takes = (state, types.int64)

    def emit(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _emit_call(context, builder, types.int64, takes, args)

    return types.int64(types.int64, *takes), emit


def _emit_call(context: Any, builder: Any, returns: Any, takes: tuple[Any, ...], args: Any) -> Any:
    """Emit the call of an address, `args[0]`, by numba's convention."""
    convention = context.call_conv
    pointer = builder.inttoptr(args[0], convention.get_function_type(returns, takes).as_pointer())
    status, result = convention.call_function(builder, pointer, returns, takes, args[1:])
    with cgutils.if_unlikely(builder, status.is_error):  # type: ignore[no-untyped-call]
        convention.return_status_propagate(builder, status)
    return result


def _interpret(address: int, *arguments: Any) -> Any:
    return _pointed[address](*arguments)


if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
    call = ask = call_with_hops = ask_with_hops = _interpret
else:
    call, ask = _call_address(types.none), _call_address(types.int64)
    call_with_hops, ask_with_hops = _call_with_hops(types.none), _call_with_hops(types.int64)


call_kernel: Kernel = _interpret if numba.config.DISABLE_JIT else intrinsic(_call_kernel)  # type: ignore[attr-defined]


def kernel_address(function: Kernel, *arguments: Any) -> int:
    """Return the address of a kernel, compiled for arguments of these types, for `call_kernel`."""
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        _pointed.append(function)
        return len(_pointed) - 1
    return compiled_address(function, tuple(numba.typeof(argument) for argument in arguments))  # type: ignore[no-untyped-call]


def compiled_address(function: Kernel, takes: tuple[Any, ...]) -> int:
    """Return the address of a kernel, compiled for these types."""
    function.compile(takes)  # type: ignore[attr-defined]
    overload: Any = function.overloads[takes]  # type: ignore[attr-defined]
    assert overload.signature.return_type == types.int64
    address: int = overload.library.get_pointer_to_function(overload.fndesc.llvm_func_name)
    return address


def replace_fields(names: tuple[str, ...]) -> Kernel:
    """Return an intrinsic that returns a named tuple with these fields replaced by further arguments."""

    def typed(_context: Any, tuple_: Any, values: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            changed = args[0]
            for at, name in enumerate(names):
                value = builder.extract_value(args[1], at)
                changed = builder.insert_value(changed, value, tuple_.fields.index(name))
            return changed

        return tuple_(tuple_, values), emit

    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return lambda tuple_, values: tuple_._replace(**dict(zip(names, values, strict=True)))
    return intrinsic(typed)


def _prefetch(_context: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of `array[index]`; does nothing when interpreted. An invalid index does no harm."""
    place = types.intp if array.ndim == 1 else types.UniTuple(types.intp, array.ndim)  # type: ignore[no-untyped-call]

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        target = context.make_array(kind)(context, builder, args[0])
        indices = cgutils.unpack_tuple(builder, args[1]) if kind.ndim > 1 else [args[1]]  # type: ignore[no-untyped-call]
        item = cgutils.get_item_pointer(  # type: ignore[no-untyped-call]
            context, builder, kind, target, indices, wraparound=False
        )
        pointer = builder.bitcast(item, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        takes = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], takes)
        builder.call(function, [pointer, number(0), number(3), number(1)])  # to read, keep, data
        return context.get_dummy_value()

    return types.void(array, place), emit


prefetch: Kernel = (lambda _array, _index: None) if numba.config.DISABLE_JIT else intrinsic(_prefetch)  # type: ignore[attr-defined]
