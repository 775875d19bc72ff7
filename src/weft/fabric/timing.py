"""What adapters, PCIe, lines, switches and memory cost in time: `catalog/timing.toml`, read and looked up."""

from __future__ import annotations

from functools import cache

import msgspec

from weft.fabric import catalog
from weft.fabric.rates import Sourced, Technology, parse_label, read_catalog

# What stands inside a server where GPUs talk over PCIe or from GPU to GPU, as `weft.fabric.boards` calls it.
GPU_PORTS, PCIE_SWITCH, PROCESSOR = "GPU's NVLinks", "PCIe switch", "processor"
INNER = {GPU_PORTS: "gpu_ns", PCIE_SWITCH: "pcie_ns", PROCESSOR: "processor_ns"}
_INTEL_FAMILY = 6
_FIRST_INTEL = {"PCIe3": 0x00, "PCIe4": 0x55, "PCIe5": 0x8F}  # model numbers; of Ice Lake NCCL thinks as of Skylake


class AdapterTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One queue pair of an adapter. The fields are explained in timing.toml."""

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
    """Parts of PCIe's data rate."""

    stream: float  # for packet after packet
    lone: float  # for one at a time


class TcpTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One connection through the kernel."""

    send_ns: float
    receive_ns: float
    gap_ns: float
    packet_ns: float
    receive_packet_ns: float
    copy_gbit_s: float


class MemoryTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the payload lies."""

    latency_ns: float
    gbit_s: float | None = None  # None: as fast as PCIe


class SwitchTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Port to port, where the catalog has no figure for the model."""

    infiniband_ns: float
    ethernet_ns: float
    omni_path_ns: float
    nvlink_ns: float
    gpu_ns: float
    pcie_ns: float
    processor_ns: float


class SocketTiming(Sourced, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Between two processors of a server, for GPUs; Intel's by the least model number that has it."""

    intel_gbyte_s: dict[str, float]
    amd_gbyte_s: float
    arm_gbyte_s: float
    intel_peer: float  # times as much of a PCIe lane, for what a GPU sends through an Intel processor to another

    def of(self, template: catalog.Server | None) -> float:
        """Return the rate for a server; where it does not say its processor, that of Intel's first with such slots."""
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
    """A speed's error correction, and the part of its rate that carries no packets."""

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
        """Of a model in a server of this template, of the model anywhere, or of any that speaks the technology."""
        return self.adapter.get(f"{server}/{model}") or self.adapter.get(model) or self.adapter[technology]

    def of_line(self, speed: str) -> LineTiming:
        return self.line.get(speed) or self.line["default"]

    def switch_ns(self, model: str, technology: Technology) -> float:
        """Port to port: the vendor's figure, or the usual one."""
        known = next((one.latency_ns for one in catalog.switches() if one.name == model), None)
        if known is not None:
            return known
        if catalog.is_server(model):  # an NVSwitch comes with the board
            return self.switch.nvlink_ns
        if model in INNER:
            return float(getattr(self.switch, INNER[model]))
        usual = {Technology.ETHERNET: self.switch.ethernet_ns, Technology.OMNI_PATH: self.switch.omni_path_ns}
        return usual.get(technology, self.switch.infiniband_ns)


@cache
def timings() -> Timings:
    return msgspec.convert(read_catalog("timing.toml"), Timings)
