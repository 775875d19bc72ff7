"""Join multicast groups with the queue pair of a connection identifier."""

from __future__ import annotations

import errno

from weft.verbs.cm.connection import CmNotice
from weft.verbs.enums.cm import rdma_cm_event_type, rdma_cm_join_mc_attr_mask
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.pyverbs.cm_parameters import AddrInfo, JoinMCAttrEx
from weft.verbs.pyverbs.cm_traffic import Traffic
from weft.verbs.pyverbs.context import the_adapter

_E = rdma_cm_event_type


class Groups(Traffic):
    """An identifier's multicast groups. `_source` is the GID of the identifier."""

    def __init__(self) -> None:
        super().__init__()
        self._source = 0
        self._groups: dict[int, int] = {}  # multicast GID by the address that the program joined

    @property
    def _adapter(self) -> Adapter:
        return the_adapter()

    def _tell(self, notice: CmNotice) -> None:
        """Queue an event of the identifier."""
        raise NotImplementedError

    def join_multicast(
        self, addr: AddrInfo | None = None, mc_attr: JoinMCAttrEx | None = None, context: object = None
    ) -> None:
        address = mc_attr.addr if mc_attr is not None else addr
        action = "Failed to Join multicast"
        if mc_attr is not None and not mc_attr.comp_mask & rdma_cm_join_mc_attr_mask.RDMA_CM_JOIN_MC_ATTR_ADDRESS:
            raise PyverbsRDMAError(action, errno.EINVAL, "comp_mask lacks RDMA_CM_JOIN_MC_ATTR_ADDRESS")
        if address is None or address.src is None:
            raise PyverbsRDMAError(action, errno.EINVAL, "no group: give an address with src")
        qp, group = self._queue_pair(action), self._adapter.carrier.join(address.src, self._source)
        if group is None:
            self._tell(CmNotice(kind=_E.RDMA_CM_EVENT_MULTICAST_ERROR, status=-errno.ETIMEDOUT))
            return
        with self._adapter.lock:
            self._adapter.join(qp.core, group)
            self._groups[address.src] = group
        self._tell(CmNotice(kind=_E.RDMA_CM_EVENT_MULTICAST_JOIN, group=group))

    def leave_multicast(self, addr: AddrInfo) -> None:
        if addr.src not in self._groups:
            raise PyverbsRDMAError("Failed to leave multicast", errno.EADDRNOTAVAIL, "not a member of that group")
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
