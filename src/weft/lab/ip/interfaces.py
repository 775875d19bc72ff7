"""A network namespace with a TUN device for each port of a host: the machine's kernel has the IP stack."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from weft.errors import ConfigError

_CLONE_NEWNET, _CLONE_NEWUSER = 0x4000_0000, 0x1000_0000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x4004_54CA, 0x0001, 0x1000
_SIOCADDRT, _SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x890B, 0x8914, 0x8916, 0x891C, 0x8922
_IFF_UP, _IFF_RUNNING, _RTF_UP = 0x1, 0x40, 0x1
_IFREQ = struct.Struct("16s24s")
_ROUTE = struct.Struct("@Q16s16s16sHHiQQhxxxxxxPQQHxxxxxx")  # struct rtentry of 64-bit Linux
_MASK = 0xFFFF_0000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A TUN device: its name, address within a /16, and a network of a /16 behind a gateway on it; 0: none."""

    name: str
    address: int
    mtu_bytes: int
    behind: int = 0


def enter(interfaces: Sequence[Interface], *, forwards: bool) -> list[int]:
    """Enter a new network namespace with these devices; return the file of each. `forwards`: the host is a router."""
    try:
        _unshare()
        files = [_open_tun(each.name) for each in interfaces]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            _set(control, _SIOCSIFFLAGS, "lo", struct.pack("H", _IFF_UP | _IFF_RUNNING))
            for each in interfaces:
                _set(control, _SIOCSIFADDR, each.name, _address(each.address))
                _set(control, _SIOCSIFNETMASK, each.name, _address(_MASK))
                _set(control, _SIOCSIFMTU, each.name, struct.pack("i", each.mtu_bytes))
                _set(control, _SIOCSIFFLAGS, each.name, struct.pack("H", _IFF_UP | _IFF_RUNNING))
                if each.behind:
                    _add_route(control, each)
        if forwards:
            with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
                file.write("1")
    except OSError as error:
        raise ConfigError(
            f"--ip needs a network namespace with TUN devices, which this system refuses: {error}; it needs "
            "/dev/net/tun, and root or user namespaces (docker run --cap-add NET_ADMIN --device /dev/net/tun)"
        ) from None
    return files


def _unshare() -> None:
    """Enter a network namespace; without privileges, in a user namespace with the same user."""
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if not libc.unshare(_CLONE_NEWNET):
        return
    if libc.unshare(_CLONE_NEWNET | _CLONE_NEWUSER):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    for name, says in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(says)


def _open_tun(name: str) -> int:
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(file, _TUNSETIFF, _IFREQ.pack(name.encode(), struct.pack("H", _IFF_TUN | _IFF_NO_PI)))
    return file


def _set(control: socket.socket, request: int, name: str, value: bytes) -> None:
    fcntl.ioctl(control, request, _IFREQ.pack(name.encode(), value))


def _add_route(control: socket.socket, interface: Interface) -> None:
    name = ctypes.create_string_buffer(interface.name.encode())
    target, mask = _address(interface.behind), _address(_MASK)
    route = _ROUTE.pack(0, target, bytes(16), mask, _RTF_UP, 0, 0, 0, 0, 1, ctypes.addressof(name), 0, 0, 0)
    fcntl.ioctl(control, _SIOCADDRT, route)


def _address(address: int) -> bytes:
    """Return a sockaddr_in."""
    return struct.pack("=HH4s8x", socket.AF_INET, 0, address.to_bytes(4, "big"))
