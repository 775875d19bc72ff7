"""smpquery: an attribute of a node or a port, or a table; perfquery: the counters of a port."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from weft.diags import show
from weft.diags.port_actions import clear_counters
from weft.diags.query import HERE, Target, get_counters, get_smp, parse, parse_target
from weft.errors import ConfigError, find_named
from weft.mad.carrier import Carrier
from weft.wire.mad import ClassPortInfo
from weft.wire.perf import ALL_PORTS, PerfAttribute, PerfCapability2, PortCounters, PortCountersExtended
from weft.wire.port_info import PortInfo
from weft.wire.smp import (
    GuidInfo,
    NodeInfo,
    NodeType,
    PKeyTable,
    SLtoVLMappingTable,
    SmpAttribute,
    SwitchInfo,
    VLArbitrationTable,
)

_NUMBER = str
_Table = tuple[tuple[str, str, show.Style | None], ...]
_NODE_INFO = (
    ("BaseVers", "base_version", _NUMBER),
    ("ClassVers", "class_version", _NUMBER),
    ("NodeType", "node_type", show.node_type),
    ("NumPorts", "num_ports", _NUMBER),
    ("SystemGuid", "system_image_guid", None),
    ("Guid", "node_guid", None),
    ("PortGuid", "port_guid", None),
    ("PartCap", "partition_cap", _NUMBER),
    ("DevId", "device_id", None),
    ("Revision", "revision", None),
    ("LocalPort", "local_port_num", _NUMBER),
    ("VendorId", "vendor_id", None),
)
_PORT_INFO = (
    ("Mkey", "m_key", show.hidden),
    ("GidPrefix", "gid_prefix", None),
    ("Lid", "lid", _NUMBER),
    ("SMLid", "master_sm_lid", _NUMBER),
    ("CapMask", "capability_mask", show.capabilities),
    ("DiagCode", "diag_code", None),
    ("MkeyLeasePeriod", "m_key_lease_period", _NUMBER),
    ("LocalPort", "local_port_num", _NUMBER),
    ("LinkWidthEnabled", "link_width_enabled", show.widths_enabled),
    ("LinkWidthSupported", "link_width_supported", show.widths_supported),
    ("LinkWidthActive", "link_width_active", show.width),
    ("LinkSpeedSupported", "link_speed_supported", show.speeds),
    ("LinkState", "port_state", show.port_state),
    ("PhysLinkState", "port_physical_state", show.physical_state),
    ("LinkDownDefState", "link_down_default_state", show.down_default_state),
    ("ProtectBits", "m_key_protect_bits", _NUMBER),
    ("LMC", "lmc", _NUMBER),
    ("LinkSpeedActive", "link_speed_active", show.speed),
    ("LinkSpeedEnabled", "link_speed_enabled", show.speeds),
    ("NeighborMTU", "neighbor_mtu", show.mtu),
    ("SMSL", "master_sm_sl", _NUMBER),
    ("VLCap", "vl_cap", show.lanes),
    ("InitType", "init_type", None),
    ("VLHighLimit", "vl_high_limit", _NUMBER),
    ("VLArbHighCap", "vl_arbitration_high_cap", _NUMBER),
    ("VLArbLowCap", "vl_arbitration_low_cap", _NUMBER),
    ("InitReply", "init_type_reply", None),
    ("MtuCap", "mtu_cap", show.mtu),
    ("VLStallCount", "vl_stall_count", _NUMBER),
    ("HoqLife", "hoq_life", _NUMBER),
    ("OperVLs", "operational_vls", show.operational_lanes),
    ("PartEnforceInb", "partition_enforcement_inbound", _NUMBER),
    ("PartEnforceOutb", "partition_enforcement_outbound", _NUMBER),
    ("FilterRawInb", "filter_raw_inbound", _NUMBER),
    ("FilterRawOutb", "filter_raw_outbound", _NUMBER),
    ("MkeyViolations", "m_key_violations", _NUMBER),
    ("PkeyViolations", "p_key_violations", _NUMBER),
    ("QkeyViolations", "q_key_violations", _NUMBER),
    ("GuidCap", "guid_cap", _NUMBER),
    ("ClientReregister", "client_reregister", _NUMBER),
    ("McastPkeyTrapSuppressionEnabled", "mcast_p_key_trap_suppression_enabled", _NUMBER),
    ("SubnetTimeout", "subnet_time_out", _NUMBER),
    ("RespTimeVal", "resp_time_value", _NUMBER),
    ("LocalPhysErr", "local_phy_errors", _NUMBER),
    ("OverrunErr", "overrun_errors", _NUMBER),
    ("MaxCreditHint", "max_credit_hint", _NUMBER),
    ("RoundTrip", "link_round_trip_latency", _NUMBER),
    ("CapabilityMask2", "capability_mask2", show.capabilities2),
    ("LinkSpeedExtActive", "link_speed_ext_active", show.speed_ext),
    ("LinkSpeedExtSupported", "link_speed_ext_supported", show.speeds_ext),
    ("LinkSpeedExtEnabled", "link_speed_ext_enabled", show.speeds_ext_enabled),
)
_SWITCH_INFO = (
    ("LinearFdbCap", "linear_fdb_cap", _NUMBER),
    ("RandomFdbCap", "random_fdb_cap", _NUMBER),
    ("McastFdbCap", "multicast_fdb_cap", _NUMBER),
    ("LinearFdbTop", "linear_fdb_top", _NUMBER),
    ("DefPort", "default_port", _NUMBER),
    ("DefMcastPrimPort", "default_multicast_primary_port", _NUMBER),
    ("DefMcastNotPrimPort", "default_multicast_not_primary_port", _NUMBER),
    ("LifeTime", "life_time_value", _NUMBER),
    ("StateChange", "port_state_change", _NUMBER),
    ("OptSLtoVLMapping", "optimized_sl_to_vl_mapping_programming", _NUMBER),
    ("LidsPerPort", "lids_per_port", _NUMBER),
    ("PartEnforceCap", "partition_enforcement_cap", _NUMBER),
    ("InboundPartEnf", "inbound_enforcement_cap", _NUMBER),
    ("OutboundPartEnf", "outbound_enforcement_cap", _NUMBER),
    ("FilterRawInbound", "filter_raw_inbound_cap", _NUMBER),
    ("FilterRawOutbound", "filter_raw_outbound_cap", _NUMBER),
    ("EnhancedPort0", "enhanced_port_0", _NUMBER),
    ("MulticastFDBTop", "multicast_fdb_top", None),
)


def smpquery(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run smpquery [-D] OPERATION LID|PATH [PORT]."""
    options = parse("smpquery", arguments, "D", positional=("operation", "destination", "port"))
    if not options.destination:
        raise ConfigError("usage: smpquery OPERATION LID [PORT], or smpquery -D OPERATION 0,1,3 [PORT]")
    operation = find_named("operation of smpquery", options.operation, _OPERATIONS)
    port = int(options.port, 0) if options.port.isalnum() else 0
    return operation(carrier, parse_target(options.destination, options.D), port)


