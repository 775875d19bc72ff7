"""What stands behind a device: its adapter, its port, how it calls others.

There are three kinds. Outside of a lab a process has `mlx5_0`, which looks like RoCE v2: `carriers.processes.device`.
With WEFT_VERBS_ROCE it is that: `carriers.roce.device`. A program on a host of a lab (`weft exec h1 python app.py`) has
the adapters of that host: `carriers.lab.device`.
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

HOST = "WEFT_VERBS_HOST"  # variable of a program on a host of a lab, as LAB is
ROCE = "WEFT_VERBS_ROCE"  # the address of a program that speaks RoCE v2 to others


class Hardware(Protocol):
    """One device with one port. GUIDs are plain numbers."""

    @property
    def name(self) -> str: ...

    @property
    def guid(self) -> int: ...

    def adapter(self) -> Adapter:
        """The one that all contexts of this process share; opened when somebody asks first."""
        ...

    def watch(self, watcher: Watcher) -> None:
        """Events of the port go to this one too, as long as it lives."""
        ...

    def device_attr(self) -> DeviceAttr: ...

    def port_attr(self) -> PortAttr: ...

    def speed_100_mbps(self) -> int: ...

    def gids(self) -> tuple[bytes, ...]:
        """The table; entries of zeros are empty."""
        ...

    def gid_type(self, index: int) -> int:
        """Of an entry of the table."""
        ...

    def wrong_address(self, address: AHAttr) -> str:
        """Why packets cannot go there; empty if they can."""
        ...

    def address_vector(self, address: AHAttr) -> Any:
        """What the carrier calls the other end."""
        ...

    def gid_at(self, address: int) -> int:
        """The GID that an IP address means, for the connection manager: both of 128 bits, IPv4 mapped."""
        ...

    def address_of(self, gid: int) -> int:
        """An IP address that means a GID; the GID itself if there is none."""
        ...

    def gid_of_host(self, name: str) -> int | None:
        """Of a host of the same lab; None if there is no lab, or no such host."""
        ...


def present() -> tuple[Hardware, ...]:
    """All that this process has; the first is what the connection manager uses."""
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
