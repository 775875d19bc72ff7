"""The part of /sys that shows a host its adapters: what Linux with mlx5 has there for those of a lab.

    devices/pci1000:00/1000:01:00.0     the card: vendor, device, class; driver and subsystem
        infiniband/mlx5_0               node_guid, and of its ports the LID, state, rate, GIDs, P_Keys and counters
        infiniband_verbs/uverbs0        the character devices of /dev/infiniband: an adapter's, and for each port
        infiniband_mad/umad0, issm0     that of MADs and that of a subnet manager
        net/ib0                         IPoIB on a port: its address of 20 bytes ends with the port's GUID
    class/infiniband*, class/net, bus/pci   links to these

It is so when it is asked for; a program that runs for long sees what was when it began.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from weft.fabric.counters import Counter
from weft.lab.adapters import Adapter, Role, adapters_of, rate_gbit_s
from weft.lab.ethernet_ports import sysfs_interface, sysfs_port
from weft.lab.planes import leading_port, ports_of, whole_info, whole_rate_gbit_s
from weft.mad.devices import Devices
from weft.wire.fields import Buffer
from weft.wire.port_info import LANES, LinkSpeed, Mtu, PortInfo, PortPhysicalState, PortState
from weft.wire.smp import NodeInfo

MELLANOX = 0x15B3  # PCI vendor; the InfiniBand vendor is 0x0002c9
_DOMAIN = 0x1000  # PCI domain: cards of this machine have low numbers
_INFINIBAND_CONTROLLER = 0x020700  # a class of PCI
_ARPHRD_INFINIBAND = 32
_IPOIB_QPN = 0x48  # index of the first interface
_VERBS_ABI, _MLX5_ABI, _MAD_ABI = 6, 1, 5  # versions of the kernel's interfaces
_IPOIB_HEADER_BYTES = 4  # IPoIB's overhead
_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")  # the kernel's words for PortState
_DRIVER = "bus/pci/drivers/mlx5_core"
_COUNTERS = {  # the kernel's words for what it calls otherwise
    Counter.VL15_DROPPED: "VL15_dropped",
    Counter.PORT_XMIT_DATA_WORDS: "port_xmit_data",
    Counter.PORT_RCV_DATA_WORDS: "port_rcv_data",
    Counter.PORT_XMIT_PKTS: "port_xmit_packets",
    Counter.PORT_RCV_PKTS: "port_rcv_packets",
    Counter.PORT_UNICAST_XMIT_PKTS: "unicast_xmit_packets",
    Counter.PORT_UNICAST_RCV_PKTS: "unicast_rcv_packets",
    Counter.PORT_MULTICAST_XMIT_PKTS: "multicast_xmit_packets",
    Counter.PORT_MULTICAST_RCV_PKTS: "multicast_rcv_packets",
}


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree below /sys: contents of files, and targets of links, by path."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def write(self, folder: str, **facts: object) -> None:
        self.files.update({f"{folder}/{name}": f"{fact}\n" for name, fact in facts.items()})

    def link(self, path: str, to: str) -> None:
        """Add a relative link, like the kernel's."""
        self.links[path] = "../" * path.count("/") + to


def tree_of(devices: Devices, host: str) -> Tree:
    """Return the tree of a host's adapters; empty for a switch, which has none on its PCI."""
    tree = Tree()
    adapters = [adapter for adapter in adapters_of(devices, host) if not devices.is_switch[adapter.node]]
    # Drivers number cards and interfaces by their place.
    adapters.sort(key=lambda adapter: (adapter.role is Role.SMI, len(adapter.name), adapter.name))
    cards: dict[int, str] = {}  # by node: an SMI device is on the card of its parent
    for adapter in adapters:
        card = cards.get(adapter.node) or _add_card(tree, devices, adapter, len(cards))
        cards[adapter.node] = card
        _add_device(tree, devices, adapter, card)
        _add_character_device(tree, card, "infiniband_verbs", "uverbs", ibdev=adapter.name, abi_version=_MLX5_ABI)
        for port in range(adapter.first_port, adapter.last_port + 1):
            slot = devices.slot(adapter.node, port)
            _add_port(tree, devices, slot, f"{card}/infiniband/{adapter.name}/ports/{port}", adapter.role)
            for kind in ("umad", "issm"):
                _add_character_device(tree, card, "infiniband_mad", kind, ibdev=adapter.name, port=port)
            if adapter.role is not Role.SMI:
                _add_interface(tree, devices, slot, card, port)
    if adapters:
        tree.write("class/infiniband_verbs", abi_version=_VERBS_ABI)
        tree.write("class/infiniband_mad", abi_version=_MAD_ABI)
    return tree


def _add_card(tree: Tree, devices: Devices, adapter: Adapter, number: int) -> str:
    info = devices.node_info[adapter.node]
    address = f"{_DOMAIN:04x}:{number + 1:02x}:00.0"
    card = f"devices/pci{_DOMAIN:04x}:00/{address}"
    model = NodeInfo.device_id.get(info)  # Mellanox has one numbering for both
    ids = {"vendor": f"{MELLANOX:#06x}", "device": f"{model:#06x}"}
    uevent = f"DRIVER=mlx5_core\nPCI_ID={MELLANOX:04X}:{model:04X}\nPCI_SLOT_NAME={address}"
    tree.write(card, **ids, **{f"subsystem_{name}": value for name, value in ids.items()})
    tree.write(card, **{"class": f"{_INFINIBAND_CONTROLLER:#08x}"}, revision="0x00", numa_node=-1, uevent=uevent)
    tree.link(f"{card}/driver", _DRIVER)
    tree.link(f"{card}/subsystem", "bus/pci")
    tree.link(f"bus/pci/devices/{address}", card)
    tree.link(f"{_DRIVER}/{address}", card)
    return card


