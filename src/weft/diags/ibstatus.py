"""ibstatus: the ports of this host as sysfs would show them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.diags.ibstat import query_own_node
from weft.diags.query import parse
from weft.mad.carrier import Carrier

_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")


def ibstatus(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run ibstatus."""
    parse("ibstatus", arguments)
    _, name, ports = query_own_node(carrier)
    lines = []
    for port in ports:
        info, (gbit_s, lanes, speed) = port.info, port.rate
        gid = f"{info.gid_prefix << 64 | port.guid:032x}"
        lines += [
            f"Infiniband device '{name}' port {port.number} status:",
            f"\tdefault gid:\t {':'.join(gid[at : at + 4] for at in range(0, 32, 4))}",
            f"\tbase lid:\t 0x{info.lid:x}",
            f"\tsm lid:\t\t 0x{info.master_sm_lid:x}",
            f"\tstate:\t\t {info.port_state}: {_STATES[info.port_state]}",
            f"\tphys state:\t {info.port_physical_state}: {port.physical}",
            f"\trate:\t\t {gbit_s} Gb/sec ({lanes}X {speed})",
            "\tlink_layer:\t InfiniBand",
            "",
        ]
    return "\n".join(lines) + "\n"
