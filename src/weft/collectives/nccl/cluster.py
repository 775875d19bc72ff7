"""The GPUs of a job and the links between them, as NCCL's tuning sees them.

Cluster(sm=90, gpus=8, nodes=4, nics=8, nic_gbit_s=400)      plain numbers
from_server("dgx-h100", nodes=4)                             a template of the catalog
from_fabric(fabric, ["dgx1", "dgx2"])                        servers of a fabric, with its faults
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Algorithm, Protocol
from weft.collectives.nccl.board import Board, board_of, pairs_of, pcie_gbyte_s, slot_gbyte_s
from weft.collectives.nccl.constants import constants
from weft.collectives.ranks import compute_servers
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology
from weft.fabric.views import Node, Server
from weft.units import gbyte_s

_BLACKWELL = 100
_RUBIN = range(107, 110)
_NETWORKS = (Technology.INFINIBAND, Technology.ETHERNET, Technology.OMNI_PATH)


class Processor(enum.StrEnum):
    """The vendor of processors, which differ in posting to adapters and in small writes."""

    INTEL = "intel"
    AMD = "amd"
    ARM = "arm"

    @property
    def x86(self) -> bool:
        return self != Processor.ARM


_VENDORS = {"GenuineIntel": Processor.INTEL, "AuthenticAMD": Processor.AMD}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A number of equal nodes with one rank on each GPU."""

    sm: int  # compute capability of the GPUs: 90 is 9.0
    gpus: int  # in a node
    nodes: int
    nics: int = 0  # in a node
    nic_gbit_s: float = 0.0  # each
    nvlinks: int | None = None  # from each GPU to NVSwitches, 0 where there are none; None: as the generation has them
    board: Board | None = None  # a node without NVSwitches: how PCIe and NVLinks connect its GPUs
    pcie_gbyte_s: float | None = None  # slot of a GPU or adapter by NCCL's count; None: by the generation
    processor: Processor = Processor.INTEL
    guessed: bool = False  # the template does not name its processors, and GPUs communicate through them
    near: bool = True  # every adapter has a GPU below the same PCIe switch
    sharp: bool = False  # switches reduce, and NCCL has the plugin for it
    nvls: bool = True  # NVLink multicast if GPUs and NVSwitches support it: NCCL_NVLS_ENABLE
    pat: bool = True  # PAT with one GPU in a node: NCCL_PAT_ENABLE
    algorithms: tuple[Algorithm, ...] = ()  # allowed by NCCL_ALGO; empty: all
    protocols: tuple[Protocol, ...] = ()  # NCCL_PROTO
    min_ctas: int = 1  # channels at least: NCCL_MIN_CTAS
    max_ctas: int = 64  # and at most: NCCL_MAX_CTAS
    min_channels: int = 1  # rings and trees: NCCL_MIN_NCHANNELS
    max_channels: int = 64  # NCCL_MAX_NCHANNELS
    windows: bool = False  # buffers are registered as windows, for symmetric kernels: -R 2 of nccl-tests
    win_enable: bool = True  # NCCL_WIN_ENABLE
    sym_kernel: str = ""  # only this one: NCCL_SYM_KERNEL
    sym_ctas: int = 0  # blocks of symmetric kernels; 0: as NCCL chooses: NCCL_SYM_CTAS
    sym_tma: bool | None = None  # NCCL_SYM_TMA_ENABLE; None: as the version has it
    sym_gin: bool = True  # symmetric kernels between NVLink domains: NCCL_SYM_GIN_KERNELS_ENABLE
    ofi_tuner: bool = True  # the tuner of AWS's plugin, where EFA carries messages: OFI_NCCL_TUNER_TYPE
    nccl: str = ""  # version, 2.28; by default the newest that weft supports
    gcn: str = ""  # architecture of AMD's GPUs, whose library is RCCL

    def __post_init__(self) -> None:
        for field_name, value, least in (
            ("gpus", self.gpus, 1),
            ("nodes", self.nodes, 1),
            ("nvlinks", self.nvlinks or 0, 0),
        ):
            if value < least:
                raise ConfigError(f"a cluster with {field_name}={value}: the least is {least}")
        if self.ranks < 2:
            raise ConfigError("a cluster of one GPU has no peers: set gpus=2 or nodes=2")
        most = constants().limits.channels
        for name, few, many in (
            ("CTAS", self.min_ctas, self.max_ctas),
            ("NCHANNELS", self.min_channels, self.max_channels),
        ):
            if not 1 <= few <= many <= most:
                raise ConfigError(f"NCCL_MIN_{name}={few} NCCL_MAX_{name}={many}: from 1 to {most}, the first no more")
        if self.sm >= _BLACKWELL and not constants(self.nccl).rules.blackwell:
            raise ConfigError(f"NCCL {self.nccl} knows no GPUs of sm_{self.sm}: 2.25 is the first that does")
        if self.sm in _RUBIN:
            raise ConfigError(f"GPUs of sm_{self.sm} are Rubin, of which only NCCL 2.32 has figures, and weft has none")
        if self.nodes > 1 and (self.nics < 1 or self.nic_gbit_s <= 0):
            raise ConfigError(
                f"{self.nodes} nodes with nics={self.nics} of nic_gbit_s={self.nic_gbit_s:g}: nodes talk over adapters"
            )

    @property
    def ranks(self) -> int:
        return self.gpus * self.nodes

    @property
    def nvlink(self) -> bool:
        """Return whether NVLink connects the GPUs of a node, over NVSwitches or directly; else PCIe does."""
        return self.nvlink_gbyte_s > 0

    @property
    def nvswitch(self) -> bool:
        return self.nvlink and self.board is None

    @property
    def joined_by(self) -> str:
        """Return the links between the GPUs of a node, in words."""
        direct = "xGMI" if self.gcn else "NVLinks from GPU to GPU"
        return "NVSwitches" if self.nvswitch else direct if self.nvlink else "PCIe"

    @property
    def link_gbyte_s(self) -> float:
        """Return the bandwidth of one NVLink by NCCL's count."""
        return constants().of_sm(self.sm).nvlink_gbyte_s

    @property
    def nvlink_gbyte_s(self) -> float:
        """Return the NVLink bandwidth of a GPU by NCCL's count."""
        if self.board is not None:
            return self.board.links(self.gpus) * self.link_gbyte_s
        return (constants().of_sm(self.sm).nvlinks if self.nvlinks is None else self.nvlinks) * self.link_gbyte_s

    @property
    def pair_gbyte_s(self) -> float:
        """Return the NVLink bandwidth between two GPUs of a node; with NVSwitches all of a GPU's."""
        if self.board is not None:
            return self.board.pair_links(self.gpus) * self.link_gbyte_s
        return self.nvlink_gbyte_s

    @property
    def slot_gbyte_s(self) -> float:
        """Return the bandwidth of a PCIe slot by NCCL's count."""
        if self.pcie_gbyte_s is not None:
            return self.pcie_gbyte_s
        return pcie_gbyte_s(6 if self.nic_gbit_s > 400 else constants().of_sm(self.sm).pcie)

    @property
    def nic_gbyte_s(self) -> float:
        """Return the rate of an adapter, limited by its slot."""
        return min(gbyte_s(self.nic_gbit_s), self.slot_gbyte_s)

    def __str__(self) -> str:
        network = f", {self.nics} × {self.nic_gbit_s:g} Gb/s each" if self.nodes > 1 else ""
        return f"{self.nodes} × {self.gpus} GPUs of {self.gcn or f'sm_{self.sm}'}{network}"


