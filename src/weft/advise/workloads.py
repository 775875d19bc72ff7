"""The time of a unit of work on a fabric, with and without waiting for other servers.

`run` simulates the routes of the planned fabric, with flows or by its busiest link. `guess` is a closed form with every
adapter at line rate, for points other than the case itself.

Workloads that use sockets do not profit from RDMA: for them RoCE is plain Ethernet, and InfiniBand carries IP.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from weft.advise.case import Case
from weft.collectives.interconnect import options_of, own_interconnect
from weft.collectives.mpi.collective import all_reduce_us
from weft.collectives.mpi.interconnect import FabricInterconnect, IdealInterconnect
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.measure import measure
from weft.collectives.nccl.network import Networks, Pattern
from weft.collectives.nccl.times import times
from weft.collectives.ranks import Ranks, place
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.levels import levels
from weft.fabric.model import Fabric
from weft.plan.request import Request
from weft.plan.size import size
from weft.sim.engine import Memory
from weft.sim.perftest import prepare
from weft.training.storage import Store, beside, constants, sharing
from weft.units import gbyte_s

ANSWERS = {"infiniband": "InfiniBand", "roce": "RoCE", "tcp": "Ethernet"}
ADAPTIVE = {"spectrum-x": "Spectrum-X", "uec": "Ultra Ethernet"}  # Ethernet with many paths for a message, by transport
BESIDE = "eth-100-tcp"  # for separate storage networks, and as the plain Ethernet option
SOCKETS = "eth-400-tcp"  # the fastest Ethernet; IP over InfiniBand uses the same kernel stack and is timed like it
_SERVERS_OF_STORAGE = 8  # compute servers for each storage server


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    interconnect: Interconnect
    storage: str = "none"  # as `Case.storage`

    @property
    def answer(self) -> str:
        return ADAPTIVE.get(self.interconnect.transport) or ANSWERS[self.interconnect.network]

    @property
    def label(self) -> str:
        return (
            f"{self.interconnect.label}, storage on Ethernet" if self.storage == "ethernet" else self.interconnect.label
        )

    @property
    def name(self) -> str:
        return (
            f"{self.interconnect.name} + storage on Ethernet" if self.storage == "ethernet" else self.interconnect.name
        )


def options(case: Case) -> tuple[Option, ...]:
    """Return the options at the rate of the server's adapters, or the fastest below: InfiniBand, RoCE, Spectrum-X and
    Ultra Ethernet; and TCP on 100G. The storage workload has InfiniBand with storage on Ethernet too."""
    own = own_interconnect(case.template)
    fast = own if own.network == "infiniband" else _fastest(case, "infiniband")
    roce = _fastest(case, "roce")
    if own.network not in ("infiniband", "roce") or fast is None or roce is None:
        raise ConfigError(
            f"{case.server} has {case.template.compute_adapter}; give a --server with adapters for InfiniBand and RoCE"
        )
    adaptive = [each for transport in ADAPTIVE if (each := _fastest(case, "roce", transport)) is not None]
    ethernet = (roce, *adaptive) if case.work.rdma else (catalog.interconnect(SOCKETS),)
    interconnects = (fast, *ethernet, catalog.interconnect(BESIDE))
    if case.work.name != "storage" or case.storage != "none":
        return tuple(Option(interconnect=interconnect, storage=case.storage) for interconnect in interconnects)
    mixed = Option(interconnect=fast, storage="ethernet")
    return (
        Option(interconnect=fast, storage="same"),
        mixed,
        *(Option(interconnect=interconnect, storage="same") for interconnect in interconnects[1:]),
    )


def _fastest(case: Case, network: str, transport: str = "") -> Interconnect | None:
    """Return the fastest fabric of a kind whose cards are no faster than the server's own, if any."""
    own_gbit_s = _rate(case.template.adapter)
    slower = [
        interconnect
        for interconnect in catalog.interconnects()
        if (interconnect.network, interconnect.transport) == (network, transport)
        and _rate(catalog.adapter(interconnect.adapter)) <= own_gbit_s
    ]
    return max(slower, key=lambda interconnect: _rate(catalog.adapter(interconnect.adapter)), default=None)


def _rate(card: catalog.Adapter) -> float:
    return card.ports * card.rate_gbit_s


