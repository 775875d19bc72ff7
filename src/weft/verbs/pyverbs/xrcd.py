"""Define XRC domains: processes with the same file share its shared receive queues."""

from __future__ import annotations

import errno
import os

from weft.verbs.attributes.objects import PyverbsCM, PyverbsObject
from weft.verbs.enums import IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.context import Context

_NEEDED = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS


class XRCDInitAttr(PyverbsObject):
    def __init__(self, comp_mask: int, oflags: int, fd: int) -> None:
        self.comp_mask, self.oflags, self.fd = comp_mask, oflags, fd


class XRCD(PyverbsCM):
    """An XRC domain. `domain` is equal for the same file, and unique without a file (fd -1)."""

    def __init__(self, context: Context, init_attr: XRCDInitAttr) -> None:
        if init_attr.comp_mask & _NEEDED != _NEEDED:
            raise _refused(errno.EINVAL, "comp_mask must have IBV_XRCD_INIT_ATTR_FD and IBV_XRCD_INIT_ATTR_OFLAGS")
        self.domain = self._find(init_attr)
        self.ctx: Context | None = context
        context.add_ref(self)

    def _find(self, init_attr: XRCDInitAttr) -> object:
        if init_attr.fd < 0:
            if not init_attr.oflags & os.O_CREAT:
                raise _refused(errno.EINVAL, "a domain without a file needs O_CREAT in oflags")
            return object()
        try:
            file = os.fstat(init_attr.fd)
        except OSError as error:
            raise _refused(error.errno or errno.EBADF, f"fd {init_attr.fd} is not an open file") from error
        return file.st_dev, file.st_ino

    def _release(self) -> None:
        self.ctx = None


def _refused(code: int, reason: str) -> PyverbsRDMAError:
    return PyverbsRDMAError("Failed to allocate an XRC domain", code, reason)
