"""Multicast groups of an identifier: its queue pair receives what is sent to them."""

from __future__ import annotations

import errno

from weft.verbs.cm.connection import Told
from weft.verbs.enums.cm import rdma_cm_event_type, rdma_cm_join_mc_attr_mask
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.pyverbs.cm_parameters import AddrInfo, JoinMCAttrEx
from weft.verbs.pyverbs.cm_traffic import Traffic
from weft.verbs.pyverbs.context import the_adapter

GROUP_QP = 0xFF_FFFF
_E = rdma_cm_event_type


class Groups(Traffic):
    """`_source` is the GID that the identifier is at."""

    def __init__(self) -> None:
        super().__init__()
        self._source = 0
        self._groups: dict[int, int] = {}  # by the address that was given: what it is on the wire

    @property
    def _adapter(self) -> Adapter:
        return the_adapter()

    def _tell(self, told: Told) -> None:
        """An event of the identifier."""
        raise NotImplementedError

    def join_multicast(
        self, addr: AddrInfo | None = None, mc_attr: JoinMCAttrEx | None = None, context: object = None
    ) -> None:
        wanted = mc_attr.addr if mc_attr is not None else addr
        what = "Failed to Join multicast"
        if mc_attr is not None and not mc_attr.comp_mask & rdma_cm_join_mc_attr_mask.RDMA_CM_JOIN_MC_ATTR_ADDRESS:
            raise PyverbsRDMAError(what, errno.EINVAL, "comp_mask does not say that there is an address")
        if wanted is None or wanted.src is None:
            raise PyverbsRDMAError(what, errno.EINVAL, "nothing says which group")
        qp, group = self._queue_pair(what), self._adapter.carrier.join(wanted.src, self._source)
        if group is None:
            self._tell(Told(kind=_E.RDMA_CM_EVENT_MULTICAST_ERROR, status=-errno.ETIMEDOUT))
            return
        with self._adapter.lock:
            self._adapter.join(qp.core, group)
            self._groups[wanted.src] = group
        self._tell(Told(kind=_E.RDMA_CM_EVENT_MULTICAST_JOIN, group=group))

    def leave_multicast(self, addr: AddrInfo) -> None:
        if addr.src not in self._groups:
            raise PyverbsRDMAError("Failed to leave multicast", errno.EADDRNOTAVAIL, "it is not in that group")
        with self._adapter.lock:
            self._leave(addr.src)

    def _leave_all(self) -> None:
        for address in list(self._groups):
            self._leave(address)

    def _leave(self, address: int) -> None:
        group, adapter = self._groups.pop(address), self._adapter
        if self.qp is not None:
            adapter.leave(self.qp.core, group)
        if group not in adapter.groups:
            adapter.carrier.leave(group, self._source)
