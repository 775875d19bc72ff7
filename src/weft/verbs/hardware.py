"""What stands behind a device: its adapter, its port, how it calls others.

There are three kinds. Outside of a lab a process has `weft0`, whose port looks like one of RoCE v2, because that is
what most programs for verbs are written for; with WEFT_VERBS_ROCE it is one, see `roce_device`. A program on a host of
a lab (`weft exec h1 python app.py`) has the adapters of that host: see `lab_device`.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Protocol

from weft.verbs.carriers.places import LAB as LAB
from weft.verbs.device_attributes import GID_TABLE_LEN, NODE_GUID, DeviceAttr, PortAttr
from weft.verbs.enums import (
    IBV_GID_TYPE_ROCE_V2,
    IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
    IBV_GID_TYPE_SYSFS_ROCE_V2,
)
from weft.verbs.sharing import open_adapter

if TYPE_CHECKING:
    from weft.verbs.addr import AHAttr
    from weft.verbs.device import Context
    from weft.verbs.transport.adapter import Adapter

HOST = "WEFT_VERBS_HOST"  # variable of a program on a host of a lab, as LAB is
ROCE = "WEFT_VERBS_ROCE"  # the address of a program that speaks RoCE v2 to others
NAME = "weft0"
GIDS = (
    b"\xfe\x80" + bytes(6) + NODE_GUID.to_bytes(8, "big"),
    bytes(10) + b"\xff\xff" + bytes((127, 0, 0, 1)),  # IPv4-mapped
)
_SPEED_100_MBPS = 1000


class Hardware(Protocol):
    """One device with one port. GUIDs are plain numbers."""

    @property
    def name(self) -> str: ...

    @property
    def guid(self) -> int: ...

    @property
    def gid_type(self) -> int: ...

    def adapter(self) -> Adapter:
        """The one that all contexts of this process share; opened when somebody asks first."""
        ...

    def watch(self, ctx: Context) -> None:
        """Events of the port go to this context too, as long as it lives."""
        ...

    def device_attr(self) -> DeviceAttr: ...

    def port_attr(self) -> PortAttr: ...

    def speed_100_mbps(self) -> int: ...

    def gids(self) -> tuple[bytes, ...]:
        """The table; entries of zeros are empty."""
        ...

    def sysfs_type(self, index: int) -> int:
        """Of an entry of the table."""
        ...

    def wrong_address(self, address: AHAttr) -> str:
        """Why packets cannot go there; empty if they can."""
        ...

    def way(self, address: AHAttr) -> Any:
        """What the carrier calls the other end."""
        ...


class Roce:
    """`weft0`."""

    name, guid, gid_type = NAME, NODE_GUID, IBV_GID_TYPE_ROCE_V2

    def adapter(self) -> Adapter:
        return open_adapter(tuple(int.from_bytes(gid, "big") for gid in GIDS), NAME)

    def watch(self, ctx: Context) -> None:
        """Its port never changes."""

    def device_attr(self) -> DeviceAttr:
        return DeviceAttr()

    def port_attr(self) -> PortAttr:
        adapter = self.adapter()
        return PortAttr(
            bad_pkey_cntr=adapter.counters["pkey_violations"] & 0xFFFF,
            qkey_viol_cntr=adapter.counters["qkey_violations"] & 0xFFFF,
            pkey_tbl_len=len(adapter.p_keys),
        )

    def speed_100_mbps(self) -> int:
        return _SPEED_100_MBPS

    def gids(self) -> tuple[bytes, ...]:
        return GIDS + (bytes(16),) * (GID_TABLE_LEN - len(GIDS))

    def sysfs_type(self, index: int) -> int:
        return IBV_GID_TYPE_SYSFS_ROCE_V2 if index < len(GIDS) else IBV_GID_TYPE_SYSFS_IB_ROCE_V1

    def wrong_address(self, address: AHAttr) -> str:
        if not address.is_global:
            return "the port is Ethernet, where an address needs a global route (is_global=1, gr=...)"
        there = address.route.sgid_index < len(GIDS)
        return "" if there else f"sgid_index {address.route.sgid_index}: the port has no such GID"

    def way(self, address: AHAttr) -> tuple[int, int]:
        """Their GID, and ours. What comes from there is called the same."""
        own = self.gids()[address.route.sgid_index]
        return int.from_bytes(address.route.raw_dgid, "big"), int.from_bytes(own, "big")


def present() -> tuple[Hardware, ...]:
    """All that this process has; the first is what the connection manager uses."""
    return _present(os.environ.get(LAB, ""), os.environ.get(HOST, ""), os.environ.get(ROCE, ""))


@functools.cache
def _present(lab: str, host: str, address: str) -> tuple[Hardware, ...]:
    if address:
        from weft.verbs.roce_device import RoceDevice

        return (RoceDevice(address),)
    if not lab:
        return (Roce(),)
    from weft.verbs.lab_device import devices_of

    return devices_of(lab, host)
