"""The headers of InfiniBand packets, link to transport, and which of them follow an opcode.

    LRH [GRH] BTH {extended headers} payload pad ICRC VCRC      between InfiniBand ports
        GRH   BTH {extended headers} payload pad ICRC           RoCE v1, after an Ethernet header
              BTH {extended headers} payload pad ICRC           RoCE v2, after IP and UDP

Names are the standard's (InfiniBand Architecture volume 1, "Packet Format"), without capitals.
"""

# ruff: noqa: PIE794 - reserved fields are named `_`

from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, numbers, reserved
from weft.wire.format import Format

GRH_NEXT_HEADER = 0x1B  # a BTH follows


class LNH(IntEnum):
    """The link next header: the header after the LRH."""

    RAW = 0  # a raw header with an Ethertype
    IPV6 = 1  # an IPv6 header, no InfiniBand transport
    BTH = 2  # local
    GRH = 3  # global


class LRH(Format, size=8):
    """The Local Route Header. `pkt_len` is in words of 4 bytes, from the LRH to before the VCRC."""

    vl = bits(4)
    lver = bits(4)
    sl = bits(4)
    _ = reserved(2)
    lnh = bits(2, of=LNH, default=LNH.BTH)
    dlid = bits(16)
    _ = reserved(5)
    pkt_len = bits(11)
    slid = bits(16)


class GRH(Format, size=40):
    """The Global Route Header: an IPv6 header."""

    ip_ver = bits(4, default=6)
    t_class = bits(8)
    flow_label = bits(20)
    pay_len = bits(16)
    nxt_hdr = bits(8, default=GRH_NEXT_HEADER)
    hop_lmt = bits(8)
    sgid = bits(128)
    dgid = bits(128)


class RWH(Format, size=4):
    """The Raw Header."""

    _ = reserved(16)
    ether_type = bits(16)


class FlowControl(Format, size=6):
    """The link packet that carries credits; `fctbs` and `fccl` count blocks of 64 bytes."""

    op = bits(4)
    fctbs = bits(12)
    vl = bits(4)
    fccl = bits(12)
    lpcrc = bits(16)


class Opcode(IntEnum):
    """The opcode: transport in the upper three bits, operation in the lower five."""

    RC_SEND_FIRST = 0x00
    RC_SEND_MIDDLE = 0x01
    RC_SEND_LAST = 0x02
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03
    RC_SEND_ONLY = 0x04
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05
    RC_RDMA_WRITE_FIRST = 0x06
    RC_RDMA_WRITE_MIDDLE = 0x07
    RC_RDMA_WRITE_LAST = 0x08
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09
    RC_RDMA_WRITE_ONLY = 0x0A
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0B
    RC_RDMA_READ_REQUEST = 0x0C
    RC_RDMA_READ_RESPONSE_FIRST = 0x0D
    RC_RDMA_READ_RESPONSE_MIDDLE = 0x0E
    RC_RDMA_READ_RESPONSE_LAST = 0x0F
    RC_RDMA_READ_RESPONSE_ONLY = 0x10
    RC_ACKNOWLEDGE = 0x11
    RC_ATOMIC_ACKNOWLEDGE = 0x12
    RC_COMPARE_SWAP = 0x13
    RC_FETCH_ADD = 0x14
    RC_SEND_LAST_WITH_INVALIDATE = 0x16
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17
    RC_FLUSH = 0x1C
    RC_ATOMIC_WRITE = 0x1D

    UC_SEND_FIRST = 0x20
    UC_SEND_MIDDLE = 0x21
    UC_SEND_LAST = 0x22
    UC_SEND_LAST_WITH_IMMEDIATE = 0x23
    UC_SEND_ONLY = 0x24
    UC_SEND_ONLY_WITH_IMMEDIATE = 0x25
    UC_RDMA_WRITE_FIRST = 0x26
    UC_RDMA_WRITE_MIDDLE = 0x27
    UC_RDMA_WRITE_LAST = 0x28
    UC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x29
    UC_RDMA_WRITE_ONLY = 0x2A
    UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x2B

    RD_SEND_FIRST = 0x40
    RD_SEND_MIDDLE = 0x41
    RD_SEND_LAST = 0x42
    RD_SEND_LAST_WITH_IMMEDIATE = 0x43
    RD_SEND_ONLY = 0x44
    RD_SEND_ONLY_WITH_IMMEDIATE = 0x45
    RD_RDMA_WRITE_FIRST = 0x46
    RD_RDMA_WRITE_MIDDLE = 0x47
    RD_RDMA_WRITE_LAST = 0x48
    RD_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x49
    RD_RDMA_WRITE_ONLY = 0x4A
    RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x4B
    RD_RDMA_READ_REQUEST = 0x4C
    RD_RDMA_READ_RESPONSE_FIRST = 0x4D
    RD_RDMA_READ_RESPONSE_MIDDLE = 0x4E
    RD_RDMA_READ_RESPONSE_LAST = 0x4F
    RD_RDMA_READ_RESPONSE_ONLY = 0x50
    RD_ACKNOWLEDGE = 0x51
    RD_ATOMIC_ACKNOWLEDGE = 0x52
    RD_COMPARE_SWAP = 0x53
    RD_FETCH_ADD = 0x54
    RD_RESYNC = 0x55

    UD_SEND_ONLY = 0x64
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65

    CNP = 0x81

    XRC_SEND_FIRST = 0xA0
    XRC_SEND_MIDDLE = 0xA1
    XRC_SEND_LAST = 0xA2
    XRC_SEND_LAST_WITH_IMMEDIATE = 0xA3
    XRC_SEND_ONLY = 0xA4
    XRC_SEND_ONLY_WITH_IMMEDIATE = 0xA5
    XRC_RDMA_WRITE_FIRST = 0xA6
    XRC_RDMA_WRITE_MIDDLE = 0xA7
    XRC_RDMA_WRITE_LAST = 0xA8
    XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0xA9
    XRC_RDMA_WRITE_ONLY = 0xAA
    XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0xAB
    XRC_RDMA_READ_REQUEST = 0xAC
    XRC_RDMA_READ_RESPONSE_FIRST = 0xAD
    XRC_RDMA_READ_RESPONSE_MIDDLE = 0xAE
    XRC_RDMA_READ_RESPONSE_LAST = 0xAF
    XRC_RDMA_READ_RESPONSE_ONLY = 0xB0
    XRC_ACKNOWLEDGE = 0xB1
    XRC_ATOMIC_ACKNOWLEDGE = 0xB2
    XRC_COMPARE_SWAP = 0xB3
    XRC_FETCH_ADD = 0xB4
    XRC_SEND_LAST_WITH_INVALIDATE = 0xB6
    XRC_SEND_ONLY_WITH_INVALIDATE = 0xB7


