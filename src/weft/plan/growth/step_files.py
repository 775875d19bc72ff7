"""A growth as files: for each step the plugs to touch, and the fabric after it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from weft.errors import ConfigError
from weft.fabric import files
from weft.fabric.files.atomic import write_atomically
from weft.plan.audit.audit import compare
from weft.plan.audit.positions import Planned
from weft.plan.audit.walk import Position
from weft.plan.growth.growth import Growth

_COLUMNS = ("do", "at", "rack", "u", "to", "to_rack", "to_u", "cable", "text")


def write_steps(growth: Growth, folder: Path, positions: Mapping[str, Position]) -> list[Path]:
    """Write for each step the plugs (moved ones before new ones) and the fabric after it, to audit against.

    `positions` are those of today's devices; new devices have no position yet.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {folder}: {error.strerror}") from error
    written = []
    before = growth.today
    for number, step in enumerate(growth.steps, start=1):
        plugs, after = folder / f"step-{number}.csv", folder / f"step-{number}.yaml"
        records = compare(before, Planned(fabric=step.fabric, positions=positions)).records()
        records.sort(key=lambda record: record["do"] == "plug")  # pulled plugs free ports for them
        text = io.StringIO()
        writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        write_atomically(plugs, text.getvalue())
        files.write(step.fabric, after)
        written += [plugs, after]
        before = step.fabric
    return written
