"""Call NVIDIA's driver: find the GPU of an address, copy, map memory of other processes.

The calls use ctypes: neither torch nor CuPy is needed. The driver is loaded when memory of a GPU is registered, unless
another library has loaded it already.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from weft.verbs.errors import PyverbsUserError

LIBRARY = "libcuda.so.1"
_OPENED_MAX = 32  # allocations of other processes that stay mapped; while one is, its owner cannot really free it
_NON_BLOCKING, _LAZY_PEER_ACCESS = 1, 1
_NOT_INITIALIZED = 3
_ON_DEVICE = 2  # CU_MEMORYTYPE_DEVICE
_CONTEXT = 1  # CU_POINTER_ATTRIBUTE_CONTEXT
# The attributes to query of an address: CONTEXT, MEMORY_TYPE, IS_MANAGED, DEVICE_ORDINAL, IS_LEGACY_CUDA_IPC_CAPABLE,
# RANGE_START_ADDR, RANGE_SIZE, BUFFER_ID.
_ATTRIBUTES = (ctypes.c_int * 8)(1, 2, 8, 9, 10, 11, 12, 7)


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


_pointer, _address, _size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGetCount": (ctypes.POINTER(ctypes.c_int),),
    "cuDeviceGet": (ctypes.POINTER(ctypes.c_int), ctypes.c_int),
    "cuDeviceGetUuid_v2": (ctypes.POINTER(ctypes.c_char), ctypes.c_int),
    "cuDevicePrimaryCtxRetain": (ctypes.POINTER(_pointer), ctypes.c_int),
    "cuCtxGetCurrent": (ctypes.POINTER(_pointer),),
    "cuCtxPushCurrent_v2": (_pointer,),
    "cuCtxPopCurrent_v2": (ctypes.POINTER(_pointer),),
    "cuStreamCreate": (ctypes.POINTER(_pointer), ctypes.c_uint),
    "cuStreamSynchronize": (_pointer,),
    "cuPointerGetAttribute": (ctypes.POINTER(_pointer), ctypes.c_int, _address),
    "cuPointerGetAttributes": (ctypes.c_uint, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(_pointer), _address),
    "cuMemcpyDtoDAsync_v2": (_address, _address, _size, _pointer),
    "cuMemcpyHtoDAsync_v2": (_address, _pointer, _size, _pointer),
    "cuMemcpyDtoHAsync_v2": (_pointer, _address, _size, _pointer),
    "cuMemAlloc_v2": (ctypes.POINTER(_address), _size),
    "cuMemFree_v2": (_address,),
    "cuIpcGetMemHandle": (ctypes.POINTER(_Handle), _address),
    "cuIpcOpenMemHandle_v2": (ctypes.POINTER(_address), _Handle, ctypes.c_uint),
    "cuIpcCloseMemHandle": (_address,),
}

_COPIES = {kind: f"cuMemcpy{kind}Async_v2" for kind in ("DtoD", "HtoD", "DtoH")}


class CudaError(Exception):
    """An error of the driver, or memory that cannot be used; `code` is the errno for it."""

    def __init__(self, reason: str, code: int = errno.EIO) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(slots=True, eq=False, weakref_slot=True)
class Allocation:
    """An allocation on a GPU, of this process, or of another one and mapped here. `owner` keeps it alive."""

    driver: Driver
    context: int
    device: int  # ordinal, in this process
    start: int
    size: int
    owner: object = None
    number: int = 0  # unique in this process, never reused
    _reference: tuple[bytes, bytes] | None = field(default=None, init=False)

    def reference(self) -> tuple[bytes, bytes]:
        """Return the GPU's UUID and the handle with which another process maps the allocation."""
        if self._reference is None:
            self._reference = self.driver.uuid(self.device), self.driver.handle(self)
        return self._reference

    def put(self, address: int, data: bytes | memoryview) -> None:
        """Copy host memory to an address of the allocation."""
        if len(data):
            import numpy as np

            source = np.frombuffer(data, np.uint8)
            self.driver.copy("HtoD", self.context, address, int(source.ctypes.data), len(source))