def from_server(template: str, *, nodes: int, sharp: bool = False, nvls: bool = True) -> Cluster:
    """Return nodes of a server template of the catalog, with all rails cabled."""
    kind = catalog.server(template)
    if not kind.gpus:
        names = [server.name for server in catalog.servers() if server.gpus]
        raise ConfigError(f"{kind.name} has no GPUs: NCCL runs on {', '.join(names)}")
    gpu = catalog.gpu(kind.gpu)
    above = {name: switch for switch, names in kind.pcie_tree.items() for name in names}
    switches = {above[f"gpu{number}"] for number in range(kind.gpus)} & above.keys()  # processors are below nothing
    return Cluster(
        sm=gpu.sm,
        gcn=gpu.gcn,
        gpus=kind.gpus,
        nodes=nodes,
        nics=kind.rails,
        nic_gbit_s=kind.adapter.rate_gbit_s,
        nvlinks=sum(kind.nvlink_spread),
        board=None if kind.nvlink_spread or kind.gpus == 1 else board_of(kind, range(kind.gpus), pairs_of(kind)),
        pcie_gbyte_s=slot_gbyte_s(gpu.pcie),
        processor=_VENDORS.get(kind.cpu.vendor, Processor.ARM) if kind.cpu else Processor.INTEL,
        guessed=kind.cpu is None and kind.cpus > 1 and kind.gpus > 1 and not kind.nvlink_spread,
        near=bool(kind.c2c_links) or {above[name] for name in kind.compute} <= switches,
        sharp=sharp,
        nvls=nvls,
    )


def from_fabric(
    fabric: Fabric, servers: Sequence[str] | None = None, *, sharp: bool = False, nvls: bool = True
) -> Cluster:
    """Return these servers of a fabric, or all. As in NCCL, the weakest server counts.

    Adapters are those of the compute rails that have a cable, as NCCL_IB_HCA would name them.
    """
    names = list(compute_servers(fabric) if servers is None else servers)
    if not names:
        raise ConfigError(f"{fabric.spec}: a job needs at least one server")
    boxes = [_Box(fabric.find_server(name)) for name in _one_of_each_kind(fabric, names)]
    odd = next((box for box in boxes if box.shape != boxes[0].shape), None)
    if odd is not None:
        raise ConfigError(
            f"{boxes[0].server} has {boxes[0]}, {odd.server} has {odd}: NCCL's model needs equal nodes. "
            f"Name servers of one kind"
        )
    whole = from_server(boxes[0].template, nodes=len(names), sharp=sharp, nvls=nvls)
    rates = [rate for box in boxes for rate in box.rates_gbit_s]
    return replace(
        whole,
        gpus=len(boxes[0].gpus),
        nics=min(len(box.rates_gbit_s) for box in boxes),
        nic_gbit_s=min(rates, default=0.0),
        nvlinks=min(box.nvlinks for box in boxes),
        board=None if whole.board is None or len(boxes[0].gpus) == 1 else _board(boxes),
    )


