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
    """A protection domain of a context (or of a connection's identifier): new, or the one that has `handle`.

    `key` is what the adapter compares: an imported domain and a parent domain have that of the one that they stand for.
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
        """In pyverbs the address of the C structure."""
        return id(self)

    def advise_mr(self, advise: int, flags: int, sg_list: Sequence[SGE]) -> int:
        """Memory will be used soon. All memory is there when it is used, so only the question is checked."""
        what = "Failed to advise MR"
        if advise not in _ADVICE:
            raise PyverbsRDMAError(what, errno.EOPNOTSUPP, f"there is no advice {advise}")
        if flags & ~e._IBV_ADVISE_MR_FLAG_FLUSH:
            raise PyverbsRDMAError(what, errno.EINVAL, f"there are no flags {flags:#x}")
        for sge in sg_list:
            write = advise == e._IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
            if self.ctx.adapter.regions.local(self.key, Place(sge.addr, sge.length, sge.lkey), write=write) is None:
                raise PyverbsRDMAError(
                    what, errno.EFAULT, f"key {sge.lkey:#x} does not open {sge.length} bytes at {sge.addr:#x}"
                )
        return 0

    def remove_ref(self, child: PyverbsCM) -> None:
        """A child has another parent from now on."""
        for birth, one in list((self._children or {}).items()):
            if one is child and self._children is not None:
                del self._children[birth]

    def unimport(self) -> None:
        self.close()

    def close(self) -> None:
        """Windows go first: a region that has some cannot be closed."""
        for window in list(self.windows):
            window.close()
        super().close()


class ParentDomainContext(PyverbsObject):
    """How a parent domain gets memory for its queues: `p_alloc` and `p_free`, which find `user_data` here."""

    def __init__(self, pd: PD, alloc_func: Allocate, free_func: Free, user_data: Any = None) -> None:
        self.pd, self.p_alloc, self.p_free, self.user_data = pd, alloc_func, free_func, user_data


class ParentDomainInitAttr(PyverbsObject):
    """What a parent domain is made of. `pd_context` sets its own bits of the mask."""

    def __init__(self, pd: PD, pd_context: ParentDomainContext | None = None, comp_mask: int = 0) -> None:
        if pd_context is None and comp_mask & _OF_CONTEXT:
            raise PyverbsUserError(f"comp_mask {comp_mask:#x} says that there are allocators: pd_context")
        self.pd, self.pd_context = pd, pd_context
        self.comp_mask = comp_mask | (_OF_CONTEXT if pd_context is not None else 0)


class ParentDomain(PD):
    """A protection domain that stands for another one and has allocators of its own.

    Queues here are objects of Python, which the allocators cannot place: they are kept and never called. What a guest
    of confidential computing asks for, memory that devices can reach, is all that there is.
    """

    def __init__(self, context: Context, attr: ParentDomainInitAttr) -> None:
        if attr.comp_mask & ~(_OF_CONTEXT | e.IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC):
            reason = f"comp_mask {attr.comp_mask:#x} has bits that mean nothing"
            raise PyverbsRDMAError("Failed to allocate Parent Domain", errno.EINVAL, reason)
        super().__init__(context)
        self.protection_domain, self.pd_context = attr.pd, attr.pd_context
        self.key = attr.pd.key
        attr.pd.add_ref(self)
