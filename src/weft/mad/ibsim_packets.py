"""Define the packets of ibsim's sockets: control requests of 80 bytes in host order, MADs in 288 in network order.

(https://github.com/linux-rdma/ibsim, include/ibsim.h.)
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from weft.mad.carrier import HERE, SMP_CLASSES, Address
from weft.mad.transfers import ends_at
from weft.wire.mad import MAD_BYTES

CONTROL = struct.Struct("=IIII64s")  # magic, client, kind, length, data
CLIENT_INFO = struct.Struct("=III32s")  # the client's number, queue pair, is a subnet manager, name of the node
MAGIC = 0xDEADBEEF
CONNECT, DISCONNECT, SET_ISSM = 1, 2, 9
DATA = struct.Struct(">H2xH2xIII4xQ256s")  # LIDs to and from, queue pairs to and from, status, length, MAD
HEAD_BYTES = DATA.size - MAD_BYTES
_HEAD = np.dtype(
    {
        "names": ["to", "from", "to_qp", "from_qp", "length"],
        "formats": [">u2", ">u2", ">u4", ">u4", ">u8"],
        "offsets": [0, 4, 8, 12, 24],
        "itemsize": HEAD_BYTES,
    }
)
PACKET = np.dtype(  # the same as DATA; what is looked at when there are many
    {
        "names": ["head", "status", "mad", "mgmt_class", "method", "upper", "number"],
        "formats": [(np.void, HEAD_BYTES), ">u4", (np.uint8, MAD_BYTES), np.uint8, np.uint8, ">u4", ">u4"],
        "offsets": [0, 16, 32, 33, 35, 40, 44],
        "itemsize": DATA.size,
    }
)


def address(server: str, end: str) -> bytes:
    return b"\0" + f"{server}:{end}".encode() + b"\0"


def packet(mad: bytes, to: Address) -> bytes:
    queue_pair = 0 if mad[1] in SMP_CLASSES else to.qp
    from_lid = to.lid if to.lid == HERE.lid else 0  # 0: the server fills in ours
    own = 0 if mad[1] in SMP_CLASSES else 1
    return DATA.pack(to.lid, from_lid, queue_pair, own, 0, ends_at(mad), mad)


def heads_of(classes: NDArray[np.uint8], lids: NDArray[np.int64]) -> NDArray[np.void]:
    """Return the headers, of HEAD_BYTES each, that `packet` puts before each MAD."""
    heads = np.zeros(len(lids), _HEAD)
    heads["length"] = MAD_BYTES
    heads["to"], heads["from"] = lids, np.where(lids == HERE.lid, lids, 0)
    heads["to_qp"] = heads["from_qp"] = ~np.isin(classes, list(SMP_CLASSES))
    return heads.view((np.void, HEAD_BYTES))
