"""UFM's names for a port's counters, in the three interfaces where clients read them.

    telemetry    UFM Telemetry's own (csv/metrics, topX, history)               PortXmitDataExtended
    session      the default monitoring session (converted_enterprise)         Infiniband_MBOut
    debug        the secondary telemetry instance (low_freq_debug)             PortXmitDataExtended, Link_Down_IB

Data counters are in words of four bytes, as InfiniBand counts them and as UFM documents them; XmitWait is in ticks.
Backend a name, `_Rate` (telemetry) or `Rate` (session) means the change per second.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import UnknownName
from weft.monitor.columns import Column

C = Column
_RATE = "Rate"


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of a port and its names."""

    column: Column
    telemetry: str
    session: str
    debug: str


COUNTERS = (
    Counter(C.PORT_XMIT_DATA_WORDS, "PortXmitDataExtended", "Infiniband_MBOut", "PortXmitDataExtended"),
    Counter(C.PORT_RCV_DATA_WORDS, "PortRcvDataExtended", "Infiniband_MBIn", "PortRcvDataExtended"),
    Counter(C.PORT_XMIT_PKTS, "PortXmitPktsExtended", "Infiniband_PckOut", "PortXmitPktsExtended"),
    Counter(C.PORT_RCV_PKTS, "PortRcvPktsExtended", "Infiniband_PckIn", "PortRcvPktsExtended"),
    Counter(C.SYMBOL_ERROR, "SymbolErrorCounterExtended", "Infiniband_SymbolErrors", "Symbol_Errors"),
    Counter(
        C.LINK_ERROR_RECOVERY,
        "LinkErrorRecoveryCounterExtended",
        "Infiniband_LinkRecovers",
        "LinkErrorRecoveryCounter",
    ),
    Counter(C.LINK_DOWNED, "LinkDownedCounterExtended", "Infiniband_LinkDowned", "Link_Down_IB"),
    Counter(C.PORT_RCV_ERRORS, "PortRcvErrorsExtended", "Infiniband_RcvErrors", "PortRcvErrors"),
    Counter(
        C.PORT_RCV_REMOTE_PHYSICAL_ERRORS,
        "PortRcvRemotePhysicalErrorsExtended",
        "Infiniband_RcvRemotePhysErrors",
        "PortRcvRemotePhysicalErrors",
    ),
    Counter(
        C.PORT_RCV_SWITCH_RELAY_ERRORS,
        "PortRcvSwitchRelayErrorsExtended",
        "Infiniband_RcvSwRelayErrors",
        "PortRcvSwitchRelayErrors",
    ),
    Counter(C.PORT_XMIT_DISCARDS, "PortXmitDiscardsExtended", "Infiniband_XmtDiscards", "PortXmitDiscards"),
    Counter(
        C.PORT_XMIT_CONSTRAINT_ERRORS,
        "PortXmitConstraintErrorsExtended",
        "Infiniband_XmtConstraintErrors",
        "PortXmitConstraintErrors",
    ),
    Counter(
        C.PORT_RCV_CONSTRAINT_ERRORS,
        "PortRcvConstraintErrorsExtended",
        "Infiniband_RcvConstraintErrors",
        "PortRcvConstraintErrors",
    ),
    Counter(
        C.LOCAL_LINK_INTEGRITY_ERRORS,
        "LocalLinkIntegrityErrorsExtended",
        "Infiniband_LinkIntegrityErrors",
        "LocalLinkIntegrityErrors",
    ),
    Counter(
        C.EXCESSIVE_BUFFER_OVERRUN_ERRORS,
        "ExcessiveBufferOverrunErrorsExtended",
        "Infiniband_ExcBufOverrunErrors",
        "ExcessiveBufferOverrunErrors",
    ),
    Counter(C.VL15_DROPPED, "VL15DroppedExtended", "Infiniband_VL15Dropped", "VL15Dropped"),
    Counter(C.PORT_XMIT_WAIT, "PortXmitWaitExtended", "Infiniband_XmitWait", "PortXmitWait"),
)
# Names in an example of UFM's REST guide.
_ALIASES = {"PortTXPackets": "PortXmitPktsExtended", "PortRXPackets": "PortRcvPktsExtended"}
_BY_NAME = {name: each for each in COUNTERS for name in (each.debug, each.session, each.telemetry)}


def find_counter(name: str) -> Counter:
    """Find a counter by any of its names, with or without the suffix for rates."""
    bare = name.removesuffix(_RATE).removesuffix("_")
    counter = _BY_NAME.get(_ALIASES.get(bare, bare))
    if counter is None:
        raise UnknownName("counter", name[:80], [known_counter.telemetry for known_counter in COUNTERS])
    return counter


def is_rate(name: str) -> bool:
    return name.endswith(_RATE)
