"""Other kinds of memory regions; and under pyverbs' names the plain one, windows, and hints for DMA."""

from __future__ import annotations

import errno
from typing import Any

from weft.verbs import enums as e
from weft.verbs.attributes.objects import PyverbsCM, table
from weft.verbs.errors import PyverbsError, PyverbsRDMAError
from weft.verbs.pyverbs.device import DM, WORD_BYTES
from weft.verbs.pyverbs.dma_handle import *  # noqa: F403 - all of it is of pyverbs' mr
from weft.verbs.pyverbs.dma_handle import DMAHandle
from weft.verbs.pyverbs.memory_region import *  # noqa: F403 - and of this too
from weft.verbs.pyverbs.memory_region import MR, Buffer, check_access
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.windows import *  # noqa: F403 - and of this

_NO_DMA_BUF = "a dma-buf has no address: register the memory itself, MR(pd, length, access, address=tensor)"


class DMMR(MR):
    """A region of device memory. Its addresses start at 0; `read` and `write` count from the start of device memory."""

    def __init__(self, pd: PD, length: float, access: int, dm: DM, offset: int) -> None:
        self.dm, self.offset = dm, offset
        super().__init__(pd, length, access)
        dm.add_ref(self)

    def _allocate(self, access: int) -> None:
        """Allocate nothing: the memory is on the device."""

    def _register(self, access: int, *, implicit: bool) -> None:
        action = f"Failed to register a device MR. length: {self._size}, access flags: {access}"
        assert self.pd is not None
        check_access(action, access)
        if not access & e.IBV_ACCESS_ZERO_BASED:
            raise PyverbsRDMAError(action, errno.EINVAL, "device memory needs IBV_ACCESS_ZERO_BASED")
        if self.offset < 0 or self.offset % WORD_BYTES or self.offset + self._size > self.dm.length:
            raise PyverbsRDMAError(
                action, errno.EINVAL, f"{self._size} bytes at {self.offset} exceed the {self.dm.length} of the device"
            )
        regions = self.pd.ctx.adapter.regions
        self.region = regions.register(self.pd.key, self.dm.address + self.offset, self._size, access)

    def write(self, data: str | bytes, length: int, offset: int = 0) -> None:
        self.dm.copy_to_dm(offset, data.encode() if isinstance(data, str) else data, length)

    def read(self, length: int, offset: int) -> bytes:
        return self.dm.copy_from_dm(offset, length)


class DmaBufMR(MR):
    """A region of GPU memory by its dma-buf. Not supported: it has no address from which a driver can copy."""

    dmabuf: object = None
    offset = 0

    def __init__(
        self, pd: PD, length: int, access: int, dmabuf: object = None, offset: int = 0, gpu: int = 0, gtt: int = 0
    ) -> None:
        action = f"Failed to register a dma-buf MR. length: {length}, access flags: {access}"
        raise PyverbsRDMAError(action, errno.EOPNOTSUPP, _NO_DMA_BUF)


class Buf(PyverbsCM):
    """A buffer at `addr` that the adapter allocates, as for `MR(pd, length, access)`; it closes its regions."""

    def __init__(self, pd: PD, size: int) -> None:
        action = f"Failed to allocate ibv_buf of size {size}"
        if size <= 0:
            raise PyverbsRDMAError(action, errno.EINVAL, "the size must be above 0")
        self.pd: PD | None = pd
        try:
            self._own: Buffer | None = Buffer(pd.ctx.adapter.memory, size, huge=False)
        except PyverbsError as error:
            raise PyverbsRDMAError(action, errno.ENOMEM) from error
        self.addr, self.size = self._own.address, size
        pd.add_ref(self)

    def _release(self) -> None:
        self.pd = self._own = None
        self.addr = 0

    def export_dmabuf_fd(self) -> int:
        raise PyverbsRDMAError("Failed to export dmabuf FD for Buf", errno.ENODATA, "the buffer is host memory")

    def __str__(self) -> str:
        return "Buf:\n" + table(addr=self.addr, size=self.size)


class MREx(MR):
    """A region with all options (ibv_reg_mr_ex).

    `iova` is the remote address of its first byte. With `buf` it is a part of that buffer, from `address` on. `dmah`
    has hints for adapters in hardware; here they are only checked. The handle closes its regions.
    """

    _action = "Failed to register MR using extended API"

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
            raise PyverbsRDMAError(
                self._action, code, _NO_DMA_BUF if alone else "fd needs iova, and excludes address, implicit and buf"
            )
        if buf is not None:
            address = buf.addr if address is None else address
            self._check_within(pd, buf, address, int(length))
        if dmah is not None:
            dmah.check(pd.ctx, access, self._action)
        self._iova, self.backing_buf, self.dmah = iova, buf, dmah
        super().__init__(pd, length, access, address, implicit)
        for parent in (buf, dmah):
            if parent is not None:
                parent.add_ref(self)

    def _check_within(self, pd: PD, buf: Buf, address: int, length: int) -> None:
        reason = ""
        if buf.pd is not pd:
            reason = "the buffer belongs to another protection domain, or is closed"
        elif address < buf.addr or address + length > buf.addr + buf.size:
            reason = f"{length} bytes at {address:#x} exceed the {buf.size} at {buf.addr:#x}"
        if reason:
            raise PyverbsRDMAError(self._action, errno.EINVAL, reason)


class BufMR(MREx):
    """A region of a buffer, from `offset` on (ibv_reg_buf_mr)."""

    _action = "Failed to register a buf MR"

    def __init__(self, pd: PD, buf: Buf, length: float = 0, access: int = 0, offset: int = 0) -> None:
        super().__init__(pd, length, access, buf.addr + offset, buf=buf)
