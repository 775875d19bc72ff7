"""Published measurements, run again: what was measured, what weft says, how far apart, and whether that was promised.

The measurements are data, `calibration.toml`, each with its source; the constants that were fitted to some of them are
in `weft/fabric/catalog/timing.toml`. A measurement that lacks something weft would need to know, or that measured more
than the network, is reported and not promised.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec

import weft.fabric.spec
from weft.errors import find_named
from weft.fabric.build import FabricBuilder
from weft.fabric.catalog import cable_for
from weft.fabric.model import Fabric
from weft.fabric.rates import read_data
from weft.fabric.servers import add_servers
from weft.sim.engine import Memory, Network, Options
from weft.sim.perftest import LatencyRow, Settings, Test, measure, prepare

SMALL_BYTES = 4096  # at and below, the adapter and not the line sets the pace
# How far a promised figure may be off, as parts of the measured one.
BANDWIDTH_LIMIT, SMALL_BANDWIDTH_LIMIT, RATE_LIMIT, LATENCY_LIMIT = 0.05, 0.15, 0.15, 0.10
_GBIT_S = {"Gb/s": 1.0, "MiB/s": 8 * (1 << 20) / 1e9}
_PAIR_M = 2.0  # a cable between two servers in one rack


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One run of perftest or of another ping-pong that somebody published."""

    name: str
    test: Test
    unit: str
    promised: bool
    source: str
    date: datetime.date
    rows: tuple[tuple[float, ...], ...]  # bytes, value, message rate in millions a second
    fitted: tuple[int, ...] = ()  # sizes that constants were fitted to: no wonder that they agree
    spec: str = ""
    pair: tuple[str, str] | None = None  # server template and speed of two hosts on one cable
    mtu_bytes: int = 0
    network: Network | None = None
    memory: Memory = Memory.HOST
    note: str = ""

    @property
    def settings(self) -> Settings:
        options = Options(mtu_bytes=self.mtu_bytes, network=self.network, memory=self.memory)
        return Settings(test=self.test, options=options)

    def fabric(self) -> Fabric:
        """Ready to run; the first and the last server are the two that were measured."""
        if self.pair is None:
            return prepare(weft.fabric.spec.load(self.spec))
        server, speed = self.pair
        builder = FabricBuilder(f"two of {server} on one cable")
        (a,), (b,) = add_servers(builder, server, ["h1", "h2"]).compute
        medium = cable_for(speed, _PAIR_M).medium
        builder.add_links(a, 1, b, 1, speed, medium=medium, length_m=_PAIR_M)
        return builder.build()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published number and weft's."""

    measurement: str
    size_bytes: int
    quantity: str  # `Gb/s`, `Mpps`, `us`
    measured: float
    simulated: float
    limit: float | None  # how far off it may be; None: nothing is promised
    fitted: bool  # a constant was fitted to it

    @property
    def error(self) -> float:
        """Part of the measured one; above 0 where weft is too high."""
        return self.simulated / self.measured - 1

    @property
    def kept(self) -> bool | None:
        """Is the promise kept? None where there is none."""
        return None if self.limit is None else abs(self.error) <= self.limit


@cache
def measurements() -> tuple[Measurement, ...]:
    tables = read_data("weft.sim", "calibration.toml")
    return msgspec.convert([{**table, "name": name} for name, table in tables.items()], tuple[Measurement, ...])


def find(name: str) -> Measurement:
    known = {one.name: one for one in measurements()}
    return find_named("measurement", name, known, "`weft perf calibration` lists them.")


def run(measurement: Measurement, sizes: Sequence[int] = ()) -> Iterator[Figure]:
    """Every figure of a measurement, or those of some sizes."""
    wanted = [row for row in measurement.rows if not sizes or row[0] in sizes]
    fabric = measurement.fabric()
    hosts = fabric.servers[0], fabric.servers[-1]
    found = measure(fabric, *hosts, measurement.settings, [int(row[0]) for row in wanted])
    for (size, value, *rate), row in zip(wanted, found, strict=True):
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
        measurement=measurement.name,
        size_bytes=size_bytes,
        quantity=quantity,
        measured=measured,
        simulated=simulated,
        limit=limit,
        fitted=size_bytes in measurement.fitted,
    )
