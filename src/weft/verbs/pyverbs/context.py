"""Define open devices: queries of the adapter and its port, events, and handles of objects."""

from __future__ import annotations

import errno
import itertools
import os
import sys
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from weft.verbs import enums as e
from weft.verbs import hardware
from weft.verbs.attributes.address import GID, NO_GID
from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.carriers.processes.device import FORMER_NAME, NAME, Mlx5Device
from weft.verbs.enums import ibv_event_type
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.pyverbs.events import AsyncEvent, wait_for

if TYPE_CHECKING:
    from weft.verbs.attributes.device import DeviceAttr, DeviceAttrEx, GIDEntry, PortAttr, QueryDeviceExInput

PORT = 1
T = TypeVar("T", bound=PyverbsCM)


def the_adapter() -> Adapter:
    """Return the first adapter of this process, which the connection manager uses."""
    return hardware.present()[0].adapter()


class Handles:
    """The objects of an open device by number, by which another context of the same device imports them.

    A copy of the device's file gives access to them (`of_file`). The file itself stays empty.
    """

    _by_file: ClassVar[weakref.WeakValueDictionary[tuple[int, int], Handles]] = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        self.hardware: hardware.Hardware | None = None
        self._objects: weakref.WeakValueDictionary[int, PyverbsCM] = weakref.WeakValueDictionary()
        self._numbers = itertools.count()

    def add(self, obj: PyverbsCM) -> int:
        number = next(self._numbers)
        self._objects[number] = obj
        return number

    def find(self, handle: int, kind: type[T], called: str) -> T:
        entry = self._objects.get(handle)
        if not isinstance(entry, kind):
            action = f"Failed to import {kind.__name__}"
            raise PyverbsRDMAError(action, errno.EINVAL, f"there is no {called} with handle {handle}")
        return entry

    def file(self) -> int:
        """Create a file that identifies these objects; return its descriptor."""
        fd, other_end = os.pipe()
        os.close(other_end)
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
    """An open device, by its `name` or by the file `cmd_fd` of another context.

    `events` are the asynchronous events that the program has not fetched yet.
    """

    num_comp_vectors = 1

    def __init__(
        self, *, name: str | None = None, attr: object = None, cmid: Any = None, cmd_fd: int | None = None
    ) -> None:
        self.events: deque[AsyncEvent] = deque()
        self.handles = Handles()
        self._fd: int | None = None
        if cmd_fd is not None:
            handles = Handles.of_file(cmd_fd)
            if handles is None:
                raise PyverbsRDMAError(
                    "Failed to import device", errno.EINVAL, f"file {cmd_fd} belongs to no context of this process"
                )
            self.handles, self._fd = handles, cmd_fd
        elif cmid is not None:
            cmid.ctx = self
        elif name is None:
            raise PyverbsUserError("Device name must be provided")
        self.hardware = self.handles.hardware = self.handles.hardware or _find_device(name)
        self.adapter, self.name = self.hardware.adapter(), self.hardware.name
        self.hardware.watch(self)
        self._is_open = True

    @property
    def context(self) -> int:
        """A number that identifies the context; in pyverbs the address of the C structure."""
        return id(self)

    @property
    def cmd_fd(self) -> int:
        """A file that identifies this open device, for another context to import."""
        if self._fd is None:
            self._fd = self.handles.file()
        return self._fd

    def _release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # -- queries ------------------------------------------------------------------------------------------------------

    def query_device(self) -> DeviceAttr:
        return self.hardware.device_attr()

    def query_device_ex(self, ex_input: QueryDeviceExInput | None = None) -> DeviceAttrEx:
        if ex_input is not None and ex_input.comp_mask:
            raise PyverbsRDMAError(f"Failed to query EX device {self.name}", errno.EINVAL, "comp_mask must be 0")
        from weft.verbs.attributes.device import DeviceAttrEx

        return DeviceAttrEx(orig_attr=self.hardware.device_attr())

    def query_port(self, port_num: int) -> PortAttr:
        self._check_port(port_num, f"Failed to query port {port_num}")
        return self.hardware.port_attr()

    def query_port_speed(self, port_num: int) -> int:
        """Return the speed of a port in units of 100 Mb/s."""
        self._check_port(port_num, f"Failed to query port speed for port {port_num}")
        return self.hardware.speed_100_mbps()

    def query_pkey(self, port_num: int, index: int) -> int:
        action = f"Failed to query pkey {index} of port {port_num}"
        self._check_port(port_num, action)
        self.adapter.progress()  # the subnet manager may have changed it
        if not 0 <= index < len(self.adapter.p_keys):
            raise PyverbsRDMAError(action, errno.EINVAL, f"the table has {len(self.adapter.p_keys)} entries")
        return self.adapter.p_keys[index]

    def get_pkey_index(self, port_num: int, pkey: int) -> int:
        action = f"Failed to get pkey index of pkey = {pkey} of port {port_num}"
        self._check_port(port_num, action)
        if pkey not in self.adapter.p_keys:
            raise PyverbsRDMAError(action, errno.EINVAL, "it is not in the table")
        return self.adapter.p_keys.index(pkey)

    def query_gid(self, port_num: int, index: int) -> GID:
        return GID.of(self._gid(port_num, index, f"Failed to query gid {index} of port {port_num}"))

    def query_gid_type(self, port_num: int, index: int) -> int:
        """Return the type of a GID as in /sys, where InfiniBand and RoCE v1 have the same one."""
        self._gid(port_num, index, f"Failed to query gid type of port {port_num} and gid index {index}")
        is_v2 = self.hardware.gid_type(index) == e.IBV_GID_TYPE_ROCE_V2
        return e.IBV_GID_TYPE_SYSFS_ROCE_V2 if is_v2 else e.IBV_GID_TYPE_SYSFS_IB_ROCE_V1

    def query_gid_ex(self, port_num: int, gid_index: int, flags: int = 0) -> GIDEntry:
        action = f"Failed to query gid table of port {port_num} in index {gid_index}"
        raw = self._gid(port_num, gid_index, action)
        if flags:
            raise PyverbsRDMAError(action, errno.EOPNOTSUPP, "flags must be 0")
        if raw == NO_GID:
            raise PyverbsRDMAError(action, errno.ENODATA, "that entry is empty")
        return self._entry(gid_index, raw)

    def query_gid_table(self, max_entries: int, flags: int = 0) -> list[GIDEntry]:
        """Return all GIDs. Error numbers are negative, as from libibverbs."""
        action = "Failed to query gid tables of the device"
        if flags:
            raise PyverbsRDMAError(action, -errno.EOPNOTSUPP, "flags must be 0")
        gids = [(index, raw) for index, raw in enumerate(self.hardware.gids()) if raw != NO_GID]
        if max_entries < len(gids):
            raise PyverbsRDMAError(
                action, -errno.EINVAL, f"there are {len(gids)} entries, more than max_entries {max_entries}"
            )
        return [self._entry(index, raw) for index, raw in gids]

    def query_rt_values_ex(self, comp_mask: int = e.IBV_VALUES_MASK_RAW_CLOCK) -> tuple[int, int]:
        """Read the clock of completion timestamps: seconds and nanoseconds."""
        if comp_mask != e.IBV_VALUES_MASK_RAW_CLOCK:
            raise PyverbsRDMAError(
                "Failed to query real time values", errno.EINVAL, "comp_mask must be IBV_VALUES_MASK_RAW_CLOCK"
            )
        return divmod(time.monotonic_ns(), 1_000_000_000)

    def _check_port(self, port_num: int, action: str) -> None:
        if port_num != PORT:
            raise PyverbsRDMAError(action, errno.EINVAL, f"{self.name} has only port {PORT}")

    def _gid(self, port_num: int, index: int, action: str) -> bytes:
        self._check_port(port_num, action)
        gids = self.hardware.gids()
        if not 0 <= index < len(gids):
            raise PyverbsRDMAError(action, errno.EINVAL, f"the table has {len(gids)} entries")
        return gids[index]

    def _entry(self, index: int, raw: bytes) -> GIDEntry:
        """Return a table entry. Its halves are numbers whose bytes in memory are those of the GID."""
        prefix, interface = (int.from_bytes(raw[part : part + 8], sys.byteorder) for part in (0, 8))
        from weft.verbs.attributes.device import GIDEntry

        return GIDEntry(prefix, interface, index, PORT, self.hardware.gid_type(index), 0)

    # -- events -------------------------------------------------------------------------------------------------------

    def raise_event(self, event_type: ibv_event_type, element: object = None) -> None:
        """Queue an event for the program."""
        self.events.append(AsyncEvent(event_type, element))

    def get_async_event(self) -> AsyncEvent:
        """Wait for an event and return the oldest."""
        return wait_for(self.adapter, lambda: self.events.popleft() if self.events else None)


def _find_device(name: str | None) -> hardware.Hardware:
    """Return the device with a name, or the first one without a name."""
    devices = {device.name: device for device in hardware.present()}
    if name is None:
        return next(iter(devices.values()))
    if name == FORMER_NAME and isinstance(devices.get(NAME), Mlx5Device):
        name = NAME
    if name not in devices:
        raise PyverbsRDMAError(f"Failed to find device {name}: there is {', '.join(devices) or 'none'}")
    return devices[name]
