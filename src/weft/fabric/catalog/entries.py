"""Catalog entries: switches, adapters, GPUs, processors, cables and named fabrics."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any, ClassVar, Literal

import msgspec

from weft.fabric.kinds import Medium
from weft.fabric.rates import Speed, Technology, parse_label


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fields of every entry. `note` says where the source is weak."""

    kind: ClassVar[str] = "entry"

    name: str
    source: str
    date: datetime.date
    note: str = ""

    @property
    def summary(self) -> str:
        """A short description."""
        return self.name


class _Line(Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An entry whose ports all have one speed."""

    speed: str
    ports: int
    power_w: float | None = None
    vendor_id: int = 0  # from NodeInfo; 0 if unknown
    device_id: int = 0

    @property
    def line(self) -> tuple[Speed, int]:
        """The speed and width of a port, as `FabricBuilder.add_links` takes them."""
        return parse_label(self.speed)

    @property
    def technology(self) -> Technology:
        return self.line[0].technology

    @property
    def rate_gbit_s(self) -> float:
        """The data rate of a port in one direction."""
        return Speed.rate_gbit_s(*self.line)

    @property
    def label(self) -> str:
        """The label of a port: `4xNDR`, `400GbE`."""
        return Speed.label(*self.line)


class Chassis(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A director: leaf boards with the ports, and spine boards that join them, in a two-level Clos of equal chips."""

    height_u: int
    leaf_boards: int
    leaf_chips: int  # of a leaf board; half of the ports of each lead to the spine boards
    spine_boards: int  # of one chip each
    management_modules: int


class Switch(_Line, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A switch of one chip or one box. A cage may hold more than one port."""

    kind: ClassVar[str] = "switch"

    vendor: str
    cages: int
    cage: str  # the connector: QSFP56, OSFP
    height_u: int  # in rack units
    latency_ns: float | None = None  # port to port, as the vendor claims
    sharp: bool = False  # reduces in the network
    chassis: Chassis | None = None  # the director that has chips of this entry; None: the entry is sold by itself
    breakout: dict[str, int] = msgspec.field(default_factory=dict)  # slower speed -> ports that the cages split into
    planes: int = 1  # chips of the box: each port has a share of its rate on each, and each is a plane of its own
    vpi: str = ""  # the Ethernet speed of a port that is configured for Ethernet; empty: its ports have one link layer

    @property
    def box_ports(self) -> int:
        """The number of ports of the whole box: 800 of a CS8500, whose chips have 40 each."""
        director = self.chassis
        return self.ports if director is None else director.leaf_boards * director.leaf_chips * self.ports // 2

    @property
    def speeds(self) -> tuple[str, ...]:
        """The speed of its ports, and those that its cages can be split to."""
        return (self.speed, *self.breakout)

    def ports_at(self, speed: str) -> int:
        """Return the number of ports at a speed: `128` of an SN5600 at 400GbE."""
        return self.breakout.get(speed, self.ports)

    def ports_per_cage(self, ports: int) -> int:
        """Return how many ports share a cage when the switch is used with this many ports.

        A port beyond the model's is the switch's own SHARP port. Other numbers are a radix that the user chose; such a
        switch has the cages of its model.
        """
        split = next((n for n in self.breakout.values() if ports in (n, n + 1)), self.ports)
        return split // self.cages

    @property
    def summary(self) -> str:
        split = "".join(f" or {ports} × {speed}" for speed, ports in self.breakout.items())
        if self.chassis is not None:
            return f"director of {self.box_ports} × {self.label}, chips of {self.ports} ports"
        chips = f", {self.planes} chips of one plane each" if self.planes > 1 else ""
        return f"{self.ports} × {self.label}{split} in {self.cages} {self.cage} cages{chips}"


class Adapter(_Line, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A card. Each of its ports is a node of its own, `mlx5_0`, `mlx5_1`, with one network port."""

    kind: ClassVar[str] = "adapter"

    vendor: str
    pcie: str  # the whole card: `16xPCIe5`
    all_ports: bool = False  # a job uses all ports of the card in every server, not only where it replaces the own one

    @property
    def pcie_per_port(self) -> str:
        """A port's share of the card's lanes: `8xPCIe5` of a card with two ports."""
        speed, width = parse_label(self.pcie)
        return speed.label(width // self.ports)

    @property
    def card(self) -> tuple[int | str, float]:
        """A key that both entries of a VPI card share: a ConnectX-8 has one port of XDR or two of 400GbE."""
        return self.device_id or self.name, self.ports * self.rate_gbit_s

    @property
    def summary(self) -> str:
        return f"{self.ports} × {self.label}, {self.pcie}"


class Gpu(Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An accelerator. Peaks are dense: no sparsity counted."""

    kind: ClassVar[str] = "gpu"

    memory_gbyte: float
    memory_gbyte_s: float
    nvlink: str = ""  # `NVLink4`; empty if it has none
    nvlinks: int = 0
    pcie: str
    c2c_gbyte_s: float = 0.0  # NVLink-C2C to a processor on the same module, each way
    p2p: bool = True  # peer access to other GPUs over PCIe; GeForce lacks it and goes through host memory
    sm: int  # compute capability: 90 is 9.0
    gcn: str = ""  # architecture of AMD's GPUs, `gfx942`, which RCCL goes by; empty: NVIDIA
    sms: int  # streaming multiprocessors
    power_w: float
    vendor_id: int  # in PCI
    device_id: int
    peak_tflop_s: dict[str, float]  # by number format: bf16, fp16, fp8
    sustained: float  # share of the peak in a long job
    sustained_source: str
    streamed: float = 0.0  # share of the bandwidth that products in a CUDA graph read weights at; 0: as the H200
    streamed_source: str = ""

    @property
    def host_gbyte_s(self) -> float:
        """Return the rate of copies to and from the host's memory, each way: NVLink-C2C, or 0.85 of the PCIe lanes."""
        speed, width = parse_label(self.pcie)
        return self.c2c_gbyte_s or 0.85 * speed.rate_gbit_s(width) / 8

    @property
    def summary(self) -> str:
        joined = f"{self.nvlinks} × {self.nvlink}" if self.nvlinks else f"{self.pcie} alone"
        return f"{self.memory_gbyte:g} GB, {joined}, {self.peak_tflop_s['bf16']:g} TFLOP/s bf16"


class GpuChanges(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Fields of a GPU that differ from its entry in the catalog: another memory, or clocks under a power limit."""

    memory_gbyte: float | None = None
    memory_gbyte_s: float | None = None
    peak_tflop_s: dict[str, float] | None = None
    sustained: float | None = None
    power_limit_w: float | None = None  # as `nvidia-smi -pl` sets it

    @property
    def given(self) -> dict[str, Any]:
        """Return the fields that are given."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}


class Cpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A processor, with the fields that NCCL uses."""

    model: str
    arch: str
    vendor: str
    family_id: int
    model_id: int


Joins = Literal["any", "switches", "adapters"]
Ends = Literal["any", "switches", "adapters", "twin adapters"]  # the last share one cage of a server
_ENDS = {"switches": "switches", "adapters": "switch and adapters"}


class Cable(Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A cable, or two transceivers and a fibre: the parts of one link."""

    kind: ClassVar[str] = "cable"

    speeds: tuple[str, ...]
    medium: Medium
    part: str  # to order: the cable or, with transceivers, the fibre
    lengths_m: tuple[float, ...]  # those sold, the shortest first
    delay_ns_per_m: float
    power_w: float | None = None  # at each end
    joins: Joins = "any"  # a switch and adapters, two switches, or any
    links: int = 1  # per cable, between cages with as many ports
    transceivers: tuple[str, str] | None = None  # to order for a cage of a switch, and for an adapter
    flat_transceiver: str = ""  # for a cage of a server that holds two ports
    cages: tuple[str, ...] = ()  # cages of switches that its plugs fit; empty: all of its speed

    @property
    def reach_m(self) -> float:
        return self.lengths_m[-1]

    def fits(self, ends: Ends, cages: Collection[str] = ()) -> bool:
        """Return whether it fits such ends, where `cages` are the connectors of the switches among them.

        A server's cage of two ports takes transceivers for adapters, and plugs of switches that carry two links.
        """
        if self.cages and not set(cages) <= set(self.cages):
            return False
        if ends == "twin adapters":
            twin_plug = self.links > 1 if self.joins == "switches" else self.transceivers is not None
            return self.joins == "any" or twin_plug
        return ends == "any" or self.joins in ("any", ends)

    @property
    def shared(self) -> bool:
        """Return whether the links of a cage share one plug."""
        return self.links > 1 or self.transceivers is not None

    @property
    def optical(self) -> bool:
        return self.medium in (Medium.AOC, Medium.TRANSCEIVER)

    @property
    def summary(self) -> str:
        between = "" if self.joins == "any" else f" between {_ENDS[self.joins]}"
        return f"{', '.join(self.speeds)}: {self.medium.name}{between} up to {self.reach_m:g} m"


class Interconnect(Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A named fabric: its links, switches and adapters, and its network protocol."""

    kind: ClassVar[str] = "fabric"

    label: str
    speed: str
    switch: str
    adapter: str
    network: str  # in `weft.sim`: infiniband, roce, tcp, omni-path
    paths: str  # in `weft.sim`: table, adaptive, ecmp, spray
    transport: str = ""  # transport of NCCL's messages, if neither the card's RDMA nor the kernel's sockets
    virtual: bool = False  # between virtual machines of a cloud, whose delay is in the times of the adapter
    headlines_only: bool = False  # vendors' headlines are all that is published about its throughput

    @property
    def summary(self) -> str:
        return f"{self.label}: {self.switch}, {self.adapter}, paths {self.paths}"
