"""Define the identifiers and event channels of librdmacm for programs in C.

The library modifies the program's queue pair itself; this module only has the connections.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import threading
from collections import deque

from weft.verbs import enums as e
from weft.verbs import hardware
from weft.verbs.attributes.address import AHAttr
from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.c.devices import tell
from weft.verbs.cm.connection import CmNotice
from weft.verbs.enums import cm as ce
from weft.verbs.enums import ibv_qp_attr_mask, ibv_qp_state
from weft.verbs.enums.cm import rdma_cm_event_type
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.pyverbs.cm_parameters import AddrInfo, CMEventChannel, ConnParam, is_ipv4
from weft.verbs.pyverbs.cm_traffic import UDP_KEY
from weft.verbs.pyverbs.cmid import ANSWER_BYTES, CMID
from weft.verbs.pyverbs.context import PORT, Context
from weft.verbs.pyverbs.qp import QPAttr

_E, _S, _M = rdma_cm_event_type, ibv_qp_state, ibv_qp_attr_mask
_UD_MASKS = {
    _S.IBV_QPS_INIT: _M.IBV_QP_STATE | _M.IBV_QP_PKEY_INDEX | _M.IBV_QP_PORT | _M.IBV_QP_QKEY,
    _S.IBV_QPS_RTR: _M.IBV_QP_STATE,
    _S.IBV_QPS_RTS: _M.IBV_QP_STATE | _M.IBV_QP_SQ_PSN,
}
_FAMILY_ALONE = ce.RDMA_OPTION_ID_AFONLY  # ignored: both IP versions share a port


class ProgramChannel(PyverbsCM):
    """A channel with the events that the program has not taken. Its file has one byte per event, for poll()."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._drain = os.open(f"/proc/self/fd/{reads}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._events: deque[tuple[ProgramCMID, CmNotice]] = deque()
        self._lock = threading.Lock()
        self._is_open = True

    def put(self, identifier: ProgramCMID, notice: CmNotice) -> None:
        with self._lock:
            self._events.append((identifier, notice))
        tell(self._writes, b"\1")

    def take(self) -> tuple[ProgramCMID, CmNotice] | None:
        with self._lock:
            if not self._events:
                return None
            identifier, notice = self._events.popleft()
            identifier.taken += 1
            return identifier, notice

    def drop(self, identifier: ProgramCMID) -> list[CmNotice]:
        """Remove and return the events of an identifier."""
        with self._lock:
            dropped = [notice for owner, notice in self._events if owner is identifier]
            self._events = deque(event for event in self._events if event[0] is not identifier)
        if dropped:
            with contextlib.suppress(BlockingIOError):  # a thread that has read them already waits again
                os.read(self._drain, len(dropped))
        return dropped

    def wait(self) -> None:
        """Wait for an event, unless the file is non-blocking."""
        if os.get_blocking(self._reads):
            poller = select.poll()
            poller.register(self._reads, select.POLLIN)
            poller.poll()

    def _release(self) -> None:
        os.close(self._drain)


