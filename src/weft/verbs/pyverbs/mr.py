"""Memory regions: memory of this process that the adapter may use, and others through it."""

from __future__ import annotations

import errno
from typing import Any

from weft.verbs import enums as e
from weft.verbs.errors import PyverbsError, PyverbsRDMAError, PyverbsUserError
from weft.verbs.gpudirect.gpu import DeviceBytes, Part
from weft.verbs.hca.regions import WHOLE_SPACE, Region
from weft.verbs.pyverbs.device_memory import DM, WORD_BYTES
from weft.verbs.pyverbs.dma_handle import DMAHandle, DmaHandleInitAttr
from weft.verbs.pyverbs.mem_alloc import first_bytes, read, write
from weft.verbs.pyverbs.objects import PyverbsCM, table
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.registering import HUGE_PAGE_SIZE, Buffer, check_access, check_memory, given_memory, whereabouts
from weft.verbs.pyverbs.text import rereg_error_to_str
from weft.verbs.pyverbs.windows import MW, MWBind, MWBindInfo, mwtype2str

__all__ = [
    "DMMR",
    "HUGE_PAGE_SIZE",
    "MR",
    "MW",
    "Buf",
    "BufMR",
    "DMAHandle",
    "DmaBufMR",
    "DmaHandleInitAttr",
    "MREx",
    "MWBind",
    "MWBindInfo",
    "mwtype2str",
]

_SIZE_MAX = (1 << 64) - 1
_REREG = e.IBV_REREG_MR_CHANGE_TRANSLATION | e.IBV_REREG_MR_CHANGE_PD | e.IBV_REREG_MR_CHANGE_ACCESS
# What a connection's identifier grants with its three ways to register memory (rdma_reg_msgs, _write, _read).
_OF_CONNECTION: dict[int, int] = {
    e.IBV_ACCESS_LOCAL_WRITE: e.IBV_ACCESS_LOCAL_WRITE,
    e.IBV_ACCESS_REMOTE_WRITE: e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE,
    e.IBV_ACCESS_REMOTE_READ: e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ,
}
_NO_DMA_BUF = "a dma-buf has no address: register the memory itself, MR(pd, length, access, address=tensor)"


