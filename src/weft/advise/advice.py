"""The advice: an answer, the rows behind it, where it changes, and published advice for comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from weft.advise.case import Case
from weft.advise.rows import Bench, Row
from weft.advise.rule import Verdict, decide, facts
from weft.advise.sensitivity import Flip, find_flips
from weft.advise.workloads import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAdvice:
    """A recommendation that was published for such a case."""

    quote: str
    source: str
    answers: tuple[str, ...]
    verdict: str  # the answer of the rule
    agrees: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Advice:
    """The answer for a case. Finding its flips takes ten times as long as the answer, so they wait until first use."""

    case: Case
    rows: tuple[Row, ...]
    left_out: dict[str, str]  # fabric -> why
    verdict: Verdict
    search_flips: Callable[[], Iterable[Flip]]
    published: tuple[PublishedAdvice, ...]
    counted: str

    @property
    def answer(self) -> str:
        return self.verdict.answer

    @cached_property
    def flips(self) -> tuple[Flip, ...]:
        """The points where the answer changes, one parameter at a time."""
        return tuple(self.search_flips())

    def row(self, answer: str) -> Row:
        """Return the first row with that answer."""
        return next(row for row in self.rows if row.option.answer == answer)


def advise(case: Case, progress: Progress | None = None) -> Advice:
    """Run the case on every fabric and decide."""
    bench = Bench(case, progress)
    rows = bench.rows()
    verdict = decide(rows, case)
    return Advice(
        case=case,
        rows=rows,
        left_out={option.label: why for option, why in bench.left_out.items()},
        verdict=verdict,
        search_flips=lambda: find_flips(bench, verdict, progress),
        published=tuple(_published(case, verdict)),
        counted=_counted(case),
    )


def _counted(case: Case) -> str:
    if case.work.model:
        return "10^9 tokens" if case.work.trains else "10^6 tokens"
    return "TB read" if case.work.name == "storage" else f"10^6 {case.work.unit}s"


def _published(case: Case, verdict: Verdict) -> Iterator[PublishedAdvice]:
    """Yield the published recommendations for this case."""
    for entry in facts()["published"]:
        low, high = entry.get("gpus", (0, float("inf")))
        fewest, most = entry.get("servers", (0, float("inf")))
        if (
            entry.get("workload", case.work.name) == case.work.name
            and low <= case.gpus <= high
            and fewest <= case.servers <= most
            and (case.cloud or not entry.get("cloud"))
            and (case.budget_usd is not None or not entry.get("budget"))
            and case.rate >= entry.get("rate", 0)
        ):
            rows = (verdict.fastest,) if entry.get("fastest") else verdict.chosen
            chosen = {row.option.answer for row in rows}
            yield PublishedAdvice(
                quote=entry["quote"],
                source=entry["source"],
                answers=tuple(entry["answers"]),
                verdict=verdict.fastest.option.answer if entry.get("fastest") else verdict.answer,
                agrees=bool(chosen & set(entry["answers"])),
            )
