"""Memory regions and windows: the access of each key, by state, protection domain and queue pair."""

from __future__ import annotations

import ctypes
import errno

import pytest
from tests.verbs.wires import Wire, connected

from weft.verbs.attributes.objects import inc_rkey
from weft.verbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_ACCESS_MW_BIND,
    IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE,
    IBV_ACCESS_ZERO_BASED,
    IBV_REREG_MR_CHANGE_ACCESS,
    IBV_REREG_MR_CHANGE_PD,
    IBV_REREG_MR_CHANGE_TRANSLATION,
    IBV_SEND_SIGNALED,
    ibv_wc_status,
    ibv_wr_opcode,
)
from weft.verbs.errors import PyverbsRDMAError, PyverbsUserError
from weft.verbs.hca.segment import REQUESTS
from weft.verbs.hca.work import SendWork
from weft.verbs.pyverbs import mem_alloc
from weft.verbs.pyverbs.device import DM, AllocDmAttr, Context
from weft.verbs.pyverbs.mr import DMMR, MR, MW, DmaBufMR, MWBindInfo
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.windows import Binding
from weft.verbs.shm.memory import Place

WRITE, REMOTE = IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE
BOUND, FAILED = ibv_wc_status.IBV_WC_SUCCESS, ibv_wc_status.IBV_WC_MW_BIND_ERR


@pytest.fixture
def pd():
    with Context(name="mlx5_0") as ctx:
        yield PD(ctx)


@pytest.fixture
def qp(pd):
    """A queue pair in the protection domain."""
    pair = Wire().a.queue_pair()
    pair.pd = pd.key
    return pair


def is_local(pd: PD, address: int, length: int, key: int, *, write: bool = False) -> bool:
    return pd.ctx.adapter.regions.local(pd.key, Place(address, length, key), write=write) is not None


def is_remote(pd: PD, key: int, va: int, length: int, access: int = REMOTE, qp_num: int = 2) -> bool:
    return pd.ctx.adapter.regions.remote(pd.key, qp_num, key, va, length, access) is not None


def test_a_region_holds_what_is_written_and_its_key_opens_it(pd):
    mr = MR(pd, 100, WRITE)
    mr.write("hello", 5, 10)
    assert mr.read(5, 10) == b"hello"
    assert mem_alloc.read(mr.buf, 5, 10) == b"hello"
    assert is_local(pd, mr.buf, 100, mr.lkey, write=True)
    assert not is_local(pd, mr.buf, 101, mr.lkey)
    mr.close()
    assert not is_local(pd, mr.buf, 1, mr.region.key)


@pytest.mark.parametrize("access", [IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC])
def test_letting_others_write_needs_local_write(pd, access):
    with pytest.raises(PyverbsRDMAError, match="Failed to register a MR") as caught:
        MR(pd, 10, access)
    assert caught.value.error_code == errno.EINVAL


def test_memory_that_is_not_mapped_is_refused_unless_on_demand(pd):
    removed = mem_alloc.mmap(length=65536)
    mem_alloc.munmap(removed, 65536)
    with pytest.raises(PyverbsRDMAError, match="are mapped") as caught:
        MR(pd, 100, WRITE, address=removed)
    assert caught.value.error_code == errno.EFAULT
    MR(pd, 100, WRITE | IBV_ACCESS_ON_DEMAND, address=removed)


def test_a_given_address_is_used_and_not_freed(pd):
    memory = ctypes.create_string_buffer(b"given", 16)
    mr = MR(pd, 16, WRITE, address=ctypes.addressof(memory))
    assert mr.read(5, 0) == b"given"
    mr.close()
    assert memory.value == b"given"


def test_the_whole_address_space_can_be_opened_on_demand(pd):
    mr = MR(pd, 64, WRITE | IBV_ACCESS_ON_DEMAND, implicit=True)
    assert mr.length == (1 << 64) - 1
    assert is_local(pd, mr.buf, 64, mr.lkey, write=True)
    elsewhere = ctypes.create_string_buffer(8)
    assert is_local(pd, ctypes.addressof(elsewhere), 8, mr.lkey, write=True)
    with pytest.raises(PyverbsRDMAError, match="IBV_ACCESS_ON_DEMAND"):
        MR(pd, 64, WRITE, implicit=True)


