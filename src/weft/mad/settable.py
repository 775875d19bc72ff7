"""Which bits of a PortInfo a Set may write, as masks: 512 bits, the first byte of the attribute on top.

`port_settings` applies them, and so does the kernel that answers most Sets in its place.
"""

from __future__ import annotations

from weft.wire.fields import Bits
from weft.wire.port_info import PortInfo


def _mask(*names: str) -> int:
    """Return a mask of these fields."""
    fields = [PortInfo.fields[name] for name in names]
    return sum((1 << field.width) - 1 << 8 * PortInfo.size - field.bit - field.width for field in fields)


# Fields of every port; then of ports with a LID (adapters, and port 0 of a switch); then of the address.
STORED = _mask(
    "vl_high_limit",
    "vl_stall_count",
    "hoq_life",
    "partition_enforcement_inbound",
    "partition_enforcement_outbound",
    "filter_raw_inbound",
    "filter_raw_outbound",
    "local_phy_errors",
    "overrun_errors",
)
STORED_WITH_LID = STORED | _mask(
    "m_key",
    "gid_prefix",
    "m_key_lease_period",
    "m_key_protect_bits",
    "init_type",
    "subnet_time_out",
    "mcast_p_key_trap_suppression_enabled",
)
LID = _mask("lid", "lmc")
SM = _mask("master_sm_lid", "master_sm_sl")
M_KEY = _mask("m_key")
COUNTS = ("m_key_violations", "p_key_violations", "q_key_violations")
VIOLATIONS = _mask(*COUNTS)
LIMITS = _mask("neighbor_mtu", "operational_vls")
# Enabled values among the supported ones; the codes for all and for none. 0 changes nothing.
ENABLED = (
    (PortInfo.link_width_enabled, PortInfo.link_width_supported, 0xFF, None),
    (PortInfo.link_speed_enabled, PortInfo.link_speed_supported, 0xF, None),
    (PortInfo.link_speed_ext_enabled, PortInfo.link_speed_ext_supported, 0x1F, 0x1E),
    (PortInfo.link_speed_ext_enabled_2, PortInfo.link_speed_ext_supported_2, 0x7, 0x6),
)
ENABLES = _mask(*(field.name for field, *_ in ENABLED))


def byte(field: Bits) -> int:
    """Return the byte in which a field starts."""
    return field.bit // 8
