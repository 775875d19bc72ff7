"""Identifiers of the connection manager, and channels on which they tell what happened: librdmacm's own objects.

A program's queue pair stays the program's: the library changes its state, and here is only who talks to whom.
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
from weft.verbs.pyverbs.cm_events import CMEventChannel
from weft.verbs.pyverbs.cm_parameters import IPV4_PREFIX, AddrInfo, ConnParam
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
_FAMILY_ALONE = ce.RDMA_OPTION_ID_AFONLY  # both versions of IP are one here


class ProgramChannel(PyverbsCM):
    """Events that the program has not taken; its file has a byte for each, so that poll tells of them."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._drain = os.open(f"/proc/self/fd/{reads}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._events: deque[tuple[ProgramCMID, CmNotice]] = deque()
        self._lock = threading.Lock()
        self._is_open = True

    def put(self, who: ProgramCMID, told: CmNotice) -> None:
        with self._lock:
            self._events.append((who, told))
        tell(self._writes, b"\1")

    def take(self) -> tuple[ProgramCMID, CmNotice] | None:
        with self._lock:
            if not self._events:
                return None
            who, told = self._events.popleft()
            who.taken += 1
            return who, told

    def drop(self, who: ProgramCMID) -> list[CmNotice]:
        """Events of one that has to do with this channel no more."""
        with self._lock:
            dropped = [told for one, told in self._events if one is who]
            self._events = deque(event for event in self._events if event[0] is not who)
        if dropped:
            with contextlib.suppress(BlockingIOError):  # who has read them finds nothing, and waits on
                os.read(self._drain, len(dropped))
        return dropped

    def wait(self) -> None:
        """Until there is an event; not at all, if the program does not want to wait."""
        if os.get_blocking(self._reads):
            poller = select.poll()
            poller.register(self._reads, select.POLLIN)
            poller.poll()

    def _release(self) -> None:
        os.close(self._drain)


class ProgramCMID(CMID):
    """One end of a connection of a program, which has it `in_program` at that address. `taken` events it has got."""

    def __init__(self, channel: ProgramChannel, port_space: int, in_program: int) -> None:
        super().__init__(CMEventChannel(), port_space=port_space)
        self.channel, self.in_program, self.taken = channel, in_program, 0
        self._traffic_class = 0
        self._speaks_v4, self._shares_port = True, False

    def _tell(self, told: CmNotice) -> None:
        self.channel.put(self, told)

    def _open_device(self) -> None:
        """The program has it open."""
        if self.ctx is None:
            self.ctx = Context(name=hardware.present()[0].name)

    @property
    def target(self) -> int:
        return self._target

    def addresses(self) -> tuple[int, int]:
        """Its own and the other end's, of the version of IP that it was bound with."""
        there = hardware.present()[0]
        is_v4 = self._speaks_v4 and not self.speaks_ib
        source, target = (there.address_of(gid) if is_v4 else gid for gid in (self._source, self._target))
        return source, target

    def is_own(self, gid: int) -> bool:
        """Whether the port's table has it."""
        return gid.to_bytes(16, "big") in hardware.present()[0].gids()

    def ports(self) -> tuple[int, int]:
        """Its own and the other end's."""
        return self._own_port, self._port

    # -- addresses ----------------------------------------------------------------------------------------------------

    def bind_addr(self, lai: AddrInfo) -> None:
        super().bind_addr(lai)
        self._speaks_v4 = lai.src is None or lai.src >> 32 == IPV4_PREFIX >> 32

    def _bound_port(self, wanted: int) -> int:
        return wanted if wanted and self._shares_port else super()._bound_port(wanted)

    def resolve_addr(self, rai: AddrInfo, timeout_ms: int = 2000) -> None:
        self._open_device()
        super().resolve_addr(rai, timeout_ms)
        self._speaks_v4 = rai.dst is not None and rai.dst >> 32 == IPV4_PREFIX >> 32

    def resolve_route(self, timeout_ms: int = 2000) -> None:
        if not self._target:
            raise PyverbsRDMAError("Failed to Resolve Route", errno.EINVAL, "rdma_resolve_addr comes first")
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

    # -- as a program sees it -----------------------------------------------------------------------------------------

    def introduce(self, told: CmNotice, in_program: int) -> ProgramCMID:
        """Who asked this one for a connection, at the other end of it."""
        made = ProgramCMID(self.channel, self.port_space, in_program)
        assert told.connection is not None
        made._from_request(told.connection, self)
        made._speaks_v4, made.speaks_ib = self._speaks_v4, self.speaks_ib
        return made

    def offer(self, param: ConnParam | None, qp_num: int, *, is_answer: bool) -> None:
        """Of itself, with the next request or answer; no more than the adapter can."""
        limits, given = self._usual_param(), param or self._usual_param()
        given.resources, given.depth = min(given.resources, limits.resources), min(given.depth, limits.depth)
        given.qpn = qp_num
        most_bytes = ANSWER_BYTES[self.is_datagram] if is_answer else self._request_bytes
        self._take(given, most_bytes, "Failed to Connect")

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
        """The program saw that the other end speaks already: its RTU was lost, or comes later."""
        if event == e.IBV_EVENT_COMM_EST and self._connection is not None:
            with self._adapter.lock:
                self._connection.on_first_message()

    # -- groups: the library attaches the queue pair ------------------------------------------------------------------

    def join_group(self, address: int, in_program: int) -> None:
        group, told_of = self._adapter.carrier.join(address, self._source), in_program.to_bytes(8, "little")
        if group is None:
            failed = CmNotice(kind=_E.RDMA_CM_EVENT_MULTICAST_ERROR, status=-errno.ETIMEDOUT, private_data=told_of)
            self._tell(failed)
            return
        self._groups[address] = group
        self._tell(CmNotice(kind=_E.RDMA_CM_EVENT_MULTICAST_JOIN, group=group, private_data=told_of))

    def leave_group(self, address: int) -> None:
        if address in self._groups:
            with self._adapter.lock:
                self._leave(address)


def gid_at(address: int) -> int:
    return int.from_bytes(ctypes.string_at(address, 16), "big")


def put_gid(address: int, gid: int) -> None:
    ctypes.memmove(address, gid.to_bytes(16, "big"), 16)
