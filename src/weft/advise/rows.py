"""Fabric by fabric: how long, how much of it waiting, what it costs to buy, and what a unit of work costs.

    cost of a unit = (servers + fabric, bought and powered over their years) / years x seconds of a unit

Bands count by their middles. Which cards are bought beside those that a server is sold with is the bill's to say. In a
cloud nobody buys a fabric: a server costs the same with each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from weft.advise.case import Case
from weft.advise.option import Option, fabrics, options
from weft.advise.train import Training
from weft.advise.works import Messages, Progress, Storage, Timed, Work, is_one_leaf
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
    """One option at one point."""

    option: Option
    timed: Timed
    price: Band  # of the fabric
    power_w: float | None  # None: what its switches draw is not known
    unit_usd: float  # what one of what is counted costs

    @property
    def price_usd(self) -> float:
        return middle(self.price)

    @property
    def seconds(self) -> float:
        return self.timed.seconds

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "fabric": self.option.name,
            "answer": self.option.answer,
            "unit_s": self.seconds,
            "band_s": self.timed.band_s,
            "waits": self.timed.waits,
            "low_usd": self.price.low_usd,
            "high_usd": self.price.high_usd,
            "unit_usd": self.unit_usd,
            "power_w": self.power_w,
        }


@dataclass(frozen=True, kw_only=True)
class Point:
    """The case, or one near it."""

    case: Case
    infiniband: float = 1.0  # what InfiniBand costs, times what its bill says
    risk: float = 0.0  # chance that the only vendor leaves: so much of another bill


class Bench:
    """Runs every option once, at the case; closed forms elsewhere, fitted to those runs."""

    def __init__(self, case: Case, progress: Progress | None = None) -> None:
        self.case, self.work = case, _work(case, progress)
        self._servers(case)  # which must have a price, before anything runs
        self._bills: dict[tuple[Option, int], tuple[Bill, ...]] = {}
        self.left_out = {option: why for option in options(case) if (why := self._refused(option, case))}
        self._run: dict[Option, Timed] = {}
        self._fit: dict[Option, float] = {}
        for option in options(case):
            if option in self.left_out:
                continue
            if progress is not None:
                progress(f"running {option.name}")
            self._run[option] = self.work.run(option)
            self._fit[option] = self._run[option].seconds / self.work.guess(option, case).seconds

    def rows(self, point: Point | None = None) -> tuple[Row, ...]:
        """Of the case as it was run; of another point in closed form."""
        at = point or Point(case=self.case)
        why = {option: self._refused(option, at.case) for option in options(self.case)}
        there = [option for option in why if not why[option]]
        if not there:
            raise ConfigError(f"{at.case.servers:,} servers are more than any of the fabrics joins: {why.popitem()[1]}")
        times = _freely({option: self._timed(option, at.case) for option in there})
        return tuple(self._row(option, at, times[option]) for option in there)

    def _refused(self, option: Option, case: Case) -> str:
        """Why so many servers cannot be cabled with it."""
        try:
            fabrics(option, case, case.servers)
        except ConfigError as error:
            return str(error).splitlines()[0]
        return ""

    def _timed(self, option: Option, case: Case) -> Timed:
        if _same_work(case, self.case):
            return self._run[option]
        guess = self.work.guess(option, case)
        crowds_alike = is_one_leaf(option.wire, case) == is_one_leaf(option.wire, self.case)
        fit = self._fit.get(option, 1.0) if crowds_alike else 1.0
        return replace(guess, seconds=max(guess.free_s, guess.seconds * fit))

    # -- money --------------------------------------------------------------------------------------------------------

    @cached_property
    def _site(self) -> Upkeep:
        """Its years and its electricity."""
        return upkeep(Bill(items=()), self.case.prices)

    def _row(self, option: Option, at: Point, timed: Timed) -> Row:
        bills = () if at.case.cloud else self._bills_of(option, at.case.servers)
        one_vendor = option.wire.network == "infiniband"
        times, risk = (at.infiniband, at.risk) if one_vendor else (1.0, 0.0)
        own = [_times(item, times) for bill in bills[:1] for item in bill.items]
        others = [item for bill in bills[1:] for item in bill.items]
        whole = Bill(items=(*own, *others), servers=(self._servers(at.case),))
        again = sum((item.total for item in own), _NOTHING) * risk
        each_s = middle(self._kept(whole, again)) / (self._site.years * YEAR_S)
        unit_usd = each_s * timed.seconds / self.work.made(at.case)
        unknown = any(item.kind == "switch" for item in whole.powerless)
        power_w = None if unknown else whole.power_w
        return Row(option=option, timed=timed, price=whole.total + again, power_w=power_w, unit_usd=unit_usd)

    def _kept(self, whole: Bill, again: Band) -> Band:
        """With the servers, and what is paid again. What a plain server draws is not known, and not in it."""
        capital, drawn_w = whole.cluster, whole.cluster_w
        assert capital is not None  # all of it has a price
        if drawn_w is None:
            drawn_w = whole.power_w - whole.inside_w
        return self._site.powered(capital + again, drawn_w)

    def _bills_of(self, option: Option, servers: int) -> tuple[Bill, ...]:
        key = option, servers
        if key not in self._bills:
            made = tuple(bill_of(one, self.case.prices) for one in fabrics(option, self.case, servers))
            unknown = [str(item) for bill in made for item in bill.missing if item.kind != "cable"]
            if unknown:
                raise ConfigError(f"{option.name}: {', '.join(unknown)} have no price: give them in a file, --prices")
            self._bills[key] = made
        return self._bills[key]

    def _servers(self, case: Case) -> Item:
        item = server_item(case.template.name, case.servers, case.prices)
        if item.price is None:
            name = item.name.partition("+")[0].rpartition("/")[2]
            line = f'"{name}" = {{ usd = [250_000, 300_000], source = "offer", date = 2026-11-02 }}'
            raise ConfigError(
                f"{case.server} has no price, and what a unit of work costs leans on it: give one in a file, "
                f"--prices mine.toml, with a line such as {line}"
            )
        return item


def _times(item: Item, times: float) -> Item:
    price = item.price
    if price is None:
        return item
    return replace(item, price=replace(price, low_usd=times * price.low_usd, high_usd=times * price.high_usd))


def _same_work(one: Case, other: Case) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("servers", "sequences", "tokens", "bytes_sent", "rate", "storage")
    )


def _freely(times: dict[Option, Timed]) -> dict[Option, Timed]:
    """What nobody's waiting would take is the same on each: a layout that spares the network is the network's price."""
    free_s = min(timed.free_s for timed in times.values())
    return {option: replace(timed, free_s=free_s) for option, timed in times.items()}


def _work(case: Case, progress: Progress | None) -> Work:
    if case.work.model:
        return Training(case, progress)
    return Storage(case) if case.work.name == "storage" else Messages(case)
