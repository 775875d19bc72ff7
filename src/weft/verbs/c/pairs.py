"""Create and modify queue pairs, shared receive queues and XRC domains."""

from __future__ import annotations

import ctypes

from weft.verbs import enums as e
from weft.verbs.c.addresses import read_address, write_address
from weft.verbs.c.calls import operation
from weft.verbs.c.datagrams import DatagramPaths
from weft.verbs.c.devices import ProgramCQ
from weft.verbs.c.objects import add, find, find_or_none
from weft.verbs.hca.segment import Service
from weft.verbs.hca.shm_path import ShmPath
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.qp_attributes import QPAttr, QPCap
from weft.verbs.pyverbs.qp_changes import ATTRIBUTES
from weft.verbs.pyverbs.queue_pair import QP, QPInitAttrEx
from weft.verbs.pyverbs.srq import SRQ, SrqAttr, SrqInitAttrEx
from weft.verbs.pyverbs.xrcd import XRCD, XRCDInitAttr
from weft.verbs.shm.record import Record, u32, u64


class ProgramQP(QP):
    """A queue pair of a program. All its paths stay in memory, because the library has their addresses."""

    def __init__(self, context: Context, attr: QPInitAttrEx, in_program: int) -> None:
        self.in_program = in_program
        self._paths: list[ShmPath] = []
        super().__init__(context, attr)
        self.datagrams = DatagramPaths(self.core)

    def path(self) -> int:
        """Return the address of its path record; 0 if it has no path."""
        path = self.core.shm_path
        if not isinstance(path, ShmPath):
            return 0
        if path not in self._paths:
            self._paths.append(path)
        return path.address

    def finish(self, code: int, place: int) -> tuple[bool, int]:
        """Finish the request of a path after a kernel; return whether it is done, and the path for the next request."""
        path = self.datagrams.at(place) if self.core.service == Service.UD else self._paths[-1]
        if path is None:
            return False, 0
        with self.core.adapter.lock.threads:  # as for a request from Python
            is_done = path.finish(code)
        return is_done, 0 if path.is_closed else path.address


class ProgramSRQ(SRQ):
    in_program = 0


class OpenXrcd(Record):
    context: u32
    comp_mask: u32
    file: u64
    oflags: u64
    handle: u32


@operation(OpenXrcd)
def open_xrcd(call: OpenXrcd) -> None:
    file, flags = (ctypes.c_int(number).value for number in (call.file, call.oflags))
    call.handle = add(XRCD(find(call.context, Context), XRCDInitAttr(call.comp_mask, flags, file)))


class CreateSrq(Record):
    context: u32
    comp_mask: u32
    srq_type: u32
    pd: u32
    xrcd: u32
    cq: u32
    max_wr: u32
    max_sge: u32
    srq_limit: u32
    object: u64
    handle: u32
    queue: u64  # its ReceiveQueueRecord
    number: u32  # for XRC


@operation(CreateSrq)
def create_srq(call: CreateSrq) -> None:
    attr = SrqInitAttrEx(call.max_wr, call.max_sge, call.srq_limit)
    attr.comp_mask, attr.srq_type, attr.pd = call.comp_mask, call.srq_type, find_or_none(call.pd, PD)
    attr.xrcd, attr.cq = find_or_none(call.xrcd, XRCD), find_or_none(call.cq, ProgramCQ)
    srq = ProgramSRQ(find(call.context, Context), attr)
    srq.in_program = call.object
    call.handle, call.queue, call.number = add(srq), _queue(srq), srq.core.number


def _queue(srq: SRQ) -> int:
    return srq.ctx.adapter.memory.address + srq.core.at


class ModifySrq(Record):
    srq: u32
    mask: u32
    max_wr: u32
    srq_limit: u32
    queue: u64


@operation(ModifySrq)
def modify_srq(call: ModifySrq) -> None:
    srq = find(call.srq, ProgramSRQ)
    srq.modify(SrqAttr(call.max_wr, 0, call.srq_limit), call.mask)
    call.queue = _queue(srq)


class CreateQp(Record):
    context: u32
    pd: u32
    xrcd: u32
    send_cq: u32
    recv_cq: u32
    srq: u32
    qp_type: u32
    sq_sig_all: u32
    create_flags: u32
    max_send_wr: u32  # these five are outputs too
    max_recv_wr: u32
    max_send_sge: u32
    max_recv_sge: u32
    max_inline_data: u32
    object: u64
    handle: u32
    number: u32
    record: u64  # its QueuePairRecord
    receives: u64  # ReceiveQueueRecord; 0 with a shared queue


CAP_NUMBERS = ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data")


