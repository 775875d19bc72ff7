"""Create and resize completion queues. A program polls and arms them without Python."""

from __future__ import annotations

import struct

from weft.verbs.c.calls import operation
from weft.verbs.c.devices import NO_FILE, tell
from weft.verbs.c.objects import add, find
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.cq import CQ, CQEX, CqInitAttrEx
from weft.verbs.shm.record import Record, record, u32, u64

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


@record
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


@record
class ResizeCq(Record):
    cq: u32
    cqe: u64
    queue: u64


@operation(ResizeCq)
def resize_cq(call: ResizeCq) -> None:
    cq = find(call.cq, ProgramCQ)
    cq.resize(call.cqe)
    call.cqe, call.queue = cq.cqe, _address(cq)
