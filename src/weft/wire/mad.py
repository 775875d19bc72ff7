"""Management datagrams: the parts that all classes share.

Every MAD has 256 bytes and starts with the same 24; the rest belongs to its class. Formats of a whole MAD extend
`MadHeader`; formats of an attribute describe the `data` of such a MAD.
(InfiniBand Architecture volume 1, "Management Model".)
"""

from __future__ import annotations

from enum import IntEnum

from weft.wire.fields import bits, octets, reserved
from weft.wire.format import Format

MAD_BYTES = 256
QP1_Q_KEY = 0x8001_0000  # the well-known key of QP1


class MgmtClass(IntEnum):
    """The management classes."""

    SUBN_LID_ROUTED = 0x01
    SUBN_ADM = 0x03
    PERF = 0x04
    BM = 0x05
    DEV_MGT = 0x06
    COM_MGT = 0x07
    SNMP = 0x08
    VENDOR_MLNX = 0x0A  # the first of vendor range 1 that real switches use
    DEV_ADM = 0x10
    BIS = 0x12
    CONG_CTRL = 0x21
    OPENIB_PING = 0x32  # ibping, ibsysstat: vendor range 2 with OpenFabrics' OUI
    OPENIB_SYSSTAT = 0x33
    SUBN_DIRECTED_ROUTE = 0x81


class Method(IntEnum):
    """The methods; a response has the upper bit set."""

    GET = 0x01
    SET = 0x02
    SEND = 0x03
    TRAP = 0x05
    REPORT = 0x06
    TRAP_REPRESS = 0x07
    GET_TABLE = 0x12
    GET_TRACE_TABLE = 0x13
    GET_MULTI = 0x14
    DELETE = 0x15
    GET_RESP = 0x81
    REPORT_RESP = 0x86
    GET_TABLE_RESP = 0x92
    GET_MULTI_RESP = 0x94
    DELETE_RESP = 0x95


RESPONSE = 0x80


class Status(IntEnum):
    """The common part of a MAD's status; the upper byte belongs to the class."""

    OK = 0x0000
    BUSY = 0x0001
    REDIRECT = 0x0002
    BAD_VERSION = 0x0004
    METHOD_NOT_SUPPORTED = 0x0008
    METHOD_ATTRIBUTE_NOT_SUPPORTED = 0x000C
    INVALID_FIELD = 0x001C


class MadHeader(Format, size=24):
    """The common MAD header."""

    base_version = bits(8, default=1)
    mgmt_class = bits(8, of=MgmtClass)
    class_version = bits(8, default=1)
    method = bits(8, of=Method)
    status = bits(16)
    class_specific = bits(16)
    transaction_id = bits(64)
    attribute_id = bits(16)
    _ = reserved(16)
    attribute_modifier = bits(32)


class Mad(MadHeader, size=MAD_BYTES):
    """A MAD of any class."""

    data = octets(232)


class PlainMad(MadHeader, size=MAD_BYTES):
    """A MAD of performance, device or baseboard management: 192 bytes of data after 40 reserved ones."""

    _ = reserved(320)
    data = octets(192)


class RmppType(IntEnum):
    NONE = 0
    DATA = 1
    ACK = 2
    STOP = 3
    ABORT = 4


class RmppFlag(IntEnum):
    ACTIVE = 1
    FIRST = 2
    LAST = 4


class RmppStatus(IntEnum):
    """The reason why an RMPP transfer was stopped or aborted."""

    NORMAL = 0
    RESOURCES_EXHAUSTED = 1
    TOTAL_TIME_TOO_LONG = 118
    INCONSISTENT_LAST_AND_PAYLOAD_LENGTH = 119
    INCONSISTENT_FIRST_AND_SEGMENT_NUMBER = 120
    BAD_RMPP_TYPE = 121
    NEW_WINDOW_LAST_TOO_SMALL = 122
    SEGMENT_NUMBER_TOO_BIG = 123
    ILLEGAL_STATUS = 124
    UNSUPPORTED_VERSION = 125
    TOO_MANY_RETRIES = 126
    UNSPECIFIED = 127


class RmppMad(MadHeader, size=36):
    """The common header and that of the reliable multi-packet protocol.

    `data1` is the segment number; `data2` is the length of the payload in DATA, the new window's last segment in ACK.
    """

    rmpp_version = bits(8)
    rmpp_type = bits(8, of=RmppType)
    r_resp_time = bits(5)
    rmpp_flags = bits(3)
    rmpp_status = bits(8, of=RmppStatus)
    data1 = bits(32)
    data2 = bits(32)


class VendorMad(RmppMad, size=MAD_BYTES):
    """A MAD of vendor classes 0x30 to 0x4F, which name the vendor."""

    _ = reserved(8)
    oui = bits(24)
    data = octets(216)


class ClassPortInfo(Format, size=72):
    """The capabilities of a class manager or agent, its redirection, and the destination of its traps."""

    base_version = bits(8, default=1)
    class_version = bits(8, default=1)
    capability_mask = bits(16)
    capability_mask2 = bits(27)
    resp_time_value = bits(5)  # 4.096 us * 2^n
    redirect_gid = bits(128)
    redirect_tc = bits(8)
    redirect_sl = bits(4)
    redirect_fl = bits(20)
    redirect_lid = bits(16)
    redirect_p_key = bits(16)
    _ = reserved(8)
    redirect_qp = bits(24)
    redirect_q_key = bits(32)
    trap_gid = bits(128)
    trap_tc = bits(8)
    trap_sl = bits(4)
    trap_fl = bits(20)
    trap_lid = bits(16)
    trap_p_key = bits(16)
    trap_hl = bits(8)
    trap_qp = bits(24)
    trap_q_key = bits(32)
