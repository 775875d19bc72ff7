"""NCCL's symmetric kernels: buffers that every GPU of an NVLink domain sees at the same address, and kernels on them.

    AllReduce_RSxLDMC_AGxSTMC     reduce-scatter by multicast loads, all-gather by multicast stores: switches add
    AllGather_ST                  everybody stores its part in everybody's buffer
    ReduceScatter_LL              with flags in the data, as the protocol LL
    AllGather_TmaST               by the tensor memory accelerator
    ReduceScatter_RailA2A_LsaLD   between NVLink domains: GPUs post to the adapters of their rail themselves (GIN)

Buffers are so if a program registers them as windows: `Cluster(windows=True)`, `weft nccl -R 2`. NCCL then takes the
kernel that it believes to be the fastest, in its own closed form: a latency, and bytes at what blocks of threads can
do, up to what NVLink can; fewer blocks where that costs little. It compares them with no other algorithm.

The formulas are those of ncclSymkPickKernel and queryModel (src/sym_kernels.cc), since 2.31 of ncclTuningSymkModelSim,
and for all_gather on Blackwell since 2.32 of ncclSymkLsaA2AModel; sums of float32. What a kernel takes, and not only
what NCCL believes: `weft.collectives.nccl.symmetric_times`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, log1p, log2

import numpy as np

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.cluster import Cluster
from weft.collectives.nccl.constants import GatherSpeeds, KernelSpeeds, Symmetric, constants
from weft.errors import ConfigError, find_named

_BLACKWELL, _HOPPER = 100, 90
_GATHER_SM = (100, 103)
_SIMPLE = 2  # index in lists by protocol
_GIBYTE_US = (1 << 30) / 1e6  # bytes in a microsecond at 1 Gibyte/s
_OF = {
    "AllReduce": Collective.ALL_REDUCE,
    "AllGather": Collective.ALL_GATHER,
    "ReduceScatter": Collective.REDUCE_SCATTER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The estimate of NCCL for one kernel and size; `off` is the reason if it is disabled."""

    name: str
    time_us: float = 0.0
    blocks: int = 0
    off: str = ""

    @property
    def collective(self) -> Collective:
        return _OF[self.name.partition("_")[0]]

    @property
    def ll(self) -> bool:
        return "LL" in self.name

    @property
    def protocol(self) -> Protocol:
        return Protocol.LL if self.ll else Protocol.SIMPLE

    @property
    def multicast(self) -> bool:
        return "MC" in self.name

    @property
    def adds(self) -> bool:
        """Return whether the NVSwitches reduce."""
        return "LDMC" in self.name

    @property
    def tma(self) -> bool:
        return "Tma" in self.name

    @property
    def rail(self) -> bool:
        """Return whether the kernel works between NVLink domains."""
        return "Rail" in self.name


def kernels(cluster: Cluster, collective: Collective, size_bytes: int) -> tuple[Kernel, ...]:
    """Return the kernels of a collective in NCCL's order; `size_bytes` is the larger of a rank's two buffers."""
    model = Model(cluster, collective, size_bytes)
    return tuple(model.kernel(name) for name in model.figures.kernels if _OF[name.partition("_")[0]] == collective)


def pick(cluster: Cluster, collective: Collective, size_bytes: int) -> Kernel | None:
    """Return the kernel that NCCL would choose for buffers in windows, or None."""
    figures = constants(cluster.nccl).symmetric
    on = [kernel for kernel in kernels(cluster, collective, size_bytes) if not kernel.off]
    if figures.last:
        on.reverse()
    return min(on, key=lambda kernel: kernel.time_us * (1 + penalty(cluster, kernel) * kernel.blocks), default=None)


def penalty(cluster: Cluster, kernel: Kernel) -> float:
    """Return the penalty of each further block."""
    figures = constants(cluster.nccl).symmetric
    measured = kernel.name in figures.gather and cluster.sm in _GATHER_SM
    return figures.gather_block_penalty if measured else figures.block_penalty


