"""Devices: finding one, opening it, asking what it is.

A process has one adapter, `weft0`, with one port; all contexts of the process use it, so that what one sends to its
GIDs arrives at another.
"""

from __future__ import annotations

import errno
import itertools
import os
import sys
import tempfile
import time
import weakref
from collections import deque
from typing import Any, ClassVar

from weft.verbs.addr import GID, NO_GID
from weft.verbs.device_attributes import (
    GID_TABLE_LEN,
    NODE_GUID,
    CQModerationCaps,
    DeviceAttr,
    DeviceAttrEx,
    GIDEntry,
    ODPCaps,
    PacketPacingCaps,
    PCIAtomicCaps,
    PortAttr,
    QueryDeviceExInput,
    RSSCaps,
    TMCaps,
    TSOCaps,
)
from weft.verbs.device_memory import DM, AllocDmAttr
from weft.verbs.device_text import (
    guid_format,
    guid_to_hex,
    phys_state_to_str,
    port_state_to_str,
    speed_to_str,
    str_from_flags,
    translate_device_caps,
    translate_event_type,
    translate_gid_type,
    translate_link_layer,
    translate_mtu,
    translate_node_type,
    translate_port_cap_flags,
    translate_port_cap_flags2,
    translate_transport_type,
    width_to_str,
)
from weft.verbs.enums import (
    IBV_GID_TYPE_ROCE_V2,
    IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
    IBV_GID_TYPE_SYSFS_ROCE_V2,
    IBV_NODE_CA,
    IBV_TRANSPORT_IB,
    IBV_VALUES_MASK_RAW_CLOCK,
)
from weft.verbs.events import AsyncEvent, next_event
from weft.verbs.objects import PyverbsCM, PyverbsObject
from weft.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from weft.verbs.sharing import open_adapter
from weft.verbs.transport.adapter import Adapter

__all__ = [
    "DM",
    "AllocDmAttr",
    "AsyncEvent",
    "CQModerationCaps",
    "Context",
    "Device",
    "DeviceAttr",
    "DeviceAttrEx",
    "GIDEntry",
    "ODPCaps",
    "PCIAtomicCaps",
    "PacketPacingCaps",
    "PortAttr",
    "QueryDeviceExInput",
    "RSSCaps",
    "TMCaps",
    "TSOCaps",
    "get_device_list",
    "guid_format",
    "guid_to_hex",
    "phys_state_to_str",
    "port_state_to_str",
    "rdma_get_devices",
    "speed_to_str",
    "str_from_flags",
    "translate_device_caps",
    "translate_event_type",
    "translate_gid_type",
    "translate_link_layer",
    "translate_mtu",
    "translate_node_type",
    "translate_port_cap_flags",
    "translate_port_cap_flags2",
    "translate_transport_type",
    "width_to_str",
]

NAME = "weft0"
PORT = 1
GIDS = (
    b"\xfe\x80" + bytes(6) + NODE_GUID.to_bytes(8, "big"),
    bytes(10) + b"\xff\xff" + bytes((127, 0, 0, 1)),  # IPv4-mapped
)
_SPEED_100_MBPS = 1000


def the_adapter() -> Adapter:
    """The one of this process."""
    return open_adapter(tuple(int.from_bytes(gid, "big") for gid in GIDS), NAME)


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
    return [Device(NAME.encode(), NODE_GUID, IBV_NODE_CA, IBV_TRANSPORT_IB, 0)]


def rdma_get_devices() -> list[Device]:
    """Those that the connection manager can use: all."""
    return get_device_list()


class Handles:
    """The objects of an open device by number, through which another context of the same device imports them.

    Whoever has a copy of the device's file has them too: `of_file`. The file itself stays empty.
    """

    _by_file: ClassVar[weakref.WeakValueDictionary[tuple[int, int], Handles]] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        self._objects: weakref.WeakValueDictionary[int, PyverbsCM] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    def add(self, obj: PyverbsCM) -> int:
        number = next(self._numbers)
        self._objects[number] = obj
        return number

    def find(self, handle: int, kind: type[PyverbsCM]) -> Any:
        """None if there is no such object."""
        found = self._objects.get(handle)
        return found if isinstance(found, kind) else None

    def file(self) -> int:
        """A new file that stands for these."""
        with tempfile.TemporaryFile() as unnamed:
            fd = os.dup(unnamed.fileno())
        self._by_file[_identity(fd)] = self
        return fd

    @classmethod
    def of_file(cls, fd: int) -> Handles | None:
        try:
            return cls._by_file.get(_identity(fd))
        except OSError:
            return None


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