def storage_servers(servers: int) -> int:
    return -(-servers // _SERVERS_OF_STORAGE)


@cache
def fabric_of(interconnect: Interconnect, server: str, servers: int, *, rails: bool = True) -> Fabric:
    """Return the planned fabric: rail-optimised with one adapter for each GPU, else a fat tree with one per server."""
    return size(Request(servers=servers, server=server, fabric=interconnect.name, rails=None if rails else 1)).fabric


def fabrics(option: Option, case: Case, servers: int) -> tuple[Fabric, ...]:
    """Return the fabrics to buy for a number of compute servers, theirs first; none for a single server."""
    more = storage_servers(servers) if option.storage == "same" else 0
    if servers + more < 2:
        return ()
    own = fabric_of(option.interconnect, case.server, servers + more, rails=case.work.rdma)
    if option.storage != "ethernet":
        return (own,)
    ports = servers + storage_servers(servers) * constants()["appliance"]["adapters"]
    return own, fabric_of(catalog.interconnect(BESIDE), "host", ports)


MEASURED_SERVERS = 512  # above it closed forms are used: simulating every message takes minutes

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """The time of a unit of work."""

    seconds: float
    free_s: float  # without waiting for other servers
    band_s: tuple[float, float] | None = None  # 90 % interval; None without published runs to compare with
    layout: str = ""  # the best replicas of a served model
    inside_servers: bool = False  # each replica of a served model stays within a server

    @property
    def waits(self) -> float:
        """The share of the time spent waiting for the network."""
        return max(0.0, 1 - self.free_s / self.seconds)


class Work(ABC):
    """A workload of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @abstractmethod
    def run(self, option: Option) -> Timed:
        """Return the time on the servers of the case."""

    @abstractmethod
    def guess(self, option: Option, case: Case) -> Timed:
        """Return the time at another point, in closed form."""

    @abstractmethod
    def units_of_work(self, case: Case) -> float:
        """Return the work items completed per unit, in the scale that costs are reported in."""


# -- networks ---------------------------------------------------------------------------------------------------------


def routed(option: Option, case: Case, more: int = 0) -> Fabric:
    return _routed(option.interconnect, case.server, case.servers + more, case.work.rdma)


@cache
def _routed(interconnect: Interconnect, server: str, servers: int, rails: bool) -> Fabric:
    return prepare(fabric_of(interconnect, server, servers, rails=rails))


def cluster_of(interconnect: Interconnect, case: Case) -> Cluster:
    """Return the cluster as NCCL sees it; a server without GPUs counts as one rank."""
    card = case.template.card_for(interconnect)
    if case.work.rdma and case.template.gpus:
        return from_server(case.template.equipped(card).name, nodes=case.servers)
    return Cluster(sm=90, gpus=1, nodes=case.servers, nics=1, nic_gbit_s=card.rate_gbit_s)


def ideal_of(interconnect: Interconnect, case: Case) -> Networks:
    """Return ideal networks with the number of switch hops that this many servers need."""
    switches = 1
    if not is_one_leaf(interconnect, case):
        tiers = int(levels(fabric_of(interconnect, case.server, case.servers, rails=case.work.rdma)).max())
        switches = 2 * tiers - 1
    carrier = _carrier(interconnect, case)
    cluster = cluster_of(carrier, case)
    return ideal_networks(
        cluster,
        network=carrier.network,
        speed=carrier.speed,
        transport=carrier.transport,
        switches=switches,
        cloud=case.cloud,
    )


def is_one_leaf(interconnect: Interconnect, case: Case) -> bool:
    """Return whether one leaf switch (per rail) joins all servers."""
    ports = catalog.switch(interconnect.switch).ports
    return case.servers <= (ports // 2 if case.work.rdma else ports)


def _carrier(interconnect: Interconnect, case: Case) -> Interconnect:
    """Return the interconnect that times the messages: sockets over InfiniBand are timed as TCP."""
    return interconnect if case.work.rdma or interconnect.network == "tcp" else catalog.interconnect(SOCKETS)


def measured(option: Option, case: Case) -> Networks:
    """Return networks measured over the fabric's routes while all servers send."""
    interconnect, ranks = _placed(option, case)
    measurement = measure(ranks, options_of(interconnect, case.seed), patterns=(Pattern.RING, Pattern.PAIRS))
    more_us = _cloud_us(interconnect, case)
    return {name: replace(network, step_us=network.step_us + more_us) for name, network in measurement.networks.items()}


def processes_of(option: Option, case: Case) -> FabricInterconnect:
    """Return the fabric as MPI uses it: one process on each server, in host memory."""
    interconnect, ranks = _placed(option, case)
    rules = replace(options_of(interconnect, case.seed), memory=Memory.HOST)
    return FabricInterconnect(ranks=ranks, ppn=1, options=rules, more_us=_cloud_us(interconnect, case))


def _placed(option: Option, case: Case) -> tuple[Interconnect, Ranks]:
    interconnect = _carrier(option.interconnect, case)
    fabric = routed(replace(option, interconnect=interconnect), case)
    return interconnect, place(fabric, fabric.servers[: case.servers])


def _cloud_us(interconnect: Interconnect, case: Case) -> float:
    """Return the delay that virtual machines add to a message on Ethernet; times of cloud adapters include it."""
    return (
        times().network.cloud_ethernet_us
        if case.cloud and interconnect.network != "infiniband" and not interconnect.virtual
        else 0
    )


# -- messages ---------------------------------------------------------------------------------------------------------


class Messages(Work):
    """A workload that computes for 1 / rate, then waits for an MPI all-reduce or for a request and its response."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._pairs: dict[Option, FabricInterconnect] = {}

    def run(self, option: Option) -> Timed:
        case = self.case
        if case.servers == 1 or case.servers > MEASURED_SERVERS:
            return self.guess(option, case)
        if case.work.name == "mpi":
            return self._timed(all_reduce_us(processes_of(option, case), case.bytes_sent), case)
        return self._timed(self._answer_us(measured(option, case), option, case), case)

    def guess(self, option: Option, case: Case) -> Timed:
        if case.servers == 1:
            return self._timed(0.0, case)
        if case.work.name == "mpi":
            return self._timed(all_reduce_us(self._ideal_processes(option, case), case.bytes_sent), case)
        return self._timed(self._answer_us(ideal_of(option.interconnect, case), option, case), case)

    def units_of_work(self, case: Case) -> float:
        """Return millions of units: one for each GPU, or one for all with MPI."""
        return (1 if case.work.name == "mpi" else case.gpus) / 1e6

    def _ideal_processes(self, option: Option, case: Case) -> IdealInterconnect:
        """Return an ideal network: a measured pair of servers plus the switch hops that more servers need."""
        two = replace(self.case, servers=2)
        if option not in self._pairs:
            self._pairs[option] = processes_of(option, two)
        step_us, near_us = (ideal_of(option.interconnect, size)[Pattern.PAIRS].step_us for size in (case, two))
        return IdealInterconnect(pair=self._pairs[option], servers=case.servers, more_us=step_us - near_us)

    def _answer_us(self, networks: Networks, option: Option, case: Case) -> float:
        pairs, nics = networks[Pattern.PAIRS], cluster_of(option.interconnect, case).nics
        return 2 * (pairs.step_us + case.per_server / nics * case.bytes_sent / pairs.adapter_gbyte_s / 1e3)

    def _timed(self, wait_us: float, case: Case) -> Timed:
        return Timed(seconds=1 / case.rate + wait_us / 1e6, free_s=1 / case.rate)


# -- storage ----------------------------------------------------------------------------------------------------------


class Storage(Work):
    """A workload that computes for 1 / rate, then every GPU waits for a read."""

    def run(self, option: Option) -> Timed:
        read = store_of(option, self.case).read(self.case.bytes_sent)
        return self._timed(read.seconds, self.case)

    def guess(self, option: Option, case: Case) -> Timed:
        total_bytes = float(case.gpus * case.bytes_sent)
        return self._timed(transfer_s(option, case, total_bytes, float(case.bytes_sent), "read_gbyte_s"), case)

    def units_of_work(self, case: Case) -> float:
        return float(case.gpus * case.bytes_sent) / 1e12

    def _timed(self, read_s: float, case: Case) -> Timed:
        return Timed(seconds=1 / case.rate + read_s, free_s=1 / case.rate)


def store_of(option: Option, case: Case) -> Store:
    """Return the storage, on the compute fabric or on a separate Ethernet."""
    more = storage_servers(case.servers)
    fabric = routed(option, case, more if option.storage == "same" else 0)
    ranks = place(fabric, fabric.servers[: case.servers])
    if option.storage == "ethernet":
        return beside(ranks, more, case.seed)
    return sharing(ranks, fabric.servers[case.servers :], options_of(option.interconnect, case.seed))


def transfer_s(option: Option, case: Case, total_bytes: float, most_bytes: float, disk: str) -> float:
    """Return the transfer time by the slowest of: server adapters, storage adapters, disks.

    most_bytes: the data of the rank with the most.
    """
    apart, box = option.storage == "ethernet", constants()["appliance"]
    interconnect = catalog.interconnect(BESIDE) if apart else option.interconnect
    line_gbyte_s = gbyte_s(
        catalog.adapter(interconnect.adapter).rate_gbit_s if apart else cluster_of(interconnect, case).nic_gbit_s
    )
    nics = 1 if apart else cluster_of(interconnect, case).nics
    boxes = storage_servers(case.servers)
    ports = boxes * (box["adapters"] if apart else min(box["adapters"], nics))
    rates = np.array([line_gbyte_s * nics / case.per_server, line_gbyte_s * ports, boxes * box[disk]])
    return float((np.array([most_bytes, total_bytes, total_bytes]) / rates).max()) / 1e9
