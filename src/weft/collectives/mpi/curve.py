"""The picture of a run: latency or bandwidth over sizes, with the choice at each."""

from __future__ import annotations

from pathlib import Path

from weft.collectives.mpi.bench import Table, Test
from weft.collectives.mpi.report import VERSION, where
from weft.draw.sizes import Point, draw_sizes
from weft.errors import ConfigError


def check_picture(test: Test) -> None:
    """Raise ConfigError for a test without sizes, before a long run."""
    if test is Test.BARRIER:
        raise ConfigError("osu_barrier has one size, 0: leave out --picture, there is no curve")


def draw_curve(path: Path | str, table: Table) -> None:
    """Write the picture as PNG, SVG or PDF by the suffix."""
    test = table.settings.test
    draw_sizes(
        path,
        [
            Point(size_bytes=row.size_bytes, value=row.value, low=row.low, high=row.high, choice=row.how)
            for row in table.rows
        ],
        title=f"OSU MPI {test.heading} Test v{VERSION}",
        note=f"Simulated by weft: {where(table)}; seed {table.settings.options.seed}",
        y_label="bandwidth (MB/s, simulated)" if test.is_bandwidth else "latency (µs, logarithmic, simulated)",
        choices="protocol" if test.collective is None else "algorithm",
        logarithmic=not test.is_bandwidth,
    )
