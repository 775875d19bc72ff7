"""One row for each fabric: time, waiting, price, and the cost of a unit of work.

    cost of a unit = (servers + fabric, bought and powered over their years) / years x seconds of a unit

Price bands count by their middles. The bill decides which cards are bought in addition to those that servers include.
In a cloud no fabric is bought, and servers cost the same with each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from weft.advise.case import Case
from weft.advise.serving import Serving, Unserved
from weft.advise.train import Training
from weft.advise.workloads import Messages, Option, Progress, Storage, Timed, Work, fabrics, is_one_leaf, options
from weft.errors import ConfigError
from weft.fabric.prices import Band
from weft.plan.bill import Bill, Item, bill_of, server_item
from weft.plan.upkeep import Upkeep, upkeep

YEAR_S = 8_766 * 3_600
_NOTHING = Band(low_usd=0.0, high_usd=0.0)


def middle(band: Band) -> float:
    return (band.low_usd + band.high_usd) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An option at one point: time, price, power and cost."""

    option: Option
    timed: Timed
    price: Band
    power_w: float | None  # None: the power of the switches is unknown
    unit_usd: float  # cost of a unit of work

    @property
    def price_usd(self) -> float:
        return middle(self.price)

    @property
    def seconds(self) -> float:
        return self.timed.seconds

    def report(self) -> dict[str, Any]:
        """Return the row as `--json` prints it."""
        return {
            "fabric": self.option.name,
            "answer": self.option.answer,
            "unit_s": self.seconds,
            "band_s": self.timed.band_s,
            "waits": self.timed.waits,
            "layout": self.timed.layout or None,
            "low_usd": self.price.low_usd,
            "high_usd": self.price.high_usd,
            "unit_usd": self.unit_usd,
            "power_w": self.power_w,
        }


@dataclass(frozen=True, kw_only=True)
class Point:
    """A point to decide at: the case, or a changed one."""

    case: Case
    infiniband: float = 1.0  # factor on the price of InfiniBand
    risk: float = 0.0  # probability that the only vendor leaves and the fabric is bought again


