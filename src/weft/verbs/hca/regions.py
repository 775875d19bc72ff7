"""Memory regions and windows: which key opens which addresses, for whom, and for what.

A key has 24 bits of index and 8 that the owner may choose, so that an old key of a window does not open its next one.
A local key opens addresses to the owner's own queue pairs, a remote one to others; here both have the same number.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Sequence

from weft.verbs import enums as e
from weft.verbs.gpudirect import gpu
from weft.verbs.gpudirect.cuda import Allocation, CudaError
from weft.verbs.shm import layout
from weft.verbs.shm.layout import RegionRecord
from weft.verbs.shm.memory import Place
from weft.verbs.shm.queue_memory import Block, Lock, QueueMemory

WHOLE_SPACE = 1 << 64
_LENGTH_MAX = 1 << 62  # kinds of regions in the table
_KIND, _KIND_AT = struct.Struct("=Q"), RegionRecord.offset("kind")
_IN_TABLE = {"key", "pd", "address", "length", "access", "base", "is_open", "qp_num", "parent", "device"}


class Region:
    """A memory region at `address`. Its remote addresses start at `base`."""

    key: int
    pd: object
    address: int
    length: int
    access: int
    base: int
    is_open: bool = True
    qp_num: int = 0  # a window of type 2 is for one queue pair; 0: any of the protection domain
    parent: Region | None = None  # windows
    device: Allocation | None = None  # of a GPU
    windows = 0  # bound to it
    reference: Block | None = None  # offset of the reference to memory of a GPU
    table: Regions | None = None  # that it is in

    def __init__(
        self,
        *,
        key: int,
        pd: object,
        address: int,
        length: int,
        access: int,
        base: int,
        is_open: bool = True,
        qp_num: int = 0,
        parent: Region | None = None,
        device: Allocation | None = None,
    ) -> None:
        self.__dict__.update(  # __setattr__ for each would be a third of a registration
            key=key,
            pd=pd,
            address=address,
            length=length,
            access=access,
            base=base,
        )
        if not is_open or qp_num or parent is not None or device is not None:
            self.__dict__.update(is_open=is_open, qp_num=qp_num, parent=parent, device=device)

    def __setattr__(self, name: str, value: object) -> None:
        """Publish each change for other processes."""
        object.__setattr__(self, name, value)
        if self.table is not None and name in _IN_TABLE:
            self.table.show(self)

    def place(self, va: int) -> int:
        """Return the address in this process."""
        return va - self.base + self.address

    def part(self, va: int, length: int) -> Place:
        """Return some bytes of it as a place."""
        return Place(self.place(va), length, self.key, self.device)

    def holds(self, va: int, length: int) -> bool:
        return self.base <= va and va + length <= self.base + self.length


class Regions:
    """The regions of an adapter by key."""

    def __init__(self, memory: QueueMemory, lock: Lock) -> None:
        self._memory = memory
        self.lock = lock  # held by users of the memory; while `drop` holds it, there are none
        self._by_key: dict[int, Region] = {}
        self._used: set[int] = set()  # indices
        self._indices = itertools.count(1)

    def new_key(self, low: int = 0) -> int:
        """Return a key with an unused index; indexes are reused after all others."""
        while (index := next(self._indices) & 0xFF_FFFF) in self._used or not index:
            pass
        return index << 8 | low & 0xFF

    def add(self, region: Region) -> Region:
        """Make the region accessible by its key. Other threads read its place only if another region is shown there."""
        key = region.key
        kind_there = _KIND.unpack_from(self._memory.bytes, layout.region_at(key) + _KIND_AT)[0]
        with self.lock if kind_there else self.lock.threads:
            self._by_key[key] = region
            self._used.add(key >> 8)
            region.__dict__["table"] = self
            self.show(region)
        return region

    def _shown(self, key: int) -> RegionRecord:
        return RegionRecord.from_buffer(self._memory.bytes, layout.region_at(key))

    def show(self, region: Region) -> None:
        """Write it where kernels and other processes look; what does not fit there is found by its owner only."""
        if not self._memory.can_be_shared:
            return
        fits = (
            region.is_open
            and not region.access & e.IBV_ACCESS_ON_DEMAND
            and region.length <= _LENGTH_MAX
            and self._by_key.get(region.key) is region
        )
        if not fits:
            shown = self._shown(region.key)
            if shown.key == region.key:
                shown.kind = 0
            return
        kind = layout.REGION if region.parent is None else layout.WINDOW
        if region.device is not None:
            kind = self._referring(region, region.device, kind)
        table, at = self._memory.bytes, layout.region_at(region.key)
        _KIND.pack_into(table, at + _KIND_AT, 0)  # while the rest of it changes
        span = region.address, region.length, region.base
        RegionRecord.form.pack_into(table, at, region.key, id(region.pd), *span, region.access, region.qp_num, 0)
        _KIND.pack_into(table, at + _KIND_AT, kind)

    def _referring(self, region: Region, device: Allocation, kind: int) -> int:
        """Return the kind of a region on a GPU; 0 if other processes cannot reach it although they may."""
        if not region.access:
            return kind | layout.NO_REFERENCE
        try:
            reference = gpu.publish(device)
            region.reference = region.reference or Block(self._memory, len(reference))
        except (CudaError, MemoryError):
            return 0
        ctypes.memmove(region.reference.address, reference, len(reference))
        return kind | region.reference.at

    def register(
        self,
        pd: object,
        address: int,
        length: int,
        access: int,
        base: int | None = None,
        device: Allocation | None = None,
    ) -> Region:
        """Register memory. `base` is the remote address of its first byte; None: its address."""
        if base is None:
            base = 0 if access & e.IBV_ACCESS_ZERO_BASED else address
        key = self.new_key()
        return self.add(Region(key=key, pd=pd, address=address, length=length, access=access, base=base, device=device))

    def drop(self, region: Region) -> None:
        with self.lock:
            self._by_key.pop(region.key, None)
            self._used.discard(region.key >> 8)
            region.is_open = False
            region.table = None

    def find(self, key: int) -> Region | None:
        return self._by_key.get(key)

    def local(self, pd: object, place: Place, *, write: bool) -> Region | None:
        """Return the region of a scatter/gather element if the access is allowed."""
        region = self._by_key.get(place.lkey)
        if region is None or region.pd is not pd or not region.is_open or not region.holds(place.address, place.length):
            return None
        if region.parent is not None:  # a window is for others only
            return None
        return None if write and not region.access & e.IBV_ACCESS_LOCAL_WRITE else region

    def located(self, pd: object, places: Sequence[Place], *, write: bool) -> list[Place] | None:
        """Return the current places of a list of elements; None if an access is not allowed."""
        found = []
        for place in places:
            if place.length:
                region = self.local(pd, place, write=write)
                if region is None:
                    return None
                moved = region.base != region.address or region.device is not None
                found.append(region.part(place.address, place.length) if moved else place)
        return found

    def remote(self, pd: object, qp_num: int, key: int, va: int, length: int, access: int) -> Region | None:
        """Return the region of a remote request if the access is allowed."""
        region = self._by_key.get(key)
        if region is None or region.pd is not pd or not region.is_open or not region.holds(va, length):
            return None
        return region if region.qp_num in (0, qp_num) and region.access & access == access else None

    def invalidate(self, pd: object, qp_num: int, key: int) -> bool:
        """Invalidate a key by a remote or local request.

        Only a window of type 2 is closed so, and by the queue pair that it is bound to; False for any other key. What
        was registered whole is closed by its owner (a fast registration would be another thing: programs have none).
        """
        region = self._by_key.get(key)
        if region is None or region.pd is not pd or region.parent is None or region.qp_num != qp_num:
            return False
        region.is_open = False
        region.parent.windows -= 1
        region.parent = None
        return True
