"""Define hints for adapters that write to memory over PCI Express (TPH): the CPU that will use the memory, and how.

A software adapter does not use them. It refuses hints that hardware would refuse.
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
    """The hints; `comp_mask` selects those that are set."""

    comp_mask: Unsigned = Unsigned(32)
    cpu_id: Unsigned = Unsigned(32)
    ph: Unsigned = Unsigned(8)
    tph_mem_type: Unsigned = Unsigned(8)

    def __str__(self) -> str:
        return "DmaHandleInitAttr:\n" + table(**vars(self))

    def wrong(self) -> str:
        """Return the reason to refuse the hints; empty if they are valid."""
        if self.comp_mask & ~_MASK:
            return f"comp_mask {self.comp_mask:#x} has bits outside of {_MASK:#x}"
        if self.comp_mask & e.IBV_DMAH_INIT_ATTR_MASK_CPU_ID and self.cpu_id not in _cpus():
            return f"cpu_id {self.cpu_id}: this process may not use that CPU"
        if self.comp_mask & e.IBV_DMAH_INIT_ATTR_MASK_PH and self.ph > _PH_MAX:
            return f"ph {self.ph} is above {_PH_MAX}"
        if self.comp_mask & e.IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE and self.tph_mem_type > e.IBV_TPH_MEM_TYPE_PM:
            return f"tph_mem_type {self.tph_mem_type} is neither 0 (volatile memory) nor 1 (persistent)"
        return ""


def _cpus() -> set[int] | range:
    """Return the CPUs that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


class DMAHandle(PyverbsCM):
    """A handle with the hints for memory regions; it closes its regions."""

    def __init__(self, ctx: Context, init_attr: DmaHandleInitAttr) -> None:
        if reason := init_attr.wrong():
            raise PyverbsRDMAError("Failed to create DMA Handle", errno.EINVAL, reason)
        self.ctx: Context | None = ctx
        ctx.add_ref(self)

    def _release(self) -> None:
        self.ctx = None

    def check(self, ctx: Context, access: int, action: str) -> None:
        """Raise PyverbsRDMAError if a region of a context cannot use this handle."""
        if self.ctx is not ctx:
            raise PyverbsRDMAError(action, errno.EINVAL, "the DMA handle belongs to another context, or is closed")
        if access & e.IBV_ACCESS_ON_DEMAND:
            raise PyverbsRDMAError(action, errno.EOPNOTSUPP, "on-demand paging cannot use a DMA handle")
