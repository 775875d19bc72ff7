"""Devices and their attributes; device memory; protection domains."""

from __future__ import annotations

import errno
import gc
import os

import pytest
from tests.verbs.hosts import Q_KEY, Node, poll

from weft.verbs.enums import (
    _IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
    IBV_ACCESS_LOCAL_WRITE,
    IBV_GID_TYPE_ROCE_V1,
    IBV_GID_TYPE_ROCE_V2,
    IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
    IBV_GID_TYPE_SYSFS_ROCE_V2,
    IBV_QPT_UD,
    IBV_WC_RECV,
    ibv_event_type,
)
from weft.verbs.errors import PyverbsError, PyverbsRDMAError, PyverbsUserError
from weft.verbs.pyverbs import device
from weft.verbs.pyverbs.addr import AH, AHAttr, GlobalRoute
from weft.verbs.pyverbs.device import DM, AllocDmAttr, Context, FdArr, get_device_list
from weft.verbs.pyverbs.mr import MR
from weft.verbs.pyverbs.pd import PD, ParentDomain, ParentDomainContext, ParentDomainInitAttr
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR


@pytest.fixture
def ctx():
    with Context(name="mlx5_0") as opened:
        yield opened


def test_the_device_of_the_list_can_be_opened():
    (entry,) = get_device_list()
    with Context(name=entry.name.decode()) as ctx:
        assert ctx.query_device().node_guid == int.from_bytes(entry.guid.to_bytes(8, "big"), "little")
    assert "mlx5_0, node type CA" in str(entry)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(PyverbsRDMAError, match="Failed to find device mlx5_1: there is mlx5_0"):
        Context(name="mlx5_1")
    with pytest.raises(PyverbsUserError, match="name must be provided"):
        Context()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (lambda ctx: ctx.query_port(2), errno.EINVAL),
        (lambda ctx: ctx.query_gid(1, 8), errno.EINVAL),
        (lambda ctx: ctx.query_gid(1, -1), errno.EINVAL),
        (lambda ctx: ctx.query_gid_ex(1, 4), errno.ENODATA),
        (lambda ctx: ctx.query_gid_table(1), -errno.EINVAL),
        (lambda ctx: ctx.query_pkey(1, 1), errno.EINVAL),
        (lambda ctx: ctx.get_pkey_index(1, 0x1234), errno.EINVAL),
        (lambda ctx: ctx.query_rt_values_ex(2), errno.EINVAL),
    ],
)
def test_a_query_for_what_is_not_there_has_its_errno(ctx, query, code):
    with pytest.raises(PyverbsRDMAError) as caught:
        query(ctx)
    assert caught.value.error_code == code


def test_the_gids_are_the_same_by_every_query(ctx):
    table = ctx.query_gid_table(10)
    assert [entry.gid_str() for entry in table] == [ctx.query_gid(1, index).gid for index in range(4)]
    assert ctx.query_gid_ex(1, 3) == table[3]


def test_the_gids_are_where_programs_for_mlx5_look_for_them(ctx):
    """Link-local and IPv4, each for RoCE v1 and then v2."""
    table = ctx.query_gid_table(10)
    assert [entry.gid_str()[:4] for entry in table] == ["fe80", "fe80", "0000", "0000"]
    assert [entry.gid_str().endswith("ffff:7f00:0001") for entry in table] == [False, False, True, True]
    assert [entry.gid_type for entry in table] == [IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2] * 2
    kinds = [IBV_GID_TYPE_SYSFS_IB_ROCE_V1, IBV_GID_TYPE_SYSFS_ROCE_V2] * 2
    assert [ctx.query_gid_type(1, index) for index in range(4)] == kinds


def test_the_device_has_the_name_that_programs_have_in_their_text():
    """And its former name."""
    assert [item.name for item in get_device_list()] == [b"mlx5_0"]
    with Context(name="mlx5_0") as ctx, Context(name="weft0") as same:
        assert (ctx.name, same.name) == ("mlx5_0", "mlx5_0")
        assert ctx.adapter is same.adapter


@pytest.mark.parametrize("index", range(4))
def test_every_gid_is_an_address_of_this_adapter(index):
    with Node() as node:
        a, b = node.qp(IBV_QPT_UD, node.datagram_attr()), node.qp(IBV_QPT_UD, node.datagram_attr())
        b.post_recv(RecvWR(num_sge=1, sg=[node.sge(512, 100)]))
        route = GlobalRoute(dgid=node.ctx.query_gid(1, index), sgid_index=index)
        wr = SendWR(num_sge=1, sg=[node.sge(0, 8)])
        wr.set_wr_ud(AH(node.pd, attr=AHAttr(gr=route, is_global=1)), b.qp_num, Q_KEY)
        a.post_send(wr)
        received = next(wc for wc in poll(node.cq, 2) if wc.opcode == IBV_WC_RECV)
        back = AH(node.pd, wc=received, grh=node.mr.buf + 512, port_num=1)
        assert (back.attr.dgid, back.attr.sgid_index) == (node.ctx.query_gid(1, index).gid, index | 1)


def test_violations_are_counted_at_the_port(ctx, monkeypatch):
    monkeypatch.setitem(ctx.adapter.counters, "pkey_violations", 3)
    assert ctx.query_port(1).bad_pkey_cntr == 3


def test_an_event_is_fetched_once(ctx):
    ctx.raise_event(ibv_event_type.IBV_EVENT_PORT_ERR, 1)
    assert ctx.get_async_event().event_type == ibv_event_type.IBV_EVENT_PORT_ERR
    assert not ctx.events


