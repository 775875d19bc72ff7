"""Find the network interface of an address, and its MTU."""

from __future__ import annotations

import ctypes
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator

from weft.runtime import libc

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_SIOCGIFMTU = 0x8921
_ADDRESS_AT = {socket.AF_INET: (4, 4), socket.AF_INET6: (8, 16)}  # offset and length in a sockaddr


class _Entry(ctypes.Structure):
    """The first fields of struct ifaddrs."""


_Entry._fields_ = (  # refers to itself
    ("next", ctypes.POINTER(_Entry)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.c_void_p),
    ("mask", ctypes.c_void_p),
)


def mtu_of(address: Address) -> int | None:
    """Return the MTU of the interface with an address or with its network (127.0.0.0/8); None if there is none."""
    interface = None
    for name, own, mask in _addresses():
        if own.version == address.version and int(own) & mask == int(address) & mask:
            interface = name
            if own == address:
                break
    if interface is None:
        return None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFMTU, struct.pack("16si12x", interface, 0))
    return int(struct.unpack_from("i", answer, 16)[0])


def _addresses() -> Iterator[tuple[bytes, Address, int]]:
    """Yield the name, address and mask of each interface address."""
    first = ctypes.POINTER(_Entry)()
    if libc().getifaddrs(ctypes.byref(first)):
        raise OSError(ctypes.get_errno(), "getifaddrs")
    try:
        entry = first
        while entry:
            if (own := _read(entry.contents.address)) is not None:
                mask = _read(entry.contents.mask)
                yield entry.contents.name, own, int(mask) if mask is not None else -1
            entry = entry.contents.next
    finally:
        libc().freeifaddrs(first)


def _read(at: int | None) -> Address | None:
    if at is None:
        return None
    family = int.from_bytes(ctypes.string_at(at, 2), "little")
    if family not in _ADDRESS_AT:
        return None
    offset, length = _ADDRESS_AT[socket.AddressFamily(family)]
    raw = ctypes.string_at(at + offset, length)
    return ipaddress.IPv4Address(raw) if length == 4 else ipaddress.IPv6Address(raw)
