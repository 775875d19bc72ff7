"""Define the parameters and events of connection requests: addresses, the limits of each end, and multicast groups."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field

from weft.verbs.attributes.address import AHAttr
from weft.verbs.attributes.device import DeviceAttr
from weft.verbs.attributes.objects import PyverbsObject, Unsigned
from weft.verbs.cm.connection import CmNotice, Side
from weft.verbs.enums.cm import (
    RAI_NUMERICHOST,
    RAI_PASSIVE,
    rdma_cm_event_type,
    rdma_cm_join_mc_attr_mask,
    rdma_port_space,
)
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.pyverbs.cm_traffic import Traffic
from weft.verbs.pyverbs.context import Context, the_adapter
from weft.verbs.pyverbs.events import wait_for

Owner = Callable[["CMEvent"], rdma_cm_event_type]  # handles an event of an identifier and returns the type to report
Datagrams = tuple[AHAttr, int, int]  # destination: address, queue pair number, Q_Key


class CMEventChannel(PyverbsObject):
    """A queue of events from connection identifiers."""

    def __init__(self) -> None:
        self.events: deque[tuple[Owner, CmNotice]] = deque()
        self._is_open = True

    def next(self) -> tuple[Owner, CmNotice] | None:
        if not self._is_open:
            raise PyverbsRDMAError("Failed to create CMEvent", errno.EBADF, "the channel is closed")
        return self.events.popleft() if self.events else None

    def close(self) -> None:
        self._is_open = False


class CMEvent(PyverbsObject):
    """The next event of a channel. `datagrams` is the destination for datagrams, if the event has one: see UDParam."""

    def __init__(self, channel: CMEventChannel) -> None:
        on_event, self.told = wait_for(the_adapter(), channel.next)
        self.private_data = self.told.private_data
        self.status = self.told.status  # of a failure: a negative errno, or the reason code of the peer
        self.datagrams: Datagrams | None = None
        self.event_type = on_event(self)

    def event_str(self) -> str:
        return rdma_cm_event_type(self.event_type).name

    def ack_cm_event(self) -> None:
        """Acknowledge the event. Nothing is to be freed."""

    def close(self) -> None:
        self.ack_cm_event()


IPV4_PREFIX = 0xFFFF << 32  # prefix of an IPv4 address as a GID
_PRIVATE_MAX_BYTES = 196


def is_ipv4(gid: int) -> bool:
    """Return whether a GID is a mapped IPv4 address."""
    return gid >> 32 == IPV4_PREFIX >> 32


def gid_of(host: str, *, numeric_only: bool = False) -> int:
    """Return the GID of an IP address or a host name: an IPv6 address is a GID, an IPv4 address is mapped."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if numeric_only:
            raise _unknown(f"{host} is not an IP address") from None
        try:
            address = ipaddress.ip_address(socket.getaddrinfo(host, None)[0][4][0])
        except OSError as error:
            raise _unknown(f"{host}: {error}") from error
    return int(address) | (IPV4_PREFIX if address.version == 4 else 0)


def _port_of(service: str | bytes | int | None) -> int:
    if service is None:
        return 0
    try:
        return int(service) & 0xFFFF
    except ValueError:
        try:
            return socket.getservbyname(service.decode() if isinstance(service, bytes) else str(service))
        except OSError as error:
            raise _unknown(f"there is no service {service!r}") from error


def _unknown(reason: str) -> PyverbsRDMAError:
    return PyverbsRDMAError("Failed to get Address Info", errno.ENODEV, reason)


