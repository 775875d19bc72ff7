"""References to named tuples of arrays: one pointer, where numba passes each array as seven arguments.

A kernel takes its state as a named tuple. Its parts take `by_reference(state)`, and read the same fields.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model

from weft.jit import Kernel, compiled_address, kernel_address


class Reference(types.Type):
    """The type of a reference to a named tuple."""

    def __init__(self, target: Any) -> None:
        super().__init__(name=f"Reference({target.name})")
        self.target = target

    @property
    def mangling_args(self) -> tuple[str, tuple[Any, ...]]:
        """Return a short name for symbols: that of a tuple of records has thousands of letters."""
        return f"Reference{hashlib.sha256(self.target.name.encode()).hexdigest()[:16]}", ()


register_model(Reference)(models.OpaqueModel)


@infer_getattr
class _Fields(AttributeTemplate):
    """The types of the fields, for numba's inference."""

    key = Reference

    def generic_resolve(self, reference: Any, name: str) -> Any:  # type: ignore[override]
        """Return the type of a field, or None if there is none of this name."""
        target = reference.target
        return target.types[target.fields.index(name)] if name in target.fields else None


@lower_getattr_generic(Reference)  # type: ignore[no-untyped-call, untyped-decorator]
def _load(context: Any, builder: Any, reference: Any, value: Any, name: str) -> Any:
    """Load a field. It never changes, which LLVM cannot know by itself."""
    target = reference.target
    place = builder.bitcast(value, context.get_value_type(target).as_pointer())
    loaded = builder.load(cgutils.gep_inbounds(builder, place, 0, target.fields.index(name)))  # type: ignore[no-untyped-call]
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded


def _refer(_context: Any, target: Any) -> Any:
    """Return a reference to a named tuple, valid until the kernel returns."""

    def emit(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        slot = cgutils.alloca_once_value(builder, args[0])  # type: ignore[no-untyped-call]
        return builder.bitcast(slot, ir.IntType(8).as_pointer())

    return Reference(target)(target), emit


def address_by_reference(function: Kernel, target: Any, *arguments: Any) -> int:
    """Return the address of a kernel, compiled for a reference to a named tuple and further arguments, for
    `call_kernel`.
    """
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return kernel_address(function)
    takes = (Reference(numba.typeof(target)), *(numba.typeof(argument) for argument in arguments))  # type: ignore[no-untyped-call]
    return compiled_address(function, takes)


by_reference: Kernel = (lambda target: target) if numba.config.DISABLE_JIT else intrinsic(_refer)  # type: ignore[attr-defined]
