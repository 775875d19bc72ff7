"""What is asked for: so many GPUs or servers, of which kind, joined by what.

    Request(gpus=1024)                                            dgx-h100, its own fabric, a SuperPOD
    Request(servers=200, server="dgx-a100", topology="fat-tree", oversubscription=2.0)

What is not said follows from what is: the fabric is that of the switch, else that of the server's adapters; servers
with several rails stand in a SuperPOD, others in a fat tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.collectives.interconnect import own_wire
from weft.errors import ConfigError, find_named
from weft.fabric import catalog
from weft.fabric.topologies.builder import ports_for

TOPOLOGIES = ("superpod", "fat-tree", "dragonfly+")
UFM_HOSTS = 2  # one stands by for the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Either GPUs or servers; `grow_to` counts the same."""

    gpus: int | None = None
    servers: int | None = None
    server: str = "dgx-h100"
    fabric: str | None = None
    switch: str | None = None
    topology: str | None = None
    rails: int | None = None
    oversubscription: float = 1.0
    grow_to: int | None = None
    ufm: bool = False

    def __post_init__(self) -> None:
        if (self.gpus is None) == (self.servers is None):
            raise ConfigError("a plan is for so many GPUs or for so many servers: give one of the two, --gpus 1024")
        if self.fabric is not None and self.switch is not None:
            wire, switch = catalog.interconnect(self.fabric), catalog.switch(self.switch)
            if wire.speed not in switch.speeds:
                speeds = " or ".join(switch.speeds)
                raise ConfigError(f"{wire.name} is {wire.speed} and {switch.name} speaks {speeds}: leave out one")
        if self.gpus is not None and not self.template.gpus:
            raise ConfigError(f"{self.template.name} has no GPUs: say how many servers, --servers {self.gpus}")
        if self.amount < 1:
            raise ConfigError(f"{self.unit} = {self.amount}: a plan is for one or more")
        if self.grow_to is not None and self.grow_to < self.amount:
            raise ConfigError(f"grow-to = {self.grow_to} is less than the {self.amount:,} {self.unit} of today")
        if not 1 <= self.oversubscription < math.inf:
            raise ConfigError(f"oversubscription = {self.oversubscription:g}: down ports for each uplink, from 1 up")
        if self.topology is not None and self.topology not in TOPOLOGIES:
            find_named("topology for plans", self.topology, dict.fromkeys(TOPOLOGIES))

    @property
    def unit(self) -> str:
        """What is counted."""
        return "GPUs" if self.gpus is not None else "servers"

    @property
    def amount(self) -> int:
        return self.gpus if self.gpus is not None else self.servers or 0

    @property
    def template(self) -> catalog.Server:
        """The box as it is bought: with the card of the fabric, and with so many rails cabled."""
        box = catalog.server(self.server)
        box = box if self.rails is None else box.cabled(self.rails)
        wire = self.wire
        return box if wire is None else box.equipped(box.card_for(wire))

    @property
    def wire(self) -> catalog.Interconnect | None:
        """The fabric of the catalog; None for a switch that none has: it joins the cards that the servers have."""
        if self.fabric is not None:
            return catalog.interconnect(self.fabric)
        own = own_wire(catalog.server(self.server))
        if self.switch is None:
            return own
        switch = catalog.switch(self.switch)
        fitting = [one for one in catalog.interconnects() if one.speed in switch.speeds]
        return own if own in fitting else next(iter(fitting), None)

    @property
    def switch_model(self) -> catalog.Switch:
        if self.switch is not None:
            return catalog.switch(self.switch)
        wire = self.wire
        assert wire is not None, "only a switch that is named can be of no fabric"
        return catalog.switch(wire.switch)

    @property
    def radix(self) -> int:
        """The ports of a switch at the speed of these servers."""
        return ports_for(self.switch_model, self.template.adapter)

    @property
    def kind(self) -> str:
        """The topology."""
        return self.topology or ("superpod" if self.template.rails > 1 else "fat-tree")

    def servers_for(self, amount: int) -> int:
        """So many boxes; the last may have GPUs to spare."""
        return -(-amount // self.template.gpus) if self.gpus is not None else amount
