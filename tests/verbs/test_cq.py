"""Completion queues: fields of completions, limits, events on channels, and overflow."""

from __future__ import annotations

import ctypes
import errno
import time
from collections import deque
from types import SimpleNamespace

import pytest
from tests.verbs.wires import Wire, connected

from weft.verbs.enums import (
    IBV_CQ_INIT_ATTR_MASK_FLAGS,
    IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    IBV_EVENT_CQ_ERR,
    IBV_EVENT_QP_FATAL,
    IBV_QPS_ERR,
    IBV_WC_EX_WITH_BYTE_LEN,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    IBV_WC_EX_WITH_CVLAN,
    IBV_WC_EX_WITH_FLOW_TAG,
    IBV_WC_EX_WITH_IMM,
    IBV_WC_EX_WITH_TM_INFO,
    IBV_WC_RECV,
    IBV_WC_STANDARD_FLAGS,
    IBV_WC_WITH_IMM,
    IBV_WC_WR_FLUSH_ERR,
    ibv_wc_status,
)
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.completion import CompletionQueue
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.cq import CQ, CQEX, WC, CompChannel, CqInitAttrEx, PollCqAttr
from weft.verbs.shm.layout import CompletionRecord

CQE_MAX = 1000
STAMPS = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK


class FakeContext(Context):
    """A context on one end of a wire."""

    def __init__(self, wire: Wire) -> None:
        self.adapter, self.num_comp_vectors = wire.a.adapter, 2
        self.events: deque[object] = deque()
        self._is_open = True

    def query_device(self) -> SimpleNamespace:
        return SimpleNamespace(max_cqe=CQE_MAX)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def ctx(wire) -> FakeContext:
    return FakeContext(wire)


def done(wr_id: int = 0, **more: int) -> CompletionRecord:
    return CompletionRecord(wr_id=wr_id, qp_num=7, **more)


# -- plain queues -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cqe", [0, -1, CQE_MAX + 1])
def test_a_queue_has_from_one_to_max_cqe_entries(ctx, cqe):
    with pytest.raises(PyverbsRDMAError, match="Failed to create a CQ") as error:
        CQ(ctx, cqe)
    assert error.value.error_code == errno.EINVAL
    assert CQ(ctx, CQE_MAX / 2).cqe == CQE_MAX // 2


@pytest.mark.parametrize("vector", [-1, 2, 3])
def test_a_vector_that_is_not_there_is_refused(ctx, vector):
    with pytest.raises(PyverbsRDMAError, match="comp_vector") as error:
        CQ(ctx, 10, None, None, vector)
    assert error.value.error_code == errno.EINVAL


def test_poll_gives_the_oldest_first_and_not_more_than_asked(ctx):
    cq = CQ(ctx, 10)
    for number in range(5):
        cq.core.add(done(number))
    assert [wc.wr_id for wc in cq.poll(3)[1]] == [0, 1, 2]
    assert (cq.poll(3)[0], cq.poll()) == (2, (0, []))


def test_a_full_queue_takes_no_completion_and_none_after_it(ctx):
    cq = CQ(ctx, 2)
    assert [cq.core.add(done(number)) for number in range(4)] == [True, True, False, False]
    cq.poll(2)
    assert not cq.core.add(done(4))


def test_a_work_completion_has_all_that_the_adapter_knows(ctx):
    cq = CQ(ctx, 10)
    cq.core.add(
        done(5, opcode=IBV_WC_RECV, byte_len=99, immediate=0xD2040000, wc_flags=IBV_WC_WITH_IMM, src_qp=3, sl=2)
    )
    _, (wc,) = cq.poll()
    result = (wc.wr_id, wc.qp_num, wc.opcode, wc.byte_len, wc.imm_data, wc.wc_flags, wc.src_qp, wc.sl, wc.status)
    assert result == (5, 7, IBV_WC_RECV, 99, 0xD2040000, IBV_WC_WITH_IMM, 3, 2, 0)
    assert "With immediate" in str(wc)
    assert "Receive " in str(wc)


def test_fields_of_a_work_completion_have_the_widths_of_c():
    with pytest.raises(OverflowError, match="sl"):
        WC(sl=256)


def test_resize_keeps_what_is_there_and_does_not_go_below_it(ctx):
    cq = CQ(ctx, 10)
    for number in range(3):
        cq.core.add(done(number))
    for cqe in (2, CQE_MAX + 1):
        with pytest.raises(PyverbsRDMAError, match="Failed to resize CQ") as error:
            cq.resize(cqe)
        assert error.value.error_code == errno.EINVAL
    cq.resize(3)
    assert (cq.cqe, cq.poll(10)[0]) == (3, 3)


