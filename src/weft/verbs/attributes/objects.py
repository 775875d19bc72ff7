"""Define the base classes of verbs objects: integers of C's widths, and objects that their parent closes.

pyverbs calls this module `base`.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import operator
import sys
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from weft.verbs.errors import PyverbsRDMAError

if TYPE_CHECKING:
    import logging

_births = itertools.count()


class Unsigned:
    """A field of a C structure: a value that does not fit raises `OverflowError`, as in pyverbs; fractions are cut off.

    It has no `__get__`: reads go straight to the object's own dictionary, so `__init__` must set the field. A dataclass
    does, with this object as the default value, which stands for `default`.
    """

    def __init__(self, bits: int, default: int = 0) -> None:
        self.bits, self.default = bits, default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    if TYPE_CHECKING:

        def __get__(self, obj: object, owner: type) -> int: ...

    def __set__(self, obj: object, value: SupportsIndex | float | Unsigned) -> None:
        obj.__dict__[self.name] = self.default if value is self else unsigned(self.name, self.bits, value)  # type: ignore[arg-type]


def unsigned(name: str, bits: int, value: SupportsIndex | float) -> int:
    """Return the value as an integer. Raise OverflowError if it does not fit into `bits`."""
    number = int(value) if isinstance(value, float) else operator.index(value)
    if number < 0:
        raise OverflowError(f"{name} = {number}: can't convert negative value to uint{bits}_t")
    if number >> bits:
        raise OverflowError(f"{name} = {number}: value too large to convert to uint{bits}_t")
    return number


class Rare(Unsigned):
    """A field that most objects never set: 0 unless `__init__` sets it, and slower to read."""

    def __get__(self, obj: object, owner: type) -> int:
        return vars(obj).get(self.name, 0) if obj is not None else self  # type: ignore[return-value]


def inc_rkey(rkey: int) -> int:
    """Return the next key of a memory window: the 8 bits that its owner chooses, plus one."""
    return rkey & 0xFFFFFF00 | (rkey + 1) & 0xFF


def PyverbsRDMAErrno(msg: str) -> PyverbsRDMAError:  # noqa: N802 - a function that looks like a class, as in pyverbs
    """Return the exception for the C library's last error."""
    return PyverbsRDMAError(msg, ctypes.get_errno())


class PyverbsObject:
    """The base class of all objects of verbs."""

    @property
    def logger(self) -> logging.Logger:
        import logging

        return logging.getLogger(type(self).__name__)

    def set_log_level(self, val: int) -> None:
        self.logger.setLevel(val)


class PyverbsCM(PyverbsObject):
    """An object that is closed by `close()`, by `with`, with its parent, or with the last reference to it.

    A child keeps its parent alive; a parent has weak references to its children. `close()` closes the children,
    youngest first, then calls `_release()`, where a class frees the adapter's resources. If that fails the object
    stays open. Closing it twice is no error.

    `is_held=False`: the adapter has no resources for such objects, so that a loop can create and drop them cheaply.
    """

    _is_open = False
    _children: weakref.WeakValueDictionary[int, PyverbsCM] | None = None

    def __init_subclass__(cls, *, is_held: bool = True) -> None:
        super().__init_subclass__()
        if is_held and not hasattr(cls, "__del__"):
            cls.__del__ = _end  # type: ignore[attr-defined]

    def add_ref(self, child: PyverbsCM) -> None:
        """Add a child that is complete and mark it as open."""
        if self._children is None:
            self._children = weakref.WeakValueDictionary()
        self._children[next(_births)] = child
        child._is_open = True

    def close(self) -> None:
        if not self._is_open or sys.is_finalizing():  # then threads are stopped, and may hold locks
            return
        for child in reversed(list((self._children or {}).values())):
            child.close()
        self._release()
        self._is_open = False

    def _release(self) -> None:
        """Free the adapter's resources: none by default."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _end(self: PyverbsCM) -> None:
    if self._is_open:
        with contextlib.suppress(Exception):  # a destructor cannot raise
            self.close()


def table(**fields: Any) -> str:
    """Format names and values one below the other, as pyverbs prints objects; underscores in names become blanks."""
    return "".join(f"{name.replace('_', ' '):22}: {value:<20}\n" for name, value in fields.items())