class Driver:
    """The interface to libcuda. `copied_bytes` counts by direction: DtoD, HtoD (from the host), DtoH (to the host)."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name, arguments in _CALLS.items():
            getattr(library, name).argtypes = arguments
        self.copied_bytes: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._streams: dict[int, int] = {}  # by context
        self._primaries: dict[int, int] = {}  # contexts, by ordinal
        self._opened: OrderedDict[bytes, Allocation] = OrderedDict()  # by handle, least recently used first

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise CudaError(f"{name} failed: {self._text(code)}")

    def _text(self, code: int) -> str:
        name, meaning = ctypes.c_char_p(), ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        self._library.cuGetErrorString(code, ctypes.byref(meaning))
        text = f"{(name.value or b'error').decode()} ({code}), {(meaning.value or b'unknown').decode()}"
        hint = "; a forked process cannot use the GPU of its parent: start it by spawn"
        return text + hint if code == _NOT_INITIALIZED else text

    @contextlib.contextmanager
    def _current(self, context: int) -> Iterator[None]:
        """Make a context current in this thread, and restore the program's own afterwards."""
        now = _pointer()
        self.call("cuCtxGetCurrent", ctypes.byref(now))
        if now.value == context:
            yield
            return
        self.call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(_pointer()))

    # -- addresses ----------------------------------------------------------------------------------------------------

    def allocation_at(
        self, address: int, length: int, owner: object = None, *, for_others: bool = True
    ) -> Allocation | None:
        """Return a GPU's allocation, None for host memory. Managed memory counts as host memory.

        Without `for_others` no handle is needed: memory without a handle becomes an allocation of its own. The stream
        for its copies is created here: later a kernel may run that waits for a copy, and the driver creates no stream
        while another thread launches a kernel for the first time, which waits for the running one.
        """
        attributes = self._attributes(address)
        if attributes is None or attributes[1] != _ON_DEVICE or attributes[2]:
            return None
        context, _, _, device, has_handle, start, size, number = attributes
        if not for_others and not (has_handle and context):
            return Allocation(self, self._primary(device), device, address, length, owner)
        if not start <= address <= address + length <= start + size:
            raise CudaError(
                f"{length} bytes at {address:#x} are more than the allocation of {size} at {start:#x} has", errno.EFAULT
            )
        if not has_handle or not context:
            raise CudaError(
                f"the memory at {address:#x} has no CUDA IPC handle: it is of expandable segments or of a pool\n"
                "  Allocate it by cudaMalloc: torch without expandable_segments:True and backend:cudaMallocAsync in"
                " PYTORCH_CUDA_ALLOC_CONF, CuPy with its default pool.",
                errno.EOPNOTSUPP,
            )
        for used in {context, self._primary(device)}:
            with self._current(used):
                self._stream(used)
        return Allocation(self, context, device, start, size, owner, number)

    def has(self, address: int) -> bool:
        """Return whether an address is on a GPU, where the processor cannot read."""
        attributes = self._attributes(address)
        return attributes is not None and attributes[1] == _ON_DEVICE and not attributes[2]

    def context_of(self, address: int) -> int:
        """Return the context in which memory of this process was allocated."""
        context = _pointer()
        self.call("cuPointerGetAttribute", ctypes.byref(context), _CONTEXT, address)
        return context.value or 0

    def _attributes(self, address: int) -> list[int] | None:
        """Return the values of _ATTRIBUTES; None if this process does not use CUDA."""
        values = (ctypes.c_uint64 * len(_ATTRIBUTES))()
        places = (_pointer * len(_ATTRIBUTES))(
            *(ctypes.addressof(values) + 8 * index for index in range(len(_ATTRIBUTES)))
        )
        code = self._library.cuPointerGetAttributes(len(_ATTRIBUTES), _ATTRIBUTES, places, address)
        return None if code else list(values)

    # -- copies -------------------------------------------------------------------------------------------------------

    def copy(self, kind: str, context: int, to: int, source: int, length: int) -> None:
        """Copy and wait for the end of the copy."""
        with self._current(context):
            stream = self._streams.get(context) or self._stream(context)
            self.call(_COPIES[kind], to, source, length, stream)
            self.call("cuStreamSynchronize", stream)
        self.copied_bytes[kind] += length

    def _stream(self, context: int) -> int:
        """Return a stream of weft's own, so that copies and the program's streams do not wait for each other."""
        with self._lock:
            if context not in self._streams:
                stream = _pointer()
                self.call("cuStreamCreate", ctypes.byref(stream), _NON_BLOCKING)
                self._streams[context] = stream.value or 0
            return self._streams[context]

    # -- between processes --------------------------------------------------------------------------------------------

    def uuid(self, ordinal: int) -> bytes:
        """Return the UUID of a GPU. Its ordinal depends on CUDA_VISIBLE_DEVICES of the process."""
        device, uuid = ctypes.c_int(), (ctypes.c_char * 16)()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.call("cuDeviceGetUuid_v2", uuid, device)
        return uuid.raw

    def handle(self, allocation: Allocation) -> bytes:
        handle = _Handle()
        with self._current(allocation.context):
            self.call("cuIpcGetMemHandle", ctypes.byref(handle), allocation.start)
        return bytes(handle.reserved)

    def opened(self, uuid: bytes, handle: bytes, size: int) -> Allocation:
        """Map the allocation of another process by its handle. Raise CudaError if this process does not see the GPU."""
        with self._lock:
            if handle in self._opened:
                self._opened.move_to_end(handle)
                return self._opened[handle]
            ordinal, address = self._ordinal(uuid), _address()
            context = self._primary(ordinal)
            with self._current(context):
                value = _Handle.from_buffer_copy(handle)
                self.call("cuIpcOpenMemHandle_v2", ctypes.byref(address), value, _LAZY_PEER_ACCESS)
            allocation = Allocation(self, context, ordinal, address.value, size)
            self._at_end_of(allocation, "cuIpcCloseMemHandle")
            self._opened[handle] = allocation
            while len(self._opened) > _OPENED_MAX:
                self._opened.popitem(last=False)
            return allocation

    def _ordinal(self, uuid: bytes) -> int:
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            if self.uuid(ordinal) == uuid:
                return ordinal
        raise CudaError(f"this process does not see GPU {uuid.hex()}: add it to CUDA_VISIBLE_DEVICES", errno.ENODEV)

    def _primary(self, ordinal: int) -> int:
        """Return the primary context of a GPU, which CUDA's runtime and PyTorch use."""
        with self._lock:
            if ordinal not in self._primaries:
                device, context = ctypes.c_int(), _pointer()
                self.call("cuDeviceGet", ctypes.byref(device), ordinal)
                self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
                self._primaries[ordinal] = context.value or 0
            return self._primaries[ordinal]

    def allocate(self, ordinal: int, size: int) -> Allocation:
        """Allocate memory that other processes can map; it is freed with the returned object."""
        context, address = self._primary(ordinal), _address()
        with self._current(context):
            self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        allocation = Allocation(self, context, ordinal, address.value, size)
        self._at_end_of(allocation, "cuMemFree_v2")
        return allocation

    def _at_end_of(self, allocation: Allocation, call: str) -> None:
        """Call the driver when the allocation has no references left."""
        weakref.finalize(allocation, self._end, call, allocation.context, allocation.start).atexit = False

    def _end(self, call: str, context: int, address: int) -> None:
        with contextlib.suppress(CudaError), self._current(context):  # the process may be ending
            self.call(call, address)


