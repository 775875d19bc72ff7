"""Establish connections by addresses and ports as librdmacm does: identifiers (CMID), and events on channels.

An identifier with addresses waits in each step for the result. An identifier with a channel returns at once, and the
result is an event of the channel: `CMEvent(channel)` waits for the next event.
"""

from __future__ import annotations

import copy
import errno
import random
import secrets
import weakref
from collections.abc import Callable
from typing import ParamSpec

from weft.verbs import enums as e
from weft.verbs import hardware
from weft.verbs.cm.agent import Claim, Kind, agent_of, service_id
from weft.verbs.cm.connection import ADDRESSES_BYTES, CmConnection, CmNotice, Side
from weft.verbs.enums import cm as ce
from weft.verbs.enums import ibv_qp_attr_mask, ibv_qp_state
from weft.verbs.enums.cm import rdma_cm_event_type, rdma_port_space
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.hca.carrier import TO_GROUP
from weft.verbs.hca.segment import PSN_MASK
from weft.verbs.pyverbs.addr import GID, AHAttr, GlobalRoute, own_index
from weft.verbs.pyverbs.cm_parameters import (
    IPV4_PREFIX,
    AddrInfo,
    CMEvent,
    CMEventChannel,
    ConnParam,
    Groups,
    JoinMCAttrEx,
    UDParam,
    is_ipv4,
)
from weft.verbs.pyverbs.cm_traffic import MASKS, UDP_KEY
from weft.verbs.pyverbs.context import PORT, Context
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp import ECE, QPAttr, QPInitAttr

__all__ = ["CMID", "AddrInfo", "CMEvent", "CMEventChannel", "ConnParam", "JoinMCAttrEx", "UDParam"]

_REQUEST_BYTES, ANSWER_BYTES = {False: 92, True: 216}, {False: 196, True: 136}  # private data; True: datagrams
_REFUSAL_BYTES = 136
_NO_OPTIONS = "weft's adapter has no vendor options"
_EPHEMERAL_PORTS = range(0xC000, 0x1_0000)
_TIMEOUT, _MIN_RNR = 14, 12  # codes: 67 ms for an answer, 0.64 ms until a receiver is ready
_E, _S, _M = rdma_cm_event_type, ibv_qp_state, ibv_qp_attr_mask
_FAILED = {
    _E.RDMA_CM_EVENT_REJECTED: errno.ECONNREFUSED,
    _E.RDMA_CM_EVENT_UNREACHABLE: errno.ETIMEDOUT,
    _E.RDMA_CM_EVENT_ADDRINFO_ERROR: errno.ENODEV,
}
_P = ParamSpec("_P")


def _weakly(method: Callable[_P, None]) -> Callable[_P, None]:
    """Return a function that calls the method while its object is alive, without keeping it alive."""
    reference = weakref.WeakMethod(method)

    def call(*args: _P.args, **kwargs: _P.kwargs) -> None:
        if (alive := reference()) is not None:
            alive(*args, **kwargs)

    return call