def test_a_zero_based_region_counts_from_zero(pd):
    mr = MR(pd, 64, WRITE | REMOTE | IBV_ACCESS_ZERO_BASED)
    assert is_remote(pd, mr.rkey, 0, 64)
    assert not is_remote(pd, mr.rkey, mr.buf, 64)


@pytest.mark.parametrize(("length", "offset"), [(11, 0), (1, 10), (-1, 0), (1, -1)])
def test_reading_and_writing_stay_within_the_region(pd, length, offset):
    mr = MR(pd, 10, WRITE)
    with pytest.raises(PyverbsUserError):
        mr.read(length, offset)
    with pytest.raises(PyverbsUserError):
        mr.write(b"x" * 20, length, offset)


# -- changing a region ------------------------------------------------------------------------------------------------


def test_rereg_changes_what_its_flags_say_and_keeps_the_keys(pd):
    mr = MR(pd, 64, WRITE)
    key = mr.rkey
    mr.rereg(IBV_REREG_MR_CHANGE_ACCESS, access=WRITE | REMOTE)
    assert is_remote(pd, key, mr.buf, 64)
    old, new = mr.buf, mem_alloc.posix_memalign(128)
    mr.rereg(IBV_REREG_MR_CHANGE_TRANSLATION, addr=new, length=128)
    assert (mr.buf, mr.length, mr.rkey) == (new, 128, key)
    assert not is_remote(pd, key, old, 64)
    assert is_remote(pd, key, new, 128)
    mr.close()
    mem_alloc.free(new)


def test_rereg_moves_a_region_to_another_domain_that_closes_it(pd):
    other, mr = PD(pd.ctx), MR(pd, 64, WRITE)
    mr.rereg(IBV_REREG_MR_CHANGE_PD, pd=other)
    assert not is_local(pd, mr.buf, 64, mr.lkey)
    assert is_local(other, mr.buf, 64, mr.lkey)
    pd.close()
    assert mr.region.is_open
    other.close()
    assert not mr.region.is_open


@pytest.mark.parametrize(
    "change",
    [
        {"flags": 0},
        {"flags": 8},
        {"flags": IBV_REREG_MR_CHANGE_PD},
        {"flags": IBV_REREG_MR_CHANGE_TRANSLATION, "addr": 0, "length": 64},
        {"flags": IBV_REREG_MR_CHANGE_TRANSLATION, "addr": 4096, "length": 64},
        {"flags": IBV_REREG_MR_CHANGE_ACCESS, "access": REMOTE},
    ],
)
def test_rereg_refuses_what_makes_no_sense_and_changes_nothing(pd, change):
    mr = MR(pd, 64, WRITE)
    before = (mr.buf, mr.length, mr.region.access, mr.region.pd)
    with pytest.raises(PyverbsRDMAError, match="Failed to rereg MR: IBV_REREG_MR_ERR_INPUT"):
        mr.rereg(**change)
    assert (mr.buf, mr.length, mr.region.access, mr.region.pd) == before


# -- device memory ----------------------------------------------------------------------------------------------------


def test_a_region_of_device_memory_counts_from_zero(pd):
    dm = DM(pd.ctx, AllocDmAttr(64))
    mr = DMMR(pd, 32, WRITE | IBV_ACCESS_ZERO_BASED, dm, 16)
    assert mr.buf == 0
    assert is_local(pd, 0, 32, mr.lkey, write=True)
    mem_alloc.write(mr.region.place(0), b"abcd", 4)
    assert mr.read(4, 16) == b"abcd"
    dm.close()
    assert not mr.region.is_open


@pytest.mark.parametrize(("length", "access", "offset"), [(65, 33, 0), (32, 33, 36), (8, 33, 2), (8, 1, 0), (8, 34, 0)])
def test_device_memory_is_registered_zero_based_and_within_it(pd, length, access, offset):
    with pytest.raises(PyverbsRDMAError, match="Failed to register a device MR"):
        DMMR(pd, length, access, DM(pd.ctx, AllocDmAttr(64)), offset)


