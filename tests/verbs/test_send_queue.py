"""A send queue holds as many requests as requested, until their completions are polled."""

from __future__ import annotations

import errno

import pytest
from tests.verbs.hosts import CAP, GID_INDEX, Q_KEY, Node, connect, poll

from weft.verbs import enums as e
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca import queue_pair
from weft.verbs.pyverbs.addr import AH
from weft.verbs.pyverbs.qp import QPAttr
from weft.verbs.pyverbs.wr import SendWR

FITS = CAP.max_send_wr


@pytest.fixture
def node():
    with Node() as result:
        yield result


@pytest.fixture(params=("packets", "lane"))
def pair(request, node, monkeypatch):
    """A pair of connected queue pairs, with and without the shared-memory path."""
    monkeypatch.setattr(queue_pair, "SHM_PATH_AFTER", 1 << 20)  # not automatically
    a, b = connect(node, e.IBV_QPT_RC, sq_sig_all=0)
    if request.param == "lane":
        assert a.core.find_shm_path(at_once=True) is not None
    return a, b


def write(node, wr_id: int, flags: int = e.IBV_SEND_SIGNALED) -> SendWR:
    work = SendWR(wr_id, e.IBV_WR_RDMA_WRITE, 1, 0, [node.sge(0, 8)], flags)
    work.set_wr_rdma(node.mr.rkey, node.mr.buf + 2048)
    return work


def posted(post, works) -> int:
    """Return the number of requests accepted before the queue was full."""
    for count, work in enumerate(works):
        try:
            post(work)
        except PyverbsRDMAError as refused:
            if refused.error_code != errno.ENOMEM or "the send queue is full" not in str(refused):
                raise
            return count
    return len(works)


def settle(qp) -> None:
    while qp.core.sends:
        qp.core.adapter.progress()


def test_a_queue_holds_what_was_asked_for_until_completions_are_polled(node, pair):
    a, _ = pair
    works = [write(node, n) for n in range(4 * FITS)]
    assert posted(a.post_send, works) == FITS
    settle(a)
    assert posted(a.post_send, works) == 0  # complete, but not polled
    assert [wc.wr_id for wc in poll(node.cq, 3)] == [0, 1, 2]
    assert posted(a.post_send, works) == 3
    assert len(poll(node.cq, FITS)) == FITS


def test_one_polled_completion_frees_the_unsignaled_requests_before_it(node, pair):
    a, _ = pair
    silent = [write(node, n, flags=0) for n in range(FITS)]
    assert posted(a.post_send, [*silent[: FITS - 1], write(node, 99), write(node, 100)]) == FITS
    assert [wc.wr_id for wc in poll(node.cq, 1)] == [99]
    assert posted(a.post_send, [*silent, silent[0]]) == FITS
    settle(a)
    assert posted(a.post_send, silent) == 0  # these have no completions to poll
    assert node.cq.poll(1)[0] == 0


def test_flushed_requests_free_their_slots(node, pair):
    a, _ = pair
    failing = write(node, 1)
    failing.set_wr_rdma(node.mr.rkey + 1, node.mr.buf)
    assert posted(a.post_send, [failing, *(write(node, n) for n in range(2, FITS + 5))]) == FITS
    assert [wc.wr_id for wc in poll(node.cq, FITS)] == list(range(1, FITS + 1))
    assert posted(a.post_send, [write(node, 1)]) == 1  # to be flushed
    assert poll(node.cq, 1)[0].status == e.IBV_WC_WR_FLUSH_ERR


def test_a_queue_that_was_reset_is_empty(node, pair):
    a, b = pair
    works = [write(node, n) for n in range(FITS)]
    assert posted(a.post_send, works) == FITS
    settle(a)
    for item, other in ((a, b), (b, a)):
        attr = QPAttr()
        attr.qp_state = e.IBV_QPS_RESET
        item.modify(attr, e.IBV_QP_STATE)
        item.to_rts(node.connected_attr(other.qp_num))
    assert node.cq.poll(1)[0] == 0
    assert posted(a.post_send, [*works, works[0]]) == FITS


def test_a_queue_of_completions_that_is_resized_frees_nothing(node, pair):
    a, _ = pair
    works = [write(node, n) for n in range(FITS)]
    assert posted(a.post_send, works) == FITS
    settle(a)
    node.cq.resize(200)
    assert posted(a.post_send, works) == 0
    assert len(poll(node.cq, FITS)) == FITS


def test_the_extended_way_of_posting_counts_the_same(node):
    a, _ = connect(node, e.IBV_QPT_RC, operations=e.IBV_QP_EX_WITH_RDMA_WRITE)
    assert a.core.find_shm_path(at_once=True) is not None

    def post(count: int) -> None:
        a.wr_start()
        for n in range(count):
            a.wr_id, a.wr_flags = n, e.IBV_SEND_SIGNALED
            a.wr_rdma_write(node.mr.rkey, node.mr.buf + 2048)
            a.wr_set_sge(node.sge(0, 8))
        a.wr_complete()

    post(FITS - 1)
    with pytest.raises(PyverbsRDMAError, match="the send queue is full"):
        post(2)
    post(1)
    assert len(poll(node.cq, FITS)) == FITS
    post(FITS)


def test_datagrams_count_the_same(node):
    a, b = connect(node, e.IBV_QPT_UD)
    to = AH(node.pd, attr=node.address())
    assert to.attr.sgid_index == GID_INDEX
    works = [SendWR(n, e.IBV_WR_SEND, 1, 0, [node.sge(0, 8)], e.IBV_SEND_SIGNALED) for n in range(2 * FITS)]
    for work in works:
        work.set_wr_ud(to, b.qp_num, Q_KEY)
    assert posted(a.post_send, works) == FITS
    assert len(poll(node.cq, 1)) == 1
    assert posted(a.post_send, works) == 1
