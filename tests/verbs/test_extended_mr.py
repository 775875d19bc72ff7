"""Regions by ibv_reg_mr_ex, buffers of the adapter, and handles with options for DMA writes."""

from __future__ import annotations

import errno
import os

import pytest
from tests.verbs.hosts import Node, connect, poll

from weft.verbs.enums import (
    IBV_ACCESS_FLUSH_GLOBAL,
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_DMAH_INIT_ATTR_MASK_CPU_ID,
    IBV_DMAH_INIT_ATTR_MASK_PH,
    IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE,
    IBV_FLUSH_GLOBAL,
    IBV_FLUSH_RANGE,
    IBV_ODP_SUPPORT_ATOMIC_WRITE,
    IBV_ODP_SUPPORT_FLUSH,
    IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC,
    IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
    IBV_QP_EX_WITH_ATOMIC_WRITE,
    IBV_QP_EX_WITH_FLUSH,
    IBV_QPT_RC,
    IBV_SEND_SIGNALED,
    IBV_TPH_MEM_TYPE_PM,
    IBV_WC_REM_ACCESS_ERR,
    IBV_WC_SUCCESS,
    IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE,
)
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs.device import Context
from weft.verbs.pyverbs.mem_alloc import read, write
from weft.verbs.pyverbs.mr import MR, Buf, BufMR, DMAHandle, DmaHandleInitAttr, MREx
from weft.verbs.pyverbs.pd import PD, ParentDomain, ParentDomainInitAttr
from weft.verbs.pyverbs.qp import QP
from weft.verbs.pyverbs.wr import SGE, SendWR

PAGE = 4096
OWN = IBV_ACCESS_LOCAL_WRITE
OPEN = OWN | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ


@pytest.fixture
def ctx():
    with Context(name="mlx5_0") as opened:
        yield opened


@pytest.fixture
def pd(ctx):
    return PD(ctx)


def code_of(make, *args, **kwargs) -> int:
    with pytest.raises(PyverbsRDMAError) as raised:
        make(*args, **kwargs)
    return raised.value.error_code


# -- Buf and BufMR ----------------------------------------------------------------------------------------------------


def test_a_buffer_is_memory_in_whole_pages_of_its_own(pd):
    item, other = Buf(pd, 100), Buf(pd, 2 * PAGE)
    assert (item.size, item.addr % PAGE, other.size, other.addr % PAGE) == (100, 0, 2 * PAGE, 0)
    write(item.addr, b"one", 3)
    assert read(other.addr, 3) == bytes(3)
    assert f"{item.addr}" in str(item)


def test_regions_of_a_buffer_are_where_they_are_said_to_be(pd):
    buf = Buf(pd, 2 * PAGE)
    whole, second, third = (
        BufMR(pd, buf, 2 * PAGE, OWN),
        BufMR(pd, buf, PAGE, OWN, offset=PAGE),
        MREx(pd, PAGE, OWN, buf=buf),
    )
    assert (whole.buf, second.buf, third.buf) == (buf.addr, buf.addr + PAGE, buf.addr)
    assert len({whole.lkey, second.lkey, third.lkey}) == 3
    second.write("abc", 3)
    assert whole.read(3, PAGE) == b"abc"
    second.close()
    assert whole.read(3, PAGE) == b"abc", "the memory is the buffer's"


@pytest.mark.parametrize(("length", "offset"), [(PAGE + 1, 0), (PAGE, 1), (1, PAGE), (1, PAGE + 1), (1, -1)])
def test_a_region_does_not_leave_its_buffer(pd, length, offset):
    buf = Buf(pd, PAGE)
    assert code_of(BufMR, pd, buf, length, OWN, offset=offset) == errno.EINVAL
    assert code_of(MREx, pd, length, OWN, buf=buf, address=buf.addr + offset) == errno.EINVAL


def test_a_buffer_is_registered_by_the_domain_that_allocated_it(ctx, pd):
    buf = Buf(pd, PAGE)
    assert code_of(BufMR, PD(ctx), buf, PAGE, OWN) == errno.EINVAL
    assert code_of(BufMR, ParentDomain(ctx, ParentDomainInitAttr(pd)), buf, PAGE, OWN) == errno.EINVAL


