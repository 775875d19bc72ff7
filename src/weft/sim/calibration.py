"""Published measurements, simulated again: measured value, weft's value, their difference, and the promised limit.

The measurements are data, `calibration.toml`, each with its source; constants fitted to some of them are in
`weft/fabric/catalog/timing.toml`. A measurement with missing details, or one that measured more than the network, is
reported without a promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import weft.fabric.spec
from weft.calibration.figure import Figure as PublishedFigure
from weft.calibration.run import Run, find_run, read_runs
from weft.fabric.build import FabricBuilder
from weft.fabric.catalog import cable_for
from weft.fabric.model import Fabric
from weft.fabric.servers import add_servers
from weft.sim.engine import Memory, Network, Options
from weft.sim.perftest import LatencyRow, Settings, Test, measure, prepare

SMALL_BYTES = 4096  # up to this size the adapter, not the line, limits the rate
# Promised limits of the relative error.
BANDWIDTH_LIMIT, SMALL_BANDWIDTH_LIMIT, RATE_LIMIT, LATENCY_LIMIT = 0.05, 0.15, 0.15, 0.10
_GBIT_S = {"Gb/s": 1.0, "MiB/s": 8 * (1 << 20) / 1e9}
_PAIR_M = 2.0  # a cable between two servers in one rack


class Measurement(Run, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published run of perftest or of another ping-pong benchmark."""

    test: Test
    unit: str
    promised: bool
    rows: tuple[tuple[float, ...], ...]  # bytes, value, message rate in millions per second
    fitted: tuple[int, ...] = ()  # sizes that constants were fitted to
    spec: str = ""
    pair: tuple[str, str] | None = None  # server template and speed of two hosts on one cable
    mtu_bytes: int = 0
    network: Network | None = None
    memory: Memory = Memory.HOST

    @property
    def settings(self) -> Settings:
        options = Options(mtu_bytes=self.mtu_bytes, network=self.network, memory=self.memory)
        return Settings(test=self.test, options=options)

    def fabric(self) -> Fabric:
        """Build the fabric, ready to run; the measured servers are the first and the last."""
        if self.pair is None:
            return prepare(weft.fabric.spec.load(self.spec))
        server, speed = self.pair
        builder = FabricBuilder(f"two of {server} on one cable")
        (a,), (b,) = add_servers(builder, server, ["h1", "h2"]).compute
        medium = cable_for(speed, _PAIR_M).medium
        builder.add_links(a, 1, b, 1, speed, medium=medium, length_m=_PAIR_M)
        return builder.build()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(PublishedFigure):
    """A published value and weft's."""

    quantity: str  # `Gb/s`, `Mpps`, `us`
    fitted: bool  # a constant was fitted to it


@cache
def measurements() -> tuple[Measurement, ...]:
    return read_runs("weft.sim", "calibration.toml", Measurement)


def find(name: str) -> Measurement:
    return find_run(name, measurements(), "weft perf calibration")


def run(measurement: Measurement, sizes: Sequence[int] = ()) -> Iterator[Figure]:
    """Yield every figure of a measurement, or those of some sizes."""
    published = [row for row in measurement.rows if not sizes or row[0] in sizes]
    fabric = measurement.fabric()
    hosts = fabric.servers[0], fabric.servers[-1]
    simulated = measure(fabric, *hosts, measurement.settings, [int(row[0]) for row in published])
    for (size, value, *rate), row in zip(published, simulated, strict=True):
        size_bytes = int(size)
        if isinstance(row, LatencyRow):
            yield _figure(measurement, size_bytes, "us", value, row.typical_us)
            continue
        yield _figure(measurement, size_bytes, "Gb/s", value * _GBIT_S[measurement.unit], row.average_gbit_s)
        if rate:
            yield _figure(measurement, size_bytes, "Mpps", rate[0], row.message_rate_mpps)


def _figure(measurement: Measurement, size_bytes: int, quantity: str, measured: float, simulated: float) -> Figure:
    limit = None
    if measurement.promised:
        limit = {
            "us": LATENCY_LIMIT,
            "Gb/s": SMALL_BANDWIDTH_LIMIT if size_bytes <= SMALL_BYTES else BANDWIDTH_LIMIT,
            "Mpps": RATE_LIMIT,
        }[quantity]
    return Figure(
        run=measurement.name,
        size_bytes=size_bytes,
        quantity=quantity,
        measured=measured,
        predicted=simulated,
        limit=limit,
        fitted=size_bytes in measurement.fitted,
    )
