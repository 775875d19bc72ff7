"""Reduction operations: a numpy function for arrays and a Python function for objects."""
# ruff: noqa: N802 - the names are mpi4py's

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Op:
    name: str
    of_objects: Callable[[Any, Any], Any]
    of_arrays: np.ufunc | None = None

    def __call__(self, left: Any, right: Any) -> Any:
        return self.of_objects(left, right)

    def Is_commutative(self) -> bool:
        return True

    is_commutative = is_predefined = property(Is_commutative)


def ufunc(op: Any, dtype: np.dtype[Any]) -> np.ufunc:
    """Return the numpy function of an operation for arrays of a type."""
    if not isinstance(op, Op) or op.of_arrays is None:
        name = op.name if isinstance(op, Op) else repr(op)
        raise ConfigError(
            f"{name} reduces objects only; give MPI.SUM or another operation for arrays, or use the lower-case call"
        )
    empty = np.empty(0, dtype)
    try:
        op.of_arrays(empty, empty, out=empty)
    except TypeError:
        raise ConfigError(f"{op.name} is not defined for {dtype}") from None
    return op.of_arrays


def _maxloc(left: Any, right: Any) -> Any:
    """Return the larger value with its index; the lower index of equal values."""
    return left if (left[0], -left[1]) >= (right[0], -right[1]) else right


def _minloc(left: Any, right: Any) -> Any:
    return left if (left[0], left[1]) <= (right[0], right[1]) else right


OPERATIONS = {
    operation.name.removeprefix("MPI_"): operation
    for operation in (
        Op("MPI_SUM", operator.add, np.add),
        Op("MPI_PROD", operator.mul, np.multiply),
        Op("MPI_MAX", max, np.maximum),
        Op("MPI_MIN", min, np.minimum),
        Op("MPI_LAND", lambda left, right: bool(left) and bool(right), np.logical_and),
        Op("MPI_LOR", lambda left, right: bool(left) or bool(right), np.logical_or),
        Op("MPI_LXOR", lambda left, right: bool(left) != bool(right), np.logical_xor),
        Op("MPI_BAND", operator.and_, np.bitwise_and),
        Op("MPI_BOR", operator.or_, np.bitwise_or),
        Op("MPI_BXOR", operator.xor, np.bitwise_xor),
        Op("MPI_MAXLOC", _maxloc),
        Op("MPI_MINLOC", _minloc),
    )
}
SUM = OPERATIONS["SUM"]
