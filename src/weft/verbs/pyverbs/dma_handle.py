"""Hints for an adapter in hardware that writes to memory over PCI Express (TPH): which CPU will use it, and how.

A software adapter is a CPU itself and has no use for them; what hardware would refuse is refused.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from weft.verbs import enums as e
from weft.verbs.attributes.objects import PyverbsCM, PyverbsObject, Unsigned, table
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.context import Context

_PH_MAX = 3  # two bits of a PCI Express packet
_MASK = e.IBV_DMAH_INIT_ATTR_MASK_CPU_ID | e.IBV_DMAH_INIT_ATTR_MASK_PH | e.IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE


@dataclass(eq=False)
class DmaHandleInitAttr(PyverbsObject):
    """The hints; `comp_mask` says which of them count."""

    comp_mask: Unsigned = Unsigned(32)
    cpu_id: Unsigned = Unsigned(32)
    ph: Unsigned = Unsigned(8)
    tph_mem_type: Unsigned = Unsigned(8)

    def __str__(self) -> str:
        return "DmaHandleInitAttr:\n" + table(**vars(self))

    def wrong(self) -> str:
        """Why no adapter would take them; empty if one would."""
        if self.comp_mask & ~_MASK:
            return f"comp_mask {self.comp_mask:#x} has bits that are not of {_MASK:#x}"
        if self.comp_mask & e.IBV_DMAH_INIT_ATTR_MASK_CPU_ID and self.cpu_id not in _cpus():
            return f"cpu_id {self.cpu_id}: this process does not run there"
        if self.comp_mask & e.IBV_DMAH_INIT_ATTR_MASK_PH and self.ph > _PH_MAX:
            return f"ph {self.ph}: at most {_PH_MAX}"
        if self.comp_mask & e.IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE and self.tph_mem_type > e.IBV_TPH_MEM_TYPE_PM:
            return f"tph_mem_type {self.tph_mem_type}: there is volatile and persistent memory, 0 and 1"
        return ""


def _cpus() -> set[int] | range:
    """Those that the kernel lets this process use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


class DMAHandle(PyverbsCM):
    """The hints for regions that name it; these end with it."""

    def __init__(self, ctx: Context, init_attr: DmaHandleInitAttr) -> None:
        if reason := init_attr.wrong():
            raise PyverbsRDMAError("Failed to create DMA Handle", errno.EINVAL, reason)
        self.ctx: Context | None = ctx
        ctx.add_ref(self)

    def _release(self) -> None:
        self.ctx = None

    def check(self, ctx: Context, access: int, what: str) -> None:
        """Whether a region of a context may name it."""
        if self.ctx is not ctx:
            raise PyverbsRDMAError(what, errno.EINVAL, "the DMA handle is of another context, or closed")
        if access & e.IBV_ACCESS_ON_DEMAND:
            raise PyverbsRDMAError(what, errno.EOPNOTSUPP, "memory on demand has no DMA handle")
