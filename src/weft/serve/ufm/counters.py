"""UFM's names for a port's counters, in the three interfaces where clients read them.

    telemetry    UFM Telemetry's own (csv/metrics, topX, history)               PortXmitDataExtended
    session      the default monitoring session (converted_enterprise)         Infiniband_MBOut
    debug        the secondary telemetry instance (low_freq_debug)             PortXmitDataExtended, Link_Down_IB

Data counters are in words of four bytes, as InfiniBand counts them and as UFM documents them; XmitWait is in ticks.
Behind a name, `_Rate` (telemetry) or `Rate` (session) means the change per second.
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


def _counter(column: Column, standard: str, session: str, debug: str = "") -> Counter:
    return Counter(column, f"{standard}Extended", f"Infiniband_{session}", debug or standard)


COUNTERS = (  # the name of the standard, then UFM's own names
    _counter(C.PORT_XMIT_DATA_WORDS, "PortXmitData", "MBOut", "PortXmitDataExtended"),
    _counter(C.PORT_RCV_DATA_WORDS, "PortRcvData", "MBIn", "PortRcvDataExtended"),
    _counter(C.PORT_XMIT_PKTS, "PortXmitPkts", "PckOut", "PortXmitPktsExtended"),
    _counter(C.PORT_RCV_PKTS, "PortRcvPkts", "PckIn", "PortRcvPktsExtended"),
    _counter(C.SYMBOL_ERROR, "SymbolErrorCounter", "SymbolErrors", "Symbol_Errors"),
    _counter(C.LINK_ERROR_RECOVERY, "LinkErrorRecoveryCounter", "LinkRecovers"),
    _counter(C.LINK_DOWNED, "LinkDownedCounter", "LinkDowned", "Link_Down_IB"),
    _counter(C.PORT_RCV_ERRORS, "PortRcvErrors", "RcvErrors"),
    _counter(C.PORT_RCV_REMOTE_PHYSICAL_ERRORS, "PortRcvRemotePhysicalErrors", "RcvRemotePhysErrors"),
    _counter(C.PORT_RCV_SWITCH_RELAY_ERRORS, "PortRcvSwitchRelayErrors", "RcvSwRelayErrors"),
    _counter(C.PORT_XMIT_DISCARDS, "PortXmitDiscards", "XmtDiscards"),
    _counter(C.PORT_XMIT_CONSTRAINT_ERRORS, "PortXmitConstraintErrors", "XmtConstraintErrors"),
    _counter(C.PORT_RCV_CONSTRAINT_ERRORS, "PortRcvConstraintErrors", "RcvConstraintErrors"),
    _counter(C.LOCAL_LINK_INTEGRITY_ERRORS, "LocalLinkIntegrityErrors", "LinkIntegrityErrors"),
    _counter(C.EXCESSIVE_BUFFER_OVERRUN_ERRORS, "ExcessiveBufferOverrunErrors", "ExcBufOverrunErrors"),
    _counter(C.VL15_DROPPED, "VL15Dropped", "VL15Dropped"),
    _counter(C.PORT_XMIT_WAIT, "PortXmitWait", "XmitWait"),
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
