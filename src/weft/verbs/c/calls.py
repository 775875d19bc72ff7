"""How operations are declared: a record, which C fills and reads, and the function that it is for.

    class AllocPd(Record):
        context: u64
        handle: u64  # out

    @operation(AllocPd)
    def alloc_pd(call: AllocPd) -> None: ...

In C the record is `struct weft_AllocPd`, and `ASK(AllocPd, &call)` gives 0 or the number of the error that was raised.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from weft.errors import WeftError
from weft.verbs.errors import PyverbsError, PyverbsRDMAError
from weft.verbs.hca.work import Refused
from weft.verbs.shm.record import Record

SAYS_WHY = "WEFT_VERBS_SAY"  # variable: if it is set, why a verb was refused is said on stderr
Function = TypeVar("Function", bound=Callable[[Any], None])
_declared: dict[type[Record], Callable[[Any], None]] = {}


def operation(record: type[Record]) -> Callable[[Function], Function]:
    def declare(function: Function) -> Function:
        _declared[record] = function
        return function

    return declare


def numbered() -> list[tuple[type[Record], Callable[[Any], None]]]:
    """Return all operations; the number of an operation in C is its index here."""
    return sorted(_declared.items(), key=lambda one: one[0].__name__)


def caller(operations: Sequence[str]) -> Callable[[int, int], int]:
    """Return the function that C calls with the number of an operation and the address of its record.

    It returns the number of an error. `operations` are the module and the record of each, in the order of their
    numbers; a module is imported when the first of its operations is called, as most programs need only some.
    """
    functions: list[tuple[Callable[[int], Any], Callable[[Any], None]] | None] = [None] * len(operations)

    def find(number: int) -> tuple[Callable[[int], Any], Callable[[Any], None]]:
        module, name = operations[number].split()
        enabled = gc.isenabled()
        gc.disable()  # imported modules are never freed
        try:
            declared = getattr(importlib.import_module(module), name)
        finally:
            if enabled:
                gc.enable()
        functions[number] = found = declared.from_address, _declared[declared]
        return found

    def call(number: int, words: int) -> int:
        try:
            at, function = functions[number] or find(number)
            function(at(words))
        except Exception as error:
            return _number(error)
        return 0

    return call


def _number(error: Exception) -> int:
    """Return the error number for an exception; an unexpected one is printed with its traceback."""
    if isinstance(error, PyverbsRDMAError):
        code = abs(error.error_code) if error.error_code not in (-1, 0) else errno.EINVAL
    elif isinstance(error, Refused):
        code = error.code
    elif isinstance(error, PyverbsError | OverflowError):
        code = errno.EINVAL
    elif isinstance(error, MemoryError):
        code = errno.ENOMEM
    elif isinstance(error, WeftError):
        print(f"weft: {error}", file=sys.stderr)
        code = errno.EIO
    else:
        import traceback

        traceback.print_exception(error)
        code = errno.EIO
    if os.environ.get(SAYS_WHY):
        print(f"weft: {error}", file=sys.stderr)
    return code
