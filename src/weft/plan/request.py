"""A request for a plan: the number of GPUs or servers, the server type and the fabric.

    Request(gpus=1024)                                            dgx-h100, its own fabric, a SuperPOD
    Request(servers=200, server="dgx-a100", topology="fat-tree", oversubscription=2.0)

Defaults follow from the other values: the fabric is that of the switch, else that of the server's adapters; servers
with several rails get a SuperPOD, others a fat tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.collectives.interconnect import own_interconnect
from weft.errors import ConfigError, find_named
from weft.fabric import catalog
from weft.fabric.topologies.builder import ports_for

TOPOLOGIES = ("superpod", "fat-tree", "dragonfly+")
UFM_HOSTS = 2  # active and standby


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request for a number of GPUs or servers; `grow_to` has the same unit."""

    gpus: int | None = None
    servers: int | None = None
    server: str = "dgx-h100"
    fabric: str | None = None
    switch: str | None = None
    topology: str | None = None
    rails: int | None = None
    planes: int = 1  # adapter ports are divided into so many
    breakout: int | None = None  # each switch port is split into so many; None: as the adapters need
    oversubscription: float = 1.0
    grow_to: int | None = None
    ufm_hosts: bool = False

    def __post_init__(self) -> None:
        if (self.gpus is None) == (self.servers is None):
            raise ConfigError("give the size of the cluster by --gpus or by --servers, such as --gpus 1024")
        if self.fabric is not None and self.switch is not None:
            interconnect, switch = catalog.interconnect(self.fabric), catalog.switch(self.switch)
            if interconnect.speed not in switch.speeds:
                speeds = " or ".join(switch.speeds)
                raise ConfigError(
                    f"--fabric {interconnect.name} is {interconnect.speed}, --switch {switch.name} supports {speeds}; "
                    "leave out one"
                )
        if self.gpus is not None and not self.template.gpus:
            raise ConfigError(f"{self.template.name} has no GPUs; give the number of servers, --servers {self.gpus}")
        if self.planes < 1:
            raise ConfigError(f"--planes must be 1 or more, got {self.planes}")
        if self.amount < 1:
            raise ConfigError(f"--{self.unit.lower()} must be 1 or more, got {self.amount}")
        if self.grow_to is not None and self.grow_to < self.amount:
            raise ConfigError(f"--grow-to must be at least today's {self.amount:,} {self.unit}, got {self.grow_to}")
        if not 1 <= self.oversubscription < math.inf:
            raise ConfigError(
                f"--oversubscription must be 1 or more (ports down per uplink), got {self.oversubscription:g}"
            )
        if self.topology is not None and self.topology not in TOPOLOGIES:
            find_named("topology for plans", self.topology, dict.fromkeys(TOPOLOGIES))

    @property
    def unit(self) -> str:
        """The unit of the size: GPUs or servers."""
        return "GPUs" if self.gpus is not None else "servers"

    @property
    def amount(self) -> int:
        return self.gpus if self.gpus is not None else self.servers or 0

    @property
    def template(self) -> catalog.Server:
        """The server as bought: with the card for the fabric, and with the requested rails cabled."""
        box = catalog.server(self.server)
        box = box if self.rails is None else box.cabled(self.rails)
        interconnect = self.interconnect
        return box if interconnect is None else box.equipped(box.card_for(interconnect))

    @property
    def interconnect(self) -> catalog.Interconnect | None:
        """The interconnect of the catalog; None if the switch belongs to none and joins the servers' own cards."""
        if self.fabric is not None:
            return catalog.interconnect(self.fabric)
        own = own_interconnect(catalog.server(self.server))
        if self.switch is None:
            return own
        switch = catalog.switch(self.switch)
        fitting = [interconnect for interconnect in catalog.interconnects() if interconnect.speed in switch.speeds]
        return own if own in fitting else next(iter(fitting), None)

    @property
    def switch_model(self) -> catalog.Switch:
        if self.switch is not None:
            return catalog.switch(self.switch)
        interconnect = self.interconnect
        assert interconnect is not None, "without --switch there is an interconnect"
        return catalog.switch(interconnect.switch)

    @property
    def radix(self) -> int:
        """The number of switch ports at the speed of these servers, in each plane."""
        return ports_for(self.switch_model, self.template.adapter, self.planes, self.breakout)

    @property
    def kind(self) -> str:
        """The topology."""
        return self.topology or ("superpod" if self.template.rails > 1 else "fat-tree")

    def servers_for(self, amount: int) -> int:
        """Return the number of servers for an amount of GPUs or servers, rounded up."""
        return -(-amount // self.template.gpus) if self.gpus is not None else amount
