"""Connect identifiers: parameters, requests, replies and events. The library modifies the queue pairs."""

from __future__ import annotations

import ctypes
import errno

from weft.verbs.c.addresses import write_address
from weft.verbs.c.calls import operation
from weft.verbs.c.objects import add, find
from weft.verbs.c.pairs import write_attributes
from weft.verbs.c.program_cmid import ProgramChannel, ProgramCMID, gid_at, put_gid
from weft.verbs.cm.connection import CmNotice
from weft.verbs.enums.cm import rdma_cm_event_type
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.carrier import TO_GROUP
from weft.verbs.pyverbs.cm_parameters import ConnParam
from weft.verbs.pyverbs.cm_traffic import UDP_KEY
from weft.verbs.shm.record import Record, u32, u64

_E = rdma_cm_event_type
_GROUPS = (_E.RDMA_CM_EVENT_MULTICAST_JOIN, _E.RDMA_CM_EVENT_MULTICAST_ERROR)
_ANSWERS = (_E.RDMA_CM_EVENT_CONNECT_REQUEST, _E.RDMA_CM_EVENT_CONNECT_RESPONSE)


class TakeEvent(Record):
    channel: u32
    object: u64  # for the new identifier of a connection request
    source: u64  # out: its address and the peer's
    target: u64
    port: u32  # out: of the peer
    gids: u64  # out: both GIDs
    private_data: u64  # out
    address: u64  # out: an Address
    id: u64  # out: address of the identifier in the program
    handle: u32  # of the new identifier; 0: no connection request
    kind: u32
    status: u64
    length: u32  # private data
    is_datagram: u32
    qp_num: u32
    qkey: u32
    responder_resources: u32
    initiator_depth: u32
    retry_count: u32
    rnr_retry_count: u32
    srq: u32


@operation(TakeEvent)
def take_event(call: TakeEvent) -> None:
    event = find(call.channel, ProgramChannel).take()
    if event is None:
        raise PyverbsRDMAError("Failed to get an event", errno.ENOENT, "there is none")
    identifier, notice = event
    call.id, call.kind, call.status = identifier.in_program, notice.kind, notice.status
    call.length, call.is_datagram = len(notice.private_data), identifier.is_datagram
    ctypes.memmove(call.private_data, notice.private_data, call.length)
    if notice.kind == _E.RDMA_CM_EVENT_CONNECT_REQUEST:
        new = identifier.create_for_request(notice, call.object)
        call.handle = add(new)
        for where, address in zip((call.source, call.target), new.addresses(), strict=True):
            put_gid(where, address)
        _, call.port = new.ports()
        new.put_gids(call.gids)
    _put_parameters(call, identifier, notice)


def _put_parameters(call: TakeEvent, identifier: ProgramCMID, notice: CmNotice) -> None:
    """Write the peer's parameters. Its resources are the depth of this end, and the reverse."""
    if notice.kind in _GROUPS:
        call.is_datagram, call.qp_num, call.qkey = True, TO_GROUP, UDP_KEY
        if notice.group:
            write_address(call.address, identifier.address(notice.group))
        return
    if notice.connection is None:
        return
    far = notice.connection.far
    if identifier.is_datagram and notice.kind == _E.RDMA_CM_EVENT_ESTABLISHED:
        call.qp_num, call.qkey = far.qp_num, far.q_key
        write_address(call.address, identifier.address(identifier.target))
    elif notice.kind in _ANSWERS:
        call.qp_num, call.responder_resources, call.initiator_depth = far.qp_num, far.depth, far.resources
        call.retry_count, call.rnr_retry_count, call.srq = far.retry_count, far.rnr_retry_count, far.srq


class Offer(Record):
    """The fields of struct rdma_conn_param, for a request or its reply."""

    id: u32
    is_answer: u32
    is_given: u32
    private_data: u64  # address
    length: u32
    responder_resources: u32
    initiator_depth: u32
    flow_control: u32
    retry_count: u32
    rnr_retry_count: u32
    srq: u32
    qp_num: u32


@operation(Offer)
def offer(call: Offer) -> None:
    param = _param(call) if call.is_given else None
    find(call.id, ProgramCMID).offer(param, call.qp_num, is_answer=bool(call.is_answer))


def _param(call: Offer) -> ConnParam:
    parameters = ConnParam(
        resources=call.responder_resources,
        depth=call.initiator_depth,
        flow_control=call.flow_control,
        retry=call.retry_count,
        rnr_retry=call.rnr_retry_count,
        srq=call.srq,
    )
    parameters.private_data = ctypes.string_at(call.private_data, call.length) if call.length else b""
    return parameters


class Connect(Record):
    id: u32


@operation(Connect)
def connect(call: Connect) -> None:
    identifier = find(call.id, ProgramCMID)
    identifier.connect(identifier.offered)


class Accept(Record):
    id: u32


@operation(Accept)
def accept(call: Accept) -> None:
    identifier = find(call.id, ProgramCMID)
    identifier.accept(identifier.offered)


class Listen(Record):
    id: u32
    backlog: u32
    port: u32  # out


@operation(Listen)
def listen(call: Listen) -> None:
    identifier = find(call.id, ProgramCMID)
    identifier.listen(call.backlog)
    call.port, _ = identifier.ports()


class Reject(Record):
    id: u32
    private_data: u64
    length: u32


@operation(Reject)
def reject(call: Reject) -> None:
    data = ctypes.string_at(call.private_data, call.length) if call.length else b""
    find(call.id, ProgramCMID).reject(data)


class Establish(Record):
    id: u32


@operation(Establish)
def establish(call: Establish) -> None:
    find(call.id, ProgramCMID).establish()


class Notify(Record):
    id: u32
    event: u32


@operation(Notify)
def notify(call: Notify) -> None:
    find(call.id, ProgramCMID).notify(call.event)


class Disconnect(Record):
    id: u32


@operation(Disconnect)
def disconnect(call: Disconnect) -> None:
    find(call.id, ProgramCMID).disconnect()


class InitQpAttr(Record):
    id: u32
    state: u32
    words: u64  # out: a ModifyQp


@operation(InitQpAttr)
def init_qp_attr(call: InitQpAttr) -> None:
    attr, mask = find(call.id, ProgramCMID).init_qp_attr(call.state)
    write_attributes(call.words, attr).mask = mask


class JoinGroup(Record):
    id: u32
    gid: u64  # address
    object: u64  # address of the group in the program
    flags: u32


@operation(JoinGroup)
def join_group(call: JoinGroup) -> None:
    find(call.id, ProgramCMID).join_group(gid_at(call.gid), call.object)


class LeaveGroup(Record):
    id: u32
    gid: u64


@operation(LeaveGroup)
def leave_group(call: LeaveGroup) -> None:
    find(call.id, ProgramCMID).leave_group(gid_at(call.gid))