@operation(CreateQp)
def create_qp(call: CreateQp) -> None:
    cap = QPCap(*(getattr(call, name) for name in CAP_NUMBERS))
    pd, xrcd = find_or_none(call.pd, PD), find_or_none(call.xrcd, XRCD)
    attr = QPInitAttrEx(
        qp_type=call.qp_type,
        scq=find_or_none(call.send_cq, ProgramCQ),
        rcq=find_or_none(call.recv_cq, ProgramCQ),
        srq=find_or_none(call.srq, ProgramSRQ),
        cap=cap,
        sq_sig_all=call.sq_sig_all,
        comp_mask=(e.IBV_QP_INIT_ATTR_PD if pd else 0) | (e.IBV_QP_INIT_ATTR_XRCD if xrcd else 0),
        pd=pd,
        xrcd=xrcd,
        create_flags=call.create_flags,
    )
    qp = ProgramQP(find(call.context, Context), attr, call.object)
    memory, core = qp.ctx.adapter.memory, qp.core
    call.handle, call.number, call.record = add(qp), core.number, memory.address + core.at
    call.receives = 0 if core.receives.is_shared else memory.address + core.receives.at


class ModifyQp(Record):
    qp: u32
    mask: u32
    path: u64  # out: the PathRecord for the next request
    address: u64  # an Address
    alternative: u64  # alternate path: an Address
    qp_state: u32
    cur_qp_state: u32
    path_mtu: u32
    path_mig_state: u32
    qkey: u32
    rq_psn: u32
    sq_psn: u32
    dest_qp_num: u32
    qp_access_flags: u32
    pkey_index: u32
    alt_pkey_index: u32
    en_sqd_async_notify: u32
    sq_draining: u32
    max_rd_atomic: u32
    max_dest_rd_atomic: u32
    min_rnr_timer: u32
    port_num: u32
    timeout: u32
    retry_cnt: u32
    rnr_retry: u32
    alt_port_num: u32
    alt_timeout: u32
    rate_limit: u32


QP_NUMBERS = ModifyQp.names[5:]
_STATES: dict[e.ibv_qp_attr_mask, tuple[str, ...]] = {
    e.ibv_qp_attr_mask.IBV_QP_STATE: ("qp_state",),
    e.ibv_qp_attr_mask.IBV_QP_CUR_STATE: ("cur_qp_state",),
}
_MEANT = _STATES | {bit: tuple(name for name in names if name in QP_NUMBERS) for bit, names in ATTRIBUTES.items()}


@operation(ModifyQp)
def modify_qp(call: ModifyQp) -> None:
    """Modify a queue pair. Fields outside of the mask are ignored."""
    attr, mask = QPAttr(), call.mask
    for bit, names in _MEANT.items():
        for name in names if mask & bit else ():
            setattr(attr, name, getattr(call, name))
    if mask & e.IBV_QP_AV:
        attr.ah_attr = read_address(call.address)
    if mask & e.IBV_QP_ALT_PATH:
        attr.alt_ah_attr = read_address(call.alternative)
    qp = find(call.qp, ProgramQP)
    qp.modify(attr, mask)
    qp.datagrams.clear()
    if mask & e.IBV_QP_STATE and attr.qp_state == e.IBV_QPS_RTS:
        qp.core.find_shm_path(at_once=True)  # before a program measures time
    call.path = qp.path()


def write_attributes(at: int, attr: QPAttr) -> ModifyQp:
    """Write attributes to a record, and to the one or two Address records that it points to."""
    words = ModifyQp.from_address(at)
    for name in QP_NUMBERS:
        setattr(words, name, getattr(attr, name))
    write_address(words.address, attr.ah_attr)
    if words.alternative:
        write_address(words.alternative, attr.alt_ah_attr)
    return words


class QueryQp(Record):
    qp: u32
    mask: u32
    words: u64  # where a ModifyQp goes
    sq_sig_all: u32
    max_send_wr: u32
    max_recv_wr: u32
    max_send_sge: u32
    max_recv_sge: u32
    max_inline_data: u32


@operation(QueryQp)
def query_qp(call: QueryQp) -> None:
    attr, init = find(call.qp, QP).query(call.mask)
    write_attributes(call.words, attr)
    for name in CAP_NUMBERS:
        setattr(call, name, getattr(attr.cap, name))
    call.sq_sig_all = init.sq_sig_all


class FlushReceives(Record):
    qp: u32


@operation(FlushReceives)
def flush_receives(call: FlushReceives) -> None:
    """Flush the receive requests of a queue pair in the error state."""
    core = find(call.qp, QP).core
    with core.adapter.lock:
        if core.state == e.IBV_QPS_ERR:
            core.flush_receives()


class ChangeGroup(Record):
    qp: u32
    gid: u64  # where it is
    lid: u32
    is_joined: u32


@operation(ChangeGroup)
def change_group(call: ChangeGroup) -> None:
    qp, group = find(call.qp, QP), int.from_bytes(ctypes.string_at(call.gid, 16), "big")
    with qp.ctx.adapter.lock:
        if call.is_joined:
            qp.ctx.adapter.join(qp.core, group)
        else:
            qp.ctx.adapter.leave(qp.core, group)
