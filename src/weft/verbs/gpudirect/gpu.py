"""Register memory of NVIDIA GPUs, and let the GPU move it.

    device_span(tensor)      the memory of an object on a GPU: torch, CuPy, numba, __cuda_array_interface__
    DeviceBytes              a reference to such memory in a message, instead of the bytes
    publish, reach           publish the allocation of a region, and map it in another process

Between two regions on GPUs of one machine the bytes take one copy, which the GPU makes: within a process by the
addresses, between processes by CUDA IPC. Over a shared-memory path the sender maps the receiver's allocation and copies
(`gpu_copies`); else the message holds the handle of the allocation, and the receiver maps it. The acknowledgement
follows the copy, so the sender's memory can be reused after its completion. To and from host memory it is one copy too.

As with GPUDirect in hardware the adapter ignores streams: wait for kernels that write a tensor before you post it
(`torch.cuda.synchronize()`, an event); when the completion is polled the bytes are there for every kernel after it.
"""

from __future__ import annotations

import errno
import math
import struct
from typing import Any, NamedTuple

from weft.verbs.errors import PyverbsUserError
from weft.verbs.gpudirect.cuda import Allocation, CudaError, driver

_REFERENCE = struct.Struct("<16s64sQQQ")  # UUID of the GPU, handle, size of the allocation; offset and length in it
_SHOWN = struct.Struct("<16s64sQQ")  # UUID of the GPU, handle, size of the allocation; where it begins in its process
SHOWN_BYTES = _SHOWN.size


class Part(NamedTuple):
    """A range of an allocation."""

    allocation: Allocation
    address: int
    length: int


class DeviceBytes:
    """A sequence of bytes on GPUs, for a message. It has a length and slices, and is not copied until `copy_to`."""

    __slots__ = ("_length", "parts")

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self._length = sum(part.length for part in parts)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, part: slice) -> DeviceBytes:
        begin, end, step = part.indices(self._length)
        if step != 1:
            raise ValueError("bytes on a GPU have no slices with steps")
        parts, at = [], 0
        for allocation, address, length in self.parts:
            low, high = max(begin - at, 0), min(end - at, length)
            if low < high:
                parts.append(Part(allocation, address + low, high - low))
            at += length
        return DeviceBytes(tuple(parts))

    def copy_to(self, address: int, allocation: Allocation | None) -> None:
        """Copy to a GPU, or to host memory, and wait for the end of the copy."""
        for part in self.parts:
            kind, place = ("DtoH", part.allocation) if allocation is None else ("DtoD", allocation)
            place.driver.copy(kind, place.context, address, part.address, part.length)
            address += part.length

    def to_host(self) -> memoryview:
        """Return a copy in host memory."""
        import numpy as np

        copy = np.empty(self._length, np.uint8)
        self.copy_to(int(copy.ctypes.data), None)
        return copy.data

    def __bytes__(self) -> bytes:
        return bytes(self.to_host())

    # -- between processes --------------------------------------------------------------------------------------------

    def pack(self) -> bytes:
        """Return a reference with which another process of this machine maps the bytes."""
        return b"".join(
            _REFERENCE.pack(*allocation.reference(), allocation.size, address - allocation.start, length)
            for allocation, address, length in self.parts
        )

    @classmethod
    def unpack(cls, data: bytes) -> DeviceBytes:
        """Map bytes of another process. Raise CudaError if this process cannot reach them."""
        parts = []
        try:
            for uuid, handle, size, offset, length in _REFERENCE.iter_unpack(data):
                if offset + length > size:
                    raise CudaError(f"{length} bytes at {offset} are not within an allocation of {size}", errno.EFAULT)
                allocation = driver().opened(uuid, handle, size)
                parts.append(Part(allocation, allocation.start + offset, length))
        except (struct.error, PyverbsUserError) as error:
            raise CudaError(str(error), errno.EINVAL) from error
        return cls(tuple(parts))


def publish(allocation: Allocation) -> bytes:
    """Return a reference with which other processes read and write an allocation."""
    return _SHOWN.pack(*allocation.reference(), allocation.size, allocation.start)


def reach(data: bytes, address: int) -> tuple[Allocation, int]:
    """Map an allocation that another process published; return it and its address here. Raise CudaError on failure."""
    uuid, handle, size, start = _SHOWN.unpack(data)
    allocation = driver().opened(uuid, handle, size)
    return allocation, address - start + allocation.start


class Span(NamedTuple):
    """A contiguous range of memory of the host or of a GPU."""

    address: int
    nbytes: int
    writable: bool
    owner: object  # while it is alive the memory stays
    device: Allocation | None = None  # on a GPU


def device_span(obj: Any) -> Span | None:
    """Return the memory of an object on a GPU; None if the object is not on a GPU."""
    is_tensor = callable(getattr(obj, "data_ptr", None))
    fields = _of_torch(obj) if is_tensor else of_interface(obj, "__cuda_array_interface__")
    if fields is None:
        return None
    address, nbytes, writable, owner, dense = fields
    name = name_of(obj)
    if not dense:
        raise scattered(obj, "it.contiguous()")
    if not nbytes:
        return Span(0, 0, writable, owner, None)
    try:
        allocation = driver().allocation_at(address, nbytes, owner)
    except CudaError as error:
        raise PyverbsUserError(f"{name} cannot be registered: {error}") from error
    if allocation is None:
        raise PyverbsUserError(f"{name} claims to be on a GPU, but {address:#x} is not memory of a GPU")
    return Span(address, nbytes, writable, owner, allocation)


def scattered(obj: Any, way_out: str) -> PyverbsUserError:
    return PyverbsUserError(f"{name_of(obj)} is not contiguous: register a contiguous copy, {way_out}")


def name_of(obj: Any) -> str:
    kind = type(obj)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _of_torch(tensor: Any) -> tuple[int, int, bool, object, bool] | None:
    """Return the memory of a tensor; tensors with a gradient or of 8-bit floats have no `__cuda_array_interface__`."""
    if not getattr(tensor, "is_cuda", False):
        return None
    nbytes = int(tensor.numel() * tensor.element_size())
    return int(tensor.data_ptr()), nbytes, True, tensor.untyped_storage(), bool(tensor.is_contiguous())


def of_interface(obj: Any, name: str) -> tuple[int, int, bool, object, bool] | None:
    """Return the memory by `__cuda_array_interface__`, versions 2 and 3, or `__array_interface__`, version 3."""
    fields = getattr(obj, name, None)
    if not isinstance(fields, dict) or not isinstance(fields.get("data"), tuple):
        return None
    import numpy as np

    address, read_only = fields["data"]
    shape, itemsize = fields["shape"], np.dtype(fields["typestr"]).itemsize
    strides = tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))  # the last runs fastest
    return int(address), math.prod(shape) * itemsize, not read_only, obj, fields.get("strides") in (None, strides)
