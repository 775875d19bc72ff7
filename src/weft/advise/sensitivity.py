"""Find where the answer changes: apply the same rule at other points, with one parameter changed at a time.

A parameter changes by factors of four until the answer differs, then the interval is bisected: to a factor of two, or
closer for continuous parameters. An impossible point (a model that does not fit, too many servers) ends the search and
is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from weft.advise.case import LARGEST_GPUS, Case
from weft.advise.rows import Bench, Point
from weft.advise.rule import Verdict, decide
from weft.advise.workloads import Progress
from weft.errors import ConfigError
from weft.sim.figures import format_size

_LARGEST_BYTES, _RATES, _MOST_SEQUENCES = 1 << 30, (1e-3, 1e6), 64
_PRICES = (0.1, 10.0)
_TOKENS = 16  # factor down and up
_CLOSE = 1.02  # ratio of the ends of an interval that locates a flip well enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A change of the answer when one parameter moves in one direction."""

    by: str  # fewer GPUs
    at: float | None  # None: it never flips
    where: str  # "from 64 GPUs", or the limit of the search
    answer: str = ""  # beyond that point

    def __str__(self) -> str:
        return f"{self.by}: never, {self.where}" if self.at is None else f"{self.by}: {self.answer}, {self.where}"

    def report(self) -> dict[str, Any]:
        """Return the flip as `--json` prints it."""
        return {"by": self.by, "at": self.at, "answer": self.answer or None, "where": self.where}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """A parameter of the case to vary, in one direction."""

    by: str
    start: float
    to: float  # the limit
    point: Callable[[float], Point]
    show: Callable[[float], str]
    steps: float = 4.0
    exact: bool = False  # only powers of two times the start
    least: float = 0.0  # smallest interval to bisect

    @property
    def up(self) -> bool:
        return self.to > self.start


def find_flips(bench: Bench, verdict: Verdict, progress: Progress | None = None) -> Iterator[Flip]:
    """Yield where the answer changes, for each parameter; call `progress` with the current one."""
    case = bench.case
    parameters = [*_sizes(case), *_sends(case), *_sequences(case)]
    buys = not case.cloud and case.servers > 1
    if buys:
        parameters += [*_prices(case, _beside(bench, verdict)), _risk(case)]
    for parameter in parameters:
        if parameter.to != parameter.start:
            if progress is not None:
                progress(f"looking where the answer changes: {parameter.by}")
            yield _search(bench, parameter, verdict.answer)
    if buys:
        yield from _budget(bench, verdict)


def _search(bench: Bench, parameter: _Parameter, answer: str) -> Flip:
    last, end = parameter.start, ""
    for value in _walk(parameter):
        try:
            answer_there = _answer(bench, parameter.point(value))
        except ConfigError as error:
            end = f"; beyond, {str(error).partition(':')[0]}"
            break
        if answer_there != answer:
            at = _halve(bench, parameter, last, value, answer)
            answer_there = _answer(bench, parameter.point(at))
            where = f"from {parameter.show(at)}" if parameter.up else f"at {parameter.show(at)}, and below"
            return Flip(by=parameter.by, at=at, where=where, answer=answer_there)
        last = value
    way = "up to" if parameter.up else "down to"
    return Flip(by=parameter.by, at=None, where=f"{way} {parameter.show(last)}{end}")


def _walk(parameter: _Parameter) -> Iterator[float]:
    value = parameter.start
    while value != parameter.to:
        value = value * parameter.steps if parameter.up else value / parameter.steps
        value = min(value, parameter.to) if parameter.up else max(value, parameter.to)
        yield value


def _halve(bench: Bench, parameter: _Parameter, same: float, other: float, answer: str) -> float:
    """Bisect between a point with the same answer and one with another; return the near end of the other answer."""
    close = 2 if parameter.exact else _CLOSE
    while max(same, other) > close * min(same, other) and abs(same - other) >= parameter.least:
        middle = sqrt(same * other)
        if _answer(bench, parameter.point(middle)) == answer:
            same = middle
        else:
            other = middle
    return other


def _answer(bench: Bench, point: Point) -> str:
    return decide(bench.rows(point), point.case).answer


# -- parameters -------------------------------------------------------------------------------------------------------


