"""When the answer changes: the same rule at other points, one thing changed at a time.

In steps of four until the answer is another, then back by halves: to the doubling, or closer where the thing is
continuous. A point that cannot be (a model that does not fit, servers that no fabric joins) ends the search, and is
said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

from weft.advise.case import LARGEST_GPUS, Case
from weft.advise.rows import Bench, Point
from weft.advise.rule import Verdict, decide
from weft.advise.works import Progress
from weft.errors import ConfigError
from weft.sim.figures import format_size

_LARGEST_BYTES, _RATES, _MOST_SEQUENCES = 1 << 30, (1e-3, 1e6), 64
_PRICES = (0.1, 10.0)
_TOKENS = 16  # times fewer and more
_CLOSE = 1.02  # two ends of an interval in which a flip is known well enough


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """Of one thing in one direction."""

    by: str  # fewer GPUs
    at: float | None  # None: it never flips
    shown: str  # 64 GPUs; or how far it was looked
    answer: str = ""  # from there on

    def __str__(self) -> str:
        return f"{self.by}: never, {self.shown}" if self.at is None else f"{self.by}: {self.answer}, {self.shown}"

    def report(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {"by": self.by, "at": self.at, "answer": self.answer or None, "shown": self.shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Knob:
    """Something that could be otherwise."""

    by: str
    start: float
    to: float  # how far
    point: Callable[[float], Point]
    show: Callable[[float], str]
    steps: float = 4.0
    exact: bool = False  # doublings of the start only
    least: float = 0.0  # no closer than that

    @property
    def up(self) -> bool:
        return self.to > self.start


def find_flips(bench: Bench, verdict: Verdict, progress: Progress | None = None) -> Iterator[Flip]:
    """`progress` is told what is looked at."""
    case = bench.case
    knobs = [*_sizes(case), *_sends(case), *_sequences(case)]
    buys = not case.cloud and case.servers > 1
    if buys:
        knobs += [*_prices(case, _beside(bench, verdict)), _risk(case)]
    for knob in knobs:
        if knob.to != knob.start:
            if progress is not None:
                progress(f"looking where the answer changes: {knob.by}")
            yield _search(bench, knob, verdict.answer)
    if buys:
        yield from _budget(bench, verdict)


def _search(bench: Bench, knob: _Knob, answer: str) -> Flip:
    last, end = knob.start, ""
    for value in _walk(knob):
        try:
            found = _answer(bench, knob.point(value))
        except ConfigError as error:
            end = f"; beyond, {str(error).partition(':')[0]}"
            break
        if found != answer:
            at = _halve(bench, knob, last, value, answer)
            found = _answer(bench, knob.point(at))
            shown = f"from {knob.show(at)}" if knob.up else f"at {knob.show(at)}, and below"
            return Flip(by=knob.by, at=at, shown=shown, answer=found)
        last = value
    way = "up to" if knob.up else "down to"
    return Flip(by=knob.by, at=None, shown=f"{way} {knob.show(last)}{end}")


def _walk(knob: _Knob) -> Iterator[float]:
    value = knob.start
    while value != knob.to:
        value = value * knob.steps if knob.up else value / knob.steps
        value = min(value, knob.to) if knob.up else max(value, knob.to)
        yield value


def _halve(bench: Bench, knob: _Knob, same: float, other: float, answer: str) -> float:
    """The nearest to `same` with another answer, closely."""
    close = 2 if knob.exact else _CLOSE
    while max(same, other) > close * min(same, other) and abs(same - other) >= knob.least:
        middle = sqrt(same * other)
        if _answer(bench, knob.point(middle)) == answer:
            same = middle
        else:
            other = middle
    return other


def _answer(bench: Bench, point: Point) -> str:
    return decide(bench.rows(point), point.case).answer


# -- what could be otherwise ------------------------------------------------------------------------------------------


def _sizes(case: Case) -> Iterator[_Knob]:
    def point(servers: float) -> Point:
        return Point(case=replace(case, servers=int(servers)))

    def show(servers: float) -> str:
        return f"{int(servers) * case.per_server:,} {'GPUs' if case.template.gpus else 'servers'}"

    what = "GPUs" if case.template.gpus else "servers"
    shared: dict[str, Any] = {"start": case.servers, "point": point, "show": show, "exact": True}
    yield _Knob(by=f"fewer {what}", to=min(case.servers, 2), **shared)
    yield _Knob(by=f"more {what}", to=LARGEST_GPUS // case.per_server, **shared)


def _sends(case: Case) -> Iterator[_Knob]:
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
    yield _Knob(by="smaller messages", to=min(case.bytes_sent, 1), **size)
    yield _Knob(by="larger messages", to=max(case.bytes_sent, _LARGEST_BYTES), **size)
    yield _Knob(by="less often", to=min(case.rate, _RATES[0]), **rate)
    yield _Knob(by="more often", to=max(case.rate, _RATES[1]), **rate)


def _often(rate: float) -> str:
    return f"{rate:,.0f} a second" if rate >= 10 else f"{rate:.2g} a second"


def _size(size_bytes: float) -> str:
    return format_size(round(size_bytes)) if size_bytes >= 2 else "1 byte"


def _tokens(case: Case, tokens: float) -> Iterator[_Knob]:
    def point(value: float) -> Point:
        return Point(case=replace(case, tokens=value))

    def show(value: float) -> str:
        return f"{value / 1e6:.3g} M tokens a step"

    shared: dict[str, Any] = {"start": tokens, "point": point, "show": show, "exact": True}
    yield _Knob(by="smaller batch", to=tokens / _TOKENS, **shared)
    yield _Knob(by="larger batch", to=tokens * _TOKENS, **shared)


def _sequences(case: Case) -> Iterator[_Knob]:
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
    yield _Knob(by="smaller batch", to=1, **shared)
    yield _Knob(by="larger batch", to=max(case.sequences, _MOST_SEQUENCES), **shared)


def _beside(bench: Bench, verdict: Verdict) -> tuple[float, str]:
    """How many times the price of what is taken, or would be in its place, InfiniBand's is; and what that is."""
    first, *others = bench.rows()
    other = next((row for row in (*verdict.chosen, *others) if row.option.answer != first.option.answer), first)
    return first.price_usd / other.price_usd, other.option.label


