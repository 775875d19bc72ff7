"""The result of a scenario: the claim, the run, a table, and one sentence with numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.version import __version__

COLOURS = ("#7b8794", "#d55e00", "#0b6fb8", "#009e73", "#8e44ad")  # the first is for the baseline
Cell = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The finding of any scenario; `figures` has all numbers of the sentence, and the curves of the chart."""

    scenario: str
    claim: str  # in the document's words
    source: str  # the document
    ran: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    finding: str
    trust: str  # simplifications of the model, and their effect on the numbers
    options: dict[str, Any]  # arguments of `run`, including the seed
    figures: dict[str, Any]

    def report(self) -> dict[str, Any]:
        """Return the finding as printed by `--json`."""
        return {
            "weft": __version__,
            "scenario": self.scenario,
            "seed": self.options["seed"],
            "options": self.options,
            "claim": self.claim,
            "source": self.source,
            "ran": self.ran,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "finding": self.finding,
            "trust": self.trust,
            "figures": self.figures,
        }
