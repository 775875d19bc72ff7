"""The numbers of attributes, methods, opcodes and codes are those of the standard, in its order."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum, IntFlag

import pytest

from weft.wire.adaptive import LidState
from weft.wire.cc import CcAttribute
from weft.wire.cm import CmAttribute, RejReason, TransportService
from weft.wire.headers import LNH, Opcode, Syndrome
from weft.wire.mad import Method, MgmtClass, RmppFlag, RmppStatus, RmppType, Status
from weft.wire.notice import NoticeType, ProducerType, Trap
from weft.wire.pcap import LinkType
from weft.wire.perf import PerfAttribute, PerfCapability, PerfCapability2
from weft.wire.port_info import Capability, Capability2, LinkSpeed, LinkWidth, Mtu, PortPhysicalState, PortState
from weft.wire.roce import EtherType
from weft.wire.sa import JoinState, Rate, SaAttribute, SaStatus, Selector
from weft.wire.smp import NodeType, SMControl, SmpAttribute, SMState
from weft.wire.uet import NackCode, NextHeader, PdsType, SesOpcode, SesResponseOpcode

OF_A_SERVICE = (*range(0x15), 0x16, 0x17)  # RC and XRC
OPCODES = (
    *(*OF_A_SERVICE, 0x1C, 0x1D),  # FLUSH and ATOMIC WRITE
    *range(0x20, 0x2C),
    *range(0x40, 0x56),
    *(0x64, 0x65, 0x81),  # UD; CNP
    *(0xA0 | operation for operation in OF_A_SERVICE),
)
NUMBERS: dict[type[IntEnum | IntFlag], Iterable[int]] = {
    LNH: range(4),
    Opcode: OPCODES,
    Syndrome: (0, 0x1F, 0x20, *range(0x60, 0x65)),
    MgmtClass: (1, 3, 4, 5, 6, 7, 8, 0x0A, 0x10, 0x12, 0x21, 0x32, 0x33, 0x81),
    Method: (1, 2, 3, 5, 6, 7, 0x12, 0x13, 0x14, 0x15, 0x81, 0x86, 0x92, 0x94, 0x95),
    Status: (0, 1, 2, 4, 8, 0x0C, 0x1C),
    RmppType: range(5),
    RmppFlag: (1, 2, 4),
    RmppStatus: (0, 1, *range(118, 128)),
    NoticeType: (0, 1, 2, 3, 4, 0x7F),
    ProducerType: range(1, 5),
    Trap: (*range(64, 70), *range(128, 132), 144, 145, *range(256, 260)),
    NodeType: range(1, 4),
    SMState: range(4),
    SMControl: range(1, 6),
    SmpAttribute: (
        *(2, 0x10, 0x11, 0x12, *range(0x14, 0x1D), 0x20, 0x30, 0x31, 0x33),
        *(0xFF20, 0xFF21, 0xFF23, 0xFF60, 0xFF90, 0xFFD0, 0xFFD2, 0xFFD5, 0xFFD6),  # Mellanox
    ),
    PortState: range(6),
    PortPhysicalState: range(8),
    Mtu: range(1, 6),
    LinkWidth: (1, 2, 4, 8, 16),
    LinkSpeed: [1 << bit for bit in range(9)],
    LidState: range(4),
    Capability: [1 << bit for bit in range(1, 32)],
    Capability2: [1 << bit for bit in range(13)],
    PerfCapability: [1 << bit for bit in (8, 9, 10, 11, 12, 14, 15)],
    PerfCapability2: (1, 2),
    PerfAttribute: (1, *range(0x10, 0x13), *range(0x15, 0x1E), 0x1F, *range(0x30, 0x38)),
    SaAttribute: (
        *(1, 2, 3, *range(0x11, 0x19), 0x20, 0x30, 0x31, 0x33, 0x35, 0x36),
        *(*range(0x38, 0x3C), 0x3E, 0xF3),
    ),
    JoinState: (1, 2, 4, 8),
    SaStatus: range(0, 0x900, 0x100),
    Selector: range(4),
    Rate: range(2, 25),
    CmAttribute: (1, *range(0x10, 0x1B)),
    RejReason: range(1, 34),
    TransportService: range(4),
    CcAttribute: (1, 2, *range(0x11, 0x19)),
    LinkType: (1, 197, 247),
    EtherType: (0x0800, 0x8100, 0x86DD, 0x8915),
    PdsType: range(1, 12),
    NextHeader: (*range(7), 15),
    NackCode: (*range(1, 8), *range(0x0A, 0x0F), 0x10, 0x12, 0x15, 0x1A),
    SesOpcode: (*range(10), 0x0F),
    SesResponseOpcode: range(3),
}


@pytest.mark.parametrize("numbers", NUMBERS, ids=lambda numbers: numbers.__name__)
def test_numbers_are_those_of_the_standard(numbers):
    assert [int(number) for number in numbers.__members__.values()] == list(NUMBERS[numbers])