class CMID(Groups):
    """An identifier: one end of a connection, or a listener. `qp` is its queue pair, unless the program has its own.

    It is created from `AddrInfo`, a `CMEventChannel`, or the CMEvent of a request that `listen_id` received.
    """

    port_num = PORT
    speaks_ib = False  # addresses of AF_IB: all private data belongs to the program

    def __init__(
        self,
        creator: AddrInfo | CMEventChannel | CMEvent | None = None,
        qp_init_attr: QPInitAttr | None = None,
        pd: PD | None = None,
        port_space: int = rdma_port_space.RDMA_PS_TCP,
        listen_id: CMID | None = None,
    ) -> None:
        super().__init__()
        self.pd, self.port_space, self._init_attr = pd, port_space, qp_init_attr
        self.event_channel: CMEventChannel | None = None
        self._own_channel = CMEventChannel()
        self._target = self._port = self._own_port = 0  # _port: of the peer
        self._claims: list[Claim] = []  # on its own port, and on the service it listens for
        self._resolved: AddrInfo | None = None  # by resolve_addrinfo
        self._service: int | None = None  # listening for it
        self._connection: CmConnection | None = None
        self._param, self._psn, self._ack_timeout = ConnParam(), secrets.randbits(24) & PSN_MASK, _TIMEOUT
        self._is_open = True
        if isinstance(creator, AddrInfo):
            self._from_addresses(creator)
        elif isinstance(creator, CMEventChannel):
            self.event_channel = creator
        elif isinstance(creator, CMEvent):
            if listen_id is None or creator.told.connection is None:
                raise PyverbsUserError("listen ID not provided")
            self._from_request(creator.told.connection, listen_id)
        elif creator is not None:
            raise PyverbsRDMAError(f"Cannot create CM ID from {type(creator)}")

    def _from_addresses(self, info: AddrInfo) -> None:
        self.port_space = info.port_space or self.port_space
        if self._init_attr is not None:  # librdmacm ignores its type here
            self._init_attr = copy.copy(self._init_attr)
            self._init_attr.qp_type = self.qp_type
        if info.flags & ce.RAI_PASSIVE:
            self.bind_addr(info)
            return
        self.resolve_addr(info)
        self._open_device()
        self._own_channel.events.clear()
        if self._init_attr is not None:
            self.create_qp(self._init_attr)

    def _from_request(self, connection: CmConnection, listener: CMID) -> None:
        self.event_channel, self.ctx, self.pd = listener.event_channel, listener.ctx, listener.pd
        self.port_space = listener.port_space
        self._target, self._source = connection.to
        self._port, self._own_port = connection.far.port, listener._own_port
        self._connection = connection
        connection.tell = _weakly(self._tell)

    # -- properties ---------------------------------------------------------------------------------------------------

    @property
    def context(self) -> Context | None:
        return self.ctx

    @property
    def dev_name(self) -> str:
        return hardware.present()[0].name

    # -- events -------------------------------------------------------------------------------------------------------

    def _tell(self, notice: CmNotice) -> None:
        (self.event_channel or self._own_channel).events.append((self.on_event, notice))

    def on_event(self, event: CMEvent) -> rdma_cm_event_type:
        """Handle an event when the program takes it, as librdmacm does, and return the type to report."""
        kind, connection = event.told.kind, event.told.connection
        if kind == _E.RDMA_CM_EVENT_CONNECT_RESPONSE and self.qp is not None and connection is not None:
            with self._adapter.lock:
                self._get_ready()
                connection.establish()
            return _E.RDMA_CM_EVENT_ESTABLISHED
        if kind == _E.RDMA_CM_EVENT_ESTABLISHED and self.is_datagram and connection is not None:
            far = connection.far
            event.datagrams = self._address(self._target), far.qp_num, far.q_key
        elif kind == _E.RDMA_CM_EVENT_MULTICAST_JOIN:
            event.datagrams = self._address(event.told.group), TO_GROUP, UDP_KEY
        return kind

    def _wait(self, kind: rdma_cm_event_type, action: str) -> None:
        """Wait for an event of an identifier without a channel. Raise PyverbsRDMAError for any other event."""
        if self.event_channel is not None:
            return
        event = CMEvent(self._own_channel)
        if event.event_type != kind:
            code = _FAILED.get(event.event_type, errno.ECONNRESET)
            raise PyverbsRDMAError(action, code, event.event_str())

    # -- addresses ----------------------------------------------------------------------------------------------------

    def bind_addr(self, lai: AddrInfo) -> None:
        self._source = self._own_gid(lai.src, "Failed to Bind ID")
        self._own_port = self._bound_port(lai.src_port)
        self._open_device()

    def _bound_port(self, requested: int) -> int:
        """Claim a port, or any free one if it is 0, and return it."""
        for port in [requested] if requested else random.sample(_EPHEMERAL_PORTS, len(_EPHEMERAL_PORTS)):
            if self._claim(port, Kind.PORT):
                return port
        raise PyverbsRDMAError("Failed to Bind ID", errno.EADDRINUSE, f"port {requested} is in use")

    def _claim(self, port: int, kind: Kind) -> bool:
        """Claim a port for this identifier; return whether it was free."""
        try:
            self._claims.append(Claim(self._source, service_id(self.port_space, port), kind))
        except OSError:
            return False
        return True

    def resolve_addr(self, rai: AddrInfo, timeout_ms: int = 2000) -> None:
        action = "Failed to Resolve Address"
        if rai.dst is None:
            raise PyverbsRDMAError(action, errno.EINVAL, "no destination: give dst")
        self._source = self._source or self._own_gid(rai.src, action, is_v4=is_ipv4(rai.dst))
        self._target, self._port = hardware.present()[0].gid_at(rai.dst), rai.dst_port
        # Not claimed: no peer connects to it.
        self._own_port = self._own_port or rai.src_port or random.choice(_EPHEMERAL_PORTS)
        self._tell(CmNotice(kind=_E.RDMA_CM_EVENT_ADDR_RESOLVED))

    def resolve_addrinfo(
        self,
        node: str | bytes | None = None,
        service: str | bytes | None = None,
        port_space: int = 0,
        flags: int = 0,
    ) -> None:
        """Resolve a name; an event has the result."""
        action = "Failed to Resolve AddrInfo"
        if flags & ce.RAI_SA:
            code = errno.EINVAL if flags & ce.RAI_DNS else errno.EOPNOTSUPP
            raise PyverbsRDMAError(action, code, "the subnet administrator resolves no services: use RAI_DNS")
        near, far = ((node, service), (None, None))[:: 1 if flags & ce.RAI_PASSIVE else -1]
        self._resolved, notice = None, CmNotice(kind=_E.RDMA_CM_EVENT_ADDRINFO_RESOLVED)
        try:
            self._resolved = AddrInfo(near[0], far[0], near[1], far[1], port_space, flags)
        except PyverbsRDMAError as error:
            notice = CmNotice(kind=_E.RDMA_CM_EVENT_ADDRINFO_ERROR, status=-error.error_code)
        self._tell(notice)
        self._wait(_E.RDMA_CM_EVENT_ADDRINFO_RESOLVED, action)

    def query_addrinfo(self) -> AddrInfo:
        """Return the result of the last `resolve_addrinfo`."""
        if self._resolved is None:
            raise PyverbsRDMAError("Failed to Query AddrInfo", errno.EINVAL, "no result: call resolve_addrinfo first")
        return copy.copy(self._resolved)

    def resolve_route(self, timeout_ms: int = 2000) -> None:
        if not self._target:
            raise PyverbsRDMAError("Failed to Resolve Route", errno.EINVAL, "call resolve_addr first")
        self._open_device()
        self._tell(CmNotice(kind=_E.RDMA_CM_EVENT_ROUTE_RESOLVED))

    def _own_gid(self, address: int | None, action: str, *, is_v4: bool = True) -> int:
        """Return the port's GID for an address, or the first GID of its family if the address is unspecified."""
        own = Context(name=hardware.present()[0].name)
        gids = [int.from_bytes(own.query_gid(PORT, entry.gid_index).raw, "big") for entry in own.query_gid_table(256)]
        fitting = [gid for gid in gids if is_ipv4(gid) == is_v4]
        if address is None or address & ~IPV4_PREFIX == 0:
            return (fitting or gids)[0]
        address = own.hardware.gid_at(address)
        if address not in gids:
            text = GID.of(address.to_bytes(16, "big")).gid
            raise PyverbsRDMAError(action, errno.ENODEV, f"{text} is not an address of {own.name}")
        return address

    def _open_device(self) -> None:
        if self.ctx is None:
            Context(cmid=self)
        if self.pd is None:
            PD(self)

    def _address(self, gid: int) -> AHAttr:
        assert self.ctx is not None
        index = own_index(self.ctx, PORT, self._source.to_bytes(16, "big"))
        route = GlobalRoute(dgid=GID.of(gid.to_bytes(16, "big")), sgid_index=index, hop_limit=64)
        return AHAttr(gr=route, is_global=1, port_num=PORT)

    # -- connections --------------------------------------------------------------------------------------------------

    def listen(self, backlog: int = 0) -> None:
        if not self._own_port:
            self.bind_addr(AddrInfo())
        with self._adapter.lock:
            listeners, service = agent_of(self._adapter).listeners, service_id(self.port_space, self._own_port)
            if service in listeners or not self._claim(self._own_port, Kind.SERVICE):
                raise PyverbsRDMAError("Listen Failed", errno.EADDRINUSE, f"port {self._own_port} has a listener")
            self._service, listeners[service] = service, _weakly(self._on_request)

    def _on_request(self, connection: CmConnection, private_data: bytes) -> None:
        own = private_data[0 if self.speaks_ib else ADDRESSES_BYTES :]
        self._tell(CmNotice(kind=_E.RDMA_CM_EVENT_CONNECT_REQUEST, connection=connection, private_data=own))

    def get_request(self) -> CMID:
        """Wait for a connection request and return it as an identifier that can accept it."""
        if self._service is None or self.event_channel is not None:
            reason = "the identifier does not listen, or has a channel"
            raise PyverbsRDMAError("Failed to get request, no connection established", errno.EINVAL, reason)
        identifier = CMID(CMEvent(self._own_channel), listen_id=self)
        if self._init_attr is not None:
            identifier.create_qp(self._init_attr)
        return identifier

    def connect(self, param: ConnParam | None = None) -> None:
        action = "Failed to Connect"
        if not self._target:
            raise PyverbsRDMAError(action, errno.EINVAL, "call resolve_addr first")
        self._take(param, self._request_bytes, action)
        with self._adapter.lock:
            to = self._target, self._source
            connection = agent_of(self._adapter).open_connection(to, _weakly(self._tell), is_datagram=self.is_datagram)
            self._connection, connection.has_addresses = connection, not self.speaks_ib
            connection.connect(service_id(self.port_space, self._port), self._side())
        self._wait(_E.RDMA_CM_EVENT_ESTABLISHED, action)

    def accept(self, param: ConnParam | None = None) -> None:
        action = "Failed to Accept Connection"
        connection = self._require_connection(action)
        self._take(param, ANSWER_BYTES[self.is_datagram], action)
        with self._adapter.lock:
            if self.qp is not None and not self.is_datagram:
                self._get_ready()
            connection.accept(self._side())
        if not self.is_datagram:
            self._wait(_E.RDMA_CM_EVENT_ESTABLISHED, action)

    def establish(self) -> None:
        """Complete the connection: the program's own queue pair is ready."""
        with self._adapter.lock:
            self._require_connection("Failed to Complete an active connection request").establish()

    def reject(self, private_data: bytes | None = None, private_data_len: int = 0) -> None:
        with self._adapter.lock:
            self._require_connection("Failed to Reject Connection").reject((private_data or b"")[:_REFUSAL_BYTES])

    def disconnect(self) -> None:
        action = "Failed to Disconnect"
        connection = self._require_connection(action)
        if not connection.is_up:
            raise PyverbsRDMAError(action, errno.EINVAL, "it is not connected")
        with self._adapter.lock:
            if self.qp is not None:
                self.qp.modify(QPAttr(qp_state=_S.IBV_QPS_ERR), _M.IBV_QP_STATE)
            connection.disconnect()
        self._wait(_E.RDMA_CM_EVENT_DISCONNECTED, action)

    @property
    def _request_bytes(self) -> int:
        return _REQUEST_BYTES[self.is_datagram] - (0 if self.speaks_ib else ADDRESSES_BYTES)

    def _take(self, param: ConnParam | None, most_bytes: int, action: str) -> None:
        """Set the parameters of the connection. Raise PyverbsRDMAError if the private data is too long."""
        param = param or ConnParam.usual(self.ctx)
        if len(param.private_data) > most_bytes:
            reason = f"{len(param.private_data)} bytes of private data: {most_bytes} at most"
            raise PyverbsRDMAError(action, errno.EINVAL, reason)
        self._param = param

    def _require_connection(self, action: str) -> CmConnection:
        if self._connection is None:
            raise PyverbsRDMAError(action, errno.EINVAL, "there is no connection and no request")
        return self._connection

    def _side(self) -> Side:
        number = self.qp.qp_num if self.qp is not None else self._param.qpn
        side = self._param.side(qp_num=number, psn=self._psn, q_key=UDP_KEY if self.is_datagram else 0)
        side.port = self._own_port
        return side

    def _release(self) -> None:
        if self._service is not None or self._connection is not None or self._groups:
            with self._adapter.lock:
                if self._service is not None:
                    agent_of(self._adapter).listeners.pop(self._service, None)
                if self._connection is not None:
                    self._connection.close()
                self._leave_all()
        for claim in self._claims:
            claim.close()
        self._close_traffic()

    # -- queue pairs --------------------------------------------------------------------------------------------------

    def init_qp_attr(self, qp_state: int) -> tuple[QPAttr, int]:
        target = _S(qp_state)
        if target not in MASKS:
            raise PyverbsRDMAError("Failed to get QP attributes", errno.EINVAL, f"not for state {target.name}")
        attr = QPAttr(qp_state=target, port_num=PORT)
        attr.qp_access_flags = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
        if target != _S.IBV_QPS_INIT:
            self._fill_in(attr, self._require_connection("Failed to get QP attributes"))
        return attr, MASKS[target]

    def _fill_in(self, attr: QPAttr, connection: CmConnection) -> None:
        """Set the attributes that both ends have agreed on."""
        far, param = connection.far, self._param
        attr.ah_attr, attr.path_mtu = self._address(self._target), e.IBV_MTU_4096
        attr.dest_qp_num, attr.rq_psn, attr.sq_psn = far.qp_num, far.psn, self._psn
        attr.max_dest_rd_atomic = min(param.resources, far.depth)
        attr.max_rd_atomic = min(param.depth, far.resources)
        attr.min_rnr_timer, attr.timeout = _MIN_RNR, self._ack_timeout
        asking = connection.own if connection.is_active else far
        attr.retry_cnt, attr.rnr_retry = asking.retry_count, asking.rnr_retry_count

    def _get_ready(self) -> None:
        assert self.qp is not None
        for state in (_S.IBV_QPS_RTR, _S.IBV_QPS_RTS):
            self.qp.modify(*self.init_qp_attr(state))

    # -- options ------------------------------------------------------------------------------------------------------

    def set_option(self, level: int, optname: int, optval: int, optlen: int) -> None:
        if (level, optname) != (ce.RDMA_OPTION_ID, ce.RDMA_OPTION_ID_ACK_TIMEOUT):
            reason = f"unknown option {optname} of level {level}: use RDMA_OPTION_ID_ACK_TIMEOUT"
            raise PyverbsRDMAError("Failed to set option", errno.ENOSYS, reason)
        if not 0 <= optval <= 31:
            raise PyverbsRDMAError("Failed to set option", errno.EINVAL, f"timeout {optval} is not a code from 0 to 31")
        self._ack_timeout = optval

    def set_local_ece(self, ece: ECE) -> None:
        raise PyverbsRDMAError("Failed to set local ECE", errno.EOPNOTSUPP, _NO_OPTIONS)

    def get_remote_ece(self) -> ECE:
        raise PyverbsRDMAError("Failed to get remote ECE", errno.EOPNOTSUPP, _NO_OPTIONS)
