"""Memory that programs have as objects: numpy arrays, bytearrays, mmaps, memoryviews, array.arrays, torch tensors.

    span(numpy.zeros(1024))      where it is, how many bytes, whether it may be written, and what keeps it there

The owner is an export of the buffer protocol where there is one: as long as it lives Python itself refuses to resize
the bytearray, and to close the mmap.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import Any

from weft.verbs.errors import PyverbsUserError
from weft.verbs.gpudirect.gpu import Span, device_span, name_of, of_interface, scattered

_QUERY = struct.Struct("=5Q64x")  # procmap_query of linux/fs.h: size, flags, address; out: begin and end of a mapping
_PROCMAP_QUERY, _WRITABLE = 0xC0686611, 2


def span(obj: Any) -> Span:
    """Return the contiguous memory of an object. Raise PyverbsUserError if it has none."""
    if (on_gpu := device_span(obj)) is not None:
        return on_gpu
    if callable(getattr(obj, "data_ptr", None)):
        return _of_tensor(obj)
    if getattr(getattr(obj, "dtype", None), "hasobject", False):
        raise PyverbsUserError(f"{name_of(obj)} holds Python objects, which cannot be sent: use an array of numbers")
    try:
        view = memoryview(obj)
    except (TypeError, ValueError, BufferError):  # numpy does not export all kinds of elements
        return _of_interface(obj)
    if not view.contiguous:
        raise scattered(obj, "numpy.ascontiguousarray(it)")
    if not view.nbytes:
        return Span(0, 0, not view.readonly, view)
    import numpy as np

    array = np.frombuffer(view, np.uint8) if view.c_contiguous else np.asarray(view)
    return Span(int(array.ctypes.data), view.nbytes, not view.readonly, view)


def _of_tensor(tensor: Any) -> Span:
    """Return the memory of a tensor of torch, which has no buffer protocol."""
    device = getattr(tensor.device, "type", tensor.device)
    if device != "cpu":
        raise PyverbsUserError(
            f"{name_of(tensor)} is in the memory of {tensor.device}, not of this process: copy it, it.cpu()"
        )
    if not tensor.is_contiguous():
        raise scattered(tensor, "it.contiguous()")
    return Span(int(tensor.data_ptr()), int(tensor.numel() * tensor.element_size()), True, tensor)


def _of_interface(obj: Any) -> Span:
    if (fields := of_interface(obj, "__array_interface__")) is None:
        raise PyverbsUserError(
            f"{name_of(obj)} is not memory: give an address, or an object with the buffer protocol,"
            " __array_interface__ or data_ptr()"
        )
    address, nbytes, writable, owner, dense = fields
    if not dense:
        raise scattered(obj, "numpy.ascontiguousarray(it)")
    return Span(address, nbytes, writable, owner)


def is_writable(address: int, length: int) -> bool:
    """Return whether the kernel lets this process write there."""
    try:
        return _are_writable(address, address + length)
    except OSError:  # Linux before 6.11
        return _are_writable_by_text(address, length)


_maps_of: tuple[int, int] = (0, -1)  # process ID and its open file: a forked process has other mappings


def _maps() -> int:
    global _maps_of
    if _maps_of[0] != os.getpid():
        _maps_of = os.getpid(), os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)
    return _maps_of[1]


def _are_writable(at: int, end: int) -> bool:
    """Query the mappings of a range one by one: reading all mappings takes a thousand times as long."""
    query = bytearray(_QUERY.size)
    while at < end:
        _QUERY.pack_into(query, 0, _QUERY.size, _WRITABLE, at, 0, 0)
        try:
            fcntl.ioctl(_maps(), _PROCMAP_QUERY, query)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return False
            raise
        at = _QUERY.unpack_from(query)[4]
    return True


def _are_writable_by_text(address: int, length: int) -> bool:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
            mappings = [line.split(" ", 2)[:2] for line in lines]
    except OSError:
        return True  # unknown without /proc
    at, end = address, address + length
    for bounds, rights in mappings:  # in the order of addresses
        low, high = (int(bound, 16) for bound in bounds.split("-"))
        if low <= at < high and "w" in rights:
            at = high
        if at >= end:
            return True
    return False
