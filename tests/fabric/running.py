"""Running fabrics without a subnet manager."""

from __future__ import annotations

import weft
from weft.fabric.forwarding import NONE
from weft.mad.devices import Devices
from weft.mad.power_up import switch_on
from weft.routing.route import route
from weft.wire.port_info import PortInfo, PortState
from weft.wire.smp import SwitchInfo


def activate(devices: Devices) -> None:
    """Activate every cabled port, with the fabric's forwarding tables."""
    for info in devices.switch_info.values():
        SwitchInfo.linear_fdb_top.set(info, int(devices.tables.lft.shape[1] - 1))
    for slot, info in enumerate(devices.port_info):
        if info is not None and devices.cable[slot] != NONE:
            PortInfo.port_state.set(info, PortState.ACTIVE)


def configured(spec: str) -> Devices:
    """Return the fabric as a subnet manager configures it."""
    devices = switch_on(route(weft.load(spec)).fabric)
    activate(devices)
    return devices
