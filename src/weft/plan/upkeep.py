"""The cost of a fabric over its years: capital, electricity, and cost per 10^12 trained tokens.

costs = upkeep(bill, prices, run=train("llama3-70b", fabric, catalog.interconnect("ndr")))
costs.fabric                     purchase and power over the years: low and high
costs.cluster                    with servers, if they have a price
costs.per_tokens(costs.fabric)   USD for 10^12 tokens with continuous training
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.errors import ConfigError, SimulationBug
from weft.fabric.prices import ELECTRICITY, PUE, YEARS, Band, Price, Prices
from weft.plan.bill import Bill

if TYPE_CHECKING:
    from weft.fabric.catalog import Interconnect
    from weft.fabric.model import Fabric
    from weft.training.job import Run
    from weft.training.search import Progress
    from weft.training.site import Site

TOKENS = 1e12  # the unit of training
_HOURS = 8_766  # in a year
_KILO = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The cost of a bill over years; with a run, also the tokens trained in them."""

    bill: Bill
    years: float
    pue: float
    electricity: Price  # per kWh
    run: Run | None = None

    def energy_kwh(self, power_w: float) -> float:
        """Return the energy at the meter over all years."""
        return power_w / _KILO * self.pue * _HOURS * self.years

    def powered(self, capital: Band, power_w: float) -> Band:
        """Return the cost of purchase and power over all years."""
        return capital + self.electricity * self.energy_kwh(power_w)

    @property
    def fabric(self) -> Band:
        """The cost of switches, adapters, cables and their electricity."""
        return self.powered(self.bill.total, self.bill.power_w)

    @property
    def cluster(self) -> Band | None:
        """The cost with servers; None if their price or power is unknown."""
        capital, power_w = self.bill.cluster, self.bill.cluster_w
        return None if capital is None or power_w is None else self.powered(capital, power_w)

    @property
    def trained(self) -> float | None:
        """The tokens trained by a job that never stops, in 10^12."""
        return None if self.run is None else self.run.step.tokens_per_s * _HOURS * 3600 * self.years / TOKENS

    def per_tokens(self, cost: Band | None) -> Band | None:
        """Return the cost per 10^12 tokens."""
        return None if cost is None or not self.trained else cost * (1 / self.trained)

    def report(self) -> dict[str, Any]:
        """Return the costs as `--json` prints them."""
        return {
            "years": self.years,
            "pue": self.pue,
            "usd_per_kwh": _pair(self.electricity),
            "without_power": self.bill.report()["without_power"],
            "energy_kwh": self.energy_kwh(self.bill.power_w),
            "fabric_usd": _pair(self.fabric),
            "cluster_usd": _pair(self.cluster),
            "model": self.run.step.transformer.name if self.run else None,
            "tokens_per_s": self.run.step.tokens_per_s if self.run else None,
            "fabric_usd_per_1e12_tokens": _pair(self.per_tokens(self.fabric)),
            "cluster_usd_per_1e12_tokens": _pair(self.per_tokens(self.cluster)),
        }


def upkeep(bill: Bill, prices: Prices, *, run: Run | None = None) -> Upkeep:
    """Return the costs, with the years of use, PUE and electricity price from `prices`."""
    years, pue, electricity = prices.figure(YEARS), prices.figure(PUE), prices.named(ELECTRICITY)
    if not years:
        raise ConfigError(f"{YEARS} must be above 0, got 0")
    if pue < 1:
        raise ConfigError(
            f"{PUE} must be 1 or more, got {pue:g}: a site draws at least the power of its racks, usually 1.5 times"
        )
    if electricity is None:
        raise SimulationBug(f"prices.toml has no {ELECTRICITY}")
    return Upkeep(bill=bill, years=years, pue=pue, electricity=electricity, run=run)


def train(
    model: str, fabric: Fabric, interconnect: Interconnect, *, seed: int = 1, progress: Progress | None = None
) -> Run:
    """Run training of a model on all GPUs of a fabric, with the fastest layout."""
    from weft.training.job import SEQUENCES_PER_GPU, run_job
    from weft.training.search import search
    from weft.training.transformer import find

    transformer, site = find(model), site_of(fabric, interconnect, seed)
    fixed = {"global_batch": SEQUENCES_PER_GPU * site.gpus, "seq": transformer.seq}
    return run_job(transformer, search(transformer, site, fixed, progress)[0].layout, site)


def site_of(fabric: Fabric, interconnect: Interconnect | None, seed: int = 1) -> Site:
    """Return all servers of a fabric as a site, by default with the interconnect of their adapters."""
    from weft.collectives.interconnect import options_of, own_interconnect, template_of
    from weft.collectives.ranks import compute_servers
    from weft.training.site import Site

    template = template_of(fabric)
    chosen = interconnect or own_interconnect(template)
    return Site(
        name=chosen.name,
        fabric=fabric,
        template=template,
        servers=len(compute_servers(fabric)),
        options=options_of(chosen, seed),
        interconnect=chosen,
    )


def _pair(band: Band | None) -> tuple[float, float] | None:
    return None if band is None else (band.low_usd, band.high_usd)
