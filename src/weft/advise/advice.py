"""Advice: an answer, the rows that it rests on, when it flips, what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.advise.case import Case
from weft.advise.facts import facts
from weft.advise.flips import Flip, find_flips
from weft.advise.rows import Bench, Row
from weft.advise.rule import Verdict, decide
from weft.advise.works import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What an overview advises for such a case."""

    quote: str
    source: str
    answers: tuple[str, ...]
    here: str  # what the rule says of it
    agrees: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Advice:
    case: Case
    rows: tuple[Row, ...]
    left_out: dict[str, str]  # fabric -> why
    verdict: Verdict
    flips: tuple[Flip, ...]
    said: tuple[Said, ...]
    counted: str

    @property
    def answer(self) -> str:
        return self.verdict.answer

    def row(self, answer: str) -> Row:
        """The first of that answer."""
        return next(row for row in self.rows if row.option.answer == answer)


def advise(case: Case, progress: Progress | None = None) -> Advice:
    """Run the case on every fabric, decide, and look where the answer changes."""
    bench = Bench(case, progress)
    rows = bench.rows()
    verdict = decide(rows, case)
    return Advice(
        case=case,
        rows=rows,
        left_out={option.label: why for option, why in bench.left_out.items()},
        verdict=verdict,
        flips=tuple(find_flips(bench, verdict, progress)),
        said=tuple(_said(case, verdict)),
        counted=_counted(case),
    )


def _counted(case: Case) -> str:
    if case.work.model:
        return "10^9 tokens"
    return "TB read" if case.work.name == "storage" else f"10^6 {case.work.unit}s"


def _said(case: Case, verdict: Verdict) -> Iterator[Said]:
    """What is said for this case."""
    for one in facts()["said"]:
        low, high = one.get("gpus", (0, float("inf")))
        fewest, most = one.get("servers", (0, float("inf")))
        if (
            one.get("workload", case.work.name) == case.work.name
            and low <= case.gpus <= high
            and fewest <= case.servers <= most
            and (case.cloud or not one.get("cloud"))
            and (case.budget_usd is not None or not one.get("budget"))
            and case.rate >= one.get("rate", 0)
        ):
            rows = (verdict.fastest,) if one.get("fastest") else verdict.chosen
            here = {row.option.answer for row in rows}
            yield Said(
                quote=one["quote"],
                source=one["source"],
                answers=tuple(one["answers"]),
                here=verdict.fastest.option.answer if one.get("fastest") else verdict.answer,
                agrees=bool(here & set(one["answers"])),
            )
