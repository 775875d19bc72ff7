"""Times of jobs on servers with GPUs that a fabric of the catalog connects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from weft.collectives.interconnect import options_of, respec
from weft.collectives.kinds import Collective
from weft.collectives.mpi.collective import all_reduce_us
from weft.collectives.mpi.interconnect import FabricInterconnect
from weft.collectives.nccl.cluster import Cluster, from_fabric
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.measure import measure
from weft.collectives.nccl.network import Networks
from weft.collectives.ranks import Ranks, place
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.spec import load
from weft.sim.engine import Memory, Options
from weft.sim.perftest import prepare
from weft.training.communication import Ideal
from weft.training.gpu import Gpu
from weft.training.parallel import Layout
from weft.training.step import run_step
from weft.training.transformer import Transformer


@dataclass(frozen=True, kw_only=True, eq=False)
class Cabled:
    """The servers of a job. Without networks, servers do not wait for each other: only compute and NVLink count."""

    gpu: Gpu
    cluster: Cluster
    ranks: Ranks
    options: Options
    networks: Networks

    @property
    def gpus(self) -> int:
        return self.cluster.ranks

    def train_s(self, transformer: Transformer, **sizes: Any) -> float:
        """Return the time of a training step."""
        layout = Layout(**{"gpus": self.gpus, "seq": transformer.seq, **sizes})
        over = (Ideal if self.networks else Inside)(self.cluster, layout, self.networks)
        return run_step(transformer, layout, self.gpu, over).step_s

    def all_to_all_s(self, size_bytes: int) -> float:
        if not self.networks:
            return 0.0
        return estimate(self.cluster, Collective.ALL_TO_ALL, size_bytes, networks=self.networks).time_us / 1e6

    def send_s(self, size_bytes: int) -> float:
        """Return the time of a send from each GPU to a GPU of another server, all at once."""
        if not self.networks:
            return 0.0
        pair = replace(self.cluster, gpus=1, nodes=2, nics=1)
        return estimate(pair, Collective.SEND_RECV, size_bytes, networks=self.networks).time_us / 1e6

    def mpi_all_reduce_s(self, size_bytes: int) -> float:
        """Return the seconds of an all-reduce of MPI, one process on each server."""
        if not self.networks:
            return 0.0
        return all_reduce_us(self._wire, size_bytes) / 1e6

    @cached_property
    def _wire(self) -> FabricInterconnect:
        """Return the fabric as processors use it: their messages lie in host memory."""
        return FabricInterconnect(ranks=self.ranks, ppn=1, options=replace(self.options, memory=Memory.HOST))

    def alone(self) -> Cabled:
        """Return the same servers with a network that takes no time."""
        return replace(self, networks={})


class Inside(Ideal):
    """A network that takes no time: only groups inside a server take some."""

    def time_s(self, kind: str, collective: Collective, size_bytes: float) -> float:
        return super().time_s(kind, collective, size_bytes) if self._is_inside(kind) else 0.0

    def send_s(self, size_bytes: float) -> float:
        return super().send_s(size_bytes) if self._is_inside("pp") else 0.0

    def _is_inside(self, kind: str) -> bool:
        return self._shape(kind).nodes == 1


def cable(interconnect: Interconnect, servers: int, seed: int, *, more: int = 0, server: str = "dgx-h100") -> Cabled:
    """Return `servers` for a job, on a fabric that connects `more` servers as well."""
    template = catalog.server(server)
    spec = respec("superpod:su=1", interconnect, template, servers + more)
    routed = prepare(load(spec))
    options = options_of(interconnect, seed)
    ranks = place(routed, routed.servers[:servers])
    return Cabled(
        gpu=Gpu.of_server(template),
        cluster=from_fabric(routed, ranks.servers),
        ranks=ranks,
        options=options,
        networks=measure(ranks, options).networks,
    )
