"""Translate numbers and GIDs to text. pyverbs calls this module `utils`."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from weft.verbs.enums import ibv_rereg_mr_err_code
from weft.verbs.errors import PyverbsUserError

_QP_TYPES = {2: "RC", 3: "UC", 4: "UD", 7: "RD", 8: "Raw Packet", 9: "XRCD_SEND", 10: "XRCD_RECV", 0xFF: "Driver QP"}
_QP_STATES = {0: "Reset", 1: "Init", 2: "RTR", 3: "RTS", 4: "SQD", 5: "SQE", 6: "Error", 7: "Unknown"}
_ACCESS = {
    1: "Local write",
    2: "Remote write",
    4: "Remote read",
    8: "Remote atomic",
    16: "MW bind",
    32: "Zero based",
    64: "On demand",
}
_MIGRATION = {0: "Migrated", 1: "Re-arm", 2: "Armed"}


def be64toh(num: int) -> int:
    """Convert a 64-bit number from network order to the order of this machine."""
    return int(struct.unpack("=Q", struct.pack("!Q", num))[0])


def gid_str(subnet_prefix: int, interface_id: int) -> str:
    """Format a GID whose halves are in network order."""
    return raw_to_gid(struct.pack("=QQ", subnet_prefix, interface_id))


def gid_str_to_array(val: str) -> list[str]:
    """Return the 16 bytes of a GID as pairs of hexadecimal digits."""
    words = val.split(":")
    if len(words) != 8 or any(len(word) != 4 for word in words):
        raise PyverbsUserError(f"Invalid GID value ({words})")
    int("".join(words), 16)  # ValueError: not hexadecimal
    return [word[half : half + 2] for word in words for half in (0, 2)]


def gid_to_raw(text: str) -> bytes:
    """Parse a GID in pyverbs' form: eight groups of four digits, none left out."""
    return bytes(int(pair, 16) for pair in gid_str_to_array(text))


def raw_to_gid(raw: bytes) -> str:
    return raw.hex(":", -2)


def name_flags(flags: int, names: Mapping[int, str]) -> str:
    """Return the names of the bits that are set, each followed by a blank, as pyverbs prints them."""
    return "".join(f"{name} " for flag, name in names.items() if flags & flag)


def qp_type_to_str(qp_type: int) -> str:
    return _QP_TYPES.get(qp_type, f"Unknown ({qp_type})")


def qp_state_to_str(qp_state: int) -> str:
    return _QP_STATES.get(qp_state, f"Unknown ({qp_state})")


def mtu_to_str(mtu: int) -> int:
    """Return the bytes of an MTU code, or 0 if it is invalid. The name is pyverbs', though this is a number."""
    return 128 << mtu if 1 <= mtu <= 5 else 0


def access_flags_to_str(flags: int) -> str:
    return name_flags(flags, _ACCESS)


def mig_state_to_str(mig: int) -> str:
    return _MIGRATION.get(mig, f"Unknown ({mig})")


def rereg_error_to_str(error: int) -> str:
    names = {int(code): code.name for code in ibv_rereg_mr_err_code}
    return names.get(error, f"Unknown error ({error})")