def test_a_dma_buffer_is_not_supported(pd):
    with pytest.raises(PyverbsRDMAError, match="Failed to register a dma-buf MR") as caught:
        DmaBufMR(pd, 1, 0)
    assert caught.value.error_code == errno.EOPNOTSUPP


# -- windows ----------------------------------------------------------------------------------------------------------


def test_a_window_of_type_1_gets_a_new_key_each_time_and_the_old_one_opens_nothing(pd, qp):
    mr, mw = MR(pd, 64, WRITE | IBV_ACCESS_MW_BIND), MW(pd, 1)
    first = Binding(mw, MWBindInfo(mr, mr.buf + 8, 16, REMOTE))
    old = mw.rkey
    assert not is_remote(pd, old, mr.buf + 8, 16)  # posted, not yet executed
    assert first.execute(qp.pd, qp.number) == BOUND
    assert is_remote(pd, old, mr.buf + 8, 16)
    assert not is_remote(pd, old, mr.buf + 8, 17)
    assert not is_remote(pd, old, mr.buf + 8, 16, IBV_ACCESS_REMOTE_READ)
    assert not is_local(pd, mr.buf + 8, 16, old)
    assert Binding(mw, MWBindInfo(mr, mr.buf, 4, REMOTE)).execute(qp.pd, qp.number) == BOUND
    assert not is_remote(pd, old, mr.buf, 4)
    assert is_remote(pd, mw.rkey, mr.buf, 4)
    assert Binding(mw, MWBindInfo(mr, mr.buf, 0, 0)).execute(qp.pd, qp.number) == BOUND
    assert not is_remote(pd, mw.rkey, mr.buf, 4)
    assert mr.region.windows == 0


def test_a_window_of_type_2_is_for_one_queue_pair_and_bound_once_until_it_is_invalidated(pd, qp):
    mr, mw = MR(pd, 64, WRITE | IBV_ACCESS_MW_BIND), MW(pd, 2)
    info, key = MWBindInfo(mr, mr.buf, 64, REMOTE), inc_rkey(mw.rkey)
    assert Binding(mw, info, key).execute(qp.pd, qp.number) == BOUND
    assert is_remote(pd, key, mr.buf, 64, qp_num=qp.number)
    assert not is_remote(pd, key, mr.buf, 64, qp_num=qp.number + 1)
    assert Binding(mw, info, inc_rkey(key)).execute(qp.pd, qp.number) == FAILED
    assert pd.ctx.adapter.regions.invalidate(pd.key, qp.number, key)
    assert not is_remote(pd, key, mr.buf, 64, qp_num=qp.number)
    assert Binding(mw, info, inc_rkey(mw.rkey)).execute(qp.pd, qp.number) == BOUND


def test_a_closed_window_opens_nothing_and_sets_its_region_free(pd, qp):
    mr, mw = MR(pd, 64, WRITE | IBV_ACCESS_MW_BIND), MW(pd, 2)
    assert Binding(mw, MWBindInfo(mr, mr.buf, 64, REMOTE), inc_rkey(mw.rkey)).execute(qp.pd, qp.number) == BOUND
    key = mw.rkey
    with pytest.raises(PyverbsRDMAError, match="Failed to dereg MR") as caught:
        mr.close()
    assert caught.value.error_code == errno.EBUSY
    mw.close()
    assert not is_remote(pd, key, mr.buf, 64, qp_num=qp.number)
    mr.close()
    assert not mr.region.is_open


def test_a_domain_closes_windows_before_regions(pd, qp):
    mw, mr = MW(pd, 1), MR(pd, 64, WRITE | IBV_ACCESS_MW_BIND)
    assert Binding(mw, MWBindInfo(mr, mr.buf, 64, REMOTE)).execute(qp.pd, qp.number) == BOUND
    pd.close()
    assert not mr.region.is_open


