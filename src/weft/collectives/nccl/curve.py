"""The picture of a run: bus bandwidth over sizes, with the choice at each."""

from __future__ import annotations

from pathlib import Path

from weft.collectives.nccl.bench import Row, Table
from weft.collectives.nccl.nccl_tests import about
from weft.draw.sizes import Point, draw_sizes


def draw_curve(path: Path | str, table: Table) -> None:
    """Write the picture as PNG, SVG or PDF by the suffix."""
    draw_sizes(
        path,
        [_point(row) for row in table.rows],
        title=f"{table.settings.program}, {table.cluster.ranks:,} GPUs of {table.ranks.fabric.spec}",
        note="; ".join(line.strip() for line in about(table)),
        y_label="bus bandwidth (GB/s, simulated)",
        choices="algorithm/protocol",
    )


def _point(row: Row) -> Point:
    estimate = row.estimate
    low, high = estimate.bus_gbyte_s / row.band.high, estimate.bus_gbyte_s / row.band.low
    return Point(size_bytes=row.size_bytes, value=estimate.bus_gbyte_s, low=low, high=high, choice=estimate.name)
