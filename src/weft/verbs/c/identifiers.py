"""Create, bind, resolve and destroy the channels and identifiers of librdmacm."""

from __future__ import annotations

import ctypes

from weft.verbs import hardware
from weft.verbs.c.calls import operation
from weft.verbs.c.objects import add, find, forget
from weft.verbs.c.program_cmid import ProgramChannel, ProgramCMID, gid_at, put_gid
from weft.verbs.carriers.processes.device import LOOPBACK
from weft.verbs.cm.agent import QP1, agent_of
from weft.verbs.enums.cm import rdma_cm_event_type
from weft.verbs.pyverbs.cm_parameters import IPV4_PREFIX, AddrInfo
from weft.verbs.shm.record import Record, u32, u64


class CreateChannel(Record):
    reads: u32
    writes: u32
    handle: u32


@operation(CreateChannel)
def create_channel(call: CreateChannel) -> None:
    call.handle = add(ProgramChannel(call.reads, call.writes))


class WaitForEvent(Record):
    channel: u32


@operation(WaitForEvent)
def wait_for_event(call: WaitForEvent) -> None:
    """Wait for an event, for a Python program that holds Python's lock while it calls the library."""
    find(call.channel, ProgramChannel).wait()


class CreateId(Record):
    object: u64
    channel: u32
    port_space: u32
    handle: u32


@operation(CreateId)
def create_id(call: CreateId) -> None:
    call.handle = add(ProgramCMID(find(call.channel, ProgramChannel), call.port_space, call.object))


class DestroyId(Record):
    id: u32
    taken: u64  # out: events that the program has received


@operation(DestroyId)
def destroy_id(call: DestroyId) -> None:
    """Destroy an identifier, and refuse its pending requests, as the kernel does."""
    identifier = find(call.id, ProgramCMID)
    identifier.close()
    dropped = identifier.channel.drop(identifier)
    for notice in dropped:
        if notice.kind == rdma_cm_event_type.RDMA_CM_EVENT_CONNECT_REQUEST and notice.connection is not None:
            with identifier._adapter.lock:
                notice.connection.close()
    forget(call.id)
    call.taken = identifier.taken


class MigrateId(Record):
    id: u32
    channel: u32
    taken: u64


@operation(MigrateId)
def migrate_id(call: MigrateId) -> None:
    identifier = find(call.id, ProgramCMID)
    before, identifier.channel = identifier.channel, find(call.channel, ProgramChannel)
    for notice in before.drop(identifier):
        identifier.channel.put(identifier, notice)
    call.taken = identifier.taken


class BindAddr(Record):
    id: u32
    gid: u64  # address
    is_ib: u32  # AF_IB
    port: u32  # out: the port bound, if this was 0
    is_any: u32  # out


@operation(BindAddr)
def bind_addr(call: BindAddr) -> None:
    gid, where, identifier = gid_at(call.gid), AddrInfo(src_service=call.port), find(call.id, ProgramCMID)
    where.src, identifier.speaks_ib = gid, bool(call.is_ib)
    identifier.bind_addr(where)
    call.port, _ = identifier.ports()
    call.is_any = gid & ~IPV4_PREFIX == 0 or (gid in LOOPBACK and not identifier.is_own(gid))  # in Linux always


class ResolveAddr(Record):
    id: u32
    has_source: u32
    source: u64  # address; out: the source used
    target: u64
    gids: u64  # out: both GIDs
    port: u32
    own_port: u32  # 0: any; out: the port bound
    is_ib: u32
    timeout_ms: u32


@operation(ResolveAddr)
def resolve_addr(call: ResolveAddr) -> None:
    identifier, where = find(call.id, ProgramCMID), AddrInfo(src_service=call.own_port, dst_service=call.port)
    where.src, where.dst = gid_at(call.source) if call.has_source else None, gid_at(call.target)
    identifier.speaks_ib = bool(call.is_ib)
    identifier.resolve_addr(where)
    put_gid(call.source, identifier.addresses()[0])
    call.own_port, _ = identifier.ports()
    identifier.put_gids(call.gids)


class ResolveRoute(Record):
    id: u32
    timeout_ms: u32


@operation(ResolveRoute)
def resolve_route(call: ResolveRoute) -> None:
    find(call.id, ProgramCMID).resolve_route()


class SetOption(Record):
    id: u32
    level: u32
    name: u32
    value: u64


@operation(SetOption)
def set_option(call: SetOption) -> None:
    find(call.id, ProgramCMID).set_option(call.level, call.name, call.value, 0)


class Leave(Record):
    unused: u32


@operation(Leave)
def leave(call: Leave) -> None:
    """End all connections at the end of the program, as the kernel does."""
    adapter = hardware.present()[0].adapter()
    if QP1 in adapter.queue_pairs:
        agent_of(adapter).end()


class FindHost(Record):
    name: u64  # address
    gid: u64  # out
    is_there: u32


@operation(FindHost)
def find_host(call: FindHost) -> None:
    """Find a host of the lab by its name; outside of labs there is none."""
    name = ctypes.string_at(call.name).decode(errors="replace")
    gid = hardware.present()[0].gid_of_host(name)
    if gid is not None:
        put_gid(call.gid, gid)
    call.is_there = gid is not None
