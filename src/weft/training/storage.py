"""Checkpoints and training data: traffic between a job and its file system, its time, and the slowdown of the job.

    store = sharing(ranks, ["dgx33", "dgx34"])            the file system is on the fabric that the GPUs talk over
    store = apart(load("fat-tree:hosts=36,..."), ranks)   or on one of its own, with an adapter for each server
    saved = store.write(checkpoint_bytes(layout, transformer))
    saved.seconds, saved.limit
    OverFabric(ranks, layout, options, engine=Busy(store.writes()))     a step while the checkpoint is written

A Lustre-like file system: every rank reads and writes a file of its own, and files are dealt to the ports of the
storage servers in turn. The engine runs all flows at once over the fabric's routes; disks take what the catalog says.
A checkpoint blocks the job until all is written, or (`copy_s`) only until it is in the memory of the hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.collectives.ranks import Ranks, place
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.fabric.rates import read_data
from weft.fabric.spec import load
from weft.fabric.timing import timings
from weft.routing.engine import Options as Routing
from weft.routing.route import route
from weft.sim.engine import Memory, Network, Options, Progress
from weft.sim.flow.engine import FlowEngine
from weft.sim.result import Engine, Result
from weft.sim.traffic import PATH_SL, Traffic
from weft.training.gpu import BF16_BYTES
from weft.training.parallel import Layout
from weft.training.shares import shares
from weft.training.transformer import Transformer

STORAGE_SL = STORAGE_VL = 1
_LONG_BYTES = 1 << 36  # a flow that outlasts every measurement
_LOW, _HIGH = 0, 1  # tables of VL arbitration
_WEIGHT, _NO_LIMIT = 64, 255  # 4 KiB; high priority may take all


@cache
def constants() -> dict[str, Any]:
    """Return the tables of storage.toml."""
    return read_data("weft.training", "storage.toml")


def checkpoint_bytes(layout: Layout, transformer: Transformer) -> NDArray[np.int64]:
    """Return the bytes that each rank writes: [rank].

    Of each parameter the weight in 16 bits and the optimizer's states are written (Megatron Core's distributed
    checkpoints; BLOOM-176B's had 14 bytes for each). With ZeRO every copy writes its shard, else the first one all.
    """
    held = shares(layout, transformer)
    sizes = np.zeros(layout.gpus, np.int64)
    stage = np.arange(layout.gpus) // (layout.gpus // layout.pp)
    for kind, parameters in (("dp-cp", held.trained), ("edp", held.trained_experts)):
        groups = layout.ranks(kind)
        writers = groups if layout.zero else groups[:, :1]
        each = (BF16_BYTES + layout.optimizer_bytes) * parameters.sum(axis=1) // writers.shape[1]
        sizes[writers.ravel()] += each[stage[writers.ravel()]]
    return sizes


def copy_s(sizes_bytes: NDArray[np.int64]) -> float:
    """Return how long a background checkpoint blocks the job: until each GPU has copied its part to its host."""
    gbit_s = timings().memory[Memory.STAGED].gbit_s
    assert gbit_s is not None  # copies have a speed
    return float(sizes_bytes.max()) * 8 / (gbit_s * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The reads or writes of all ranks together."""

    total_bytes: int
    network_s: float
    disks_s: float

    @property
    def seconds(self) -> float:
        return max(self.network_s, self.disks_s)

    @property
    def limit(self) -> str:
        return "disks" if self.disks_s > self.network_s else "network"

    @property
    def gbyte_s(self) -> float:
        return self.total_bytes / self.seconds / 1e9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Store:
    """A file system and its clients."""

    fabric: Fabric  # with routes
    clients: NDArray[np.int32]  # [rank] -> slot of the port through which it reads and writes
    ports: NDArray[np.int32]  # storage ports, one of each server in turn
    servers: int
    options: Options

    def writes(self, sizes_bytes: ArrayLike = _LONG_BYTES, sl: int = PATH_SL) -> Traffic:
        """Return a flow from every rank to its storage port."""
        return self._flows(sizes_bytes, sl, reads=False)

    def reads(self, sizes_bytes: ArrayLike = _LONG_BYTES, sl: int = PATH_SL) -> Traffic:
        return self._flows(sizes_bytes, sl, reads=True)

    def write(self, sizes_bytes: ArrayLike, engine: Engine | None = None) -> Transfer:
        return self._run(self.writes(sizes_bytes), constants()["appliance"]["write_gbyte_s"], engine)

    def read(self, sizes_bytes: ArrayLike, engine: Engine | None = None) -> Transfer:
        return self._run(self.reads(sizes_bytes), constants()["appliance"]["read_gbyte_s"], engine)

    def _run(self, traffic: Traffic, disk_gbyte_s: float, engine: Engine | None) -> Transfer:
        result = (engine or FlowEngine()).run(self.fabric, traffic, self.options)
        return Transfer(
            total_bytes=traffic.total_bytes,
            network_s=result.last_arrival_ps / 1e12,
            disks_s=traffic.total_bytes / (self.servers * disk_gbyte_s * 1e9),
        )

    def _flows(self, sizes_bytes: ArrayLike, sl: int, *, reads: bool) -> Traffic:
        sizes = np.broadcast_to(np.asarray(sizes_bytes, np.int64), len(self.clients))
        rank = np.flatnonzero(sizes)
        near, far = self.clients[rank], self.ports[np.arange(len(rank)) % len(self.ports)]
        src, dst = (far, near) if reads else (near, far)
        name = "reads" if reads else "writes"
        return Traffic.make(src, dst, sizes[rank], qp=rank, sl=sl, description=f"{name} of {len(rank):,} ranks")


