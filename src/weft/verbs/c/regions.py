"""Protection domains, memory regions and windows, device memory."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from weft.verbs import enums as e
from weft.verbs.c.calls import operation
from weft.verbs.c.objects import add, find, find_or_none
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.memory_region import MR
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.queue_pair import QP
from weft.verbs.pyverbs.sge import SGE
from weft.verbs.pyverbs.windows import MW, MWBind, MWBindInfo
from weft.verbs.shm.record import Record, u32, u64

if TYPE_CHECKING:
    from weft.verbs.pyverbs.device import DM

_WHOLE = (1 << 64) - 1


class AllocPd(Record):
    context: u32
    parent: u32  # that it stands for; 0: none
    handle: u32


@operation(AllocPd)
def alloc_pd(call: AllocPd) -> None:
    pd, parent = PD(find(call.context, Context)), find_or_none(call.parent, PD)
    if parent is not None:
        pd.key = parent.key
        parent.add_ref(pd)
    call.handle = add(pd)


class RegMr(Record):
    pd: u32
    address: u64
    length: u64
    iova: u64  # remote address of the first byte; device memory: its offset
    access: u32
    dm: u32  # 0, or device memory
    is_writable: u32  # 0: it is not, or the library cannot say
    libraries: u32  # that the program has ever loaded; 0: ask
    handle: u32
    key: u32


class ProgramMR(MR):
    """A region at an address of a program, which the library has looked at."""

    def __init__(self, pd: PD, call: RegMr) -> None:
        self._libraries, self._is_writable = call.libraries, bool(call.is_writable)
        super().__init__(pd, call.length, call.access, call.address)


@operation(RegMr)
def reg_mr(call: RegMr) -> None:
    pd, access = find(call.pd, PD), call.access
    mr: MR
    if call.dm:
        from weft.verbs.pyverbs.mr import DMMR  # with all that is rare, as MREx

        mr = DMMR(pd, call.length, access, _device_memory(call.dm), call.iova)
    elif not call.address and call.length == _WHOLE:
        mr = MR(pd, 0, access, implicit=True)
    elif access & e.IBV_ACCESS_ZERO_BASED or call.iova == call.address:
        mr = ProgramMR(pd, call)
    else:
        from weft.verbs.pyverbs.mr import MREx

        mr = MREx(pd, call.length, access, address=call.address, iova=call.iova)
    call.handle, call.key = add(mr), mr.lkey


class ReregMr(Record):
    mr: u32
    flags: u32
    pd: u32
    address: u64
    length: u64
    access: u32


@operation(ReregMr)
def rereg_mr(call: ReregMr) -> None:
    pd = find_or_none(call.pd, PD)
    find(call.mr, MR).rereg(call.flags, pd, call.address, call.length, call.access)


class ImportMr(Record):
    pd: u32
    mr: u32
    handle: u32
    key: u32
    length: u64


@operation(ImportMr)
def import_mr(call: ImportMr) -> None:
    mr = MR(find(call.pd, PD), handle=find(call.mr, MR).handle)
    call.handle, call.key, call.length = add(mr), mr.lkey, mr.length


class AdviseMr(Record):
    pd: u32
    advice: u32
    flags: u32
    address: u64
    length: u32
    lkey: u32


@operation(AdviseMr)
def advise_mr(call: AdviseMr) -> None:
    find(call.pd, PD).advise_mr(call.advice, call.flags, [SGE(call.address, call.length, call.lkey)])


class AllocMw(Record):
    pd: u32
    type: u32
    handle: u32
    key: u32


@operation(AllocMw)
def alloc_mw(call: AllocMw) -> None:
    mw = MW(find(call.pd, PD), call.type)
    call.handle, call.key = add(mw), mw.rkey


class BindMw(Record):
    qp: u32
    mw: u32
    wr_id: u64
    flags: u32
    mr: u32
    address: u64
    length: u64
    access: u32
    key: u32  # its new one


@operation(BindMw)
def bind_mw(call: BindMw) -> None:
    mw, info = find(call.mw, MW), MWBindInfo(find(call.mr, MR), call.address, call.length, call.access)
    find(call.qp, QP).bind_mw(mw, MWBind(info, call.flags, call.wr_id))
    call.key = mw.rkey


class AllocDm(Record):
    context: u32
    length: u64
    log_align_req: u32
    comp_mask: u32
    origin: u32  # 0, or that of another context
    handle: u32


@operation(AllocDm)
def alloc_dm(call: AllocDm) -> None:
    from weft.verbs.pyverbs.device import DM, AllocDmAttr

    context = find(call.context, Context)
    if call.origin:
        call.handle = add(DM(context, handle=_device_memory(call.origin).handle))
    else:
        call.handle = add(DM(context, AllocDmAttr(call.length, call.log_align_req, call.comp_mask)))


def _device_memory(handle: int) -> DM:
    from weft.verbs.pyverbs.device import DM

    return find(handle, DM)


class CopyDm(Record):
    dm: u32
    begin: u64
    memory: u64
    length: u64
    is_read: u32


@operation(CopyDm)
def copy_dm(call: CopyDm) -> None:
    dm = _device_memory(call.dm)
    if call.is_read:
        ctypes.memmove(call.memory, dm.copy_from_dm(call.begin, call.length), call.length)
    else:
        dm.copy_to_dm(call.begin, ctypes.string_at(call.memory, call.length), call.length)
