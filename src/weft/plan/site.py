"""The rest of a plan: networks beside the fabric, spares, power, phases and vendors' quotes.

    site = plan_site(Wishes(storage="ndr:16", management="eth-100-tcp", spares=0.99), sized, cabling, bill, prices)
    site.networks, site.spares, site.supplies, site.phases, site.quotes

Spares, power and quotes cover all networks; phases divide the fabric and its servers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.prices import Prices
from weft.plan.bill import Bill
from weft.plan.floor.cables import Cabling
from weft.plan.networks import Network, plan_management, plan_storage
from weft.plan.phases import Phase, plan_phases, read_schedule
from weft.plan.power import Supply, find_supplies, sum_supplies
from weft.plan.quote import Quote, compare_quotes
from weft.plan.size import Size
from weft.plan.spares import Spare, find_spares, read_rates

LEAD_WEEKS = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The parts of a site that a plan has besides its fabric."""

    storage: str | None = None  # a fabric and a number of storage servers: ndr:16; for a served model a fabric alone
    management: str | None = None  # a fabric
    spares: float | None = None  # probability that no part runs out
    lead_weeks: float = LEAD_WEEKS  # from order to delivery
    failures: Path | None = None  # a file of rates
    phases: Path | None = None  # a file of phases
    quotes: tuple[Path, ...] = ()  # files of vendors

    def __post_init__(self) -> None:
        if self.failures is not None and self.spares is None:
            raise ConfigError("--failure-rates has the rates for spare parts: give --spares 0.99 too")
        if self.lead_weeks != LEAD_WEEKS and self.spares is None and self.phases is None:
            raise ConfigError("--lead-weeks is for spare parts and phases: give --spares 0.99 or --phases FILE too")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Site:
    """The parts of a plan besides its fabric."""

    networks: tuple[Network, ...]
    supplies: tuple[Supply, ...]  # [rack] of the plan, then those of the networks
    spares: tuple[Spare, ...]
    phases: tuple[Phase, ...]
    quotes: tuple[Quote, ...]

    def report(self) -> dict[str, Any]:
        """Return the parts as `--json` prints them; power.csv has each rack."""
        return {
            "networks": [network.report() for network in self.networks],
            "power": sum_supplies(self.supplies),
            "spares": [asdict(spare) for spare in self.spares],
            "phases": [phase.report() for phase in self.phases],
            "quotes": [quote.report() for quote in self.quotes],
        }


def plan_site(
    wishes: Wishes, sized: Size, cabling: Cabling, bill: Bill, prices: Prices, *, storage_servers: int | None = None
) -> Site:
    """Plan the parts of a site that a user wishes for.

    storage_servers: the number that a served model needs, for a storage fabric without a number.
    """
    racks = cabling.racks
    networks: list[Network] = []
    if wishes.storage is not None:
        interconnect, servers = _read_storage(wishes.storage, storage_servers)
        networks.append(plan_storage(racks, interconnect, servers=servers, prices=prices))
    if wishes.management is not None:
        interconnect = catalog.interconnect(wishes.management)
        networks.append(plan_management(racks, interconnect, others=tuple(networks), prices=prices))
    supplies = find_supplies(racks)
    for network in networks:
        supplies += find_supplies(network.racks)[network.first_rack :]
    spares: tuple[Spare, ...] = ()
    if wishes.spares is not None:
        bought = [(cabling, bill), *((network.cabling, network.bill) for network in networks)]
        rates = read_rates(wishes.failures)
        spares = find_spares(bought, rates, probability=wishes.spares, lead_weeks=wishes.lead_weeks)
    phases: tuple[Phase, ...] = ()
    if wishes.phases is not None:
        phases = plan_phases(read_schedule(wishes.phases), sized, cabling, prices, lead_weeks=wishes.lead_weeks)
    quotes = compare_quotes(wishes.quotes, [bill, *(network.bill for network in networks)])
    return Site(networks=tuple(networks), supplies=tuple(supplies), spares=spares, phases=phases, quotes=quotes)


def _read_storage(text: str, needed: int | None) -> tuple[catalog.Interconnect, int]:
    name, colon, number = text.partition(":")
    if not colon and needed is not None:
        return catalog.interconnect(name), needed
    if not colon or not number.isdecimal():
        raise ConfigError(
            f"--storage-fabric {text!r} must be a fabric and a number of storage servers, such as ndr:16; with --serve "
            "a fabric alone has as many as the model needs"
        )
    return catalog.interconnect(name), int(number)
