"""Latencies of adapters, PCIe, lines, switches and memory, from `catalog/timing.toml`."""

from __future__ import annotations

from functools import cache

import msgspec

from weft.fabric import catalog
from weft.fabric.rates import Sourced, Technology, parse_label, read_catalog

# Nodes inside a server whose GPUs communicate over PCIe or directly, as `weft.fabric.boards` names them.
GPU_PORTS, PCIE_SWITCH, PROCESSOR = "GPU's NVLinks", "PCIe switch", "processor"
INNER = {GPU_PORTS: "gpu_ns", PCIE_SWITCH: "pcie_ns", PROCESSOR: "processor_ns"}
_INTEL_FAMILY = 6
_FIRST_INTEL = {"PCIe3": 0x00, "PCIe4": 0x55, "PCIe5": 0x8F}  # model numbers; NCCL treats Ice Lake as Skylake


class AdapterTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The timing of one queue pair of an adapter. timing.toml explains the fields."""

    post_ns: float
    read_ns: float
    inline_ns: float
    inline_bytes: int
    gap_ns: float
    setup_ns: float
    receive_ns: float
    ack_ns: float
    respond_ns: float


class PcieTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The shares of PCIe's data rate that packets achieve."""

    stream: float  # back-to-back packets
    lone: float  # one packet at a time


class TcpTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The timing of one connection through the kernel."""

    send_ns: float
    receive_ns: float
    gap_ns: float
    packet_ns: float
    receive_packet_ns: float
    copy_gbit_s: float


class MemoryTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The memory that holds the payload."""

    latency_ns: float
    gbit_s: float | None = None  # None: as fast as PCIe


class SwitchTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The port-to-port latencies of switches whose model has no figure in the catalog."""

    infiniband_ns: float
    ethernet_ns: float
    omni_path_ns: float
    nvlink_ns: float
    gpu_ns: float
    pcie_ns: float
    processor_ns: float


class SocketTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rates between two processors of a server, for GPUs; Intel's by the lowest model number that has it."""

    intel_gbyte_s: dict[str, float]
    amd_gbyte_s: float
    arm_gbyte_s: float
    intel_peer: float  # GPU traffic through an Intel processor takes so many times its share of a PCIe lane

    def of(self, template: catalog.Server | None) -> float:
        """Return the rate for a server; without a known processor, that of Intel's first with such slots."""
        cpu = template.cpu if template is not None else None
        if cpu is None or cpu.vendor == "GenuineIntel":
            if cpu is None:
                model = _first_intel(template.pcie) if template is not None else 0
            else:
                model = cpu.model_id if cpu.family_id == _INTEL_FAMILY else 0
            return next(rate for least, rate in self.intel_gbyte_s.items() if model >= int(least, 16))
        return self.amd_gbyte_s if cpu.vendor == "AuthenticAMD" else self.arm_gbyte_s


def _first_intel(pcie: str) -> int:
    """Return the model number of Intel's first processors with PCIe slots of this label."""
    return _FIRST_INTEL.get(parse_label(pcie)[0].name, max(_FIRST_INTEL.values())) if pcie else 0


class LineTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The latency of a speed's error correction, and the share of its rate that carries no packets."""

    fec_ns: float
    overhead: float


class Timings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    adapter: dict[str, AdapterTiming]
    pcie: PcieTiming
    tcp: TcpTiming
    memory: dict[str, MemoryTiming]
    switch: SwitchTiming
    socket: SocketTiming
    line: dict[str, LineTiming]

    def of_adapter(self, model: str, technology: Technology, server: str = "") -> AdapterTiming:
        """Return the timing of a model in this server template, else of the model, else of the technology."""
        return self.adapter.get(f"{server}/{model}") or self.adapter.get(model) or self.adapter[technology]

    def of_line(self, speed: str) -> LineTiming:
        return self.line.get(speed) or self.line["default"]

    def switch_ns(self, model: str, technology: Technology) -> float:
        """Return the port-to-port latency: the vendor's figure, or the default."""
        claimed_ns = next((switch.latency_ns for switch in catalog.switches() if switch.name == model), None)
        if claimed_ns is not None:
            return claimed_ns
        if catalog.is_server(model):  # an NVSwitch is part of the board
            return self.switch.nvlink_ns
        if model in INNER:
            return float(getattr(self.switch, INNER[model]))
        usual = {Technology.ETHERNET: self.switch.ethernet_ns, Technology.OMNI_PATH: self.switch.omni_path_ns}
        return usual.get(technology, self.switch.infiniband_ns)


@cache
def timings() -> Timings:
    return msgspec.convert(read_catalog("timing.toml"), Timings)
