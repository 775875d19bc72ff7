"""What stands behind a device: its adapter, its port, how it calls others.

There are three kinds. Outside of a lab a process has `mlx5_0`, whose port looks like one of RoCE v2 on the adapters
that most programs are written for: by the name, and the places of GIDs, that they have in their text. With
WEFT_VERBS_ROCE it is one, see `roce_device`. A program on a host of a lab (`weft exec h1 python app.py`) has the
adapters of that host: see `lab_device`.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Protocol

from weft.verbs.carriers.places import LAB as LAB
from weft.verbs.carriers.processes.adapter import open_adapter
from weft.verbs.enums import (
    IBV_GID_TYPE_ROCE_V1,
    IBV_GID_TYPE_ROCE_V2,
    IBV_GID_TYPE_SYSFS_IB_ROCE_V1,
    IBV_GID_TYPE_SYSFS_ROCE_V2,
)
from weft.verbs.pyverbs.device_attributes import GID_TABLE_LEN, NODE_GUID, DeviceAttr, PortAttr

if TYPE_CHECKING:
    from weft.verbs.hca.adapter import Adapter
    from weft.verbs.pyverbs.addr import AHAttr
    from weft.verbs.pyverbs.device import Context

HOST = "WEFT_VERBS_HOST"  # variable of a program on a host of a lab, as LAB is
ROCE = "WEFT_VERBS_ROCE"  # the address of a program that speaks RoCE v2 to others
NAME = "mlx5_0"
FORMER_NAME = "weft0"  # opens it too
_LINK_LOCAL = b"\xfe\x80" + bytes(6) + NODE_GUID.to_bytes(8, "big")
_IPV4 = bytes(10) + b"\xff\xff" + bytes((127, 0, 0, 1))  # mapped
# As Linux fills the table of an mlx5 port: each address twice, for RoCE v1 and, at odd indices, for v2.
GIDS = (_LINK_LOCAL, _LINK_LOCAL, _IPV4, _IPV4)
_SYSFS: dict[int, int] = {IBV_GID_TYPE_ROCE_V2: IBV_GID_TYPE_SYSFS_ROCE_V2}  # the others have one
_SPEED_100_MBPS = 1000


class Hardware(Protocol):
    """One device with one port. GUIDs are plain numbers."""

    @property
    def name(self) -> str: ...

    @property
    def guid(self) -> int: ...

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

    def gid_type(self, index: int) -> int:
        """Of an entry of the table."""
        ...

    def wrong_address(self, address: AHAttr) -> str:
        """Why packets cannot go there; empty if they can."""
        ...

    def address_vector(self, address: AHAttr) -> Any:
        """What the carrier calls the other end."""
        ...


class Roce:
    """`mlx5_0`."""

    name, guid = NAME, NODE_GUID

    def adapter(self) -> Adapter:
        return open_adapter(tuple(int.from_bytes(gid, "big") for gid in dict.fromkeys(GIDS)), NAME)

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

    def gid_type(self, index: int) -> int:
        return IBV_GID_TYPE_ROCE_V2 if index % 2 else IBV_GID_TYPE_ROCE_V1

    def wrong_address(self, address: AHAttr) -> str:
        if not address.is_global:
            return "the port is Ethernet, where an address needs a global route (is_global=1, gr=...)"
        there = address.route.sgid_index < len(GIDS)
        return "" if there else f"sgid_index {address.route.sgid_index}: the port has no such GID"

    def address_vector(self, address: AHAttr) -> tuple[int, int]:
        """Their GID, and ours. What comes from there is called the same."""
        own = self.gids()[address.route.sgid_index]
        return int.from_bytes(address.route.raw_dgid, "big"), int.from_bytes(own, "big")


def sysfs_type(gid_type: int) -> int:
    """As the files of /sys tell it, where InfiniBand and RoCE v1 are one."""
    return _SYSFS.get(gid_type, IBV_GID_TYPE_SYSFS_IB_ROCE_V1)


def present() -> tuple[Hardware, ...]:
    """All that this process has; the first is what the connection manager uses."""
    return _present(os.environ.get(LAB, ""), os.environ.get(HOST, ""), os.environ.get(ROCE, ""))


@functools.cache
def _present(lab: str, host: str, address: str) -> tuple[Hardware, ...]:
    if address:
        from weft.verbs.carriers.roce.device import RoceDevice

        return (RoceDevice(address),)
    if not lab:
        return (Roce(),)
    from weft.verbs.carriers.lab.device import devices_of

    return devices_of(lab, host)
