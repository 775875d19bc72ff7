"""The names and labels of metrics: those of infiniband_exporter, and weft's own.

    infiniband_switch_port_symbol_error_total{guid="0x...",port="5"}      and infiniband_hca_... of adapters
    weft_port_fec_corrected_blocks_total{guid="0x...",port="5"}           counters that exporter does not have

Rules and dashboards for that exporter work unchanged. `weft_port_info` has weft's port names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from weft.monitor.columns import Column

WORD_BYTES = 4
Kind = Literal["counter", "gauge"]
C = Column


@dataclass(frozen=True, slots=True)
class Family:
    """A metric; each sample has labels, `{guid="0x1"}` or empty, and a value."""

    name: str
    help: str
    kind: Kind
    samples: Sequence[tuple[str, float]]

    def text(self) -> str:
        head = f"# HELP {self.name} {self.help}\n# TYPE {self.name} {self.kind}\n"
        return head + "".join([f"{self.name}{labels} {number(value)}\n" for labels, value in self.samples])


@dataclass(frozen=True, slots=True)
class PortMetric:
    """A counter of ports; `of` is its name in the standard."""

    column: Column
    name: str
    of: str
    unit: int = 1


PORT_METRICS = (  # with the prefixes infiniband_switch_port_ and infiniband_hca_port_
    PortMetric(C.PORT_XMIT_DATA_WORDS, "transmit_data_bytes_total", "PortXmitData", WORD_BYTES),
    PortMetric(C.PORT_RCV_DATA_WORDS, "receive_data_bytes_total", "PortRcvData", WORD_BYTES),
    PortMetric(C.PORT_XMIT_PKTS, "transmit_packets_total", "PortXmitPkts"),
    PortMetric(C.PORT_RCV_PKTS, "receive_packets_total", "PortRcvPkts"),
    PortMetric(C.PORT_UNICAST_XMIT_PKTS, "unicast_transmit_packets_total", "PortUnicastXmitPkts"),
    PortMetric(C.PORT_UNICAST_RCV_PKTS, "unicast_receive_packets_total", "PortUnicastRcvPkts"),
    PortMetric(C.PORT_MULTICAST_XMIT_PKTS, "multicast_transmit_packets_total", "PortMulticastXmitPkts"),
    PortMetric(C.PORT_MULTICAST_RCV_PKTS, "multicast_receive_packets_total", "PortMulticastRcvPkts"),
    PortMetric(C.SYMBOL_ERROR, "symbol_error_total", "SymbolErrorCounter"),
    PortMetric(C.LINK_ERROR_RECOVERY, "link_error_recovery_total", "LinkErrorRecoveryCounter"),
    PortMetric(C.LINK_DOWNED, "link_downed_total", "LinkDownedCounter"),
    PortMetric(C.PORT_RCV_ERRORS, "receive_errors_total", "PortRcvErrors"),
    PortMetric(
        C.PORT_RCV_REMOTE_PHYSICAL_ERRORS, "receive_remote_physical_errors_total", "PortRcvRemotePhysicalErrors"
    ),
    PortMetric(C.PORT_RCV_SWITCH_RELAY_ERRORS, "receive_switch_relay_errors_total", "PortRcvSwitchRelayErrors"),
    PortMetric(C.PORT_XMIT_DISCARDS, "transmit_discards_total", "PortXmitDiscards"),
    PortMetric(C.PORT_XMIT_CONSTRAINT_ERRORS, "transmit_constraint_errors_total", "PortXmitConstraintErrors"),
    PortMetric(C.PORT_RCV_CONSTRAINT_ERRORS, "receive_constraint_errors_total", "PortRcvConstraintErrors"),
    PortMetric(C.LOCAL_LINK_INTEGRITY_ERRORS, "local_link_integrity_errors_total", "LocalLinkIntegrityErrors"),
    PortMetric(
        C.EXCESSIVE_BUFFER_OVERRUN_ERRORS, "excessive_buffer_overrun_errors_total", "ExcessiveBufferOverrunErrors"
    ),
    PortMetric(C.VL15_DROPPED, "vl15_dropped_total", "VL15Dropped"),
    PortMetric(C.PORT_XMIT_WAIT, "transmit_wait_total", "PortXmitWait"),
    PortMetric(C.QP1_DROPPED, "qp1_dropped_total", "QP1Dropped"),
    PortMetric(C.LOCAL_PHYSICAL, "local_physical_errors_total", "PortLocalPhysicalErrors"),
    PortMetric(C.MALFORMED, "malformed_packet_errors_total", "PortMalformedPacketErrors"),
    PortMetric(C.BUFFER_OVERRUN, "buffer_overrun_errors_total", "PortBufferOverrunErrors"),
    # Spelled like this in infiniband_exporter
    PortMetric(C.DLID_MAPPING, "dli_mapping_errors_total", "PortDLIDMappingErrors"),
    PortMetric(C.VL_MAPPING, "vl_mapping_errors_total", "PortVLMappingErrors"),
    PortMetric(C.LOOPING, "looping_errors_total", "PortLoopingErrors"),
)
WEFT_METRICS = (  # with the prefix weft_port_
    PortMetric(C.INACTIVE_DISCARDS, "inactive_discards_total", "PortInactiveDiscards"),
    PortMetric(C.NEIGHBOR_MTU_DISCARDS, "neighbor_mtu_discards_total", "PortNeighborMTUDiscards"),
    PortMetric(C.LIFETIME_DISCARDS, "lifetime_discards_total", "PortSwLifetimeLimitDiscards"),
    PortMetric(C.HOQ_LIFETIME_DISCARDS, "hoq_lifetime_discards_total", "PortSwHOQLifetimeLimitDiscards"),
    PortMetric(C.FEC_CORRECTED, "fec_corrected_blocks_total", "FEC blocks that were corrected"),
    PortMetric(C.FEC_UNCORRECTED, "fec_uncorrected_blocks_total", "FEC blocks that could not be corrected"),
)


def labels(**values: object) -> str:
    """Format labels of a sample; backslashes, quotes and line ends are escaped."""
    inside = ",".join(f'{name}="{escaped(str(value))}"' for name, value in values.items())
    return f"{{{inside}}}" if inside else ""


def number(value: float) -> str:
    """Format a number; integers keep all digits, since a 64-bit counter has more than a float."""
    return str(value) if isinstance(value, int) else repr(float(value))


def text(families: Iterable[Family]) -> str:
    return "".join(family.text() for family in families if family.samples)


def escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
