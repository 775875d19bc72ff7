"""What a fabric costs while it stands: capital, electricity, and dollars for every 10^12 tokens that it helps to train.

kept = upkeep(bill, prices, run=train("llama3-70b", fabric, catalog.interconnect("ndr")))
kept.fabric                    bought, and powered for so many years: low and high
kept.cluster                   with its servers, where these have a price
kept.per_tokens(kept.fabric)   USD for 10^12 tokens, were it to train all the time
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

TOKENS = 1e12  # the unit of training
_HOURS = 8_766  # of a year
_KILO = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """Of a bill, over years; with a run, of what is trained in them."""

    bill: Bill
    years: float
    pue: float
    electricity: Price  # of a kWh
    run: Run | None = None

    def energy_kwh(self, power_w: float) -> float:
        """At the meter, over all years."""
        return power_w / _KILO * self.pue * _HOURS * self.years

    def powered(self, capital: Band, power_w: float) -> Band:
        """Bought, and powered for all years."""
        return capital + self.electricity * self.energy_kwh(power_w)

    @property
    def fabric(self) -> Band:
        """Switches, adapters, cables, and their electricity."""
        return self.powered(self.bill.total, self.bill.power_w)

    @property
    def cluster(self) -> Band | None:
        """With the servers, where their price and their power are known."""
        capital, power_w = self.bill.cluster, self.bill.cluster_w
        return None if capital is None or power_w is None else self.powered(capital, power_w)

    @property
    def trained(self) -> float | None:
        """10^12 tokens, by a job that never stops."""
        return None if self.run is None else self.run.step.tokens_per_s * _HOURS * 3600 * self.years / TOKENS

    def per_tokens(self, cost: Band | None) -> Band | None:
        """Of 10^12 tokens."""
        return None if cost is None or not self.trained else cost * (1 / self.trained)

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
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
    """Over the years, and on a site with the losses, that the prices have; electricity is one of them."""
    years, pue, electricity = prices.figure(YEARS), prices.figure(PUE), prices.named(ELECTRICITY)
    if not years:
        raise ConfigError(f"{YEARS}: 0 is not more than 0, and a fabric that does not stand costs nothing")
    if pue < 1:
        raise ConfigError(
            f"{PUE}: {pue:g} is less than 1, and a site draws what its racks draw, and more: 1.5 is usual"
        )
    if electricity is None:
        raise SimulationBug(f"prices.toml has no {ELECTRICITY}")
    return Upkeep(bill=bill, years=years, pue=pue, electricity=electricity, run=run)


def train(model: str, fabric: Fabric, wire: Interconnect, *, seed: int = 1, progress: Progress | None = None) -> Run:
    """The model on all GPUs of a fabric, cut in the way that is fastest there."""
    from weft.collectives.interconnect import options_of, template_of
    from weft.collectives.ranks import compute_servers
    from weft.training.job import SEQUENCES_PER_GPU, run_job
    from weft.training.search import search
    from weft.training.site import Site
    from weft.training.transformer import find

    one = find(model)
    site = Site(
        name=wire.name,
        fabric=fabric,
        template=template_of(fabric),
        servers=len(compute_servers(fabric)),
        options=options_of(wire, seed),
        wire=wire,
    )
    given = {"global_batch": SEQUENCES_PER_GPU * site.gpus, "seq": one.seq}
    return run_job(one, search(one, site, given, progress)[0].layout, site)


def _pair(band: Band | None) -> tuple[float, float] | None:
    return None if band is None else (band.low_usd, band.high_usd)