def _prices(case: Case, beside: tuple[float, str]) -> Iterator[_Knob]:
    def point(times: float) -> Point:
        return Point(case=case, infiniband=times)

    def show(times: float) -> str:
        return f"{times:.2g} times its price here, {times * beside[0]:.2g} times that of {beside[1]}"

    shared: dict[str, Any] = {"start": 1.0, "point": point, "show": show}
    yield _Knob(by="cheaper InfiniBand", to=_PRICES[0], **shared)
    yield _Knob(by="dearer InfiniBand", to=_PRICES[1], **shared)


def _risk(case: Case) -> _Knob:
    """As a factor of the price: the chance that it is paid twice."""
    return _Knob(
        by="vendor risk",
        start=1.0,
        to=2.0,
        point=lambda times: Point(case=case, risk=times - 1),
        show=lambda times: f"a chance of {100 * (times - 1):.0f} % that InfiniBand's one vendor leaves",
        steps=1.1,
    )


def _budget(bench: Bench, verdict: Verdict) -> Iterator[Flip]:
    """Prices are where it can change: below that of what is taken, or from that of what is too dear."""
    case = bench.case
    if verdict.too_dear:
        for row in sorted(verdict.too_dear, key=lambda row: row.price_usd):
            found = decide(bench.rows(), replace(case, budget_usd=row.price_usd)).answer
            if found != verdict.answer:
                yield Flip(by="larger budget", at=row.price_usd, shown=f"from {row.price_usd:,.0f} USD", answer=found)
                break
        else:
            yield Flip(by="larger budget", at=None, shown="whatever it is")
    least = max((row.price_usd for row in verdict.chosen), default=0.0)
    if least > 0:
        found = decide(bench.rows(), replace(case, budget_usd=least * (1 - 1e-9))).answer
        yield Flip(by="smaller budget", at=least, shown=f"below {least:,.0f} USD", answer=found)