class Bench:
    """A test bench that runs every option at the case, and uses closed forms fitted to those runs elsewhere."""

    def __init__(self, case: Case, progress: Progress | None = None) -> None:
        self.case, self.work = case, _work(case, progress)
        self._servers(case)  # raises without a price, before anything runs
        self._bills: dict[tuple[Option, int], tuple[Bill, ...]] = {}
        self.left_out = {option: why for option in options(case) if (why := self._refused(option, case))}
        self._run: dict[Option, Timed] = {}
        self._fit: dict[Option, float] = {}
        for option in options(case):
            if option in self.left_out:
                continue
            if progress is not None:
                progress(f"running {option.name}")
            try:
                self._run[option] = self.work.run(option)
            except Unserved as error:
                self.left_out[option] = str(error)
                continue
            self._fit[option] = self._run[option].seconds / self.work.guess(option, case).seconds

    def rows(self, point: Point | None = None) -> tuple[Row, ...]:
        """Return the rows at the case from its runs, or at another point in closed form."""
        at = point or Point(case=self.case)
        why = {option: self._refused(option, at.case) for option in options(self.case)}
        feasible = [option for option in why if not why[option] and option in self._run]
        if not self._run:
            raise ConfigError(next(iter(self.left_out.values())))
        if not feasible:
            raise ConfigError(f"{at.case.servers:,} servers are too many for every fabric: {why.popitem()[1]}")
        times = _with_common_free_time({option: self._timed(option, at.case) for option in feasible})
        return tuple(self._row(option, at, times[option]) for option in feasible)

    def _refused(self, option: Option, case: Case) -> str:
        """Return why this many servers cannot be cabled with an option; empty if they can."""
        try:
            fabrics(option, case, case.servers)
        except ConfigError as error:
            return str(error).splitlines()[0]
        return ""

    def _timed(self, option: Option, case: Case) -> Timed:
        if _same_work(case, self.case):
            return self._run[option]
        guess = self.work.guess(option, case)
        same_congestion = is_one_leaf(option.interconnect, case) == is_one_leaf(option.interconnect, self.case)
        fit = self._fit.get(option, 1.0) if same_congestion else 1.0
        return replace(guess, seconds=max(guess.free_s, guess.seconds * fit))

    # -- money --------------------------------------------------------------------------------------------------------

    @cached_property
    def _site(self) -> Upkeep:
        """The years of use and the price of electricity."""
        return upkeep(Bill(items=()), self.case.prices)

    def _row(self, option: Option, at: Point, timed: Timed) -> Row:
        bills = () if at.case.cloud else self._bills_of(option, at.case.servers)
        one_vendor = option.interconnect.network == "infiniband"
        times, risk = (at.infiniband, at.risk) if one_vendor else (1.0, 0.0)
        own = [_times(item, times) for bill in bills[:1] for item in bill.items]
        beside = [item for bill in bills[1:] for item in bill.items]
        whole = Bill(items=(*own, *beside), servers=(self._servers(at.case),))
        again = sum((item.total for item in own), _NOTHING) * risk
        each_s = middle(self._cost_over_years(whole, again)) / (self._site.years * YEAR_S)
        unit_usd = each_s * timed.seconds / self.work.units_of_work(at.case)
        unknown = any(item.kind == "switch" for item in whole.powerless)
        power_w = None if unknown else whole.power_w
        return Row(option=option, timed=timed, price=whole.total + again, power_w=power_w, unit_usd=unit_usd)

    def _cost_over_years(self, whole: Bill, again: Band) -> Band:
        """Return the cost of servers, fabric, repurchase and power over the years; unknown server power is left out."""
        capital, drawn_w = whole.cluster, whole.cluster_w
        assert capital is not None  # all of it has a price
        if drawn_w is None:
            drawn_w = whole.power_w - whole.inside_w
        return self._site.powered(capital + again, drawn_w)

    def _bills_of(self, option: Option, servers: int) -> tuple[Bill, ...]:
        key = option, servers
        if key not in self._bills:
            bills = tuple(bill_of(fabric, self.case.prices) for fabric in fabrics(option, self.case, servers))
            unknown = [str(item) for bill in bills for item in bill.missing if item.kind != "cable"]
            if unknown:
                raise ConfigError(f"{option.name}: no price for {', '.join(unknown)}; give a file with --prices")
            self._bills[key] = bills
        return self._bills[key]

    def _servers(self, case: Case) -> Item:
        item = server_item(case.template.name, case.servers, case.prices)
        if item.price is None:
            name = item.name.partition("+")[0].rpartition("/")[2]
            line = f'"{name}" = {{ usd = [250_000, 300_000], source = "offer", date = 2026-11-02 }}'
            raise ConfigError(
                f"{case.server} has no price, which the cost of a unit of work needs; give one by --prices mine.toml, "
                f"in a line such as {line}"
            )
        return item


def _times(item: Item, times: float) -> Item:
    price = item.price
    if price is None:
        return item
    return replace(item, price=replace(price, low_usd=times * price.low_usd, high_usd=times * price.high_usd))


def _same_work(case: Case, other: Case) -> bool:
    return all(
        getattr(case, name) == getattr(other, name)
        for name in ("servers", "sequences", "tokens", "bytes_sent", "rate", "storage")
    )


def _with_common_free_time(times: dict[Option, Timed]) -> dict[Option, Timed]:
    """Set the shortest time without waiting for all options; the cost of another layout counts as waiting."""
    free_s = min(timed.free_s for timed in times.values())
    return {option: replace(timed, free_s=free_s) for option, timed in times.items()}


def _work(case: Case, progress: Progress | None) -> Work:
    if case.work.name == "inference":
        return Serving(case, progress)
    if case.work.model:
        return Training(case, progress)
    return Storage(case) if case.work.name == "storage" else Messages(case)
