"""Devices: the list, opening one, its attributes and those of its port; and its completion queues.

A program polls and arms completion queues without Python.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import TYPE_CHECKING

from weft.verbs import hardware
from weft.verbs.attributes.text import be64toh
from weft.verbs.c.calls import operation
from weft.verbs.c.objects import add, find
from weft.verbs.enums import ibv_event_type
from weft.verbs.pyverbs.context import PORT, Context
from weft.verbs.pyverbs.cq import CQ, CQEX, CqInitAttrEx
from weft.verbs.shm.record import Record, u32, u64

if TYPE_CHECKING:
    from weft.verbs.attributes.device import DeviceAttrEx


NO_FILE = (1 << 64) - 1  # -1, as C says it
_NAME_BYTES = 64  # names and versions with the final 0


class AsyncEvent(Record):
    """An asynchronous event, as the program reads it from the file of a context."""

    element: u64  # address of the queue pair, queue or shared receive queue, or the port
    type: u64


class ProgramContext(Context):
    """An open device whose events go to a file; of what they are about a program knows the address."""

    def __init__(self, events: int, *, name: str | None = None, cmd_fd: int | None = None) -> None:
        self._events = events
        super().__init__(name=name, cmd_fd=cmd_fd)
        self.adapter.memory.is_shared = True  # with the program's threads, which do not wait for Python's

    def raise_event(self, event_type: ibv_event_type, element: object = None) -> None:
        where = element if isinstance(element, int) else getattr(element, "in_program", PORT)
        tell(self._events, AsyncEvent.form.pack(where, event_type))


def tell(file: int, event: bytes) -> None:
    """Write an event where the program reads it; one that does not read them loses some."""
    try:
        os.write(file, event)
    except OSError:  # it is full, or closed since
        return


def _put_text(address: int, text: str) -> None:
    raw = text.encode()[: _NAME_BYTES - 1] + b"\0"
    ctypes.memmove(address, raw, len(raw))


class FindDevice(Record):
    index: u32
    name: u64  # address of the text
    is_there: u32
    guid: u64  # in network order


@operation(FindDevice)
def find_device(call: FindDevice) -> None:
    present = hardware.present()
    call.is_there = call.index < len(present)
    if call.is_there:
        _put_text(call.name, present[call.index].name)
        call.guid = be64toh(present[call.index].guid)


class OpenDevice(Record):
    name: u64  # address of the text
    events: u32  # a file descriptor
    file: u64  # of another context of this device; out: a file of this one
    handle: u32
    memory: u64  # memory of the adapter's queues


@operation(OpenDevice)
def open_device(call: OpenDevice) -> None:
    if call.file == NO_FILE:
        context = ProgramContext(call.events, name=ctypes.string_at(call.name).decode())
    else:
        context = ProgramContext(call.events, cmd_fd=os.dup(call.file))
    call.handle, call.file, call.memory = add(context), context.cmd_fd, context.adapter.memory.address


class Progress(Record):
    context: u32


@operation(Progress)
def progress(call: Progress) -> None:
    """Let the adapter work for a program whose polls are empty."""
    find(call.context, Context).adapter.progress()


class QueryDevice(Record):
    context: u32
    fw_ver: u64  # where it is written
    node_guid: u64
    sys_image_guid: u64
    max_mr_size: u64
    page_size_cap: u64
    vendor_id: u64
    vendor_part_id: u64
    hw_ver: u64
    max_qp: u64
    max_qp_wr: u64
    device_cap_flags: u64
    max_sge: u64
    max_sge_rd: u64
    max_cq: u64
    max_cqe: u64
    max_mr: u64
    max_pd: u64
    max_qp_rd_atom: u64
    max_ee_rd_atom: u64
    max_res_rd_atom: u64
    max_qp_init_rd_atom: u64
    max_ee_init_rd_atom: u64
    atomic_cap: u64
    max_ee: u64
    max_rdd: u64
    max_mw: u64
    max_mcast_grp: u64
    max_mcast_qp_attach: u64
    max_total_mcast_qp_attach: u64
    max_ah: u64
    max_srq: u64
    max_srq_wr: u64
    max_srq_sge: u64
    max_pkeys: u64
    local_ca_ack_delay: u64
    phys_port_cnt: u64
    odp_general: u64  # from here on of the extended attributes
    odp_rc: u64
    odp_uc: u64
    odp_ud: u64
    odp_xrc: u64
    timestamp_mask: u64
    clock_khz: u64
    device_cap_flags_ex: u64
    max_dm_size: u64


DEVICE_NUMBERS = QueryDevice.names[2 : QueryDevice.names.index("odp_general")]  # which C copies one by one


@operation(QueryDevice)
def query_device(call: QueryDevice) -> None:
    all_of_it = find(call.context, Context).query_device_ex()
    attr = all_of_it.orig_attr
    _put_text(call.fw_ver, attr.fw_version)
    for name in DEVICE_NUMBERS:
        if hasattr(attr, name):
            setattr(call, name, getattr(attr, name))
    call.atomic_cap, call.max_total_mcast_qp_attach = attr.atomic_caps, attr.max_mcast_grp * attr.max_mcast_qp_attach
    _put_extended(call, all_of_it)


def _put_extended(call: QueryDevice, attr: DeviceAttrEx) -> None:
    odp = attr.odp_caps
    call.odp_general, call.odp_rc, call.odp_uc = odp.general_caps, odp.rc_odp_caps, odp.uc_odp_caps
    call.odp_ud, call.odp_xrc = odp.ud_odp_caps, odp.xrc_odp_caps
    call.timestamp_mask, call.clock_khz = attr.completion_timestamp_mask, attr.hca_core_clock
    call.device_cap_flags_ex, call.max_dm_size = attr.device_cap_flags_ex, attr.max_dm_size


class QueryPort(Record):
    context: u32
    port_num: u32
    state: u64
    max_mtu: u64
    active_mtu: u64
    gid_tbl_len: u64
    port_cap_flags: u64
    max_msg_sz: u64
    bad_pkey_cntr: u64
    qkey_viol_cntr: u64
    pkey_tbl_len: u64
    lid: u64
    sm_lid: u64
    lmc: u64
    max_vl_num: u64
    sm_sl: u64
    subnet_timeout: u64
    init_type_reply: u64
    active_width: u64
    active_speed: u64
    active_speed_ex: u64
    phys_state: u64
    link_layer: u64
    flags: u64
    port_cap_flags2: u64


PORT_NUMBERS = QueryPort.names[2:]


@operation(QueryPort)
def query_port(call: QueryPort) -> None:
    attr = find(call.context, Context).query_port(call.port_num)
    for name in PORT_NUMBERS:
        setattr(call, name, getattr(attr, name))


class QueryGid(Record):
    context: u32
    port_num: u32
    index: u32
    gid: u64  # where it is written
    type: u32
    is_empty: u32


@operation(QueryGid)
def query_gid(call: QueryGid) -> None:
    context = find(call.context, Context)
    raw = context.query_gid(call.port_num, call.index).raw
    ctypes.memmove(call.gid, raw, len(raw))
    call.is_empty, call.type = not any(raw), context.hardware.gid_type(call.index)


class QueryPkey(Record):
    context: u32
    port_num: u32
    index: u64
    pkey: u32


@operation(QueryPkey)
def query_pkey(call: QueryPkey) -> None:
    call.pkey = find(call.context, Context).query_pkey(call.port_num, call.index)


_EVENT = struct.Struct("=Q")


class ProgramCQ(CQEX):
    """A completion queue that writes its events to a file. `in_program` is its address in the program."""

    def __init__(self, context: Context, attr: CqInitAttrEx, events: int, in_program: int) -> None:
        super().__init__(context, attr)
        self._events, self.in_program = events, in_program

    def _on_event(self) -> None:
        if self._events != NO_FILE:
            tell(self._events, _EVENT.pack(self.in_program))

    def resize(self, cqe: int) -> None:
        CQ.resize(self, cqe)  # type: ignore[arg-type]  # works for extended queues too


class CreateCq(Record):
    context: u32
    cqe: u64
    comp_vector: u32
    wc_flags: u64
    comp_mask: u32
    flags: u32
    events: u64  # file
    object: u64
    handle: u32
    queue: u64  # its CompletionQueueRecord


@operation(CreateCq)
def create_cq(call: CreateCq) -> None:
    context = find(call.context, Context)
    attr = CqInitAttrEx(call.cqe, None, call.comp_vector, call.wc_flags, call.comp_mask, call.flags)
    cq = ProgramCQ(context, attr, call.events, call.object)
    call.handle, call.cqe, call.queue = add(cq), cq.cqe, _address(cq)


def _address(cq: ProgramCQ) -> int:
    return cq.ctx.adapter.memory.address + cq.core.at


class ResizeCq(Record):
    cq: u32
    cqe: u64
    queue: u64


@operation(ResizeCq)
def resize_cq(call: ResizeCq) -> None:
    cq = find(call.cq, ProgramCQ)
    cq.resize(call.cqe)
    call.cqe, call.queue = cq.cqe, _address(cq)