class MR(PyverbsCM):
    """A region of a protection domain, or of that of a connection's identifier.

    It is at `address`, or in memory of its own; `implicit` opens the whole address space besides, on demand; with
    `handle` it is another context's, and `address` only says where to read and write. `region` is the adapter's entry.
    `address` may also be an object that has memory, such as a numpy array or a tensor: see `buffers`. All of it is
    meant if there is no length, and it stays as long as the region is open.
    """

    region: Region
    _what = "Failed to register a MR"
    _iova: int | None = None  # what the first byte is called; its address, if nothing is said

    def __init__(
        self,
        creator: Any,
        length: float = 0,
        access: int = 0,
        address: Any = None,
        implicit: bool = False,
        *,
        handle: int | None = None,
    ) -> None:
        self.pd: PD | None = creator if isinstance(creator, PD) else creator.pd
        assert self.pd is not None
        if not isinstance(creator, PD):
            access = _OF_CONNECTION.get(access, access)
        self._given = given_memory(address)
        self.buf, self._size = whereabouts(address, int(length), self._given)
        self._own: Buffer | None = None
        self._is_imported = handle is not None
        if handle is not None:
            self._import(handle)
        else:
            self._allocate(access)
            try:
                self._register(access, implicit=implicit)
            except PyverbsRDMAError:
                self._free()
                raise
            self.handle = self.pd.ctx.handles.add(self)
        creator.add_ref(self)

    @property
    def lkey(self) -> int:
        return self.region.key

    @property
    def rkey(self) -> int:
        return self.region.key

    @property
    def length(self) -> int:
        return min(self.region.length, _SIZE_MAX)

    def __str__(self) -> str:
        return f"{type(self).__name__}:\n" + table(
            lkey=self.lkey, rkey=self.rkey, length=self.length, buf=self.buf, handle=self.handle
        )

    # -- beginning and end --------------------------------------------------------------------------------------------

    def _allocate(self, access: int) -> None:
        if not self.buf and self._size > 0:
            assert self.pd is not None
            self._own = Buffer(self.pd.ctx.adapter.memory, self._size, huge=bool(access & e.IBV_ACCESS_HUGETLB))
            self.buf = self._own.address

    def _free(self) -> None:
        if self._own is not None:
            self._own.free()
            self._own = None

    def _register(self, access: int, *, implicit: bool) -> None:
        what = f"{self._what}. length: {self._size}, access flags: {access}"
        assert self.pd is not None
        check_access(what, access)
        regions = self.pd.ctx.adapter.regions
        if implicit:
            if not access & e.IBV_ACCESS_ON_DEMAND:
                raise PyverbsRDMAError(what, errno.EINVAL, "the whole address space needs IBV_ACCESS_ON_DEMAND")
            self.region = regions.register(self.pd.key, 0, WHOLE_SPACE, access, 0)
            return
        device = None
        if self._own is None:
            device = check_memory(what, access, self.buf, self._size, self._given)
        self.region = regions.register(self.pd.key, self.buf, self._size, access, self._iova, device)

    def _import(self, handle: int) -> None:
        assert self.pd is not None
        origin = self.pd.ctx.handles.find(handle, MR)
        if origin is None or not origin.region.is_open or origin.region.pd is not self.pd.key:
            raise PyverbsRDMAError(
                "Failed to import MR", errno.EINVAL, f"no open region of the protection domain has handle {handle}"
            )
        self.handle, self.region, self._size = handle, origin.region, origin._size

    def unimport(self) -> None:
        self.close()

    def _release(self) -> None:
        assert self.pd is not None
        if not self._is_imported:
            with self.pd.ctx.adapter.lock:
                self._check_unbound("Failed to dereg MR")
                self.pd.ctx.adapter.regions.drop(self.region)
            self._free()
        self.pd, self.buf, self._given = None, 0, None

    def _check_unbound(self, what: str) -> None:
        if self.region.windows:
            raise PyverbsRDMAError(what, errno.EBUSY, f"{self.region.windows} memory windows are bound to it")

    # -- use ----------------------------------------------------------------------------------------------------------

    def write(self, data: str | bytes, length: int, offset: int = 0) -> None:
        self._check_bytes(length, offset)
        if self.region.device is not None:
            self.region.device.put(self.buf + offset, first_bytes(data, length))
            return
        write(self.buf, data, length, offset)

    def read(self, length: int, offset: int) -> bytes:
        self._check_bytes(length, offset)
        if self.region.device is not None:
            return bytes(DeviceBytes((Part(self.region.device, self.buf + offset, length),)))
        return read(self.buf, length, offset)

    def _check_bytes(self, length: int, offset: int) -> None:
        if offset < 0:
            raise PyverbsUserError(f"Invalid offset {offset}")
        if not self.buf or length < 0 or offset + length > self._size:
            raise PyverbsUserError(
                f"The MR buffer isn't allocated or length {length} is invalid: {self._size} bytes are at {self.buf:#x}"
            )

    def rereg(self, flags: int, pd: PD | None = None, addr: Any = 0, length: int = 0, access: int = 0) -> None:
        """Change what `flags` say. The keys stay. Memory of its own is freed when it gets another address."""
        if self.pd is None:
            raise PyverbsRDMAError("Failed to rereg MR", errno.EINVAL, "it is closed")
        with self.pd.ctx.adapter.lock:
            self._rereg(flags, pd, addr, length, access)

    def _rereg(self, flags: int, pd: PD | None, addr: Any, length: int, access: int) -> None:
        what = f"Failed to rereg MR: {rereg_error_to_str(e.IBV_REREG_MR_ERR_INPUT)}"
        self._check_unbound(what)
        if not flags or flags & ~_REREG:
            raise PyverbsRDMAError(what, errno.EINVAL, f"flags {flags:#x} are not some of {_REREG:#x}")
        if flags & e.IBV_REREG_MR_CHANGE_PD and pd is None:
            raise PyverbsRDMAError(what, errno.EINVAL, "IBV_REREG_MR_CHANGE_PD needs pd")
        wanted = access if flags & e.IBV_REREG_MR_CHANGE_ACCESS else self.region.access
        check_access(what, wanted)
        own, given, address, size = self._own, self._given, self.buf, self._size
        device = self.region.device
        if flags & e.IBV_REREG_MR_CHANGE_TRANSLATION:
            own, given = None, given_memory(addr)
            address, size = whereabouts(addr, length, given)
            if not address or size <= 0:
                raise PyverbsRDMAError(what, errno.EINVAL, "IBV_REREG_MR_CHANGE_TRANSLATION needs addr and length")
        if own is None and address:
            device = check_memory(what, wanted, address, size, given)
        if flags & e.IBV_REREG_MR_CHANGE_TRANSLATION:
            self._move(address, size, zero_based=bool(wanted & e.IBV_ACCESS_ZERO_BASED))
            self._given, self.region.device = given, device
        self.region.access = wanted
        if flags & e.IBV_REREG_MR_CHANGE_PD:
            assert pd is not None
            assert self.pd is not None
            self.pd.remove_ref(self)
            self.pd, self.region.pd = pd, pd.key
            pd.add_ref(self)

    def _move(self, addr: int, length: int, *, zero_based: bool) -> None:
        self._free()
        self.buf, self._size = addr, length
        self.region.address, self.region.length = addr, length
        self.region.base = 0 if zero_based else addr


