"""Work requests keep the values they were given."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.verbs.attributes.objects import PyverbsCM
from weft.verbs.enums import IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, IBV_WR_SEND
from weft.verbs.errors import PyverbsUserError
from weft.verbs.pyverbs.wr import SGE, RecvWR, SendWR
from weft.verbs.shm.layout import SendRequest, SgeRecord
from weft.verbs.shm.memory import Place


def test_an_element_reads_its_memory():
    buffer = ctypes.create_string_buffer(b"weft and warp")
    assert SGE(ctypes.addressof(buffer), 13, 1).read(4, 9) == b"warp"


@pytest.mark.parametrize("wr_id", [5, (1 << 64) - 1])
def test_a_request_has_zeros_where_nothing_was_given(wr_id):
    wr = SendWR(wr_id=wr_id, opcode=IBV_WR_SEND, num_sge=1, imm_data=7, sg=[SGE(1, 2, 3)])
    request = SendRequest.from_buffer_copy(wr.raw)
    given = {"opcode": IBV_WR_SEND, "flags": IBV_SEND_SIGNALED, "wr_id": wr_id, "immediate": 7, "num_sge": 1}
    assert {name: getattr(request, name) for name in SendRequest.names} == dict.fromkeys(SendRequest.names, 0) | given


@pytest.mark.parametrize("bad", [(1 << 64, 0, 0), (0, 1 << 32, 0), (0, 0, -1)])
def test_an_element_refuses_what_does_not_fit(bad):
    with pytest.raises(OverflowError):
        SGE(*bad)


@pytest.mark.parametrize("bad", [None, "7"])
def test_an_element_refuses_what_is_no_number(bad):
    with pytest.raises(TypeError):
        SGE(0, bad, 0)


def test_a_fraction_is_cut_off():
    """As in C: rdma-core's tests pass half a length as a float."""
    assert SGE(0, 2.5, 0).length == 2


def test_a_request_takes_the_elements_as_they_are_when_it_is_made():
    elements = [SGE(100, 10, 1), SGE(200, 20, 2), SGE(300, 30, 3)]
    wr = SendWR(num_sge=2, sg=elements)
    elements[0].addr = 0
    assert wr.places == [Place(100, 10, 1), Place(200, 20, 2)]


def test_defaults_are_those_of_pyverbs():
    wr = SendWR(num_sge=1, sg=[SGE(0, 0, 0)])
    assert (wr.wr_id, wr.opcode, wr.send_flags, wr.imm_data) == (0, IBV_WR_SEND, IBV_SEND_SIGNALED, 0)
    assert wr.next_wr is None


def test_a_send_without_data_is_refused_unless_it_carries_none():
    with pytest.raises(PyverbsUserError, match="A WR needs at least one SGE"):
        SendWR()
    assert SendWR(opcode=IBV_WR_LOCAL_INV).places == []


def test_more_elements_than_given_are_refused():
    with pytest.raises(PyverbsUserError, match="num_sge = 2"):
        RecvWR(num_sge=2, sg=[SGE(0, 0, 0)])


def test_requests_chain():
    last = RecvWR(wr_id=2, num_sge=1, sg=[SGE(0, 0, 0)])
    first = RecvWR(wr_id=1, num_sge=1, sg=[SGE(0, 0, 0)], next_wr=last)
    assert first.next_wr is last


def test_remote_fields_are_kept():
    wr = SendWR(num_sge=1, sg=[SGE(0, 8, 0)])
    wr.set_wr_rdma(0xAB, 0x1000)
    assert (wr.rdma_rkey, wr.rdma_remote_addr) == (0xAB, 0x1000)
    wr.set_wr_atomic(1, 2, 3, 4)
    assert (wr.remote_rkey, wr.remote_addr, wr.compare_add, wr.swap) == (1, 2, 3, 4)
    wr.set_wr_ud("ah", 5, 6)
    assert (wr.ah, wr.remote_qpn, wr.remote_qkey) == ("ah", 5, 6)
    wr.set_qp_type_xrc(7)
    assert wr.remote_srqn == 7


def test_a_bind_gives_the_window_its_next_key():
    wr = SendWR(opcode=IBV_WR_BIND_MW)
    wr.set_bind_wr(SimpleNamespace(rkey=0x1234FF), "info")
    assert wr.rkey == 0x123400


def test_flags_print_by_name():
    wr = SendWR(num_sge=1, sg=[SGE(0, 0, 0)], send_flags=IBV_SEND_SIGNALED | IBV_SEND_INLINE)
    assert "IBV_SEND_SIGNALED IBV_SEND_INLINE" in str(wr)


_ANY = st.one_of(
    st.integers(-(1 << 66), 1 << 66), st.floats(-1e20, 1e20), st.sampled_from((0, 1, 255, 2**32 - 1, 2**64 - 1))
)


@settings(max_examples=200)
@given(addr=_ANY, length=_ANY, lkey=_ANY)
def test_an_element_keeps_what_fits_and_names_what_does_not(addr, length, lkey):
    """Packing all fields and checking each one have the same result."""
    fields = {"addr": (64, addr), "length": (32, length), "lkey": (32, lkey)}
    wrong = [name for name, (bits, number) in fields.items() if not 0 <= int(number) < 1 << bits]
    if not wrong:
        sge = SGE(addr, length, lkey)
        assert (sge.addr, sge.length, sge.lkey) == (int(addr), int(length), int(lkey))
        assert SgeRecord.form.unpack(sge.raw) == (int(addr), int(length), int(lkey))
        return
    with pytest.raises(OverflowError, match=f"^{wrong[0]} = "):
        SGE(addr, length, lkey)


@pytest.mark.parametrize(
    ("field", "bits"), [("wr_id", 64), ("opcode", 32), ("num_sge", 32), ("imm_data", 32), ("send_flags", 32)]
)
def test_a_request_names_what_does_not_fit(field, bits):
    with pytest.raises(OverflowError, match=f"^{field} = "):
        SendWR(**{"sg": [SGE(0, 0, 0)], "num_sge": 1, field: 1 << bits})
    wr = SendWR(num_sge=1, sg=[SGE(1, 2, 3)])
    with pytest.raises(OverflowError, match=f"^{field} = "):
        setattr(wr, field, 1 << bits)
    setattr(wr, field, (1 << bits) - 1)
    assert getattr(wr, field) == (1 << bits) - 1
    assert wr.places == [Place(1, 2, 3)]


def test_an_element_instead_of_the_others():
    wr = SendWR(num_sge=2, sg=[SGE(1, 2, 3), SGE(4, 5, 6)])
    wr.set_wr_rdma(0xAB, 0x1000)
    wr.sg_list = SGE(7, 8, 9)
    assert (wr.places, wr.num_sge, wr.remote_rkey) == ([Place(7, 8, 9)], 2, 0xAB)


@pytest.mark.parametrize("kind", [SGE, RecvWR, SendWR])
def test_the_end_of_a_request_costs_nothing(kind):
    """The adapter holds no resource for it, so there is nothing to check."""
    assert not hasattr(kind, "__del__")
    assert issubclass(kind, PyverbsCM)


@pytest.mark.parametrize("wr_id", [5, 5.0])  # struct cannot pack a float, but pyverbs accepts it
def test_a_send_request_has_no_remote_address_key_operands_or_number_unless_they_are_set(wr_id):
    request = SendRequest.form.unpack_from(SendWR(wr_id, IBV_WR_SEND, 1, 3, [SGE(0, 0, 0)]).raw)
    assert request == (IBV_WR_SEND, IBV_SEND_SIGNALED, 5, 3, 0, 0, 0, 0, 1, 0)