# -- channels ---------------------------------------------------------------------------------------------------------


def test_one_request_is_one_event_and_what_came_before_it_is_none(ctx):
    channel = CompChannel(ctx)
    cq = CQ(ctx, 10, None, channel)
    cq.core.add(done())
    cq.req_notify()
    assert not channel.events
    cq.core.add(done())
    cq.core.add(done())
    assert list(channel.events) == [cq]
    channel.get_cq_event(cq)
    assert cq.num_events == 1
    cq.ack_events(1)
    assert cq.num_events == 0


def test_a_request_for_solicited_ones_wakes_at_those_and_at_errors(ctx):
    channel = CompChannel(ctx)
    cq = CQ(ctx, 10, None, channel)
    for completion, count in ((done(), 0), (done(solicited=True), 1), (done(status=IBV_WC_WR_FLUSH_ERR), 1)):
        channel.events.clear()
        cq.req_notify(solicited_only=True)
        cq.core.add(completion)
        assert len(channel.events) == count


def test_waiting_for_an_event_moves_the_adapter(wire, ctx):
    channel = CompChannel(ctx)
    cq = CQ(ctx, 10, None, channel)
    wire.a.cq = cq.core
    near, _ = connected(wire)
    wire.a.send(near, 1, 0, 8)  # never answered: the other end has no receive and makes no progress
    near.settings.retry_cnt = 0
    cq.req_notify()
    channel.get_cq_event(cq)
    assert cq.poll()[1][0].wr_id == 1


def test_an_event_of_another_queue_is_an_error(ctx):
    channel = CompChannel(ctx)
    first, second = CQ(ctx, 10, None, channel), CQ(ctx, 10, None, channel)
    first.req_notify()
    first.core.add(done())
    with pytest.raises(PyverbsRDMAError, match="unexpected CQ"):
        channel.get_cq_event(second)


def test_the_end_of_a_channel_is_the_end_of_its_queues(ctx):
    channel = CompChannel(ctx)
    cq = CQ(ctx, 10, None, channel)
    channel.close()
    assert not cq._is_open
    with pytest.raises(PyverbsRDMAError, match="closed"):
        channel.get_cq_event(cq)


# -- ends and failures ------------------------------------------------------------------------------------------------


def test_a_queue_that_a_queue_pair_uses_is_busy(wire, ctx):
    cq = CQ(ctx, 10)
    wire.a.cq = cq.core
    qp = wire.a.queue_pair()
    with pytest.raises(PyverbsRDMAError, match=f"queue pair {qp.number}") as error:
        cq.close()
    assert error.value.error_code == errno.EBUSY
    ctx.adapter.remove(qp)
    cq.close()


def test_an_overflow_is_told_and_stops_the_queue_pairs(wire, ctx):
    cq = CQ(ctx, 1)
    wire.a.cq = cq.core
    near, far = connected(wire)
    idle, _ = connected(wire)
    events = []
    near.on_event = events.append
    for number in range(2):
        wire.b.receive(far, number, 0, 8)
        wire.a.send(near, number, 0, 8)
    wire.run()
    assert [(event.event_type, event.element) for event in ctx.events] == [(IBV_EVENT_CQ_ERR, cq)]
    assert (near.state, idle.state, events) == (IBV_QPS_ERR, IBV_QPS_ERR, [IBV_EVENT_QP_FATAL])
    assert cq.poll(10)[0] == 1


# -- extended queues --------------------------------------------------------------------------------------------------


def test_completions_are_read_in_place_one_after_the_other(ctx):
    cq = CQEX(ctx, CqInitAttrEx(cqe=10, wc_flags=IBV_WC_STANDARD_FLAGS))
    assert cq.start_poll(PollCqAttr()) == errno.ENOENT
    cq.core.add(done(1, byte_len=11, immediate=12))
    cq.core.add(done(2, status=IBV_WC_WR_FLUSH_ERR))
    assert cq.start_poll(PollCqAttr()) == 0
    assert (cq.wr_id, cq.status, cq.read_byte_len(), cq.read_imm_data(), cq.read_qp_num()) == (1, 0, 11, 12, 7)
    assert cq.poll_next() == 0
    assert (cq.wr_id, cq.status) == (2, IBV_WC_WR_FLUSH_ERR)
    assert cq.poll_next() == errno.ENOENT
    cq.end_poll()


@pytest.mark.parametrize("flag", [IBV_WC_EX_WITH_TM_INFO, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_CVLAN, 1 << 40])
def test_missing_completion_fields_are_not_supported(ctx, flag):
    with pytest.raises(PyverbsRDMAError, match="Failed to create extended CQ") as error:
        CQEX(ctx, CqInitAttrEx(wc_flags=IBV_WC_EX_WITH_IMM | flag))
    assert error.value.error_code == errno.EOPNOTSUPP