@pytest.mark.parametrize(
    ("region_access", "offset", "length", "window_access"),
    [
        (WRITE, 0, 64, REMOTE),  # not allowed for windows
        (WRITE | IBV_ACCESS_MW_BIND, 0, 65, REMOTE),
        (WRITE | IBV_ACCESS_MW_BIND, -1, 4, REMOTE),
        (IBV_ACCESS_MW_BIND, 0, 64, REMOTE),  # the region is not writable
        (WRITE | IBV_ACCESS_MW_BIND, 0, 64, REMOTE | IBV_ACCESS_ZERO_BASED),  # type 1
    ],
)
def test_a_window_opens_no_more_than_its_region(pd, qp, region_access, offset, length, window_access):
    mr, mw = MR(pd, 64, region_access), MW(pd, 1)
    assert Binding(mw, MWBindInfo(mr, mr.buf + offset, length, window_access)).execute(qp.pd, qp.number) == FAILED
    assert not mw.region.is_open


def test_a_window_is_bound_within_its_domain_and_with_its_own_key(pd, qp):
    mr, access = MR(pd, 64, WRITE | IBV_ACCESS_MW_BIND), REMOTE
    strange = MW(PD(pd.ctx), 1)
    assert Binding(strange, MWBindInfo(mr, mr.buf, 64, access)).execute(qp.pd, qp.number) == FAILED
    own = MW(pd, 2)
    assert Binding(own, MWBindInfo(mr, mr.buf, 64, access), own.rkey + 256).execute(qp.pd, qp.number) == FAILED
    assert Binding(own, MWBindInfo(mr, mr.buf, 0, access), inc_rkey(own.rkey)).execute(qp.pd, qp.number) == FAILED


def test_each_type_is_bound_in_its_own_way(pd):
    mr = MR(pd, 64, WRITE | IBV_ACCESS_MW_BIND)
    info = MWBindInfo(mr, mr.buf, 64, REMOTE)
    with pytest.raises(PyverbsRDMAError, match="type 2"):
        Binding(MW(pd, 2), info)
    with pytest.raises(PyverbsRDMAError, match="type 1"):
        Binding(MW(pd, 1), info, 256)
    with pytest.raises(PyverbsRDMAError, match="Failed to allocate MW"):
        MW(pd, 3)


# -- in use -----------------------------------------------------------------------------------------------------------


def test_a_zero_based_region_is_used_where_it_lies():
    wire = Wire()
    near, _ = connected(wire)
    window = wire.a.adapter.regions.register(wire.a.pd, wire.a.at + 512, 64, WRITE | IBV_ACCESS_ZERO_BASED)
    wire.b.put(0, b"far away")
    read = SendWork(
        wr_id=1,
        opcode=ibv_wr_opcode.IBV_WR_RDMA_READ,
        places=(Place(8, 8, window.key),),
        flags=IBV_SEND_SIGNALED,
        va=wire.b.at,
        rkey=wire.b.region.key,
    )
    near.post_send(read)
    wire.a.adapter.wake(near)
    wire.run()
    assert wire.a.done() == [(1, ibv_wc_status.IBV_WC_SUCCESS)]
    assert wire.a.get(520, 8) == b"far away"


@pytest.mark.parametrize("opcode", [ibv_wr_opcode.IBV_WR_RDMA_READ, ibv_wr_opcode.IBV_WR_ATOMIC_FETCH_AND_ADD])
def test_response_for_a_closed_region_is_not_written(opcode):
    wire = Wire()
    near, _ = connected(wire)
    wire.b.put(0, b"far away")
    wire.a.send(near, 1, 512, 8, opcode, va=wire.b.at, rkey=wire.b.region.key)
    wire.a.adapter.progress()
    wire.a.adapter.regions.drop(wire.a.region)
    wire.run()
    assert wire.a.done() == [(1, ibv_wc_status.IBV_WC_LOC_PROT_ERR)]
    assert wire.a.get(512, 8) == bytes(8)


def test_a_message_whose_memory_goes_away_between_packets_is_refused():
    closed = []

    def close_after_the_first(packet):
        if packet.op in REQUESTS and not packet.first and not closed:
            closed.append(wire.b.adapter.regions.drop(wire.b.region))
        return [packet]

    wire = Wire(close_after_the_first)
    near, far = connected(wire)
    wire.b.receive(far, 7, 0, 4096)
    wire.a.send(near, 1, 0, 4096)
    wire.run()
    assert wire.a.done() == [(1, ibv_wc_status.IBV_WC_REM_OP_ERR)]
    assert wire.b.done() == [(7, ibv_wc_status.IBV_WC_LOC_PROT_ERR)]
