"""Parse options as getopt_long does, and check those that several tools share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from weft.errors import ConfigError, UnknownName
from weft.verbs.pyverbs.device import get_device_list

PORT = 18515  # TCP port of perftest and of the examples of rdma-core


class Arguments(argparse.ArgumentParser):
    """An argument parser that raises ConfigError for wrong arguments."""

    def __init__(self, program: str, about: str, epilog: str = "") -> None:
        super().__init__(
            prog=program,
            description=about,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{self.prog}: {message}; `{self.prog} --help` lists the options")

    def add_connection(self, mtu: str = "default the ports'") -> None:
        """Add the options for the connection: server, TCP port, device and MTU."""
        self.add_argument(
            "host", nargs="?", default="", help="the server, or a host of the lab; without, be the server"
        )
        self.add_argument(
            "-p", "--port", type=number("port", 1, 65535), default=PORT, help=f"TCP port (default {PORT})"
        )
        own = "a server's own address (default 127.0.0.1)"
        self.add_argument("--bind_source_ip", dest="bind", default="127.0.0.1", help=own)
        self.add_device()
        size = number("mtu", 256, 4096)
        self.add_argument("-m", "--mtu", dest="mtu_bytes", type=size, default=0, help=f"256 to 4096 ({mtu})")

    def add_device(self, port: int = 1) -> None:
        self.add_argument("-d", "--ib-dev", dest="device", default="", help="device (default the first)")
        self.add_argument("-i", "--ib-port", type=number("ib-port", 1, 254), default=port, help="its port")


def number(name: str, low: int, high: int) -> Callable[[str], int]:
    """Return a parser of decimal and hexadecimal numbers in a range."""

    def read(text: str) -> int:
        try:
            value = int(text, 0)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ConfigError(f"{name} {text} is not a number from {low:,} to {high:,}")
        return value

    return read


def find_device(name: str) -> str:
    """Return the name of a device, the first one without a name. Raise ConfigError if it does not exist."""
    names = [device.name.decode() for device in get_device_list()]
    if not names:
        raise ConfigError("there is no RDMA device: weft's adapter has no port on this host")
    if name and name not in names:
        raise UnknownName("RDMA device", name, names)
    return name or names[0]