def sharing(ranks: Ranks, servers: Sequence[str], options: Options | None = None) -> Store:
    """Return a file system on other servers of the job's fabric, each with as many adapters as its disks need."""
    both = sorted(set(servers) & set(ranks.servers))
    if both:
        raise ConfigError(f"{both[0]} is a server of the job: name storage servers that it does not run on")
    ports = place(ranks.fabric, servers).adapters[:, : constants()["appliance"]["adapters"]]
    return Store(
        fabric=ranks.fabric,
        clients=ranks.port,
        ports=ports.T.ravel(),
        servers=len(servers),
        options=options or Options(),
    )


def apart(fabric: Fabric, ranks: Ranks, options: Options | None = None) -> Store:
    """Return a file system on a routed fabric of its own: its first hosts are the job's servers, the others storage."""
    job, adapters = len(ranks.servers), constants()["appliance"]["adapters"]
    more = len(fabric.servers) - job
    if more < adapters or more % adapters:
        raise ConfigError(
            f"{fabric.spec} has {len(fabric.servers)} hosts, and the job takes {job}: "
            f"give it {adapters} more for each storage server"
        )
    ports = place(fabric).adapters
    return Store(
        fabric=fabric,
        clients=np.repeat(ports[:job, 0], ranks.per_server),
        ports=ports[job:].T.ravel(),
        servers=more // adapters,
        options=options or Options(),
    )


def beside(ranks: Ranks, servers: int, seed: int) -> Store:
    """Return a file system on 100G Ethernet with TCP, with an adapter for each server of the job."""
    ports = len(ranks.servers) + servers * constants()["appliance"]["adapters"]
    ethernet = route(load(f"fat-tree:hosts={ports},speed=100GbE"), Routing(adaptive=True)).fabric
    return apart(ethernet, ranks, Options(seed=seed, network=Network.TCP))


class Busy:
    """An engine that runs background traffic beside the given traffic, and reports the given traffic alone."""

    def __init__(self, beside: Traffic, engine: Engine | None = None) -> None:
        self._beside, self._engine = beside, engine or FlowEngine()
        self.name = self._engine.name

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        result = self._engine.run(fabric, _together(traffic, self._beside), options, progress=progress)
        columns = ("start_ps", "finish_ps", "acked_ps", "retransmitted")
        own = {name: getattr(result, name)[: len(traffic)] for name in columns}
        return replace(result, traffic=traffic, **own)


def _together(first: Traffic, second: Traffic) -> Traffic:
    """Return the messages of both, with distinct queue pairs. None may wait for others."""
    if len(first.after) or len(second.after):
        raise ConfigError(f"{first.description}, {second.description}: messages that wait for others cannot be mixed")
    names = ("src", "dst", "size_bytes", "start_ps", "delay_ps", "sl", "operation", "transport", "mlid")
    columns: dict[str, Any] = {name: np.concatenate((getattr(first, name), getattr(second, name))) for name in names}
    qp = np.concatenate((first.qp, second.qp + first.qp.max(initial=-1) + 1))
    return Traffic.make(**columns, qp=qp, description=f"{first.description}, beside {second.description}")


def slowdown(
    fabric: Fabric, traffic: Traffic, beside: Traffic, options: Options | None = None, engine: Engine | None = None
) -> float:
    """Return the time of traffic beside other traffic, relative to its time alone."""
    clock = engine or FlowEngine()
    alone, shared = (timed.run(fabric, traffic, options).last_arrival_ps for timed in (clock, Busy(beside, clock)))
    return shared / alone


def give_lane(fabric: Fabric) -> None:
    """Configure QoS as a subnet manager does: storage has a lane of its own with low priority."""
    tables = fabric.tables
    tables.sl2vl[:, STORAGE_SL] = STORAGE_VL
    tables.vl_arbitration[:, _HIGH, 0] = (0, _WEIGHT)
    tables.vl_arbitration[:, _LOW, 0] = (STORAGE_VL, _WEIGHT)
    tables.vl_high_limit[:] = _NO_LIMIT
