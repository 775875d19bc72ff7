"""The picture of a run as nccl-tests makes it: bus bandwidth over sizes, and what was chosen at each."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

from weft.collectives.bench import Row, Table
from weft.collectives.nccl_tests import about
from weft.draw.chart import COLOURS, FAINT, titled_chart
from weft.units import format_size_bytes


def _band_gbyte_s(row: Row) -> tuple[float, float]:
    found = row.estimate
    return (
        found.bus_gbyte_s * found.time_us / row.spread.high_us,
        found.bus_gbyte_s * found.time_us / row.spread.low_us,
    )


def draw_curve(path: Path | str, table: Table) -> None:
    """Write it as PNG, SVG or PDF by the suffix."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, StrMethodFormatter

    title = f"{table.settings.program} on {table.ranks.fabric.spec}, {table.cluster.ranks:,} GPUs"
    with titled_chart(path, title, "; ".join(line.strip() for line in about(table))) as (axes,):
        points = [(row.size_bytes, row.estimate.bus_gbyte_s, row.estimate.name) for row in table.rows]
        sizes, rates, names = zip(*points, strict=True)
        axes.plot(sizes, rates, color=FAINT, linewidth=1.2, zorder=1)
        low, high = zip(*(_band_gbyte_s(row) for row in table.rows), strict=True)
        axes.fill_between(sizes, low, high, color=FAINT, alpha=0.25, linewidth=0, zorder=0, label="band")
        for name, colour in zip(dict.fromkeys(names), cycle(COLOURS), strict=False):
            x, y, _ = zip(*(point for point in points if point[2] == name), strict=True)
            axes.scatter(x, y, s=26, color=colour, label=name, zorder=2)
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(LogLocator(base=4, numticks=20))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: format_size_bytes(round(size))))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.set_xlabel("size (bytes, logarithmic)")
        axes.set_ylabel("bus bandwidth (GB/s, simulated)")
        axes.legend(title="algorithm/protocol", loc="upper left")