class Context(PyverbsCM):
    """An open device: by its `name`, or the one that a file `cmd_fd` of another context stands for.

    `events` are asynchronous events that nobody has fetched yet.
    """

    num_comp_vectors = 1

    def __init__(
        self, *, name: str | None = None, attr: object = None, cmid: Any = None, cmd_fd: int | None = None
    ) -> None:
        self.adapter = the_adapter()
        self.events: deque[AsyncEvent] = deque()
        self.handles = Handles()
        self._fd: int | None = None
        if cmd_fd is not None:
            handles = Handles.of_file(cmd_fd)
            if handles is None:
                raise PyverbsRDMAError(
                    "Failed to import device", errno.EINVAL, f"file {cmd_fd} is not of a context of this process"
                )
            self.handles, self._fd = handles, cmd_fd
        elif cmid is not None:
            cmid.ctx = self
        elif name is None:
            raise PyverbsUserError("Device name must be provided")
        elif name != NAME:
            raise PyverbsRDMAError(f"Failed to find device {name}: there is {NAME}")
        self.name = NAME
        self._is_open = True

    @property
    def context(self) -> int:
        """In pyverbs the address of the C structure."""
        return id(self)

    @property
    def cmd_fd(self) -> int:
        """A file that stands for this device as it was opened here."""
        if self._fd is None:
            self._fd = self.handles.file()
        return self._fd

    def _release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # -- queries ------------------------------------------------------------------------------------------------------

    def query_device(self) -> DeviceAttr:
        return DeviceAttr()

    def query_device_ex(self, ex_input: QueryDeviceExInput | None = None) -> DeviceAttrEx:
        if ex_input is not None and ex_input.comp_mask:
            raise PyverbsRDMAError(f"Failed to query EX device {self.name}", errno.EINVAL, "comp_mask must be 0")
        return DeviceAttrEx()

    def query_port(self, port_num: int) -> PortAttr:
        self._check_port(port_num, f"Failed to query port {port_num}")
        counters = self.adapter.counters
        return PortAttr(
            bad_pkey_cntr=counters["pkey_violations"] & 0xFFFF,
            qkey_viol_cntr=counters["qkey_violations"] & 0xFFFF,
            pkey_tbl_len=len(self.adapter.p_keys),
        )

    def query_port_speed(self, port_num: int) -> int:
        """In units of 100 Mb/s."""
        self._check_port(port_num, f"Failed to query port speed for port {port_num}")
        return _SPEED_100_MBPS

    def query_pkey(self, port_num: int, index: int) -> int:
        what = f"Failed to query pkey {index} of port {port_num}"
        self._check_port(port_num, what)
        if not 0 <= index < len(self.adapter.p_keys):
            raise PyverbsRDMAError(what, errno.EINVAL, f"the table has {len(self.adapter.p_keys)} entries")
        return self.adapter.p_keys[index]

    def get_pkey_index(self, port_num: int, pkey: int) -> int:
        what = f"Failed to get pkey index of pkey = {pkey} of port {port_num}"
        self._check_port(port_num, what)
        if pkey not in self.adapter.p_keys:
            raise PyverbsRDMAError(what, errno.EINVAL, "no entry of the table has it")
        return self.adapter.p_keys.index(pkey)

    def query_gid(self, port_num: int, index: int) -> GID:
        self._check_gid(port_num, index, f"Failed to query gid {index} of port {port_num}")
        return GID.of(GIDS[index] if index < len(GIDS) else NO_GID)

    def query_gid_type(self, port_num: int, index: int) -> int:
        self._check_gid(port_num, index, f"Failed to query gid type of port {port_num} and gid index {index}")
        return IBV_GID_TYPE_SYSFS_ROCE_V2 if index < len(GIDS) else IBV_GID_TYPE_SYSFS_IB_ROCE_V1

    def query_gid_ex(self, port_num: int, gid_index: int, flags: int = 0) -> GIDEntry:
        what = f"Failed to query gid table of port {port_num} in index {gid_index}"
        self._check_gid(port_num, gid_index, what)
        if flags:
            raise PyverbsRDMAError(what, errno.EOPNOTSUPP, "flags must be 0")
        if gid_index >= len(GIDS):
            raise PyverbsRDMAError(what, errno.ENODATA, "that entry is empty")
        return _entry(gid_index)

    def query_gid_table(self, max_entries: int, flags: int = 0) -> list[GIDEntry]:
        """All GIDs. The error's number is negative here, as from libibverbs."""
        what = "Failed to query gid tables of the device"
        if flags:
            raise PyverbsRDMAError(what, -errno.EOPNOTSUPP, "flags must be 0")
        if max_entries < len(GIDS):
            raise PyverbsRDMAError(what, -errno.EINVAL, f"there are {len(GIDS)}, which is more than {max_entries}")
        return [_entry(index) for index in range(len(GIDS))]

    def query_rt_values_ex(self, comp_mask: int = IBV_VALUES_MASK_RAW_CLOCK) -> tuple[int, int]:
        """The clock that completions are stamped with: seconds and nanoseconds."""
        if comp_mask != IBV_VALUES_MASK_RAW_CLOCK:
            raise PyverbsRDMAError(
                "Failed to query real time values", errno.EINVAL, "only IBV_VALUES_MASK_RAW_CLOCK can be asked for"
            )
        return divmod(time.monotonic_ns(), 1_000_000_000)

    def _check_port(self, port_num: int, what: str) -> None:
        if port_num != PORT:
            raise PyverbsRDMAError(what, errno.EINVAL, f"{self.name} has only port {PORT}")

    def _check_gid(self, port_num: int, index: int, what: str) -> None:
        self._check_port(port_num, what)
        if not 0 <= index < GID_TABLE_LEN:
            raise PyverbsRDMAError(what, errno.EINVAL, f"the table has {GID_TABLE_LEN} entries")

    # -- events -------------------------------------------------------------------------------------------------------

    def get_async_event(self) -> AsyncEvent:
        """The oldest; waits until there is one."""
        return next_event(self)


def _entry(index: int) -> GIDEntry:
    """Of the table; the halves are numbers whose bytes in memory are those of the GID."""
    prefix, interface = (int.from_bytes(GIDS[index][part : part + 8], sys.byteorder) for part in (0, 8))
    return GIDEntry(prefix, interface, index, PORT, IBV_GID_TYPE_ROCE_V2, 0)
