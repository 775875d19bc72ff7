"""Completion queues, plain and extended, and the channels on which they tell that something came."""

from __future__ import annotations

import errno
import time
from collections import deque
from collections.abc import Callable
from dataclasses import InitVar, dataclass

from weft.verbs import enums as e
from weft.verbs.attributes.objects import PyverbsCM, PyverbsObject, Unsigned, table
from weft.verbs.attributes.text import name_flags
from weft.verbs.enums import ibv_create_cq_wc_flags, ibv_event_type, ibv_wc_opcode, ibv_wc_status
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.hca.queue_pair import QueuePair
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.events import wait_for
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.wc import *  # noqa: F403 - all of it is of pyverbs' cq
from weft.verbs.pyverbs.wc import WC, PollCqAttr, completion_of, create_wc_flags_to_str
from weft.verbs.shm.layout import CompletionRecord
from weft.verbs.shm.native import Numbers

_FLAG = ibv_create_cq_wc_flags
_STAMPS = _FLAG.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | _FLAG.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK
WC_FLAGS = e.IBV_WC_STANDARD_FLAGS | _STAMPS  # fields of a completion that can be read
flags_to_str = name_flags  # pyverbs' name
NO_MORE = errno.ENOENT  # of start_poll and poll_next: the queue is empty


