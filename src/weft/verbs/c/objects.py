"""Keep the objects of a program by the handle in their C structures."""

from __future__ import annotations

import errno
import itertools
import sys
from typing import TypeVar

from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.c.calls import operation
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.context import Context
from weft.verbs.shm.record import Record, u32

T = TypeVar("T", bound=PyverbsCM)
_objects: dict[int, PyverbsCM] = {}
_numbers = itertools.count(1)  # 0 means none


def add(obj: PyverbsCM) -> int:
    """Keep an object until the program closes it; return its handle."""
    handle = next(_numbers)
    _objects[handle] = obj
    return handle


def find(handle: int, kind: type[T]) -> T:
    obj = _objects.get(handle)
    if not isinstance(obj, kind):
        raise PyverbsRDMAError(f"Failed to find a {kind.__name__}", errno.EINVAL, f"there is none with handle {handle}")
    return obj


def find_or_none(handle: int, kind: type[T]) -> T | None:
    return find(handle, kind) if handle else None


def forget(handle: int) -> None:
    """Drop an object that the program has closed."""
    _objects.pop(handle, None)


class Close(Record):
    handle: u32


@operation(Close)
def close(call: Close) -> None:
    """Close an object; refuse while others use it, as the kernel does. A device closes all its objects."""
    obj = find(call.handle, PyverbsCM)
    if sys.is_finalizing():  # a Python program may close objects after its interpreter has stopped
        return
    if not isinstance(obj, Context) and any(child._is_open for child in (obj._children or {}).values()):
        raise PyverbsRDMAError(
            f"Failed to close {type(obj).__name__}", errno.EBUSY, "it is in use: close the objects that use it first"
        )
    obj.close()
    forget(call.handle)