def _sizes(case: Case) -> Iterator[_Parameter]:
    def point(servers: float) -> Point:
        return Point(case=replace(case, servers=int(servers)))

    def show(servers: float) -> str:
        return f"{int(servers) * case.per_server:,} {'GPUs' if case.template.gpus else 'servers'}"

    unit = "GPUs" if case.template.gpus else "servers"
    shared: dict[str, Any] = {"start": case.servers, "point": point, "show": show, "exact": True}
    yield _Parameter(by=f"fewer {unit}", to=min(case.servers, 2), **shared)
    yield _Parameter(by=f"more {unit}", to=LARGEST_GPUS // case.per_server, **shared)


def _sends(case: Case) -> Iterator[_Parameter]:
    if not case.work.sends or case.servers == 1:
        return

    def sized(size: float) -> Point:
        return Point(case=replace(case, message_bytes=max(1, round(size))))

    def often(rate: float) -> Point:
        return Point(case=replace(case, rate_per_s=rate))

    size: dict[str, Any] = {
        "start": case.bytes_sent,
        "point": sized,
        "show": _size,
        "least": 1,
    }
    rate: dict[str, Any] = {"start": case.rate, "point": often, "show": _often}
    yield _Parameter(by="smaller messages", to=min(case.bytes_sent, 1), **size)
    yield _Parameter(by="larger messages", to=max(case.bytes_sent, _LARGEST_BYTES), **size)
    yield _Parameter(by="less often", to=min(case.rate, _RATES[0]), **rate)
    yield _Parameter(by="more often", to=max(case.rate, _RATES[1]), **rate)


def _often(rate: float) -> str:
    return f"{rate:,.0f} a second" if rate >= 10 else f"{rate:.2g} a second"


def _size(size_bytes: float) -> str:
    return format_size(round(size_bytes)) if size_bytes >= 2 else "1 byte"


def _tokens(case: Case, tokens: float) -> Iterator[_Parameter]:
    def point(value: float) -> Point:
        return Point(case=replace(case, tokens=value))

    def show(value: float) -> str:
        return f"{value / 1e6:.3g} M tokens a step"

    shared: dict[str, Any] = {"start": tokens, "point": point, "show": show, "exact": True}
    yield _Parameter(by="smaller batch", to=tokens / _TOKENS, **shared)
    yield _Parameter(by="larger batch", to=tokens * _TOKENS, **shared)


def _sequences(case: Case) -> Iterator[_Parameter]:
    if case.work.name != "training":
        return
    if case.tokens is not None:
        yield from _tokens(case, case.tokens)
        return

    def point(sequences: float) -> Point:
        return Point(case=replace(case, sequences=int(sequences)))

    def show(sequences: float) -> str:
        return f"{int(sequences)} sequence{'s' if sequences > 1 else ''} a GPU"

    shared: dict[str, Any] = {"start": case.sequences, "point": point, "show": show, "exact": True}
    yield _Parameter(by="smaller batch", to=1, **shared)
    yield _Parameter(by="larger batch", to=max(case.sequences, _MOST_SEQUENCES), **shared)


def _beside(bench: Bench, verdict: Verdict) -> tuple[float, str]:
    """Return the price of InfiniBand relative to the chosen or next option, and that option's label."""
    first, *rest = bench.rows()
    other = next((row for row in (*verdict.chosen, *rest) if row.option.answer != first.option.answer), first)
    return first.price_usd / other.price_usd, other.option.label


def _prices(case: Case, beside: tuple[float, str]) -> Iterator[_Parameter]:
    def point(times: float) -> Point:
        return Point(case=case, infiniband=times)

    def show(times: float) -> str:
        return f"{times:.2g} times its price here, {times * beside[0]:.2g} times that of {beside[1]}"

    shared: dict[str, Any] = {"start": 1.0, "point": point, "show": show}
    yield _Parameter(by="cheaper InfiniBand", to=_PRICES[0], **shared)
    yield _Parameter(by="dearer InfiniBand", to=_PRICES[1], **shared)


def _risk(case: Case) -> _Parameter:
    """Return vendor risk as a parameter: the probability that InfiniBand is bought twice."""
    return _Parameter(
        by="vendor risk",
        start=1.0,
        to=2.0,
        point=lambda times: Point(case=case, risk=times - 1),
        show=lambda times: f"a chance of {100 * (times - 1):.0f} % that InfiniBand's one vendor leaves",
        steps=1.1,
    )


def _budget(bench: Bench, verdict: Verdict) -> Iterator[Flip]:
    """Yield the budgets at which the answer changes: below the chosen option's price, or at a dearer option's."""
    case = bench.case
    if verdict.too_dear:
        for row in sorted(verdict.too_dear, key=lambda row: row.price_usd):
            answer_there = decide(bench.rows(), replace(case, budget_usd=row.price_usd)).answer
            if answer_there != verdict.answer:
                yield Flip(
                    by="larger budget", at=row.price_usd, where=f"from {row.price_usd:,.0f} USD", answer=answer_there
                )
                break
        else:
            yield Flip(by="larger budget", at=None, where="whatever it is")
    least = max((row.price_usd for row in verdict.chosen), default=0.0)
    if least > 0:
        answer_there = decide(bench.rows(), replace(case, budget_usd=least * (1 - 1e-9))).answer
        yield Flip(by="smaller budget", at=least, where=f"below {least:,.0f} USD", answer=answer_there)