class CompChannel(PyverbsCM):
    """A channel for the events of completion queues with `req_notify`. Closing it closes the queues."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.events: deque[_Queue] = deque()
        context.add_ref(self)

    def get_cq_event(self, expected_cq: _Queue) -> None:
        """Wait for the next event, which must be of this queue; acknowledge it with `ack_events`."""
        cq = wait_for(self.context.adapter, self._next)
        if cq is not expected_cq:
            raise PyverbsRDMAError("Received event on an unexpected CQ")
        cq.num_events += 1

    def _next(self) -> _Queue | None:
        if not self._is_open:
            raise PyverbsRDMAError("Failed to get CQ event", errno.EBADF, "the completion channel is closed")
        return self.events.popleft() if self.events else None


class _Queue(PyverbsCM):
    """A completion queue, plain or extended. A queue pair adds itself with `add_ref` and is closed with the queue."""

    _action = "Failed to create a CQ"
    num_events = 0  # that the program has received and not acknowledged

    def _open(self, ctx: Context, cqe: int, channel: CompChannel | None, comp_vector: int) -> None:
        cqe_max = ctx.query_device().max_cqe
        if not 1 <= cqe <= cqe_max:
            raise self._refused(f"cqe {cqe} is not from 1 to {cqe_max}")
        if not 0 <= comp_vector < ctx.num_comp_vectors:
            raise self._refused(f"comp_vector {comp_vector} is not from 0 to {ctx.num_comp_vectors - 1}")
        self.ctx = self.context = ctx
        self.comp_channel, self.comp_vector = channel, comp_vector
        self.core = CompletionQueue(int(cqe), ctx.adapter.memory)
        self.core.on_event, self.core.on_overflow = self._on_event, self._on_overflow
        ctx.add_ref(self)
        if channel is not None:
            channel.add_ref(self)

    def _refused(self, reason: str, code: int = errno.EINVAL) -> PyverbsRDMAError:
        return PyverbsRDMAError(self._action, code, reason)

    @property
    def cqe(self) -> int:
        return self.core.capacity

    def req_notify(self, solicited_only: bool = False) -> None:
        """Request one event for the next completion, or for the next solicited or failed one."""
        with self.ctx.adapter.lock:
            self.core.arm(solicited_only=bool(solicited_only))
            self.ctx.adapter.progress()

    def ack_events(self, num_events: int) -> None:
        self.num_events = max(0, self.num_events - num_events)

    def _poll(self, most: int) -> list[Numbers]:
        """Return the oldest completions; if there are none, let the adapter work and poll again."""
        completions = self.core.poll(most)
        if not completions and self.ctx.adapter.progress():
            completions = self.core.poll(most)
        return completions

    def _on_event(self) -> None:
        if self.comp_channel is not None:
            self.comp_channel.events.append(self)

    def _on_overflow(self) -> None:
        """Fail all queue pairs that use this queue: a completion is lost."""
        self.ctx.raise_event(ibv_event_type.IBV_EVENT_CQ_ERR, self)
        for qp in self._users():
            qp.on_event(ibv_event_type.IBV_EVENT_QP_FATAL)
            qp.fail()

    def _users(self) -> list[QueuePair]:
        """Return the queue pairs that use this queue, from a copy: other threads create and close queue pairs."""
        return [qp for qp in list(self.ctx.adapter.queue_pairs.values()) if self.core in (qp.send_cq, qp.recv_cq)]

    def _release(self) -> None:
        if users := self._users():
            raise PyverbsRDMAError(
                "Failed to close CQ", errno.EBUSY, f"queue pair {users[0].number} uses it: close that first"
            )
        if (channel := self.comp_channel) is not None:
            channel.events = deque(cq for cq in channel.events if cq is not self)


class CQ(_Queue):
    """A completion queue for `cqe` completions."""

    def __init__(
        self,
        context: Context,
        cqe: float,
        cq_context: object = None,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
    ) -> None:
        self.cq_context = cq_context
        self._open(context, int(cqe), channel, comp_vector)

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """Return the number of completions, and the completions, oldest first."""
        if num_entries != 1:
            completions = self._poll(num_entries)
            return len(completions), [completion_of(numbers) for numbers in completions]
        completion = self.core.poll_one()
        if completion is None and (not self.ctx.adapter.progress() or (completion := self.core.poll_one()) is None):
            return 0, []
        return 1, [completion_of(completion)]

    def resize(self, cqe: int) -> None:
        cqe_max = self.ctx.query_device().max_cqe
        with self.ctx.adapter.lock:
            self.ctx.adapter.progress()
            waiting = len(self.core)
            if not max(1, waiting) <= cqe <= cqe_max:
                reason = f"cqe {cqe} is not from {max(1, waiting)} to {cqe_max}: {waiting} completions are queued"
                raise PyverbsRDMAError("Failed to resize CQ", errno.EINVAL, reason)
            self.core.resize(int(cqe))
            self.ctx.adapter.show()

    def __str__(self) -> str:
        return "CQ\n" + table(CQEs=self.cqe)


@dataclass(eq=False)
class CqInitAttrEx(PyverbsObject):
    """The attributes of a new extended completion queue; `wc_flags` are the fields that the program will read."""

    cqe: Unsigned = Unsigned(32, 100)
    channel: InitVar[CompChannel | None] = None
    comp_vector: Unsigned = Unsigned(32)
    wc_flags: Unsigned = Unsigned(64)
    comp_mask: Unsigned = Unsigned(32)
    flags: Unsigned = Unsigned(32)
    parent_domain: PD | None = None

    def __post_init__(self, channel: CompChannel | None) -> None:
        self.comp_channel, self.cq_context = channel, None

    def __str__(self) -> str:
        return table(
            Number_of_CQEs=self.cqe,
            WC_flags=create_wc_flags_to_str(self.wc_flags),
            comp_mask=self.comp_mask,
            flags=self.flags,
        )


def _reader(flag: ibv_create_cq_wc_flags, field: str) -> Callable[[CQEX], int]:
    """Return a method that reads a field of the current completion. It raises if `wc_flags` lacks the field."""

    def read(cq: CQEX) -> int:
        if not cq.wc_flags & flag:
            reason = f"the queue has no {flag.name} in wc_flags"
            raise PyverbsRDMAError("Failed to read a completion", errno.EOPNOTSUPP, reason)
        return getattr(cq._current, field)  # type: ignore[no-any-return]

    return read


class CQEX(_Queue):
    """An extended completion queue: completions are read in place, one after the other.

    if cq.start_poll(PollCqAttr()) == 0:
        while True:
            cq.wr_id, cq.status, cq.read_byte_len()
            if cq.poll_next():
                break
        cq.end_poll()
    """

    _action = "Failed to create extended CQ"

    def __init__(self, context: Context, init_attr: CqInitAttrEx | None = None) -> None:
        attr = init_attr or CqInitAttrEx()
        self._check(attr)
        self.wc_flags, self.parent_domain = attr.wc_flags, attr.parent_domain
        self.cq_context = attr.cq_context
        self._open(context, attr.cqe, attr.comp_channel, attr.comp_vector)
        self.core.record.stamps = bool(attr.wc_flags & _STAMPS)
        if self.parent_domain is not None and attr.comp_mask & e.IBV_CQ_INIT_ATTR_MASK_PD:
            self.parent_domain.add_ref(self)
        self._current = CompletionRecord()

    def _check(self, attr: CqInitAttrEx) -> None:
        if absent := attr.wc_flags & ~WC_FLAGS:
            names = create_wc_flags_to_str(absent).strip() or hex(absent)
            raise self._refused(f"completions of weft's adapter have no {names}", errno.EOPNOTSUPP)
        if attr.comp_mask & ~(e.IBV_CQ_INIT_ATTR_MASK_FLAGS | e.IBV_CQ_INIT_ATTR_MASK_PD):
            raise self._refused(f"comp_mask {attr.comp_mask:#x} has unknown bits")
        if attr.comp_mask & e.IBV_CQ_INIT_ATTR_MASK_FLAGS and attr.flags & ~e.IBV_CREATE_CQ_ATTR_SINGLE_THREADED:
            raise self._refused("flags: a queue of weft's adapter always fails on overflow", errno.EOPNOTSUPP)

    # -- polling ------------------------------------------------------------------------------------------------------

    def start_poll(self, attr: PollCqAttr | None = None) -> int:
        """Move to the first completion; return 0, or ENOENT if there is none."""
        if attr is not None and attr.comp_mask:
            return errno.EINVAL
        return self.poll_next()

    def poll_next(self) -> int:
        """Move to the next completion; return 0, or ENOENT if there is none."""
        completions = self._poll(1)
        if not completions:
            return NO_MORE
        self._current = CompletionRecord(*completions[0])
        return 0

    def end_poll(self) -> None:
        """End the poll."""

    @property
    def status(self) -> ibv_wc_status:
        return ibv_wc_status(self._current.status)

    @property
    def wr_id(self) -> int:
        return self._current.wr_id

    def read_opcode(self) -> int:
        return ibv_wc_opcode(self._current.opcode)

    def read_vendor_err(self) -> int:
        return self._current.vendor_err

    def read_wc_flags(self) -> int:
        return self._current.wc_flags

    read_byte_len = _reader(_FLAG.IBV_WC_EX_WITH_BYTE_LEN, "byte_len")
    read_imm_data = _reader(_FLAG.IBV_WC_EX_WITH_IMM, "immediate")
    read_qp_num = _reader(_FLAG.IBV_WC_EX_WITH_QP_NUM, "qp_num")
    read_src_qp = _reader(_FLAG.IBV_WC_EX_WITH_SRC_QP, "src_qp")
    read_slid = _reader(_FLAG.IBV_WC_EX_WITH_SLID, "slid")
    read_sl = _reader(_FLAG.IBV_WC_EX_WITH_SL, "sl")
    read_dlid_path_bits = _reader(_FLAG.IBV_WC_EX_WITH_DLID_PATH_BITS, "dlid_path_bits")
    # Time of completion: in nanoseconds of the adapter's clock, and since 1970.
    read_timestamp = _reader(_FLAG.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, "time_ns")
    _read_time_ns = _reader(_FLAG.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK, "time_ns")
    # No queue has these: see WC_FLAGS.
    read_cvlan = _reader(_FLAG.IBV_WC_EX_WITH_CVLAN, "")
    read_flow_tag = _reader(_FLAG.IBV_WC_EX_WITH_FLOW_TAG, "")
    read_tm_info = _reader(_FLAG.IBV_WC_EX_WITH_TM_INFO, "")

    def read_completion_wallclock_ns(self) -> int:
        return self._read_time_ns() + time.time_ns() - time.monotonic_ns()

    def __str__(self) -> str:
        return "Extended CQ:\n" + table(CQEs=self.cqe)
