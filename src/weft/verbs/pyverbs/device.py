"""Devices: finding one, and memory of its own; under pyverbs' names also what opens one and says what it is.

A device has one port; all contexts of it in a process use one adapter, so that what one sends to its own address
arrives at another. Which devices there are is in `hardware`.
"""

from __future__ import annotations

import errno

from weft.verbs import hardware
from weft.verbs.attributes.device import *  # noqa: F403 - all of it is of pyverbs' device
from weft.verbs.attributes.device import MAX_DM_BYTES
from weft.verbs.attributes.device_text import *  # noqa: F403 - and of this too
from weft.verbs.attributes.device_text import guid_to_hex, translate_node_type, translate_transport_type
from weft.verbs.attributes.objects import PyverbsCM, PyverbsObject, Unsigned
from weft.verbs.enums import IBV_NODE_CA, IBV_TRANSPORT_IB
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs.context import Context as Context
from weft.verbs.pyverbs.events import AsyncEvent as AsyncEvent
from weft.verbs.pyverbs.mem_alloc import free, posix_memalign, read, write

WORD_BYTES = 4
_LOG_ALIGN_MAX = 12


class Device(PyverbsObject):
    """An entry of the list of devices."""

    def __init__(self, name: bytes, guid: int, node_type: int, transport_type: int, index: int) -> None:
        self.name, self.guid, self.node_type = name, guid, node_type
        self.transport_type, self.index = transport_type, index

    def __str__(self) -> str:
        return (
            f"Device {self.name.decode()}, node type {translate_node_type(self.node_type)}, "
            f"transport type {translate_transport_type(self.transport_type)}, "
            f"guid {guid_to_hex(self.guid)}, index {self.index}"
        )


def get_device_list() -> list[Device]:
    return [
        Device(device.name.encode(), device.guid, IBV_NODE_CA, IBV_TRANSPORT_IB, index)
        for index, device in enumerate(hardware.present())
    ]


def rdma_get_devices() -> list[Device]:
    """Return the devices that the connection manager can use: all."""
    return get_device_list()


class AllocDmAttr(PyverbsObject):
    """The size of device memory, and its alignment, 2**log_align_req bytes."""

    length = Unsigned(64)
    log_align_req = Unsigned(32)
    comp_mask = Unsigned(32)

    def __init__(self, length: float, log_align_req: int = 0, comp_mask: int = 0) -> None:
        self.length = length
        self.log_align_req, self.comp_mask = log_align_req, comp_mask


class DM(PyverbsCM):
    """A piece of memory on the adapter: new, or imported by its `handle` in the same device.

    A software adapter uses host memory with the rules of hardware: it is read and written in words of four bytes, as on
    ConnectX adapters. `address` and `length` are its place in this process.
    """

    address: int
    length: int

    def __init__(self, context: Context, dm_attr: AllocDmAttr | None = None, *, handle: int | None = None) -> None:
        self.origin: DM | None = None
        if handle is not None:
            self.origin, self.handle = context.handles.find(handle, DM, "device memory"), handle
            self.address, self.length = self.origin.address, self.origin.length
        elif dm_attr is None:
            raise PyverbsUserError("DM needs dm_attr, or handle")
        else:
            self.address, self.length = _allocate(dm_attr), dm_attr.length
            self.handle = context.handles.add(self)
        self.context: Context | None = context
        context.add_ref(self)

    def unimport(self) -> None:
        self.close()

    def _release(self) -> None:
        assert self.context is not None
        if self.origin is None:
            with self.context.adapter.lock:  # no request uses it meanwhile
                free(self.address)
        self.context = None

    def copy_to_dm(self, dm_offset: int, data: bytes, length: int) -> None:
        self._check("Failed to copy to dm", dm_offset, length)
        write(self.address, data, length, dm_offset)

    def copy_from_dm(self, dm_offset: int, length: int) -> bytes:
        self._check("Failed to copy from dm", dm_offset, length)
        return read(self.address, length, dm_offset)

    def export_dmabuf_fd(self) -> int:
        raise PyverbsRDMAError(
            "Failed to export dmabuf FD for DM", errno.EOPNOTSUPP, "device memory of weft's adapter is host memory"
        )

    def _check(self, action: str, offset: int, length: int) -> None:
        if not self._is_open:
            raise PyverbsRDMAError(action, errno.EINVAL, "the device memory is closed")
        if offset % WORD_BYTES or length % WORD_BYTES:
            raise PyverbsRDMAError(
                action, errno.EINVAL, f"offset {offset} and length {length} must be multiples of {WORD_BYTES}"
            )
        if offset < 0 or length < 0 or offset + length > self.length:
            raise PyverbsRDMAError(
                action, errno.EFAULT, f"{length} bytes at {offset} exceed the {self.length} bytes of device memory"
            )


def _allocate(attr: AllocDmAttr) -> int:
    action = f"Failed to allocate device memory of size {attr.length}. Max available size {MAX_DM_BYTES}."
    if attr.comp_mask:
        raise PyverbsRDMAError(action, errno.EINVAL, "comp_mask must be 0")
    if attr.log_align_req > _LOG_ALIGN_MAX:
        raise PyverbsRDMAError(action, errno.EINVAL, f"log_align_req is at most {_LOG_ALIGN_MAX}")
    if not 0 < attr.length <= MAX_DM_BYTES:
        raise PyverbsRDMAError(action, errno.ENOMEM if attr.length else errno.EINVAL)
    return posix_memalign(attr.length, max(8, 1 << attr.log_align_req))