_in_use: list[Driver] = []


def _library() -> Driver:
    if not _in_use:
        _in_use.append(Driver(ctypes.CDLL(LIBRARY)))
    return _in_use[0]


@functools.cache
def driver() -> Driver:
    """Load and initialize the driver. Raise PyverbsUserError if this machine has none."""
    try:
        library = _library()
        library.call("cuInit", 0)
    except (OSError, AttributeError, CudaError) as error:
        raise PyverbsUserError(
            f"memory of a GPU needs NVIDIA's driver, {LIBRARY}: {error}\n"
            "  Install the driver (in a container: run it with the GPU, docker run --gpus all), or register a copy in"
            " host memory: it.cpu(), it.get()."
        ) from error
    return library


def loaded(libraries: int = 0) -> Driver | None:
    """Return the driver if this process has loaded it: only then an address can belong to a GPU.

    It is not initialized here, because processes that are forked later could not use it. `libraries` is the number of
    libraries that were ever loaded, if the caller knows it.
    """
    try:
        if in_use() is None and not _find_loaded(libraries or _libraries_loaded()):
            return None
        return _library()
    except (OSError, AttributeError):  # AttributeError: Windows has no such flag, old drivers lack calls
        return None


@functools.lru_cache(maxsize=1)
def _find_loaded(libraries: int) -> bool:
    """Return whether the driver is loaded. The search reads folders: it runs again only if `libraries` changes."""
    try:
        ctypes.CDLL(LIBRARY, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


class _LoadedObject(ctypes.Structure):
    """The structure dl_phdr_info of link.h."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("header_count", ctypes.c_uint16),
        ("ever_loaded", ctypes.c_ulonglong),
        ("ever_unloaded", ctypes.c_ulonglong),
    )


_Visit = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_LoadedObject), ctypes.c_size_t, ctypes.c_void_p)


# Stop at the first object: each has the count of all.
_ever_loaded = _Visit(lambda loaded, _size, _data: int(loaded.contents.ever_loaded) & 0x7FFF_FFFF)


@functools.cache
def _visit_libraries() -> Any:
    """Return dl_iterate_phdr, which keeps Python's lock: a thread that loads a library may have it and the loader's."""
    return ctypes.PyDLL(None).dl_iterate_phdr


def _libraries_loaded() -> int:
    """Return how many libraries this process has ever loaded."""
    return int(_visit_libraries()(_ever_loaded, None))


def in_use() -> Driver | None:
    """Return the driver if an earlier call found it; this costs nothing."""
    return _in_use[0] if _in_use else None


def allocation_at(address: int, length: int, libraries: int = 0) -> Allocation | None:
    """Return a GPU's allocation, None for host memory. Raise CudaError if the memory cannot be registered."""
    library = loaded(libraries)
    return library.allocation_at(address, length) if library is not None else None
