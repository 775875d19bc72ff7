"""ibsim's protocol as bytes: what a program with libumad2sim sends, and what it expects back.

    control, 80 bytes    magic, client, kind, length, 64 bytes of data; in the byte order of the machine
    data, 288 bytes      DLID, SLID, QPs, status, length and one MAD; in network order

Both are datagrams on abstract unix sockets, whose names end with a zero byte that counts.
(https://github.com/linux-rdma/ibsim, include/ibsim.h and umad2sim/sim_client.c)
"""

from __future__ import annotations

import struct
from enum import IntEnum

from weft.mad.carrier import SMP_CLASSES
from weft.mad.transfers import is_rmpp
from weft.wire.mad import MAD_BYTES, RmppType

CONTROL = struct.Struct("=IIII64s")
CONTROL_DATA_BYTES = 64
CLIENT_INFO = struct.Struct("=III32s")  # id, QP, is it a subnet manager, node
VENDOR = struct.Struct("=III4xQ")
MAGIC = 0xDEADBEEF
HEADER_BYTES = 32
DATA_BYTES = HEADER_BYTES + MAD_BYTES
NAME_BYTES = 31  # bytes of SIM_HOST that reach the server
WHOLE_MAD = MAD_BYTES.to_bytes(8, "big")
_MAD_HEADER_BYTES = 24
_SENT_BACK = struct.pack(">I", 110)  # ETIMEDOUT, as the kernel sets it
_OK = bytes(8)  # status, and what the compiler leaves free
_QP0, _QP1 = bytes(8), b"\0\0\0\1\0\0\0\1"


class Control(IntEnum):
    """The kinds of control requests; ERROR is an answer."""

    ERROR = 0
    CONNECT = 1
    DISCONNECT = 2
    GET_PORT = 3
    GET_VENDOR = 4
    GET_GID = 5
    GET_GUID = 6
    GET_NODEINFO = 7
    GET_PORTINFO = 8
    SET_ISSM = 9
    GET_PKEYS = 10


def is_control(raw: bytes) -> bool:
    return len(raw) == CONTROL.size and CONTROL.unpack(raw)[0] == MAGIC


def address(base: str, end: str) -> bytes:
    """Return the address of a socket: `ctl`, `out3` of client 3, `in4711` of process 4711."""
    return b"\0" + f"{base}:{end}".encode() + b"\0"


def answer_to(request: bytes | bytearray, lid: int, reply: bytes | bytearray) -> bytes:
    """Return an agent's answer to a datagram; `lid` is the requester's, if it used LIDs."""
    head = lid.to_bytes(2, "big") + b"\0\0"
    return b"".join((head, request[0:4], request[12:16], request[8:12], _OK, WHOLE_MAD, reply))


def timed_out(request: bytes | bytearray, mad: bytes | bytearray) -> bytes:
    """Return the request to its sender as timed out."""
    return b"".join((request[:16], _SENT_BACK, request[20:24], WHOLE_MAD, mad))


def delivered(dlid: int, slid: int, mad: bytes) -> bytes:
    """Return a datagram with a MAD of another port."""
    head = b"%b\0\0%b\0\0" % (dlid.to_bytes(2, "big"), slid.to_bytes(2, "big"))
    return b"".join((head, _QP0 if mad[1] in SMP_CLASSES else _QP1, _OK, WHOLE_MAD, mad))


def fill_up(request: bytearray) -> bool:
    """Fill a short MAD with zeros, where libumad2sim sends stack contents; return False if the length is invalid."""
    length = int.from_bytes(request[24:32], "big")
    if not _MAD_HEADER_BYTES <= length < MAD_BYTES:
        return False
    request[HEADER_BYTES + length :] = bytes(MAD_BYTES - length)
    return True


def transaction(mad: bytes | bytearray) -> bytes:
    """Return the transaction id, which a response shares with its request."""
    return bytes(mad[8:16])


def is_receipt(mad: bytes | bytearray) -> bool:
    """Return whether it is an ACK, STOP or ABORT of an RMPP transfer, which has no answer."""
    return is_rmpp(mad) and mad[25] > RmppType.DATA


def reason(error: Exception) -> bytes:
    """Return why a control request is refused, as far as it fits into the answer."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.partition(";")[0].encode()[:CONTROL_DATA_BYTES]
