"""Protection domains: queue pairs use only the memory of their own."""

from __future__ import annotations

import errno
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from weft.verbs import enums as e
from weft.verbs.attributes.objects import PyverbsCM, PyverbsObject
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.sge import SGE
from weft.verbs.shm.memory import Place

_ADVICE = (
    e._IBV_ADVISE_MR_ADVICE_PREFETCH,
    e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
    e._IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
)
_OF_CONTEXT = e.IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | e.IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
Allocate = Callable[["PD", "ParentDomainContext", int, int, int], int]
Free = Callable[["PD", "ParentDomainContext", int, int], Any]


class PD(PyverbsCM):
    """A protection domain of a context or of a connection identifier: new, or imported by `handle`.

    The adapter compares domains by `key`: an imported domain and a parent domain have the key of the original.
    """

    ctx: Context

    def __init__(self, creator: Any, *, handle: int | None = None) -> None:
        if isinstance(creator, Context):
            self.ctx = creator
        else:
            self.ctx = creator.ctx
            creator.pd = self
        self.key: object = self
        self.windows: weakref.WeakSet[PyverbsCM] = weakref.WeakSet()
        if handle is None:
            self.handle = self.ctx.handles.add(self)
        else:
            self.handle, self.key = handle, self.ctx.handles.find(handle, PD, "protection domain").key
        self.ctx.add_ref(self)

    @property
    def pd(self) -> int:
        """A number that identifies the domain; in pyverbs the address of the C structure."""
        return id(self)

    def advise_mr(self, advise: int, flags: int, sg_list: Sequence[SGE]) -> int:
        """Announce the use of memory. All memory is mapped on use, so only the arguments are checked."""
        action = "Failed to advise MR"
        if advise not in _ADVICE:
            raise PyverbsRDMAError(action, errno.EOPNOTSUPP, f"unknown advice {advise}")
        if flags & ~e._IBV_ADVISE_MR_FLAG_FLUSH:
            raise PyverbsRDMAError(action, errno.EINVAL, f"unknown flags {flags:#x}")
        for sge in sg_list:
            write = advise == e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
            if self.ctx.adapter.regions.local(self.key, Place(sge.addr, sge.length, sge.lkey), write=write) is None:
                raise PyverbsRDMAError(
                    action, errno.EFAULT, f"key {sge.lkey:#x} does not cover {sge.length} bytes at {sge.addr:#x}"
                )
        return 0

    def remove_ref(self, child: PyverbsCM) -> None:
        """Remove a child that gets another parent."""
        for birth, known_child in list((self._children or {}).items()):
            if known_child is child and self._children is not None:
                del self._children[birth]

    def unimport(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the windows, then the rest: a region with windows cannot be closed."""
        for window in list(self.windows):
            window.close()
        super().close()


class ParentDomainContext(PyverbsObject):
    """The allocators of a parent domain for its queues, `p_alloc` and `p_free`, and their `user_data`."""

    def __init__(self, pd: PD, alloc_func: Allocate, free_func: Free, user_data: Any = None) -> None:
        self.pd, self.p_alloc, self.p_free, self.user_data = pd, alloc_func, free_func, user_data


class ParentDomainInitAttr(PyverbsObject):
    """The attributes of a new parent domain. `pd_context` sets its own bits of the mask."""

    def __init__(self, pd: PD, pd_context: ParentDomainContext | None = None, comp_mask: int = 0) -> None:
        if pd_context is None and comp_mask & _OF_CONTEXT:
            raise PyverbsUserError(f"comp_mask {comp_mask:#x} needs allocators: give pd_context")
        self.pd, self.pd_context = pd, pd_context
        self.comp_mask = comp_mask | (_OF_CONTEXT if pd_context is not None else 0)


class ParentDomain(PD):
    """A protection domain with the key of another one and with its own allocators.

    The allocators are never called: queues are Python objects here. All memory is reachable by devices, as programs in
    confidential virtual machines request.
    """

    def __init__(self, context: Context, attr: ParentDomainInitAttr) -> None:
        if attr.comp_mask & ~(_OF_CONTEXT | e.IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC):
            reason = f"comp_mask {attr.comp_mask:#x} has unknown bits"
            raise PyverbsRDMAError("Failed to allocate Parent Domain", errno.EINVAL, reason)
        super().__init__(context)
        self.protection_domain, self.pd_context = attr.pd, attr.pd_context
        self.key = attr.pd.key
        attr.pd.add_ref(self)
