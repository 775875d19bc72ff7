"""What could be bought: a fabric of the catalog between the servers, and a place for storage.

Work that speaks sockets gains nothing of RDMA: to it RoCE is Ethernet, and InfiniBand carries IP.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from weft.advise.case import Case
from weft.collectives.interconnect import own_wire
from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.catalog import Interconnect
from weft.fabric.model import Fabric
from weft.plan.request import Request
from weft.plan.size import size
from weft.training.storage import constants

ANSWERS = {"infiniband": "InfiniBand", "roce": "RoCE", "tcp": "Ethernet"}
BESIDE = "eth-100-tcp"  # storage of its own, and the Ethernet that everybody has
SOCKETS = "eth-400-tcp"  # as fast as Ethernet goes; IP over InfiniBand is the same kernel's, and timed as this
_SERVERS_OF_STORAGE = 8  # of the job for each storage server


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    wire: Interconnect
    storage: str = "none"  # as `Case.storage`

    @property
    def answer(self) -> str:
        return ANSWERS[self.wire.network]

    @property
    def label(self) -> str:
        return f"{self.wire.label}, storage on Ethernet" if self.storage == "ethernet" else self.wire.label

    @property
    def name(self) -> str:
        return f"{self.wire.name} + storage on Ethernet" if self.storage == "ethernet" else self.wire.name


def options(case: Case) -> tuple[Option, ...]:
    """InfiniBand as the server's adapters have it, Ethernet as fast or the fastest there is, TCP on 100G. For storage
    also the mixed one."""
    own = catalog.adapter(case.template.compute_adapter)
    fast = own_wire(case.template)
    slower = [
        one
        for one in catalog.interconnects()
        if one.network == "roce" and not one.transport and _rate(one) <= own.rate_gbit_s
    ]
    if fast.network != "infiniband" or not slower:
        raise ConfigError(f"{case.server} has {own.name}: advice is for servers that take InfiniBand and RoCE")
    roce = max(slower, key=_rate)
    wires = (fast, roce if case.work.rdma else catalog.interconnect(SOCKETS), catalog.interconnect(BESIDE))
    if case.work.name != "storage" or case.storage != "none":
        return tuple(Option(wire=wire, storage=case.storage) for wire in wires)
    mixed = Option(wire=fast, storage="ethernet")
    return (Option(wire=fast, storage="same"), mixed, *(Option(wire=wire, storage="same") for wire in wires[1:]))


def _rate(wire: Interconnect) -> float:
    return catalog.adapter(wire.adapter).rate_gbit_s


def storage_servers(servers: int) -> int:
    return -(-servers // _SERVERS_OF_STORAGE)


@cache
def fabric_of(wire: Interconnect, server: str, servers: int, *, rails: bool = True) -> Fabric:
    """As it is planned: rail-optimised where every GPU has an adapter, else a fat tree with one for each server."""
    return size(Request(servers=servers, server=server, fabric=wire.name, rails=None if rails else 1)).fabric


def fabrics(option: Option, case: Case, servers: int) -> tuple[Fabric, ...]:
    """All that is bought for so many servers of the job, theirs first; nothing for one alone."""
    more = storage_servers(servers) if option.storage == "same" else 0
    if servers + more < 2:
        return ()
    own = fabric_of(option.wire, case.server, servers + more, rails=case.work.rdma)
    if option.storage != "ethernet":
        return (own,)
    ports = servers + storage_servers(servers) * constants()["appliance"]["adapters"]
    return own, fabric_of(catalog.interconnect(BESIDE), "host", ports)
