"""Convert addresses, and create address handles."""

from __future__ import annotations

import sys

from weft.verbs.attributes.address import GID, AHAttr, GlobalRoute
from weft.verbs.c.calls import operation
from weft.verbs.c.objects import add, find
from weft.verbs.pyverbs.addr import AH, reply_address
from weft.verbs.pyverbs.context import Context
from weft.verbs.pyverbs.pd import PD
from weft.verbs.pyverbs.wc import WC
from weft.verbs.shm.record import Record, u32, u64


class Address(Record):
    """The fields of struct ibv_ah_attr."""

    dgid_begin: u64  # bytes of the GID as in memory
    dgid_end: u64
    flow_label: u32
    sgid_index: u32
    hop_limit: u32
    traffic_class: u32
    dlid: u32
    sl: u32
    src_path_bits: u32
    static_rate: u32
    is_global: u32
    port_num: u32


_PLAIN = ("dlid", "sl", "src_path_bits", "static_rate", "is_global", "port_num")
_ROUTE = ("flow_label", "sgid_index", "hop_limit", "traffic_class")


def read_address(address: int) -> AHAttr:
    words = Address.from_address(address)
    gid = b"".join(half.to_bytes(8, sys.byteorder) for half in (words.dgid_begin, words.dgid_end))
    route = GlobalRoute(GID.of(gid), **{name: getattr(words, name) for name in _ROUTE})
    return AHAttr(**{name: getattr(words, name) for name in _PLAIN}, gr=route)


def write_address(address: int, attr: AHAttr) -> None:
    words, route = Address.from_address(address), attr.route
    halves = (route.raw_dgid[:8], route.raw_dgid[8:])
    words.dgid_begin, words.dgid_end = (int.from_bytes(half, sys.byteorder) for half in halves)
    for name in _ROUTE:
        setattr(words, name, getattr(route, name))
    for name in _PLAIN:
        setattr(words, name, getattr(attr, name))


class CreateAh(Record):
    pd: u32
    address: u64  # an Address
    handle: u32


@operation(CreateAh)
def create_ah(call: CreateAh) -> None:
    call.handle = add(AH(find(call.pd, PD), attr=read_address(call.address)))


class AnswerTo(Record):
    """A received datagram, for the address of its sender."""

    context: u32
    port_num: u32
    slid: u32
    sl: u32
    dlid_path_bits: u32
    wc_flags: u32
    grh: u64  # address of the GRH
    address: u64  # out: an Address


@operation(AnswerTo)
def answer_to(call: AnswerTo) -> None:
    wc = WC(slid=call.slid, sl=call.sl, dlid_path_bits=call.dlid_path_bits, wc_flags=call.wc_flags)
    write_address(call.address, reply_address(find(call.context, Context), wc, call.grh, call.port_num))
