"""Causes of a shortfall: the benchmark is predicted again with one defect each, and compared with the measured rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from weft.acceptance.outputs import Output
from weft.acceptance.prediction import Curve, Setup, Suite, place_setup, predict, suite_of
from weft.fabric.rates import Technology, speeds
from weft.sim.engine import Network, Paths

_CLOSE, _MUCH_NEARER = np.log(1.35), 0.25  # a cause explains rows at this mean distance, or share of the healthy one,
_NEARER = 0.6  # and within this share of the distance of a prediction without a defect
_ALIKE = 1.1  # causes whose distances differ by less are all named
_SEEDS = range(2, 6)  # random seeds for hashes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A defect of a cluster, and the check that shows it."""

    name: str
    check: str
    suites: tuple[Suite, ...]
    setups: Callable[[Setup], list[Setup]]  # with this defect; none if it cannot be
    distance: float = 0.0  # to the measured rows: mean of |ln(measured / predicted)|


def find_causes(setup: Setup, output: Output) -> list[Cause]:
    """Return the causes whose prediction agrees with an output, the best first; none if nothing explains it."""
    healthy = _distance(output, predict(setup, output.program))
    limit = min(max(_CLOSE, _MUCH_NEARER * healthy), _NEARER * healthy)
    explained = [cause for cause in _predict_causes(setup, output) if cause.distance < limit]
    explained.sort(key=lambda cause: cause.distance)
    return [cause for cause in explained if cause.distance <= _ALIKE * explained[0].distance]


def _predict_causes(setup: Setup, output: Output) -> Iterator[Cause]:
    for cause in _CAUSES:
        if suite_of(output.program) in cause.suites:
            curves = [predict(changed, output.program) for changed in cause.setups(setup)]
            if curves:
                yield replace(cause, distance=min(_distance(output, curve) for curve in curves))


def _distance(output: Output, curve: Curve) -> float:
    predicted = curve.at(np.array(output.sizes_bytes, np.int64), curve.expected)
    return float(np.nanmean(np.abs(np.log(np.array(output.values) / predicted))))


# -- defects ----------------------------------------------------------------------------------------------------------


def _use_tcp(setup: Setup) -> list[Setup]:
    ranks = place_setup(setup)
    if len(ranks.servers) == 1 or setup.network == Network.TCP:
        return []
    link = ranks.fabric.port(int(ranks.adapters[0, 0])).link
    over_infiniband = link is not None and link.technology is Technology.INFINIBAND
    over_tcp = msgspec.structs.replace(setup, network="tcp", paths=None, ipoib=over_infiniband)
    return [over_tcp, _with_faults(over_tcp, *(f"cut:{port}" for port in _adapters(setup)[1:]))]  # or one interface


def _without_gpudirect(setup: Setup) -> list[Setup]:
    alone = len(place_setup(setup).servers) == 1
    return [] if alone or not setup.gpudirect else [msgspec.structs.replace(setup, gpudirect=False)]


def _without_nvls(setup: Setup) -> list[Setup]:
    return [msgspec.structs.replace(setup, nvls=False)] if setup.nvls else []


def _cut_adapter(setup: Setup) -> list[Setup]:
    adapters = _adapters(setup)
    return [_with_faults(setup, f"cut:{adapters[0]}")] if len(adapters) > 1 else []


def _slow_adapter(setup: Setup) -> list[Setup]:
    adapters = _adapters(setup)[:1]
    return [_with_faults(setup, *_slow(setup, adapters))] if adapters else []


def _slow_server(setup: Setup) -> list[Setup]:
    adapters = _adapters(setup)
    return [_with_faults(setup, *_slow(setup, adapters))] if len(adapters) > 1 else []


def _collide(setup: Setup) -> list[Setup]:
    """Return setups in which each message takes one path by its hash: other hashes than the expected ones."""
    fabric = place_setup(setup).fabric
    if not any(speeds()[index].technology is Technology.ETHERNET for index in np.unique(fabric.links.speed)):
        return []
    if setup.paths not in (None, Paths.ECMP):
        return [msgspec.structs.replace(setup, paths="ecmp")]
    return [msgspec.structs.replace(setup, seed=seed) for seed in _SEEDS]


def _adapters(setup: Setup) -> list[str]:
    """Return the ports of the first server's adapters; none of a server that is alone."""
    ranks = place_setup(setup)
    slots = ranks.adapters[0].tolist() if len(ranks.servers) > 1 else []
    return [ranks.fabric.port(slot).name for slot in slots]


def _with_faults(setup: Setup, *faults: str) -> Setup:
    return msgspec.structs.replace(setup, faults=(*setup.faults, *faults))


def _slow(setup: Setup, ports: list[str]) -> list[str]:
    """Return faults that leave ports at most half their rate; none for a link that has no slower speed."""
    fabric = place_setup(setup).fabric
    faults = []
    for port in ports:
        link = fabric.find_port(port).link
        slower = [
            (speed.rate_gbit_s(width), speed.label(width))
            for speed in speeds()
            for width in speed.widths
            if link and speed.technology is link.technology and speed.rate_gbit_s(width) <= link.rate_gbit_s / 2
        ]
        if slower:
            faults.append(f"slow:{port}={max(slower)[1]}")
    return faults


_ALL = tuple(Suite)
_CAUSES = (
    Cause(
        name="TCP instead of RDMA",
        check="NCCL_DEBUG=INFO must print NET/IB, UCX_LOG_LEVEL=info rc transports; a container needs /dev/infiniband",
        suites=(Suite.NCCL, Suite.OSU),
        setups=_use_tcp,
    ),
    Cause(
        name="no GPUDirect",
        check="NCCL_DEBUG=INFO must print GDRDMA; load nvidia-peermem, or use a kernel with dma-buf",
        suites=(Suite.NCCL,),
        setups=_without_gpudirect,
    ),
    Cause(
        name="one adapter of a server without a link",
        check="ibstat on every server: each port must be Active",
        suites=(Suite.NCCL,),
        setups=_cut_adapter,
    ),
    Cause(
        name="one adapter at half its rate",
        check="ibstat on every server for the rate, lspci -vv for LnkSta: speed and width",
        suites=_ALL,
        setups=_slow_adapter,
    ),
    Cause(
        name="all adapters of a server at half their rate",
        check="lspci -vv for LnkSta; PCIe relaxed ordering on, ACS off; NUMA balancing off",
        suites=(Suite.NCCL,),
        setups=_slow_server,
    ),
    Cause(
        name="paths that collide",
        check="counters of the uplinks for a few busy ones; use more queue pairs (NCCL_IB_QPS_PER_CONNECTION) or "
        "adaptive routing",
        suites=_ALL,
        setups=_collide,
    ),
    Cause(
        name="NVLink multicast off",
        check="NCCL_DEBUG=INFO must print NVLS; the fabric manager must run, and NCCL_NVLS_ENABLE not be 0",
        suites=(Suite.NCCL,),
        setups=_without_nvls,
    ),
)