def test_unrequested_fields_cannot_be_read(ctx):
    cq = CQEX(ctx, CqInitAttrEx(wc_flags=IBV_WC_EX_WITH_BYTE_LEN))
    cq.core.add(done())
    assert (cq.start_poll(), cq.read_byte_len(), cq.read_opcode(), cq.read_wc_flags()) == (0, 0, 0, 0)
    for read in (cq.read_imm_data, cq.read_timestamp, cq.read_tm_info):
        with pytest.raises(PyverbsRDMAError, match="IBV_WC_EX_WITH"):
            read()


def test_time_stamps_are_when_the_completion_came_not_when_it_is_read(ctx):
    cq = CQEX(ctx, CqInitAttrEx(wc_flags=STAMPS))
    before, wall = time.monotonic_ns(), time.time_ns()
    cq.core.add(done())
    after = time.monotonic_ns()
    cq.start_poll()
    assert before <= cq.read_timestamp() <= after
    assert abs(cq.read_completion_wallclock_ns() - wall) < 10**9


def test_a_queue_may_be_for_one_thread_and_may_not_lose_completions(ctx):
    attr = CqInitAttrEx(comp_mask=IBV_CQ_INIT_ATTR_MASK_FLAGS, flags=IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
    CQEX(ctx, attr).close()
    attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN
    with pytest.raises(PyverbsRDMAError) as error:
        CQEX(ctx, attr)
    assert error.value.error_code == errno.EOPNOTSUPP
    attr.comp_mask = 0x80
    with pytest.raises(PyverbsRDMAError, match="comp_mask") as error:
        CQEX(ctx, attr)
    assert error.value.error_code == errno.EINVAL


def test_a_short_message_behind_a_completion_is_put_in_place_before_the_queue_moves():
    """But not for a destroyed queue pair: its buffer may have a new owner."""
    cq, remaining, removed = CompletionQueue(4), ctypes.create_string_buffer(5), ctypes.create_string_buffer(5)
    for number, buffer in ((1, remaining), (2, removed)):
        at = cq._entry(number - 1)
        cq.add(CompletionRecord(qp_num=number, byte_len=5, place=ctypes.addressof(buffer)))
        cq._memory.bytes[at + CompletionRecord.size : at + CompletionRecord.size + 5] = b"hello"
    cq.forget(2)
    assert (remaining.raw, removed.raw) == (b"hello", bytes(5))
    assert [numbers[CompletionRecord.names.index("place")] for numbers in cq.poll(4)] == [0]


def test_full_queues_do_not_share_memory():
    queues = [CompletionQueue(capacity) for capacity in (300, 8, 300, 1)]
    for number, cq in enumerate(queues, 1):
        assert all(cq.add(CompletionRecord(qp_num=number)) for _ in range(cq.capacity))
    for number, cq in enumerate(queues, 1):
        assert len(cq) == cq.capacity
        used = [numbers[CompletionRecord.names.index("qp_num")] for numbers in cq.poll(999)]
        assert used == [number] * cq.capacity


def test_a_queue_that_overflowed_takes_nothing_more_and_says_so_once():
    cq, overflows = CompletionQueue(1), []
    cq.on_overflow = lambda: overflows.append(len(cq))
    assert [cq.add(CompletionRecord(qp_num=1)) for _ in range(3)] == [True, False, False]
    assert len(cq.poll(2)) == 1
    assert not cq.add(CompletionRecord(qp_num=1))
    assert overflows == [1]


@pytest.mark.parametrize(
    ("solicited_only", "is_solicited", "fails", "expected"),
    [(False, False, False, 1), (True, False, False, 0), (True, True, False, 1), (True, False, True, 1)],
)
def test_an_event_is_raised_once_for_the_completions_that_were_requested(solicited_only, is_solicited, fails, expected):
    cq, events = CompletionQueue(4), []
    cq.on_event = lambda: events.append(len(cq))
    cq.arm(solicited_only=solicited_only)
    status = ibv_wc_status.IBV_WC_LOC_PROT_ERR if fails else ibv_wc_status.IBV_WC_SUCCESS
    for _ in range(2):
        cq.add(CompletionRecord(status=status, solicited=is_solicited))
    assert events == [1] * expected


def test_a_request_for_all_completions_overrides_one_for_solicited_ones():
    cq, events = CompletionQueue(4), []
    cq.on_event = lambda: events.append(len(cq))
    cq.arm(solicited_only=False)
    cq.arm(solicited_only=True)
    cq.add(CompletionRecord(status=ibv_wc_status.IBV_WC_SUCCESS))
    assert events == [1]