def _one_of_each_kind(fabric: Fabric, names: Sequence[str]) -> list[str]:
    """Return a server of each kind: those with the same devices in the same order, and links of the same rates."""
    order, first = fabric.nodes_by_server
    chosen = np.array([fabric.server_index[fabric.find_server(name).name] for name in names])
    offset = np.zeros(len(fabric.nodes), np.int64)  # [node] -> its place in its server
    offset[order] = np.arange(len(order)) - first[np.maximum(fabric.nodes.server[order], 0)]
    digest = _mix(fabric.nodes.kind, fabric.nodes.model, fabric.nodes.n_ports, offset)
    for near, far in (fabric.link_nodes, fabric.link_nodes[::-1]):
        inside = fabric.nodes.server[near] == fabric.nodes.server[far]
        peer = np.where(inside, offset[far], -1)
        np.add.at(digest, near, _mix(offset[near], peer, fabric.links.speed, fabric.links.width))
    counts = first[1:] - first[:-1]
    sums = np.concatenate(([np.uint64(0)], np.cumsum(digest[order], dtype=np.uint64)))
    of_server = sums[first[1:]] - sums[first[:-1]] + counts.astype(np.uint64)
    _, kinds = np.unique(of_server[chosen], return_index=True)
    return [names[index] for index in sorted(kinds.tolist())]


def _mix(*columns: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return a hash of each row."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        mixed = (mixed ^ column.astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _board(boxes: Sequence[_Box]) -> Board:
    """Return the board of servers without NVSwitches, with the fewest NVLinks of each pair of GPUs."""
    first, *rest = (box.pairs for box in boxes)
    pairs = {pair: min([links, *(other[pair] for other in rest)]) for pair, links in first.items()}
    return board_of(catalog.server(boxes[0].template), [_number(gpu) for gpu in boxes[0].gpus], pairs)


def check_gpus(fabric: Fabric, servers: Sequence[str] | None = None) -> None:
    """Raise ConfigError if the first of these servers has no GPUs."""
    first = next(iter(fabric.servers if servers is None else servers), None)
    if first is not None and not len(fabric.of_kind(NodeKind.GPU)):
        raise _no_gpus(fabric.find_server(first))


def _no_gpus(server: Server) -> ConfigError:
    return ConfigError(
        f"{server} has no GPUs: NCCL needs a fabric with server=dgx-h100, or another that `weft catalog` has; "
        f"of a file, say what its servers are: --as '{server.name}=dgx-h100'"
    )


class _Box:
    """The GPUs, adapters and links of a server that a job can use."""

    def __init__(self, server: Server) -> None:
        nodes = server.nodes
        self.server = server
        self.gpus = [node for node in nodes if node.kind == NodeKind.GPU]
        cpus = [node for node in nodes if node.kind == NodeKind.CPU]
        if not self.gpus or not cpus:
            raise _no_gpus(server)
        self.template = cpus[0].model
        rails = catalog.server(self.template).compute
        adapters = [n for n in nodes if n.kind == NodeKind.HCA and n.name.rpartition("/")[2] in rails]
        self.rates_gbit_s = [rate for node in adapters for rate in _network_rates_gbit_s(node)]
        self.nvlinks = min(len(_rates_gbit_s(gpu, (Technology.NVLINK,))) for gpu in self.gpus)

    @property
    def pairs(self) -> Counter[tuple[int, int]]:
        """Count the direct NVLinks between pairs of GPUs."""
        ports = (port for gpu in self.gpus for port in gpu.ports)
        peers = ((port.node, port.peer.node) for port in ports if port.peer is not None)
        joined = [(_number(a), _number(b)) for a, b in peers if a.kind == b.kind == NodeKind.GPU]
        return Counter((a, b) for a, b in joined if a < b)

    @property
    def shape(self) -> tuple[str, int]:
        return self.gpus[0].model, len(self.gpus)

    def __str__(self) -> str:
        return f"{len(self.gpus)} × {self.gpus[0].model}"


def _rates_gbit_s(node: Node, technologies: Sequence[Technology]) -> list[float]:
    """Return the rates of a node's links of these technologies."""
    links = (port.link for port in node.ports)
    return [link.rate_gbit_s for link in links if link is not None and link.technology in technologies]


def _network_rates_gbit_s(adapter: Node) -> list[float]:
    """Return the rate of each network port of an adapter; planes together are one port."""
    rates, fabric = _rates_gbit_s(adapter, _NETWORKS), adapter.fabric
    if fabric.planes > 1 and rates:
        return [sum(rates) * fabric.multiplicity]
    return rates


def _number(gpu: Node) -> int:
    """Return the number of a GPU: 3 for `dgx1/gpu3`."""
    return int(gpu.name.rpartition("gpu")[2])