def _add_device(tree: Tree, devices: Devices, adapter: Adapter, card: str) -> None:
    info = devices.node_info[adapter.node]
    model = NodeInfo.device_id.get(info)
    device = f"{card}/infiniband/{adapter.name}"
    tree.write(
        device,
        node_guid=_words(NodeInfo.node_guid.get(info).to_bytes(8, "big")),
        sys_image_guid=_words(NodeInfo.system_image_guid.get(info).to_bytes(8, "big")),
        node_desc=devices.fabric.nodes.description[adapter.node],
        node_type="1: CA",
        hca_type=f"MT{model}",
        board_id="WEFT000000001",
        fw_ver="1.0.0",
        hw_rev="0x0",
    )
    tree.link(f"{device}/device", card)
    tree.link(f"class/infiniband/{adapter.name}", device)


def _add_character_device(tree: Tree, card: str, group: str, kind: str, **facts: object) -> None:
    """Add a device of /dev/infiniband, numbered in its class."""
    number = sum(path.startswith(f"class/{group}/{kind}") for path in tree.links)
    tree.write(f"{card}/{group}/{kind}{number}", **facts)
    tree.link(f"{card}/{group}/{kind}{number}/device", card)
    tree.link(f"class/{group}/{kind}{number}", f"{card}/{group}/{kind}{number}")


def _add_port(tree: Tree, devices: Devices, slot: int, folder: str, role: Role) -> None:
    if slot in devices.ethernet:
        for place, facts in sysfs_port(devices, slot).items():
            tree.write(f"{folder}{place}", **facts)
        _add_counters(tree, devices, (slot,), folder)
        return
    is_whole = role is Role.GSI
    info: Buffer = whole_info(devices, slot) if is_whole else devices.info(slot)
    gbit_s = whole_rate_gbit_s(devices, slot) if is_whole else rate_gbit_s(info)
    counting = ports_of(devices, slot) if is_whole else (slot,)
    slot = leading_port(devices, slot) if is_whole else slot
    state, physical = PortInfo.port_state.get(info), PortPhysicalState(PortInfo.port_physical_state.get(info))
    lanes, speed = LANES.get(PortInfo.link_width_active.get(info), 1), LinkSpeed.active(info)
    tree.write(
        folder,
        link_layer="InfiniBand",
        lid=f"{PortInfo.lid.get(info):#x}",
        lid_mask_count=PortInfo.lmc.get(info),
        sm_lid=f"{PortInfo.master_sm_lid.get(info):#x}",
        sm_sl=PortInfo.master_sm_sl.get(info),
        cap_mask=f"{PortInfo.capability_mask.get(info):#010x}",
        rate=f"{gbit_s} Gb/sec ({lanes}X{f' {speed.name}' if speed > LinkSpeed.SDR else ''})",
        state=f"{state}: {_STATES[state]}",
        phys_state=f"{physical}: {physical.word}",
    )
    tree.write(f"{folder}/gids", **{"0": _words(_gid(devices, slot))})
    keys = devices.tables.pkey[slot]
    tree.write(f"{folder}/pkeys", **{str(index): f"{int(key):#06x}" for index, key in enumerate(keys)})
    _add_counters(tree, devices, counting, folder)


def _add_counters(tree: Tree, devices: Devices, counting: Iterable[int], folder: str) -> None:
    counted = zip(Counter, np.sum([devices.counters(port) for port in counting], axis=0).tolist(), strict=True)
    values = {_COUNTERS.get(counter, counter.name.lower()): count for counter, count in counted}
    tree.write(f"{folder}/counters", **values)


def _add_interface(tree: Tree, devices: Devices, slot: int, card: str, port: int) -> None:
    """Add an interface, as the driver creates one for each port: IPoIB, or Ethernet."""
    if slot in devices.ethernet:
        number = sum(path.startswith("class/net/eth") for path in tree.links)
        folder = f"{card}/net/eth{number}"
        tree.write(folder, **sysfs_interface(devices, slot), dev_id="0x0", dev_port=port - 1)
        tree.link(f"{folder}/device", card)
        tree.link(f"class/net/eth{number}", folder)
        return
    slot = leading_port(devices, slot)
    info = devices.info(slot)
    number = sum(path.startswith("class/net/ib") for path in tree.links)
    folder = f"{card}/net/ib{number}"
    is_up = PortInfo.port_state.get(info) == PortState.ACTIVE
    address = (_IPOIB_QPN + number).to_bytes(4, "big") + _gid(devices, slot)
    tree.write(
        folder,
        address=address.hex(":"),
        addr_len=len(address),
        type=_ARPHRD_INFINIBAND,
        dev_id=f"{port - 1:#x}",
        dev_port=port - 1,
        mtu=Mtu(PortInfo.mtu_cap.get(info)).size_bytes - _IPOIB_HEADER_BYTES,
        carrier=int(is_up),
        operstate="up" if is_up else "down",
    )
    tree.link(f"{folder}/device", card)
    tree.link(f"class/net/ib{number}", folder)


def _gid(devices: Devices, slot: int) -> bytes:
    return PortInfo.gid_prefix.get(devices.info(slot)).to_bytes(8, "big") + devices.port_guid(slot)


def _words(number: bytes) -> str:
    """Format as 0002:c903:0000:1230, as the kernel writes GUIDs and GIDs."""
    return number.hex(":", -2)
