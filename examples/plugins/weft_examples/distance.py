"""A scenario: a claim, a small program that tests it, and one sentence with numbers.

The parameters of `run` are the flags of `weft scenario distance`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import weft
from weft.draw.chart import chart
from weft.errors import ConfigError
from weft.routing.route import route
from weft.scenarios import Scenario
from weft.scenarios.finding import Finding
from weft.sim.analytic import AnalyticEngine
from weft.sim.traffic import Traffic

DISTANCE = Scenario(__name__, "How much does every switch on the way add to the latency of a small message?")


def run(
    *,
    switches: Annotated[int, "Switches in a row, 2 or more."] = 4,
    size_bytes: Annotated[int, "Size of the message: 8, 4K."] = 8,
    seed: Annotated[int, "Random seed of the run."] = 1,
) -> Finding:
    """Send from the first host of a row of switches to the host of each."""
    if switches < 2:
        raise ConfigError(f"--switches must be 2 or more, got {switches}")
    fabric = route(weft.load(f"mesh:{switches}")).fabric
    ports = [fabric.find_port(f"h{i + 1}/1").slot for i in range(switches)]
    latency_us = []
    for far in ports[1:]:
        result = AnalyticEngine().run(fabric, Traffic.make([ports[0]], [far], [size_bytes]))
        latency_us.append(float(result.finish_ps[0]) / 1e6)
    each_us = (latency_us[-1] - latency_us[0]) / max(switches - 2, 1)
    return Finding(
        scenario="distance",
        claim="In a large fabric latency is the distance.",
        source="often said",
        ran=f"{fabric.spec}: {size_bytes} bytes from h1 to each other host, one at a time",
        columns=("switches on the path", "latency µs"),
        rows=tuple((2 + i, each) for i, each in enumerate(latency_us)),
        finding=f"Every switch adds {each_us:.3f} µs to the {latency_us[0]:.3f} µs of two.",
        trust="There is no other traffic, so no waiting.",
        options={"switches": switches, "size_bytes": size_bytes, "seed": seed},
        figures={"latency_us": latency_us, "each_us": each_us},
    )


def draw(finding: Finding, path: Path | str) -> None:
    """Draw latency by distance."""
    with chart(path, width_in=6, height_in=4) as figure:
        axes = figure.subplots()
        distance = [row[0] for row in finding.rows]
        axes.plot(distance, finding.figures["latency_us"], marker="o")
        axes.set(xlabel=finding.columns[0], ylabel=finding.columns[1], xticks=distance)


ENTRY_POINTS = {
    "weft.scenarios": {"distance": DISTANCE}
}  # for weft --plugin distance.py; a package has them in pyproject.toml
