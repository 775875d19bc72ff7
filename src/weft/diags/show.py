"""The output format of infiniband-diags for attributes: a name, dots up to column 33, a value.

Values are formatted as in libibmad (rdma-core libibmad/dump.c and fields.c).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.fabric.rates import speed as rated
from weft.wire.fields import Buffer
from weft.wire.format import Format
from weft.wire.port_info import LANES, LinkSpeed, PortPhysicalState, split_speeds

_COLUMN = 32
Style = Callable[[int], str]
_WIDTHS = {int(width): f"{lanes}X" for width, lanes in sorted(LANES.items())}
_SIGNALS = [(split_speeds(each), f"{rated(str(each.name)).lane_signal_gbit_s} Gbps") for each in LinkSpeed]
_SPEEDS, _SPEEDS_EXT = ({bits[field]: name for bits, name in _SIGNALS if bits[field]} for field in (0, 1))
_WIDTHS_PLAIN = {1, 3, 7, 11, 15, 17, 19, 23, 27, 31}
_SPEEDS_PLAIN = {1, 3, 5, 7}
_NO_SPEEDS_EXT = 30
_PORT_STATES = ("NoChange", "Down", "Initialize", "Armed", "Active")
_PHYSICAL_STATES = tuple(state.word for state in PortPhysicalState)
_MTUS = ("?(0)", "256", "512", "1024", "2048", "4096")
_LANES = ("?(0)", "VL0", "VL0-1", "VL0-3", "VL0-7", "VL0-14")
# By bit; - has no name.
_CAPABILITIES = """
    - IsSM IsNoticeSupported IsTrapSupported IsOptionalIPDSupported IsAutomaticMigrationSupported IsSLMappingSupported
    IsMKeyNVRAM IsPKeyNVRAM IsLedInfoSupported IsSMdisabled IsSystemImageGUIDsupported
    IsPkeySwitchExternalPortTrapSupported - IsExtendedSpeedsSupported IsCapabilityMask2Supported
    IsCommunicatonManagementSupported IsSNMPTunnelingSupported IsReinitSupported IsDeviceManagementSupported
    IsVendorClassSupported IsDRNoticeSupported IsCapabilityMaskNoticeSupported IsBootManagementSupported
    IsLinkRoundTripLatencySupported IsClientRegistrationSupported IsOtherLocalChangesNoticeSupported
    IsLinkSpeedWidthPairsTableSupported IsVendorSpecificMadsTableSupported IsMcastPkeyTrapSuppressionSupported
    IsMulticastFDBTopSupported IsHierarchyInfoSupported
""".split()  # noqa: SIM905 - one name a line would be a page
_CAPABILITIES2 = """
    IsSetNodeDescriptionSupported IsPortInfoExtendedSupported IsVirtualizationSupported IsSwitchPortStateTableSupported
    IsLinkWidth2xSupported IsLinkSpeedHDRSupported IsMKeyProtectBitsExtSupported IsEnhancedTrap128Supported
    IsPartitionTopSupported IsEnhancedQoSArbiterSupported IsLinkSpeedNDRSupported
""".split()  # noqa: SIM905 - one name a line would be a page


def line(label: str, value: str) -> str:
    return f"{label}:{'.' * max(1, _COLUMN - len(label))}{value}"


def rows(form: type[Format], data: Buffer, table: Iterable[tuple[str, str, Style | None]]) -> str:
    """Return a line per field of a format: label, field name, and style; None is hexadecimal in full width."""
    out = []
    for label, name, style in table:
        field = form.fields[name]
        value = field.get(data)
        out.append(line(label, f"0x{value:0{-(-field.width // 8) * 2}x}" if style is None else style(value)))
    return "\n".join(out) + "\n"


def _listed(names: dict[int, str], mask: int) -> str:
    named_bits = sum(names)
    if not mask or mask & ~named_bits:
        return "".join(f"{name} or " for bit, name in names.items() if mask & bit) + f"undefined ({mask})"
    return " or ".join(name for bit, name in names.items() if mask & bit)


def widths_enabled(mask: int) -> str:
    return _listed(_WIDTHS, mask)


def widths_supported(mask: int) -> str:
    return _listed(_WIDTHS, mask) + ("" if mask in _WIDTHS_PLAIN or mask >> 5 else " (IBA extension)")


def width(value: int) -> str:
    return _WIDTHS.get(value, f"undefined ({value})")


def speeds(mask: int) -> str:
    return _listed(_SPEEDS, mask) + ("" if mask in _SPEEDS_PLAIN or mask >> 3 else " (IBA extension)")


def speed(value: int) -> str:
    return "Extended speed" if not value else _SPEEDS.get(value, f"undefined ({value})")


def speeds_ext(mask: int) -> str:
    return _listed(_SPEEDS_EXT, mask) if mask else "0"


def speeds_ext_enabled(mask: int) -> str:
    return "Extended link speeds disabled" if mask == _NO_SPEEDS_EXT else speeds_ext(mask)


def speed_ext(value: int) -> str:
    return "No Extended Speed" if not value else _SPEEDS_EXT.get(value, f"undefined ({value})")


def _one_of(names: tuple[str, ...]) -> Style:
    return lambda value: names[value] if value < len(names) else f"?({value})"


def _flags(names: list[str]) -> Style:
    def style(mask: int) -> str:
        on = [name for bit, name in enumerate(names) if mask >> bit & 1 and name != "-"]
        return f"0x{mask:x}" + "".join(f"\n\t\t\t\t{name}" for name in on)

    return style


port_state = _one_of(_PORT_STATES)
physical_state = _one_of(_PHYSICAL_STATES)
down_default_state = _one_of(_PHYSICAL_STATES[:3])
mtu = _one_of(_MTUS)
lanes = _one_of(_LANES)
operational_lanes = _one_of(("No change", *_LANES[1:]))
capabilities = _flags(_CAPABILITIES)
capabilities2 = _flags(_CAPABILITIES2)


def node_type(value: int) -> str:
    return {1: "Channel Adapter", 2: "Switch", 3: "Router"}.get(value, f"?({value})?")


def hidden(value: int) -> str:
    """Return a placeholder for the M_Key."""
    return "<not displayed>"
