"""Answer libumad2sim's control requests for the values of its simulated sysfs."""

from __future__ import annotations

from weft.errors import ConfigError
from weft.lab.protocol import VENDOR, Control
from weft.mad.devices import Devices
from weft.mad.subnet import Subnet
from weft.wire.port_info import PortInfo
from weft.wire.smp import NodeInfo

_FIRMWARE = 1


def show(subnet: Subnet, slot: int, kind: int, data: bytes) -> bytes:
    """Return the data of the answer to a GET."""
    devices = subnet.devices
    node = devices.node_of[slot]
    nodes = devices.fabric.nodes
    if kind == Control.GET_NODEINFO:
        return _node_info(devices, node, slot)
    if kind == Control.GET_PORTINFO:
        number = data[0]
        requested = devices.slot(node, number) if 0 < number <= devices.last_port[node] else slot
        return bytes(devices.info(requested))
    if kind == Control.GET_PKEYS:
        return devices.tables.pkey[slot, :32].astype(">u2").tobytes()
    if kind == Control.GET_VENDOR:
        return VENDOR.pack(int(nodes.vendor_id[node]), int(nodes.device_id[node]), 0, _FIRMWARE)
    if kind == Control.GET_PORT:
        return subnet.lid(slot).to_bytes(2, "little") + bytes([PortInfo.port_state.get(devices.info(slot))])
    if kind == Control.GET_GUID:
        return int(nodes.guid[node]).to_bytes(8, "little")
    if kind == Control.GET_GID:
        prefix = PortInfo.gid_prefix.get(devices.info(devices.own_slot(slot)))
        return int(prefix).to_bytes(8, "big") + int(nodes.guid[node]).to_bytes(8, "big")
    raise ConfigError(f"there is no control request {kind}")


def _node_info(devices: Devices, node: int, slot: int) -> bytes:
    info = bytearray(devices.node_info[node])
    NodeInfo.local_port_num.set(info, devices.number(slot))
    if not devices.is_switch[node]:
        NodeInfo.port_guid.set(info, int(devices.fabric.ports.guid[slot]))
    return bytes(info)