class DMMR(MR):
    """A region of device memory; its addresses begin at 0. `read` and `write` count from the device memory's begin."""

    def __init__(self, pd: PD, length: float, access: int, dm: DM, offset: int) -> None:
        self.dm, self.offset = dm, offset
        super().__init__(pd, length, access)
        dm.add_ref(self)

    def _allocate(self, access: int) -> None:
        """The device has it."""

    def _register(self, access: int, *, implicit: bool) -> None:
        what = f"Failed to register a device MR. length: {self._size}, access flags: {access}"
        assert self.pd is not None
        check_access(what, access)
        if not access & e.IBV_ACCESS_ZERO_BASED:
            raise PyverbsRDMAError(what, errno.EINVAL, "device memory needs IBV_ACCESS_ZERO_BASED")
        if self.offset < 0 or self.offset % WORD_BYTES or self.offset + self._size > self.dm.length:
            raise PyverbsRDMAError(
                what, errno.EINVAL, f"{self._size} bytes at {self.offset} are not within the {self.dm.length} there are"
            )
        regions = self.pd.ctx.adapter.regions
        self.region = regions.register(self.pd.key, self.dm.address + self.offset, self._size, access)

    def write(self, data: str | bytes, length: int, offset: int = 0) -> None:
        self.dm.copy_to_dm(offset, data.encode() if isinstance(data, str) else data, length)

    def read(self, length: int, offset: int) -> bytes:
        return self.dm.copy_from_dm(offset, length)


class DmaBufMR(MR):
    """Memory of a graphics card by its dma-buf, which leads to no address that a driver would copy from."""

    offset: int
    dmabuf: object

    def __init__(
        self, pd: PD, length: int, access: int, dmabuf: object = None, offset: int = 0, gpu: int = 0, gtt: int = 0
    ) -> None:
        raise PyverbsRDMAError(
            f"Failed to register a dma-buf MR. length: {length}, access flags: {access}",
            errno.EOPNOTSUPP,
            _NO_DMA_BUF,
        )


class Buf(PyverbsCM):
    """Memory that the adapter chose for a protection domain, to be registered by that domain: whole pages that other
    processes can reach, as of `MR(pd, length, access)`. It is at `addr`, and its regions end with it.
    """

    def __init__(self, pd: PD, size: int) -> None:
        what = f"Failed to allocate ibv_buf of size {size}"
        if size <= 0:
            raise PyverbsRDMAError(what, errno.EINVAL, "it would be empty")
        self.pd: PD | None = pd
        try:
            self._own: Buffer | None = Buffer(pd.ctx.adapter.memory, size, huge=False)
        except PyverbsError as error:
            raise PyverbsRDMAError(what, errno.ENOMEM) from error
        self.addr, self.size = self._own.address, size
        pd.add_ref(self)

    def _release(self) -> None:
        self.pd = self._own = None
        self.addr = 0

    def export_dmabuf_fd(self) -> int:
        raise PyverbsRDMAError("Failed to export dmabuf FD for Buf", errno.ENODATA, "it is ordinary memory")

    def __str__(self) -> str:
        return "Buf:\n" + table(addr=self.addr, size=self.size)


class MREx(MR):
    """A region with all that can be said of one (ibv_reg_mr_ex).

    `iova` is what those who have its keys call its first byte. With `buf` it is a part of that buffer, from `address`
    on. `dmah` tells an adapter in hardware how to write to memory; here it is checked, and ends its regions.
    """

    _what = "Failed to register MR using extended API"

    def __init__(
        self,
        pd: PD,
        length: float = 0,
        access: int = 0,
        address: Any = None,
        iova: int | None = None,
        fd: int | None = None,
        fd_offset: int = 0,
        dmah: DMAHandle | None = None,
        implicit: bool = False,
        buf: Buf | None = None,
    ) -> None:
        if fd is not None:
            alone = iova is not None and not (address or implicit or buf)
            code = errno.EOPNOTSUPP if alone else errno.EINVAL
            raise PyverbsRDMAError(self._what, code, _NO_DMA_BUF if alone else "fd goes with iova, and with no address")
        if buf is not None:
            address = buf.addr if address is None else address
            self._check_within(pd, buf, address, int(length))
        if dmah is not None:
            dmah.check(pd.ctx, access, self._what)
        self._iova, self.backing_buf, self.dmah = iova, buf, dmah
        super().__init__(pd, length, access, address, implicit)
        for parent in (buf, dmah):
            if parent is not None:
                parent.add_ref(self)

    def _check_within(self, pd: PD, buf: Buf, address: int, length: int) -> None:
        reason = ""
        if buf.pd is not pd:
            reason = "the buffer is of another protection domain, or closed"
        elif address < buf.addr or address + length > buf.addr + buf.size:
            reason = f"{length} bytes at {address:#x} are not within the {buf.size} at {buf.addr:#x}"
        if reason:
            raise PyverbsRDMAError(self._what, errno.EINVAL, reason)


class BufMR(MREx):
    """A region of a buffer, from `offset` on (ibv_reg_buf_mr)."""

    _what = "Failed to register a buf MR"

    def __init__(self, pd: PD, buf: Buf, length: float = 0, access: int = 0, offset: int = 0) -> None:
        super().__init__(pd, length, access, buf.addr + offset, buf=buf)
