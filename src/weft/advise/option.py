"""The options: an interconnect of the catalog between the servers, and a network for storage.

Workloads that use sockets do not profit from RDMA: for them RoCE is plain Ethernet, and InfiniBand carries IP.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from weft.advise.case import Case
from weft.collectives.interconnect import own_interconnect
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.model import Fabric
from weft.plan.request import Request
from weft.plan.size import size
from weft.training.storage import constants

ANSWERS = {"infiniband": "InfiniBand", "roce": "RoCE", "tcp": "Ethernet"}
BESIDE = "eth-100-tcp"  # for separate storage networks, and as the plain Ethernet option
SOCKETS = "eth-400-tcp"  # the fastest Ethernet; IP over InfiniBand uses the same kernel stack and is timed like it
_SERVERS_OF_STORAGE = 8  # compute servers for each storage server


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    interconnect: Interconnect
    storage: str = "none"  # as `Case.storage`

    @property
    def answer(self) -> str:
        return ANSWERS[self.interconnect.network]

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
    """Return the options: InfiniBand at the rate of the server's adapters, Ethernet at that rate or the fastest below,
    and TCP on 100G; for the storage workload also InfiniBand with storage on Ethernet."""
    own = catalog.adapter(case.template.compute_adapter)
    fast = own_interconnect(case.template)
    slower = [
        interconnect
        for interconnect in catalog.interconnects()
        if interconnect.network == "roce" and not interconnect.transport and _rate(interconnect) <= own.rate_gbit_s
    ]
    if fast.network != "infiniband" or not slower:
        raise ConfigError(f"{case.server} has {own.name}; give a --server with adapters for InfiniBand and RoCE")
    roce = max(slower, key=_rate)
    interconnects = (fast, roce if case.work.rdma else catalog.interconnect(SOCKETS), catalog.interconnect(BESIDE))
    if case.work.name != "storage" or case.storage != "none":
        return tuple(Option(interconnect=interconnect, storage=case.storage) for interconnect in interconnects)
    mixed = Option(interconnect=fast, storage="ethernet")
    return (
        Option(interconnect=fast, storage="same"),
        mixed,
        *(Option(interconnect=interconnect, storage="same") for interconnect in interconnects[1:]),
    )


def _rate(interconnect: Interconnect) -> float:
    return catalog.adapter(interconnect.adapter).rate_gbit_s


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
