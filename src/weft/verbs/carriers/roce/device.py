"""`mlx5_0` with a wire: the adapter of a process that speaks RoCE v2 at an address of this machine.

    WEFT_VERBS_ROCE=10.0.0.1 python app.py

The port has the address as its GID, at the first four places of its table, so that programs find it where they look.
WEFT_VERBS_CAPTURE names a file that gets all packets as pcap.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.errors import ConfigError
from weft.verbs.attributes.address import GID_TABLE_LEN
from weft.verbs.attributes.text import be64toh
from weft.verbs.carriers.processes.adapter import Opening
from weft.verbs.carriers.processes.device import GIDS, LOOPBACK, Mlx5Device
from weft.verbs.carriers.roce.carrier import RoceCarrier, gid_of
from weft.verbs.enums import IBV_GID_TYPE_ROCE_V2
from weft.verbs.errors import PyverbsRDMAError
from weft.verbs.hca.adapter import Adapter
from weft.verbs.shm.queue_memory import QueueMemory

if TYPE_CHECKING:
    from weft.verbs.attributes.device import DeviceAttr, PortAttr

CAPTURE = "WEFT_VERBS_CAPTURE"
GUID = 0x0077_65FF_FE00_0000  # and the last 3 bytes of the address
_POLLED_S, _LOOK_S = 0.003, 0.001  # a program that polled this recently, or waited (2 ms at once), will do it again


class RoceDevice(Mlx5Device):
    """A device that uses RoCE v2. A forked process needs another address, because the socket belongs to its parent."""

    def __init__(self, address: str) -> None:
        try:
            self._address = ipaddress.ip_address(address)
        except ValueError:
            raise PyverbsRDMAError(
                "Failed to get devices list", errno.ENODEV, f"WEFT_VERBS_ROCE={address} is no IP address"
            ) from None
        self.guid = GUID | int(self._address) & 0xFF_FFFF
        self._opening = Opening(self.name, self._open, _work)

    def adapter(self) -> Adapter:
        return self._opening.opened()[0]

    def _open(self) -> tuple[Adapter, RoceCarrier]:
        path = os.environ.get(CAPTURE)
        try:
            capture = open(path, "wb", buffering=0) if path else None  # noqa: SIM115 - as long as the process
            carrier = RoceCarrier(str(self._address), capture=capture)
        except (ConfigError, OSError) as error:
            raise PyverbsRDMAError(f"Failed to open device {self.name}", errno.ENODEV, str(error)) from error
        adapter = Adapter(carrier, mtu_bytes=carrier.mtu_bytes, memory=QueueMemory(can_be_shared=True))
        return adapter, carrier

    # -- what it is ---------------------------------------------------------------------------------------------------

    def device_attr(self) -> DeviceAttr:
        return replace(super().device_attr(), node_guid=be64toh(self.guid), sys_image_guid=be64toh(self.guid))

    def port_attr(self) -> PortAttr:
        code = self.adapter().mtu_bytes.bit_length() - 8  # 256 is 1, 4096 is 5
        return replace(super().port_attr(), active_mtu=code)

    def gids(self) -> tuple[bytes, ...]:
        own = gid_of(self._address).to_bytes(16, "big")
        return (own,) * len(GIDS) + (bytes(16),) * (GID_TABLE_LEN - len(GIDS))

    def gid_at(self, address: int) -> int:
        return gid_of(self._address) if address in LOOPBACK else address

    def gid_type(self, index: int) -> int:
        return IBV_GID_TYPE_ROCE_V2


def _work(adapter: Adapter, carrier: RoceCarrier) -> None:
    """Respond to other machines in the background while the program does something else, as hardware does."""
    me = threading.get_ident()
    while adapter.carrier is carrier:
        while carrier.taker != me and time.monotonic() - carrier.taken_s < _POLLED_S:
            time.sleep(_LOOK_S)  # a program that polls does all of it, and is faster alone
        carrier.wait(adapter.rest_s())
        if carrier.taker == me or time.monotonic() - carrier.taken_s >= _POLLED_S:
            adapter.progress()
