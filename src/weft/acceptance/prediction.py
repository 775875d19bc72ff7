"""Benchmarks of a cluster, predicted at every size."""

from __future__ import annotations

import enum
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.mpi import bench as osu
from weft.collectives.nccl import bench as nccl
from weft.collectives.ranks import Ranks, pick_servers, place
from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, speeds
from weft.fabric.spec import as_kinds, load
from weft.sim import calibration
from weft.sim import perftest as perf
from weft.sim.engine import Memory, Network, Options
from weft.training.failures import break_permanently
from weft.verbs.perftest.kinds import ALL_SIZES

Floats = NDArray[np.float64]
_NCCL = (
    Collective.ALL_REDUCE,
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.BROADCAST,
    Collective.REDUCE,
    Collective.ALL_TO_ALL,
    Collective.SEND_RECV,
)
_PERFTEST = tuple(perf.Test(f"{verb}_{kind}") for kind in ("bw", "lat") for verb in ("write", "read", "send"))
_OSU = tuple(test for test in osu.Test if test is not osu.Test.BARRIER)


class Suite(enum.StrEnum):
    """The origin of a benchmark."""

    NCCL = "nccl-tests"
    PERFTEST = "perftest"
    OSU = "OSU micro-benchmarks"


class Setup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cluster and the settings of its benchmarks."""

    spec: str
    kinds: str = ""  # server types of a file without GPU information
    servers: str = ""  # a number or names; empty: all
    network: str | None = None
    paths: str | None = None
    gpudirect: bool = True
    nccl: str = ""
    nvls: bool = True
    ppn: int = 1  # processes on each server of OSU's collectives
    faults: tuple[str, ...] = ()
    ipoib: bool = False  # TCP over InfiniBand, taken to be as fast as over Ethernet cables of the same rate
    seed: int = 1

    def options(self, memory: Memory = Memory.HOST) -> Options:
        names: dict[str, Any] = {"network": self.network, "paths": self.paths}  # text: Options finds the enum
        return Options(**names, memory=memory, seed=self.seed)


class Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The predicted values of a benchmark: microseconds, or Gbit/s of a bandwidth test."""

    program: str
    sizes_bytes: tuple[int, ...]
    expected: tuple[float, ...]
    acceptable: tuple[float, ...]
    bus_factor: float = 0.0  # nccl-tests: bus bandwidth = bus_factor * size / time

    def __post_init__(self) -> None:
        lengths = {len(column) for column in (self.sizes_bytes, self.expected, self.acceptable)}
        if len(lengths) != 1 or 0 in lengths or not all(value > 0 for value in (*self.expected, *self.acceptable)):
            raise ValueError(f"{self.program} needs as many expected and acceptable values as sizes, above 0")

    @property
    def is_bandwidth(self) -> bool:
        return self.program.endswith("bw")

    def at(self, sizes_bytes: NDArray[np.int64], values: tuple[float, ...]) -> Floats:
        """Return the values at other sizes, interpolated between neighbouring ones; NaN beyond the ends."""
        outside = (sizes_bytes < self.sizes_bytes[0]) | (sizes_bytes > self.sizes_bytes[-1])
        between = np.interp(np.log(np.maximum(sizes_bytes, 1)), np.log(self.sizes_bytes), np.log(values))
        return np.where(outside, np.nan, np.exp(between))


def suite_of(program: str) -> Suite:
    if program.endswith("_perf"):
        return Suite.NCCL
    return Suite.OSU if program.startswith("osu_") else Suite.PERFTEST


def programs(setup: Setup) -> list[str]:
    """Return the benchmarks that this cluster can run."""
    ranks = place_setup(setup)
    has_gpus = len(ranks.fabric.of_kind(NodeKind.GPU)) > 0
    names = [nccl.Settings(collective=kind).program for kind in _NCCL] if has_gpus else []
    if len(ranks.servers) > 1:
        names += [*_PERFTEST, *(f"osu_{test}" for test in _OSU)]
    if not names:
        raise ConfigError(f"{setup.spec}: one server without GPUs has no benchmark: give two servers or more")
    return names


@lru_cache(maxsize=64)
def predict(setup: Setup, program: str) -> Curve:
    """Predict one benchmark at every size."""
    return {Suite.NCCL: _predict_nccl, Suite.PERFTEST: _predict_perftest, Suite.OSU: _predict_osu}[suite_of(program)](
        setup, program
    )