def test_numbers_outside_an_enumeration_are_said_to_be_so():
    assert device.translate_mtu(9) == "Invalid MTU (9)"
    assert device.port_state_to_str(9) == "Invalid state (9)"
    assert device.speed_to_str(3) == "Invalid speed"
    assert device.translate_event_type(99) == "Unknown event_type (99)"


# -- device memory ----------------------------------------------------------------------------------------------------


def test_device_memory_keeps_what_is_written(ctx):
    with DM(ctx, AllocDmAttr(64, 5)) as dm:
        assert dm.address % 32 == 0
        dm.copy_to_dm(4, b"abcdefgh", 8)
        assert dm.copy_from_dm(8, 4) == b"efgh"


@pytest.mark.parametrize(("offset", "length"), [(2, 4), (4, 2), (64, 4), (0, 68), (-4, 4)])
def test_device_memory_is_read_and_written_in_words_within_it(ctx, offset, length):
    with DM(ctx, AllocDmAttr(64)) as dm:
        with pytest.raises(PyverbsRDMAError, match="Failed to copy from dm"):
            dm.copy_from_dm(offset, length)
        with pytest.raises(PyverbsRDMAError, match="Failed to copy to dm"):
            dm.copy_to_dm(offset, bytes(80), length)


def test_more_device_memory_than_there_is_is_refused(ctx):
    most = ctx.query_device_ex().max_dm_size
    with pytest.raises(PyverbsRDMAError, match=f"size {most + 1}. Max available size {most}"):
        DM(ctx, AllocDmAttr(most + 1))
    with pytest.raises(PyverbsRDMAError, match="comp_mask"):
        DM(ctx, AllocDmAttr(8, comp_mask=1))


# -- sharing by file --------------------------------------------------------------------------------------------------


def test_a_copy_of_the_file_opens_the_same_objects(ctx):
    dm, pd = DM(ctx, AllocDmAttr(8)), PD(ctx)
    mr = MR(pd, 16, IBV_ACCESS_LOCAL_WRITE)
    with Context(cmd_fd=os.dup(ctx.cmd_fd)) as other:
        dm.copy_to_dm(0, b"12345678", 8)
        assert DM(other, handle=dm.handle).copy_from_dm(0, 8) == b"12345678"
        shared = PD(other, handle=pd.handle)
        assert shared.key is pd.key
        present = MR(shared, handle=mr.handle, address=mr.buf)
        assert (present.lkey, present.buf) == (mr.lkey, mr.buf)
        present.unimport()
    assert mr.region.is_open


def test_missing_objects_cannot_be_imported(ctx):
    pd = PD(ctx)
    mr = MR(pd, 8, 0)
    with pytest.raises(PyverbsRDMAError, match="Failed to import device"):
        Context(cmd_fd=0)
    with pytest.raises(PyverbsRDMAError, match="Failed to import PD"):
        PD(ctx, handle=99)
    with pytest.raises(PyverbsRDMAError, match="Failed to import DM"):
        DM(ctx, handle=pd.handle)
    with pytest.raises(PyverbsRDMAError, match="Failed to import MR"):
        MR(PD(ctx), handle=mr.handle)  # it belongs to another protection domain


def test_a_closed_context_gives_its_file_back():
    ctx = Context(name="mlx5_0")
    fd = ctx.cmd_fd
    os.fstat(fd)
    ctx.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


# -- protection domains -----------------------------------------------------------------------------------------------


def test_a_parent_domain_opens_what_its_domain_opens(ctx):
    pd = PD(ctx)
    about = ParentDomainContext(pd, lambda *_: 0, lambda *_: None, user_data=7)
    attr = ParentDomainInitAttr(pd, about)
    parent = ParentDomain(ctx, attr)
    assert (parent.key, about.user_data, attr.comp_mask) == (pd.key, 7, 3)
    assert MR(parent, 8, 0).region.pd is pd
    pd.close()
    assert not parent._is_open


def test_advice_is_for_memory_that_the_key_opens(ctx):
    pd = PD(ctx)
    readable, writable = MR(pd, 64, 0), MR(pd, 64, IBV_ACCESS_LOCAL_WRITE)
    write = _IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE
    assert pd.advise_mr(write, 1, [SGE(writable.buf, 64, writable.lkey)]) == 0
    for advice, flags, mr, length in [(write, 1, readable, 64), (write, 1, writable, 65), (write, 2, writable, 64)]:
        with pytest.raises(PyverbsRDMAError, match="Failed to advise MR"):
            pd.advise_mr(advice, flags, [SGE(mr.buf, length, mr.lkey)])
    with pytest.raises(PyverbsRDMAError) as caught:
        pd.advise_mr(99, 0, [])
    assert caught.value.error_code == errno.EOPNOTSUPP


@pytest.mark.usefixtures("few_objects")
def test_regions_end_with_the_context(ctx):
    mr = MR(PD(ctx), 8, 0)
    key, regions = mr.lkey, ctx.adapter.regions
    assert regions.find(key)
    ctx.close()
    assert regions.find(key) is None
    assert mr.buf == 0
    gc.collect()


def test_a_buffer_that_cannot_be_had_is_an_error(ctx):
    with pytest.raises(PyverbsError, match="Failed to allocate MR buffer of size"):
        MR(PD(ctx), 1 << 60, 0)


def test_files_are_handed_over_as_many_as_counted():
    files = FdArr([5, 6, 7], 2)
    assert (files.arr, files.count) == ([5, 6], 2)
    assert "[5, 6]" in str(files)
    assert FdArr([1, 2], 2).arr == [1, 2]
    with pytest.raises(PyverbsUserError, match="3 files was given 2"):
        FdArr([1, 2], 3)
