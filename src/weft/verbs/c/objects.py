"""What a program has made, by the handle that its C structure has."""

from __future__ import annotations

import errno
import itertools
import sys
from typing import TypeVar

from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.c.calls import operation
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.context import Context
from weft.verbs.shm.record import Record, record, u32

T = TypeVar("T", bound=PyverbsCM)
_objects: dict[int, PyverbsCM] = {}
_numbers = itertools.count(1)  # 0 is nothing


def add(obj: PyverbsCM) -> int:
    """Keep it until the program closes it."""
    handle = next(_numbers)
    _objects[handle] = obj
    return handle


def find(handle: int, kind: type[T]) -> T:
    found = _objects.get(handle)
    if not isinstance(found, kind):
        raise PyverbsRDMAError(f"Failed to find a {kind.__name__}", errno.EINVAL, f"none has handle {handle}")
    return found


def find_or_none(handle: int, kind: type[T]) -> T | None:
    return find(handle, kind) if handle else None


def forget(handle: int) -> None:
    """The program has closed it."""
    _objects.pop(handle, None)


@record
class Close(Record):
    handle: u32


@operation(Close)
def close(call: Close) -> None:
    """As the kernel: what others still use stays. A device takes all that was made of it with it."""
    obj = find(call.handle, PyverbsCM)
    if sys.is_finalizing():  # a program that is Python closes then what nothing here closes any more
        return
    if not isinstance(obj, Context) and any(child._is_open for child in (obj._children or {}).values()):
        raise PyverbsRDMAError(f"Failed to close {type(obj).__name__}", errno.EBUSY, "something that it has is in use")
    obj.close()
    forget(call.handle)