class BTH(Format, size=12):
    """The Base Transport Header. FECN and BECN are the first two bits of resv8a, by annex A10 (congestion control)."""

    opcode = bits(8, of=Opcode)
    se = bits(1)  # solicited event
    m = bits(1)  # migration state
    pad_cnt = bits(2)
    t_ver = bits(4)
    p_key = bits(16, default=0xFFFF)
    fecn = bits(1)
    becn = bits(1)
    _ = reserved(6)
    dest_qp = bits(24)
    a = bits(1)  # acknowledge request
    _ = reserved(7)
    psn = bits(24)


class RDETH(Format, size=4):
    """The Reliable Datagram Extended Transport Header."""

    _ = reserved(8)
    ee_context = bits(24)


class DETH(Format, size=8):
    """The Datagram Extended Transport Header."""

    q_key = bits(32)
    _ = reserved(8)
    src_qp = bits(24)


class XRCETH(Format, size=4):
    """The XRC Extended Transport Header."""

    _ = reserved(8)
    xrc_srq = bits(24)


class RETH(Format, size=16):
    """The RDMA Extended Transport Header."""

    va = bits(64)
    r_key = bits(32)
    dma_len = bits(32)


class AtomicETH(Format, size=28):
    """The Atomic Extended Transport Header."""

    va = bits(64)
    r_key = bits(32)
    swap_dt = bits(64)  # or the number to add
    cmp_dt = bits(64)


class Syndrome(IntEnum):
    """The syndrome of an AETH; an ACK carries a credit count in the lower five bits, an RNR NAK a timer."""

    ACK = 0x00
    ACK_WITHOUT_CREDITS = 0x1F  # the sender need not count
    RNR_NAK = 0x20
    NAK_PSN_SEQUENCE_ERROR = 0x60
    NAK_INVALID_REQUEST = 0x61
    NAK_REMOTE_ACCESS_ERROR = 0x62
    NAK_REMOTE_OPERATIONAL_ERROR = 0x63
    NAK_INVALID_RD_REQUEST = 0x64


class AETH(Format, size=4):
    """The ACK Extended Transport Header."""

    syndrome = bits(8, of=Syndrome)
    msn = bits(24)


class AtomicAckETH(Format, size=8):
    """The Atomic ACK Extended Transport Header."""

    orig_rem_dt = bits(64)


class ImmDt(Format, size=4):
    """The immediate data."""

    imm_dt = bits(32)


class IETH(Format, size=4):
    """The Invalidate Extended Transport Header."""

    r_key = bits(32)


class FETH(Format, size=4):
    """The FLUSH Extended Transport Header, of the standard's memory placement extensions."""

    _ = reserved(26)
    sel = bits(2)  # selectivity level: a range, or all of the memory region
    plt = bits(4)  # placement type: 1 global visibility, 2 persistence


class CNPPadding(Format, size=16):
    """The 16 zero bytes after the BTH of a RoCE v2 congestion notification packet."""

    zeros = numbers(2, 64)