def _text(value: str | bytes | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value


class AddrInfo(PyverbsObject):
    """The GIDs and ports of a connection: `src` to listen at (with RAI_PASSIVE in `flags`), `dst` to connect to."""

    def __init__(
        self,
        src: str | bytes | None = None,
        dst: str | bytes | None = None,
        src_service: str | bytes | int | None = None,
        dst_service: str | bytes | int | None = None,
        port_space: int = 0,
        flags: int = 0,
    ) -> None:
        """Resolve names. The older form of pyverbs works too: (node, service, port space, flags)."""
        if isinstance(src_service, rdma_port_space):
            node, service, port_space, flags = src, dst, src_service, int(dst_service or 0)
            near, far = ((node, service), (None, None))[:: 1 if flags & RAI_PASSIVE else -1]
            (src, src_service), (dst, dst_service) = near, far
        numeric = bool(flags & RAI_NUMERICHOST)
        own, other = (gid_of(name, numeric_only=numeric) if (name := _text(node)) else None for node in (src, dst))
        ports = _port_of(src_service), _port_of(dst_service)
        self.src, self.dst, (self.src_port, self.dst_port) = own, other, ports
        self.port_space, self.flags = port_space, flags

    get_addrinfo = __init__  # resolve again and replace the result; an error changes nothing

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


@dataclass(eq=False)
class ConnParam(PyverbsObject):
    """The limits of one end: READs and atomics it accepts (`resources`) and issues (`depth`) at a time, and retries."""

    resources: Unsigned = Unsigned(8, 1)
    depth: Unsigned = Unsigned(8, 1)
    flow_control: Unsigned = Unsigned(8)
    retry: Unsigned = Unsigned(8, 5)
    rnr_retry: Unsigned = Unsigned(8, 5)
    srq: Unsigned = Unsigned(8)
    qp_num: InitVar[int] = 0
    data_len: int = 0
    private_data: bytes = field(default=b"", init=False)
    qpn = Unsigned(32)

    def __post_init__(self, qp_num: int) -> None:
        self.qpn = qp_num

    def set_private_data(self, data: bytes | str) -> None:
        """Set the private data of the request (at most 56 bytes for a connection) or of the reply (at most 196)."""
        raw = data.encode() if isinstance(data, str) else bytes(data)
        if len(raw) > _PRIVATE_MAX_BYTES:
            raise PyverbsUserError(f"{len(raw)} bytes of private data: {_PRIVATE_MAX_BYTES} at most")
        self.private_data = raw

    def side(self, *, qp_num: int, psn: int, q_key: int = 0) -> Side:
        """Return these parameters as the fields of a CM message."""
        return Side(
            qp_num=qp_num,
            psn=psn,
            q_key=q_key,
            resources=self.resources,
            depth=self.depth,
            retry_count=min(self.retry, 7),
            rnr_retry_count=min(self.rnr_retry, 7),
            srq=bool(self.srq),
            private_data=self.private_data,
        )

    def __str__(self) -> str:
        fields = {
            "responder resources": self.resources,
            "initiator depth": self.depth,
            "flow control": self.flow_control,
            "retry count": self.retry,
            "rnr retry count": self.rnr_retry,
            "srq": self.srq,
            "qp number": self.qpn,
        }
        return "Connection parameters: \n" + "".join(f"{name:<4}: {value:<4}\n" for name, value in fields.items())

    @classmethod
    def usual(cls, ctx: Context | None) -> ConnParam:
        """Return the defaults of librdmacm: the adapter's limits, and the most retries."""
        limits = ctx.query_device() if ctx is not None else DeviceAttr()
        return cls(resources=limits.max_qp_rd_atom, depth=limits.max_qp_init_rd_atom, retry=7, rnr_retry=7)


class UDParam(PyverbsObject):
    """The destination for datagrams, from the event of an established peer or of a joined group."""

    def __init__(self, cm_event: CMEvent) -> None:
        if cm_event.datagrams is None:
            raise PyverbsUserError(f"{cm_event.event_str()} has no destination for datagrams")
        self.ah_attr, self.qp_num, self.qkey = cm_event.datagrams


@dataclass(eq=False)
class JoinMCAttrEx(PyverbsObject):
    """A multicast group and the way to join it."""

    addr: AddrInfo
    comp_mask: Unsigned = Unsigned(32)
    join_flags: Unsigned = Unsigned(32)


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