@lru_cache(maxsize=8)
def _place(spec: str, kinds: str, servers: str, faults: tuple[str, ...], ipoib: bool) -> Ranks:
    fabric = load(as_kinds(spec, kinds))
    names = pick_servers(fabric, servers)
    fabric = break_permanently(fabric, faults)
    return place(perf.prepare(_with_ethernet_links(fabric) if ipoib else fabric), names)


def _with_ethernet_links(fabric: Fabric) -> Fabric:
    """Return the fabric with each InfiniBand cable replaced by an Ethernet cable of its rate, or the next lower one."""
    ethernet = sorted(
        (each.rate_gbit_s(), each.index, each.default_width)
        for each in speeds()
        if each.technology is Technology.ETHERNET
    )
    rates = np.array([rate for rate, _, _ in ethernet])
    chosen = np.maximum(np.searchsorted(rates, fabric.link_rate_gbit_s * (1 + 1e-9)) - 1, 0)
    is_infiniband = np.isin(
        fabric.links.speed, [each.index for each in speeds() if each.technology is Technology.INFINIBAND]
    )
    index, width = (np.array([row[column] for row in ethernet])[chosen] for column in (1, 2))
    return fabric.with_links(
        replace(
            fabric.links,
            speed=np.where(is_infiniband, index, fabric.links.speed).astype(fabric.links.speed.dtype),
            width=np.where(is_infiniband, width, fabric.links.width).astype(fabric.links.width.dtype),
        )
    )


def place_setup(setup: Setup) -> Ranks:
    """Return the ranks of the cluster: its servers, adapters and routes."""
    return _place(setup.spec, setup.kinds, setup.servers, setup.faults, setup.ipoib)


def _predict_nccl(setup: Setup, program: str) -> Curve:
    kind = next(kind for kind in _NCCL if nccl.Settings(collective=kind).program == program)
    ranks = place_setup(setup)
    direct = Memory.HOST if setup.network == Network.TCP else Memory.GPUDIRECT
    settings = nccl.Settings(
        collective=kind,
        nccl=setup.nccl,
        nvls=setup.nvls,
        prove=False,
        options=setup.options(direct if setup.gpudirect else Memory.STAGED),
    )
    rows = nccl.run(ranks, settings).rows
    return Curve(
        program=program,
        sizes_bytes=tuple(row.size_bytes for row in rows),
        expected=tuple(row.time_us for row in rows),
        acceptable=tuple(row.band_us[1] for row in rows),
        bus_factor=kind.bus_factor(len(ranks)),
    )


def _predict_perftest(setup: Setup, program: str) -> Curve:
    ranks = place_setup(setup)
    test = perf.Test(program)
    client, server = (ranks.fabric.port(int(ranks.adapters[index, 0])).name for index in (0, 1))
    settings = perf.Settings(test=test, options=setup.options())
    expected, acceptable = [], []
    for row in perf.measure(ranks.fabric, client, server, settings, ALL_SIZES):
        if isinstance(row, perf.LatencyRow):
            expected.append(row.typical_us)
            acceptable.append(row.typical_us * (1 + calibration.LATENCY_LIMIT))
        else:
            is_small = row.size_bytes <= calibration.SMALL_BYTES
            limit = calibration.SMALL_BANDWIDTH_LIMIT if is_small else calibration.BANDWIDTH_LIMIT
            expected.append(row.average_gbit_s)
            acceptable.append(row.average_gbit_s * (1 - limit))
    return Curve(program=program, sizes_bytes=ALL_SIZES, expected=tuple(expected), acceptable=tuple(acceptable))


def _predict_osu(setup: Setup, program: str) -> Curve:
    test = osu.find_test(program)
    ppn = setup.ppn if test.collective else 1
    rows = osu.run(place_setup(setup), osu.Settings(test=test, ppn=ppn, options=setup.options())).rows
    scale = 8e-3 if test.is_bandwidth else 1.0  # MB/s to Gbit/s
    return Curve(
        program=program,
        sizes_bytes=tuple(row.size_bytes for row in rows),
        expected=tuple(row.value * scale for row in rows),
        acceptable=tuple((row.low if test.is_bandwidth else row.high) * scale for row in rows),
    )
