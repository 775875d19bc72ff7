"""Find the devices of this process: their adapters, ports and addresses.

There are three kinds. Outside of a lab a process has `mlx5_0`, which looks like RoCE v2 (`carriers.processes.device`).
With WEFT_VERBS_ROCE it sends RoCE v2 (`carriers.roce.device`). A program on a host of a lab
(`weft exec h1 python app.py`) has the adapters of that host (`carriers.lab.device`).
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Protocol

from weft.verbs.carriers.places import LAB as LAB

if TYPE_CHECKING:
    from weft.verbs.attributes.address import AHAttr
    from weft.verbs.attributes.device import DeviceAttr, PortAttr
    from weft.verbs.carriers.lab.port_facts import Watcher
    from weft.verbs.hca.adapter import Adapter

HOST = "WEFT_VERBS_HOST"  # variable with the lab host of a program, beside LAB
ROCE = "WEFT_VERBS_ROCE"  # variable with the address of a program that uses RoCE v2


class Hardware(Protocol):
    """A device with one port. GUIDs are plain numbers."""

    @property
    def name(self) -> str: ...

    @property
    def guid(self) -> int: ...

    def adapter(self) -> Adapter:
        """Return the adapter that all contexts of this process share; the first call opens it."""
        ...

    def watch(self, watcher: Watcher) -> None:
        """Send the events of the port to a watcher while it is alive."""
        ...

    def device_attr(self) -> DeviceAttr: ...

    def port_attr(self) -> PortAttr: ...

    def speed_100_mbps(self) -> int: ...

    def gids(self) -> tuple[bytes, ...]:
        """Return the GID table; entries of zeros are empty."""
        ...

    def gid_type(self, index: int) -> int:
        """Return the type of an entry of the GID table."""
        ...

    def wrong_address(self, address: AHAttr) -> str:
        """Return the reason why an address is invalid; empty if it is valid."""
        ...

    def address_vector(self, address: AHAttr) -> Any:
        """Return the carrier's form of an address."""
        ...

    def gid_at(self, address: int) -> int:
        """Return the GID of an IP address, for the connection manager: both have 128 bits, IPv4 is mapped."""
        ...

    def address_of(self, gid: int) -> int:
        """Return an IP address for a GID; the GID itself if there is none."""
        ...

    def gid_of_host(self, name: str) -> int | None:
        """Return the GID of a host of the same lab; None without a lab or such a host."""
        ...


def present() -> tuple[Hardware, ...]:
    """Return all devices of this process; the connection manager uses the first."""
    return _present(os.environ.get(LAB, ""), os.environ.get(HOST, ""), os.environ.get(ROCE, ""))


@functools.cache
def _present(lab: str, host: str, address: str) -> tuple[Hardware, ...]:
    if address:
        from weft.verbs.carriers.roce.device import RoceDevice

        return (RoceDevice(address),)
    if not lab:
        from weft.verbs.carriers.processes.device import Mlx5Device

        return (Mlx5Device(),)
    from weft.verbs.carriers.lab.device import devices_of

    return devices_of(lab, host)
