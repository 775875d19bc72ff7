"""Tables of errors against published figures, by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from weft.cli.output import Cell

if TYPE_CHECKING:
    from weft.calibration.groups import Errors, GroupErrors

_ERRORS = ("mean error %", "bias %", "p90 %", "left out: mean error %", "bias %", "p90 %", "in their bands", "width")


def group_columns(group: str, figures: str) -> tuple[str, ...]:
    """Return the columns of a table, with the words for a group and for figures."""
    return group, figures, *_ERRORS


def group_rows(groups: Sequence[GroupErrors]) -> list[tuple[Cell, ...]]:
    return [(row.name, row.figures, *_percent(row.known), *_percent(row.left_out), *row.bands) for row in groups]


def _percent(errors: Errors) -> tuple[float, ...]:
    return tuple(round(100 * share, 1) for share in (errors.mean_error, errors.bias, errors.p90))
