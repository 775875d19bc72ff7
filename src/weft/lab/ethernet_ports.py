"""Describe the Ethernet ports of a lab: the values that programs find for them instead of PortInfo."""

from __future__ import annotations

from weft.lab.layouts import PORT
from weft.mad.devices import Devices
from weft.verbs.carriers.lab.ethernet_facts import EthernetFacts
from weft.wire.port_info import Capability, PortPhysicalState, PortState
from weft.wire.roce import local_mac

ARPHRD_ETHER = 1
MTU_BYTES = 4200  # of the interface: 4096 bytes of RoCE and their headers fit


def ethernet_facts(devices: Devices, slot: int) -> EthernetFacts:
    """Return the present settings of an Ethernet port."""
    ethernet, fabric = devices.ethernet, devices.fabric
    rate_gbit_s = fabric.link(int(fabric.ports.link[slot])).rate_gbit_s
    return EthernetFacts(ethernet.is_up(slot), ethernet.address[slot], round(rate_gbit_s))


def ethernet_umad_port(devices: Devices, ca_name: str, port: int, slot: int) -> bytes:
    """Return what libibumad reads about an Ethernet port: no LIDs, the capability of the connection manager."""
    facts = ethernet_facts(devices, slot)
    state, physical = states(facts)
    head = PORT.pack(
        ca_name.encode()[:19],
        port,
        0,
        0,
        0,
        0,
        state,
        physical,
        facts.rate_gbit_s,
        int(Capability.IS_COMMUNICATION_MANAGEMENT_SUPPORTED).to_bytes(4, "big"),
        facts.gids[0][:8],
        devices.port_guid(slot),
        len(facts.p_keys),
        b"Ethernet",
    )
    return head + facts.p_keys[0].to_bytes(2, "little")


def sysfs_port(devices: Devices, slot: int) -> dict[str, dict[str, object]]:
    """Return the files of an Ethernet port below ports/N in /sys, by folder."""
    facts = ethernet_facts(devices, slot)
    state, physical = states(facts)
    port: dict[str, object] = {
        "link_layer": "Ethernet",
        "lid": "0x0",
        "lid_mask_count": 0,
        "sm_lid": "0x0",
        "sm_sl": 0,
        "cap_mask": f"{Capability.IS_COMMUNICATION_MANAGEMENT_SUPPORTED:#010x}",
        "rate": f"{facts.rate_gbit_s} Gb/sec",
        "state": f"{state}: {state.name}",
        "phys_state": f"{physical}: {physical.word}",
    }
    gids = {str(index): gid.hex(":", -2) for index, gid in enumerate(facts.gids)}
    return {"": port, "/gids": {**gids}, "/gid_attrs/types": dict.fromkeys(gids, "RoCE v2"), "/pkeys": {"0": "0xffff"}}


def sysfs_interface(devices: Devices, slot: int) -> dict[str, object]:
    """Return the files of an Ethernet interface in /sys/class/net."""
    is_up = devices.ethernet.is_up(slot)
    return {
        "address": local_mac(devices.ethernet.address[slot]).to_bytes(6, "big").hex(":"),
        "addr_len": 6,
        "type": ARPHRD_ETHER,
        "mtu": MTU_BYTES,
        "carrier": int(is_up),
        "operstate": "up" if is_up else "down",
    }


def states(facts: EthernetFacts) -> tuple[PortState, PortPhysicalState]:
    """Return the state of an Ethernet port in InfiniBand's words, as the kernel reports it."""
    if facts.is_active:
        return PortState.ACTIVE, PortPhysicalState.LINK_UP
    return PortState.DOWN, PortPhysicalState.DISABLED