def test_a_parent_domain_may_ask_for_memory_outside_of_a_guests_protection(ctx, pd):
    """No device needs bounce buffers: this is ordinary memory."""
    mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC
    attr = ParentDomainInitAttr(pd, comp_mask=mask)
    assert attr.comp_mask == mask
    parent = ParentDomain(ctx, attr)
    mr = BufMR(parent, Buf(parent, PAGE), PAGE, OWN)
    mr.write("x", 1)
    assert mr.read(1, 0) == b"x"


def test_a_mask_of_a_parent_domain_must_tell_the_truth(ctx, pd):
    with pytest.raises(PyverbsUserError, match="pd_context"):
        ParentDomainInitAttr(pd, comp_mask=IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
    assert code_of(ParentDomain, ctx, ParentDomainInitAttr(pd, comp_mask=8)) == errno.EINVAL


def test_ordinary_memory_is_no_dma_buf(pd):
    assert code_of(Buf(pd, PAGE).export_dmabuf_fd) == errno.ENODATA


def test_a_buffer_of_nothing_or_of_more_than_there_is_is_refused(pd):
    assert code_of(Buf, pd, 0) == errno.EINVAL
    assert code_of(Buf, pd, 1 << 60) == errno.ENOMEM


def test_a_buffer_that_ends_takes_its_regions_with_it(pd):
    buf = Buf(pd, PAGE)
    mr = BufMR(pd, buf, PAGE, OWN)
    key = mr.lkey
    buf.close()
    assert pd.ctx.adapter.regions.find(key) is None
    assert buf.addr == 0
    assert code_of(BufMR, pd, buf, PAGE, OWN) == errno.EINVAL


def test_the_end_of_a_domain_is_the_end_of_its_buffers(ctx):
    pd = PD(ctx)
    buf = Buf(pd, PAGE)
    mr = BufMR(pd, buf, PAGE, OWN)
    pd.close()
    assert (buf.addr, mr.buf) == (0, 0)


def test_a_region_keeps_the_buffer_that_it_is_of(pd):
    mr = BufMR(pd, Buf(pd, PAGE), PAGE, OWN)  # the only reference to the buffer
    mr.write("kept", 4)
    Buf(pd, PAGE)
    assert mr.read(4, 0) == b"kept"


# -- MREx -------------------------------------------------------------------------------------------------------------


def test_an_extended_region_is_a_region(pd):
    mr = MREx(pd, 100, OWN)
    mr.write("abc", 3)
    assert (mr.read(3, 0), mr.length, isinstance(mr, MR)) == (b"abc", 100, True)
    assert str(mr).startswith("MREx:\n")
    present = MREx(pd, 3, OWN, address=mr.buf)
    assert present.read(3, 0) == b"abc"


def done(node: Node, qp: QP, opcode: int, near: SGE, rkey: int, va: int) -> int:
    work = SendWR(opcode=opcode, num_sge=1, sg=[near])
    work.set_wr_rdma(rkey, va)
    qp.post_send(work)
    return poll(node.cq, 1)[0].status


def test_others_call_the_first_byte_what_iova_says():
    """A WRITE to iova + 4 lands in the fifth byte, and one to the address itself is refused."""
    with Node() as node:
        present = MREx(node.pd, 16, OPEN, iova=0x10_0000)
        item, _ = connect(node, IBV_QPT_RC)
        node.mr.write("four", 4)
        assert done(node, item, IBV_WR_RDMA_WRITE, node.sge(0, 4), present.rkey, 0x10_0004) == IBV_WC_SUCCESS
        assert present.read(8, 0) == bytes(4) + b"four"
        near = SGE(0x10_0008, 4, present.lkey)
        assert done(node, item, IBV_WR_RDMA_READ, near, present.rkey, 0x10_0004) == IBV_WC_SUCCESS
        assert present.read(4, 8) == b"four"
        assert done(node, item, IBV_WR_RDMA_WRITE, node.sge(0, 4), present.rkey, present.buf) == IBV_WC_REM_ACCESS_ERR


@pytest.mark.parametrize("others", [{"address": 4096}, {"implicit": True}, {}])
def test_a_file_stands_alone_and_needs_a_name_for_its_first_byte(pd, others):
    assert code_of(MREx, pd, 100, OWN, fd=0, **others) == errno.EINVAL


def test_a_buffer_is_no_file(pd):
    assert code_of(MREx, pd, 100, OWN, fd=0, iova=0, buf=Buf(pd, PAGE)) == errno.EINVAL


def test_a_dma_buf_is_not_supported(pd):
    assert code_of(MREx, pd, 100, OWN, fd=0, iova=0) == errno.EOPNOTSUPP


def test_remote_access_needs_local_access_here_too(pd):
    with pytest.raises(PyverbsRDMAError, match="Failed to register MR using extended API"):
        MREx(pd, 100, IBV_ACCESS_REMOTE_WRITE)


def test_the_whole_space_is_on_demand(pd):
    assert code_of(MREx, pd, 0, OWN, implicit=True) == errno.EINVAL
    assert MREx(pd, 0, OWN | IBV_ACCESS_ON_DEMAND, implicit=True).buf == 0


def test_memory_on_demand_is_flushed_and_written_at_once_as_the_device_says():
    output = IBV_ODP_SUPPORT_FLUSH | IBV_ODP_SUPPORT_ATOMIC_WRITE
    access = OPEN | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_FLUSH_GLOBAL
    with Node() as node:
        assert node.ctx.query_device_ex().odp_caps.rc_odp_caps & output == output
        present = MREx(node.pd, 64, access)
        operations = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE
        item, other = (node.qp(IBV_QPT_RC, operations=operations) for _ in range(2))
        for mine, far in ((item, other), (other, item)):
            attr = node.connected_attr(far.qp_num)
            attr.qp_access_flags = access & ~IBV_ACCESS_ON_DEMAND
            mine.to_rts(attr)
        item.wr_start()
        item.wr_flags = IBV_SEND_SIGNALED
        item.wr_atomic_write(present.rkey, present.buf + 8, b"together")
        item.wr_flush(present.rkey, present.buf, 64, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE)
        item.wr_complete()
        assert [wc.status for wc in poll(node.cq, 2)] == [IBV_WC_SUCCESS] * 2
        assert present.read(8, 8) == b"together"


# -- DMAHandle --------------------------------------------------------------------------------------------------------

MASKS = {
    "cpu_id": IBV_DMAH_INIT_ATTR_MASK_CPU_ID,
    "ph": IBV_DMAH_INIT_ATTR_MASK_PH,
    "tph_mem_type": IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE,
}


def hints(**given: int) -> DmaHandleInitAttr:
    return DmaHandleInitAttr(sum(MASKS[name] for name in given), **given)


def test_a_handle_goes_with_a_region(ctx, pd):
    cpu = min(os.sched_getaffinity(0))
    with DMAHandle(ctx, hints(cpu_id=cpu, ph=3, tph_mem_type=IBV_TPH_MEM_TYPE_PM)) as dmah:
        mr = MREx(pd, 100, OWN, dmah=dmah)
        mr.write("abc", 3)
        assert mr.read(3, 0) == b"abc"
    assert mr.buf == 0, "it ends with its handle"
    assert code_of(MREx, pd, 100, OWN, dmah=dmah) == errno.EINVAL


@pytest.mark.parametrize("wrong", [{"ph": 4}, {"tph_mem_type": 2}, {"cpu_id": 0xFFFF}])
def test_a_hint_that_there_is_not_is_refused(ctx, wrong):
    assert code_of(DMAHandle, ctx, hints(**wrong)) == errno.EINVAL
    DMAHandle(ctx, DmaHandleInitAttr(**wrong))  # the mask does not include the field


def test_hints_that_are_not_known_are_refused(ctx):
    assert code_of(DMAHandle, ctx, DmaHandleInitAttr(comp_mask=8)) == errno.EINVAL


def test_memory_on_demand_has_no_handle(ctx, pd):
    dmah = DMAHandle(ctx, hints(ph=1))
    assert code_of(MREx, pd, 100, OWN | IBV_ACCESS_ON_DEMAND, dmah=dmah) == errno.EOPNOTSUPP


def test_a_handle_is_of_the_device_that_is_open_here(pd):
    with Context(name="mlx5_0") as other:
        assert code_of(MREx, pd, 100, OWN, dmah=DMAHandle(other, hints(ph=1))) == errno.EINVAL


def test_fields_of_hints_have_their_widths():
    attr = hints(cpu_id=1, ph=2)
    attr.tph_mem_type = 1
    assert (attr.comp_mask, attr.cpu_id, attr.ph, attr.tph_mem_type) == (3, 1, 2, 1)
    assert "cpu" in str(attr)
    with pytest.raises(OverflowError):
        attr.ph = 256