def check_kernel(cluster: Cluster) -> None:
    """Raise ConfigError if NCCL_SYM_KERNEL is no kernel of this version."""
    names = constants(cluster.nccl).symmetric.kernels
    if cluster.sym_kernel and not names:
        raise ConfigError(f"NCCL_SYM_KERNEL={cluster.sym_kernel}: 2.27 is the first NCCL that has symmetric kernels")
    if cluster.sym_kernel:
        find_named("symmetric kernel", cluster.sym_kernel, {name: name for name in names})


class Model:
    """A collective of one size on one cluster."""

    def __init__(self, cluster: Cluster, collective: Collective, size_bytes: int) -> None:
        self.cluster, self.collective = cluster, collective
        self.constants = constants(cluster.nccl)
        self.figures: Symmetric = self.constants.symmetric
        own = size_bytes if collective == Collective.ALL_REDUCE else size_bytes // cluster.ranks
        self.part_bytes = own  # that a program names: all, or what each rank gives or gets
        self.bytes = ceil(own / self.figures.cell_bytes) * self.figures.cell_bytes
        self.n, self.rails = cluster.gpus, cluster.nodes
        blackwell = cluster.sm >= _BLACKWELL
        kinds = self.figures.blackwell if blackwell else self.figures.hopper
        self.speeds: KernelSpeeds = getattr(kinds, collective, kinds.all_gather)
        self.blackwell = blackwell

    def kernel(self, name: str) -> Kernel:
        plain = Kernel(name=name)
        off = self._off(plain)
        if off:
            return Kernel(name=name, off=off)
        time_us, blocks = self._rail(plain) if plain.rail else self._nvlink(plain)
        return Kernel(name=name, time_us=time_us, blocks=blocks)

    def _off(self, kernel: Kernel) -> str:
        cluster, figures = self.cluster, self.figures
        if not (cluster.windows and cluster.win_enable):
            return "buffers in no window" if cluster.win_enable else "switched off"
        if cluster.sym_kernel and cluster.sym_kernel != kernel.name:
            return f"NCCL_SYM_KERNEL={cluster.sym_kernel}"
        if self.n > 1 and not cluster.nvlink:
            return "GPUs joined by PCIe"
        if kernel.multicast and not (
            cluster.nvswitch and cluster.nvls and cluster.sm >= _HOPPER and self.n >= figures.multicast_gpus
        ):
            return "no multicast"
        if kernel.rail != (self.rails > 1):
            return "one node" if kernel.rail else "more than one node"
        if kernel.rail and not cluster.sym_gin:
            return "switched off"
        return self._size_off(kernel) or self._tma_off(kernel)

    def _size_off(self, kernel: Kernel) -> str:
        figures = self.figures
        moved = self.bytes * (1 if self.collective == Collective.ALL_REDUCE else self.cluster.ranks)
        large = moved >= figures.most_bytes or (kernel.ll and moved >= figures.ll_most_bytes)
        return "too much data" if large else ""

    def _tma_off(self, kernel: Kernel) -> str:
        if not kernel.tma:
            return ""
        if not self.blackwell:
            return "GPUs before Blackwell"
        if not (self.figures.tma if self.cluster.sym_tma is None else self.cluster.sym_tma):
            return "switched off"
        forced = self.cluster.sym_kernel == kernel.name
        return "" if forced or self._deep(kernel, self._bounds(kernel)[0]) else "too little data"

    def _deep(self, kernel: Kernel, blocks: int) -> bool:
        """Return whether the copies of each block are long enough for TMA."""
        own = self.figures.own.get(kernel.name)
        if own is None:
            return True
        least = own.least_bytes * (1 if kernel.multicast else blocks) + own.least_part_bytes * blocks * self.n
        return self.bytes >= least

    def _bounds(self, kernel: Kernel) -> tuple[int, int]:
        """Return the fewest and the most blocks."""
        figures, cluster = self.figures, self.cluster
        if cluster.sym_ctas:
            return (min(cluster.sym_ctas, figures.blocks),) * 2
        shared = figures.multicast_blocks_blackwell if self.blackwell else figures.multicast_blocks
        most = min(ceil(shared / self.n) if kernel.multicast and not kernel.ll else figures.blocks, cluster.max_ctas)
        least = cluster.min_ctas
        if not figures.even or least >= most:
            return min(least, most) if figures.even else least, most
        return (least if least == 1 else least + least % 2), (most if most == 1 else most - most % 2)

    # Inside an NVLink domain.

    def _nvlink(self, kernel: Kernel) -> tuple[float, int]:
        """Return the time, and the fewest blocks that are nearly as fast as all."""
        least, most = self._bounds(kernel)
        while kernel.tma and self.figures.own and most > least and not self._deep(kernel, most):
            most = max(1, most - 2)
        whole_us, blocks = sum(self.believed_us(kernel, most)), least
        while blocks < most:
            time_us = sum(self.believed_us(kernel, blocks))
            if time_us <= self.figures.tolerance * whole_us:
                return time_us, blocks
            blocks += 1 if not self.figures.even or blocks == 1 else 2
        return whole_us, most

    def believed_us(self, kernel: Kernel, blocks: int) -> tuple[float, float]:
        """Return latency and data time with `blocks`."""
        measured = self.figures.gather.get(kernel.name)
        if measured is not None and self.cluster.sm in _GATHER_SM:
            return self._gathered_us(kernel, measured, blocks)
        own = self.figures.own.get(kernel.name)
        return own.us if own else self.speeds.ll_us if kernel.ll else self.speeds.us, self._data_us(kernel, blocks)

    def _data_us(self, kernel: Kernel, blocks: int) -> float:
        """Return the data time: the rate rises smoothly from that of blocks to NVLink's; small data are nearly free."""
        own = self.figures.own.get(kernel.name)
        together = self.collective == Collective.ALL_REDUCE and kernel.multicast and not kernel.ll
        peak = own.nvlink_gibyte_s if own else self.speeds.nvlink_gibyte_s
        peak = (self.speeds.multicast_gibyte_s if together else peak) * _GIBYTE_US
        block = self.speeds.block_gibyte_s * _GIBYTE_US
        rate = _soft_min(blocks * block * self._times_faster(kernel), peak, block)
        return _soft_plus(self._bus_bytes(kernel) / rate - 1)

    def _bus_bytes(self, kernel: Kernel) -> int:
        """Return the bytes of a GPU by NCCL's count: more for LL, because of its flags."""
        return int(self.n * self.bytes * self.figures.ll_factor) if kernel.ll else self.carried_bytes(kernel)

    def carried_bytes(self, kernel: Kernel) -> int:
        """Return the larger of the bytes that a GPU sends and receives over NVLink."""
        if kernel.ll:
            return 2 * (self.n - 1) * self.bytes
        if self.collective != Collective.ALL_REDUCE:
            return (self.n - 1) * self.bytes
        return self.bytes + self.bytes // self.n if kernel.multicast else 2 * self.bytes * (self.n - 1) // self.n

    def _times_faster(self, kernel: Kernel) -> float:
        """Return the speed-up of a block with multicast."""
        if not kernel.multicast:
            return 1.0
        if kernel.ll:
            return self.figures.multicast_ll
        if self.collective == Collective.ALL_REDUCE:
            return float(self.n)
        tma = self.figures.tma_multicast if kernel.name in self.figures.own else 1.0
        return self.figures.multicast_part * self.n * tma

    def _gathered_us(self, kernel: Kernel, speeds: GatherSpeeds, blocks: int) -> tuple[float, float]:
        """Return latency and data time of an all_gather, as NVIDIA measured it."""
        cells = ceil(self.part_bytes / 1024)
        used = ceil(cells / ceil(cells / blocks))  # blocks with the same number of cells each, but for the last
        peak, extra_us = speeds.nvlink_gbyte_s, 0.0
        if kernel.name == "AllGather_TmaST" and self.cluster.sm == _GATHER_SM[1]:
            if used in range(14, self.figures.blocks + 1, 4):
                peak, extra_us = min(peak, speeds.trough_gbyte_s), speeds.trough_us
            if used < self.n:
                peak = min(peak, speeds.few_gbyte_s)
        if speeds.others_only:
            peak *= (self.n - 1) / self.n
        sent = 1 if kernel.multicast and not kernel.ll else self.n
        acting = self._acting(kernel, speeds, used)
        work_us = self.part_bytes / (speeds.work_gbyte_s * acting * 1000) if speeds.work_gbyte_s else 0.0
        work_us += self.part_bytes * sent / (acting * speeds.block_gbyte_s * 1000)
        data_us = max(work_us, (self.n - 1) * self.part_bytes / (peak * 1000))
        waiting_us = (self.n - 1) * speeds.rank_us
        if not speeds.overlap_blocks:
            return speeds.us + waiting_us + extra_us, data_us
        apart = max(0.0, 1 - speeds.overlap_blocks / used)
        return speeds.us, max(data_us, waiting_us) + min(data_us, waiting_us) * apart

    def _acting(self, kernel: Kernel, speeds: GatherSpeeds, used: int) -> float:
        """Return the effective blocks: those of LL slow each other, and those of TMA with multicast do more."""
        if kernel.name == "AllGather_TmaSTMC" and used == 1:
            return self.figures.tma_multicast_alone
        if kernel.name != "AllGather_LL" or self.n <= 4 or not 5 <= used <= 63:
            return used
        powers, scales = (2.0, 3.0, 5.0, 6.0), (1.0, speeds.scale_8, speeds.scale_32, 1.0)  # 4, 8, 32, 64 blocks
        return used * float(np.interp(log2(used), powers, scales))

    # Between NVLink domains.

    def _rail(self, kernel: Kernel) -> tuple[float, int]:
        least, most = self.cluster.min_ctas, min(self.cluster.max_ctas, self.figures.blocks)
        if self.cluster.sym_ctas:
            least = most = min(self.cluster.sym_ctas, self.figures.blocks)
        nvlink, adapter = self.rail_nvlink_gbyte_s, self.cluster.nic_gbyte_s
        latency_us = self.constants.latency_us.network[Algorithm.RING][_SIMPLE]
        if self.collective == Collective.ALL_GATHER:
            shared = self.figures.multicast_blocks_blackwell if self.blackwell else self.figures.multicast_blocks
            chunks = ceil(self.bytes / self.figures.rail.gather_chunk_bytes)
            data_us = self.bytes / 1000 * max(self.cluster.ranks / nvlink, (self.rails - 1) / adapter)
            blocks = max(least, min(most, ceil(shared / self.n), chunks))
            return chunks * (self.rails - 1) * latency_us + data_us, blocks
        block, on_nvlink, on_adapters = self.scatter_gbyte_s(kernel.multicast)
        full = min(on_nvlink, on_adapters)
        chunk = self.figures.rail.scatter_chunk_bytes
        blocks = max(least, min(most, ceil(full / block), ceil(self.bytes / chunk)))
        first_us = min(self.bytes, chunk * blocks) * (1 / on_nvlink + 1 / on_adapters) / 1000
        return self.bytes / min(blocks * block, full) / 1000 + first_us + latency_us, blocks

    @property
    def rail_nvlink_gbyte_s(self) -> float:
        rail = self.figures.rail
        return rail.nvlink_blackwell_gbyte_s if self.blackwell else rail.nvlink_gbyte_s

    def scatter_gbyte_s(self, multicast: bool) -> tuple[float, float, float]:
        """Return the rates of a block, of NVLink and of adapters, for each byte that a rank receives."""
        rail, n, rails = self.figures.rail, self.n, self.rails
        block = (rail.block_blackwell_gbyte_s if self.blackwell else rail.block_gbyte_s)[multicast]
        added = 1 if multicast else n
        read = (0 if n == 1 else added * (rails - 1)) + added + rails - 1
        carried = (n if multicast else n - 1) * rails
        nvlink = self.rail_nvlink_gbyte_s / carried if carried else float("inf")
        return block / read, nvlink, self.cluster.nic_gbyte_s / (rails - 1)


def _soft_min(value: float, ceiling: float, softness: float) -> float:
    return ceiling - softness * log1p((exp(ceiling / softness) - 1) * exp(-value / softness))


def _soft_plus(value: float) -> float:
    return value if value >= 100 else log1p(exp(value))
