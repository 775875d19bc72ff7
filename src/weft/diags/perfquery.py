"""perfquery: the counters of a port, of all ports together, or the extended ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.diags import show
from weft.diags.query import HERE, get_counters, get_smp, parse, parse_target
from weft.errors import ConfigError
from weft.mad.carrier import Carrier
from weft.wire.mad import ClassPortInfo
from weft.wire.perf import ALL_PORTS, PerfAttribute, PerfCapability2, PortCounters, PortCountersExtended
from weft.wire.port_info import PortInfo
from weft.wire.smp import NodeInfo, SmpAttribute


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
    """Run perfquery [-x] [-a] [LID [PORT]]."""
    options = parse("perfquery", arguments, "x", "a", positional=("lid", "port"))
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