class ProgramCMID(CMID):
    """An identifier of a program in C, at the address `in_program`. `taken` counts the events that it has received."""

    def __init__(self, channel: ProgramChannel, port_space: int, in_program: int) -> None:
        super().__init__(CMEventChannel(), port_space=port_space)
        self.channel, self.in_program, self.taken = channel, in_program, 0
        self._traffic_class = 0
        self._speaks_v4, self._shares_port = True, False

    def _tell(self, notice: CmNotice) -> None:
        self.channel.put(self, notice)

    def _open_device(self) -> None:
        """Open the device for queries; the program has opened it itself."""
        if self.ctx is None:
            self.ctx = Context(name=hardware.present()[0].name)

    @property
    def target(self) -> int:
        return self._target

    def addresses(self) -> tuple[int, int]:
        """Return the own address and the peer's, in the IP version of the identifier."""
        device = hardware.present()[0]
        is_v4 = self._speaks_v4 and not self.speaks_ib
        source, target = (device.address_of(gid) if is_v4 else gid for gid in (self._source, self._target))
        return source, target

    def is_own(self, gid: int) -> bool:
        """Return whether a GID is in the port's table."""
        return gid.to_bytes(16, "big") in hardware.present()[0].gids()

    def ports(self) -> tuple[int, int]:
        """Return the own port and the peer's."""
        return self._own_port, self._port

    # -- addresses ----------------------------------------------------------------------------------------------------

    def bind_addr(self, lai: AddrInfo) -> None:
        super().bind_addr(lai)
        self._speaks_v4 = lai.src is None or is_ipv4(lai.src)

    def _bound_port(self, requested: int) -> int:
        return requested if requested and self._shares_port else super()._bound_port(requested)

    def resolve_addr(self, rai: AddrInfo, timeout_ms: int = 2000) -> None:
        self._open_device()
        super().resolve_addr(rai, timeout_ms)
        self._speaks_v4 = rai.dst is not None and is_ipv4(rai.dst)

    def resolve_route(self, timeout_ms: int = 2000) -> None:
        if not self._target:
            raise PyverbsRDMAError("Failed to Resolve Route", errno.EINVAL, "call rdma_resolve_addr first")
        self._open_device()
        is_lost = hardware.present()[0].wrong_address(self._address(self._target))
        if is_lost:
            self._tell(CmNotice(kind=_E.RDMA_CM_EVENT_ROUTE_ERROR, status=-errno.EHOSTUNREACH))
        else:
            super().resolve_route(timeout_ms)

    def _address(self, gid: int) -> AHAttr:
        address = super()._address(gid)
        address.route.traffic_class = self._traffic_class
        return address

    def address(self, gid: int) -> AHAttr:
        return self._address(gid)

    def put_gids(self, where: int) -> None:
        put_gid(where, self._source)
        put_gid(where + 16, self._target)

    # -- connections --------------------------------------------------------------------------------------------------

    def create_for_request(self, notice: CmNotice, in_program: int) -> ProgramCMID:
        """Return a new identifier for a connection request to this one."""
        identifier = ProgramCMID(self.channel, self.port_space, in_program)
        assert notice.connection is not None
        identifier._from_request(notice.connection, self)
        identifier._speaks_v4, identifier.speaks_ib = self._speaks_v4, self.speaks_ib
        return identifier

    def offer(self, param: ConnParam | None, qp_num: int, *, is_answer: bool) -> None:
        """Set the parameters of the next request or reply, at most the adapter's limits."""
        limits, offered = ConnParam.usual(self.ctx), param or ConnParam.usual(self.ctx)
        offered.resources, offered.depth = min(offered.resources, limits.resources), min(offered.depth, limits.depth)
        offered.qpn = qp_num
        most_bytes = ANSWER_BYTES[self.is_datagram] if is_answer else self._request_bytes
        self._take(offered, most_bytes, "Failed to Connect")

    @property
    def offered(self) -> ConnParam:
        return self._param

    def init_qp_attr(self, qp_state: int) -> tuple[QPAttr, int]:
        if not self.is_datagram:
            return super().init_qp_attr(qp_state)
        target = _S(qp_state)
        if target not in _UD_MASKS:
            raise PyverbsRDMAError("Failed to get QP attributes", errno.EINVAL, f"not for state {target.name}")
        attr = QPAttr(qp_state=target, port_num=PORT)
        attr.qkey, attr.sq_psn = UDP_KEY, self._psn
        return attr, _UD_MASKS[target]

    def set_option(self, level: int, optname: int, optval: int, optlen: int) -> None:
        if level == ce.RDMA_OPTION_ID and optname == ce.RDMA_OPTION_ID_TOS:
            self._traffic_class = optval & 0xFF
        elif level == ce.RDMA_OPTION_ID and optname == ce.RDMA_OPTION_ID_REUSEADDR:
            self._shares_port = bool(optval)
        elif (level, optname) != (ce.RDMA_OPTION_ID, _FAMILY_ALONE):
            super().set_option(level, optname, optval, optlen)

    def notify(self, event: int) -> None:
        """Complete the connection after a message of the peer: its RTU was lost, or is late."""
        if event == e.IBV_EVENT_COMM_EST and self._connection is not None:
            with self._adapter.lock:
                self._connection.on_first_message()

    # -- groups: the library attaches the queue pair ------------------------------------------------------------------

    def join_group(self, address: int, in_program: int) -> None:
        group, reference = self._adapter.carrier.join(address, self._source), in_program.to_bytes(8, "little")
        if group is None:
            failed = CmNotice(kind=_E.RDMA_CM_EVENT_MULTICAST_ERROR, status=-errno.ETIMEDOUT, private_data=reference)
            self._tell(failed)
            return
        self._groups[address] = group
        self._tell(CmNotice(kind=_E.RDMA_CM_EVENT_MULTICAST_JOIN, group=group, private_data=reference))

    def leave_group(self, address: int) -> None:
        if address in self._groups:
            with self._adapter.lock:
                self._leave(address)


def gid_at(address: int) -> int:
    return int.from_bytes(ctypes.string_at(address, 16), "big")


def put_gid(address: int, gid: int) -> None:
    ctypes.memmove(address, gid.to_bytes(16, "big"), 16)