def _info(title: str, attribute: SmpAttribute, table: _Table, carrier: Carrier, target: Target, port: int) -> str:
    of_port = attribute is SmpAttribute.PORT_INFO
    data = get_smp(carrier, target, attribute, port if of_port else 0)
    return f"# {title}: {target}{f' port {port}' if of_port else ''}\n" + show.rows(attribute.form, data, table)


def _node_description(carrier: Carrier, target: Target, port: int) -> str:
    data = get_smp(carrier, target, SmpAttribute.NODE_DESCRIPTION)
    name = data.split(b"\0")[0].decode(errors="replace")
    return f"Node Description:{'.' * max(1, 32 - len(name))}{name}\n"


def _node(carrier: Carrier, target: Target, port: int) -> NodeInfo:
    info = NodeInfo.unpack(get_smp(carrier, target, SmpAttribute.NODE_INFO))
    if port > info.num_ports:
        raise ConfigError(f"{target} has {info.num_ports} ports, there is no port {port}")
    return info


def _pkeys(carrier: Carrier, target: Target, port: int) -> str:
    info = _node(carrier, target, port)
    count = info.partition_cap
    if info.node_type == NodeType.SWITCH and port:
        count = SwitchInfo.unpack(get_smp(carrier, target, SmpAttribute.SWITCH_INFO)).partition_enforcement_cap
    keys: list[int] = []
    for block in range(-(-count // 32)):
        keys += PKeyTable.unpack(get_smp(carrier, target, SmpAttribute.P_KEY_TABLE, block | port << 16)).p_key
    lines = [
        f"{at:4}: " + " ".join(f"0x{key:04x}" for key in keys[at : at + 8]) for at in range(0, -(-count // 8) * 8, 8)
    ]
    return "\n".join((*lines, f"{count} pkeys capacity for this port\n"))


def _sl2vl(carrier: Carrier, target: Target, port: int) -> str:
    info = _node(carrier, target, port)
    switch = info.node_type == NodeType.SWITCH
    lines = [f"# SL2VL table: {target}", "#                 SL: |" + "".join(f"{sl:2}|" for sl in range(16))]
    for into in range(info.num_ports + 1) if switch else (0,):
        out = port if switch else 0
        vls = SLtoVLMappingTable.unpack(
            get_smp(carrier, target, SmpAttribute.SL_TO_VL_MAPPING_TABLE, into << 8 | out)
        ).vl
        lines.append(f"ports: in {into:2}, out {out:2}: |" + "".join(f"{vl:2}|" for vl in vls))
    return "\n".join(lines) + "\n"


def _vl_arbitration(carrier: Carrier, target: Target, port: int) -> str:
    if port == 0 and _node(carrier, target, port).node_type == NodeType.SWITCH:
        switch = SwitchInfo.unpack(get_smp(carrier, target, SmpAttribute.SWITCH_INFO))
        if not switch.enhanced_port_0:
            return f"# No VLArbitration tables (BSP0): {target} port 0\n"
    info = PortInfo.unpack(get_smp(carrier, target, SmpAttribute.PORT_INFO, port))
    low, high = info.vl_arbitration_low_cap, info.vl_arbitration_high_cap
    out = [f"# VLArbitration tables: {target} port {port} LowCap {low} HighCap {high}"]
    for name, first, entries in (("Low", 1, low), ("High", 3, high)):
        for block in range(-(-entries // 32)):
            data = get_smp(carrier, target, SmpAttribute.VL_ARBITRATION_TABLE, first + block << 16 | port)
            table = VLArbitrationTable.unpack(data).entry[: min(32, entries - 32 * block)]
            out.append("" if block else f"# {name} priority VL Arbitration Table:")
            out.append("VL    : |" + "".join(f"0x{entry.vl:<2X}|" for entry in table))
            out.append("WEIGHT: |" + "".join(f"0x{entry.weight:<2X}|" for entry in table))
    return "\n".join(out) + "\n"


def _guid_info(carrier: Carrier, target: Target, port: int) -> str:
    count = PortInfo.unpack(get_smp(carrier, target, SmpAttribute.PORT_INFO)).guid_cap
    guids: list[int] = []
    for block in range(-(-count // 8)):
        guids += GuidInfo.unpack(get_smp(carrier, target, SmpAttribute.GUID_INFO, block)).guid
    lines = [f"{at:4}: 0x{guids[at]:016x} 0x{guids[at + 1]:016x}" for at in range(0, -(-count // 2) * 2, 2)]
    return "\n".join((*lines, f"{count} guids capacity for this port\n"))


_OPERATIONS: dict[str, Callable[[Carrier, Target, int], str]] = {
    **dict.fromkeys(("nodeinfo", "ni"), partial(_info, "Node info", SmpAttribute.NODE_INFO, _NODE_INFO)),
    **dict.fromkeys(("nodedesc", "nd"), _node_description),
    **dict.fromkeys(("portinfo", "pi"), partial(_info, "Port info", SmpAttribute.PORT_INFO, _PORT_INFO)),
    **dict.fromkeys(("switchinfo", "si"), partial(_info, "Switch info", SmpAttribute.SWITCH_INFO, _SWITCH_INFO)),
    **dict.fromkeys(("pkeytable", "pkeys"), _pkeys),
    **dict.fromkeys(("sl2vltable", "sl2vl"), _sl2vl),
    **dict.fromkeys(("vlarbitration", "vlarb"), _vl_arbitration),
    **dict.fromkeys(("guidinfo", "gi", "guids"), _guid_info),
}


def _counters(*labels: str) -> tuple[tuple[str, str, show.Style], ...]:
    """Return numeric fields by label: PortXmitData is the field port_xmit_data."""
    return tuple((label, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", label).lower(), str) for label in labels)


_HEAD = (*_counters("PortSelect"), ("CounterSelect", "counter_select", None))
_TRAFFIC = _counters("PortXmitData", "PortRcvData", "PortXmitPkts", "PortRcvPkts")
_LINK_ERRORS = _counters(
    *("SymbolErrorCounter", "LinkErrorRecoveryCounter", "LinkDownedCounter", "PortRcvErrors"),
    *("PortRcvRemotePhysicalErrors", "PortRcvSwitchRelayErrors", "PortXmitDiscards"),
    *("PortXmitConstraintErrors", "PortRcvConstraintErrors"),
)
_LOCAL_ERRORS = _counters("LocalLinkIntegrityErrors", "ExcessiveBufferOverrunErrors")
_DROPPED = _counters("QP1Dropped", "VL15Dropped")
_WAIT = _counters("PortXmitWait")
_SELECT2 = (("CounterSelect2", "counter_select2", None),)
_COUNTERS = (*_HEAD, *_LINK_ERRORS, *_SELECT2, *_LOCAL_ERRORS, *_DROPPED, *_TRAFFIC, *_WAIT)
_CASTS = _counters("PortUnicastXmitPkts", "PortUnicastRcvPkts", "PortMulticastXmitPkts", "PortMulticastRcvPkts")
_EXTENDED = (*_HEAD, *_TRAFFIC, *_CASTS)
_MORE = (*_SELECT2, *_LINK_ERRORS, *_LOCAL_ERRORS, _DROPPED[1], *_WAIT, _DROPPED[0])


def perfquery(carrier: Carrier, arguments: Sequence[str]) -> str:
    """Run perfquery [-x] [-a] [-R] [LID [PORT]]."""
    options = parse("perfquery", arguments, "x", "a", "R", positional=("lid", "port"))
    if options.lid:
        lid = parse_target(options.lid, directed=False).lid or 0
        port = int(options.port, 0) if options.port else 0
    else:
        node, here = (get_smp(carrier, HERE, at) for at in (SmpAttribute.NODE_INFO, SmpAttribute.PORT_INFO))
        lid, port = PortInfo.lid.get(here), NodeInfo.local_port_num.get(node)
        if not lid:
            raise ConfigError("this port has no LID: run a subnet manager first")
    if options.a:
        port = ALL_PORTS
    if options.R:
        clear_counters(carrier, lid, port)
        return ""
    able = ClassPortInfo.unpack(get_counters(carrier, lid, PerfAttribute.CLASS_PORT_INFO, port))
    mask, mask2 = able.capability_mask, able.capability_mask2
    if not options.x:
        data = get_counters(carrier, lid, PerfAttribute.PORT_COUNTERS, port)
        head = f"# Port counters: Lid {lid} port {port} (CapMask: 0x{mask:02X})\n"
        return head + show.rows(PortCounters, data, _COUNTERS)
    data = get_counters(carrier, lid, PerfAttribute.PORT_COUNTERS_EXTENDED, port)
    head = f"# Port extended counters: Lid {lid} port {port} (CapMask: 0x{mask:02X} CapMask2: 0x{mask2:07X})\n"
    more = _MORE if mask2 & PerfCapability2.ADDITIONAL_PORT_COUNTERS_EXTENDED else ()
    return head + show.rows(PortCountersExtended, data, (*_EXTENDED, *more))
