"""The steady load of a lab of planes: packets of a pair of hosts take turns over the planes that lead to the receiver.

A flow of `sim.steady` has one path, so each pair is one job in each plane that it uses (a job of two hosts), and the
rates of a user's job are sums over its pairs. A plane in which either end has no cable, or in which the tables do not
lead to the receiver, carries nothing of the pair: the others carry its share, up to their line rate. Since packets take
turns, a slow plane holds back the others of its pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.forwarding import ANY, Reason
from weft.fabric.joined_subnets import join_subnets
from weft.fabric.kernels.forwarding import arrays, walk_all
from weft.fabric.model import Fabric
from weft.lab.planes import without_unused_planes
from weft.sim.steady import Degradation, LoadJob, Steady, check_job, job_pairs, settle

MOST_PAIRS = 20_000  # of hosts and planes; each is a job of its own
_EVEN = 0.999  # planes of a pair whose rates differ by less are not computed again


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LabSteady:
    """The rates of a lab's jobs, and the steady load that its ports count."""

    steady: Steady
    jobs: tuple[LoadJob, ...]
    wanted_gbit_s: NDArray[np.float64]  # [job]
    gbit_s: NDArray[np.float64]  # [job]
    slowest: NDArray[np.float64]  # [job]


def settle_lab(fabric: Fabric, jobs: Sequence[LoadJob], degradation: Degradation) -> LabSteady:
    """Compute the rates of a lab: of one subnet, of several that routers join, or of planes that are written out."""
    if fabric.expanded:
        return _settle_planes(fabric, jobs, degradation)
    steady = settle(join_subnets(fabric), jobs, degradation)
    return LabSteady(
        steady=steady,
        jobs=steady.jobs,
        wanted_gbit_s=steady.job_wanted_gbit_s,
        gbit_s=steady.job_gbit_s,
        slowest=steady.job_slowest,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Turns:
    """The pairs of all jobs, and a row for each plane that a pair uses."""

    job: NDArray[np.int64]  # [pair]
    demand: NDArray[np.float64]  # [pair] in line rates of the sender's fastest plane
    pair: NDArray[np.int64]  # [row]
    ends: NDArray[np.int64]  # [row, 0 sender | 1 receiver] -> slot in that plane
    share: NDArray[np.float64]  # [row] of the line rate of the plane
    of_fastest: NDArray[np.float64]  # [row] the same as a share of the line rate of the sender's fastest plane


def _settle_planes(fabric: Fabric, jobs: Sequence[LoadJob], degradation: Degradation) -> LabSteady:
    for job in jobs:
        check_job(job)
    fabric = join_subnets(without_unused_planes(fabric))
    turns = _turns(fabric, jobs)
    steady = settle(fabric, _pair_jobs(turns, turns.share), degradation)
    wanted = np.zeros(len(turns.job))  # [pair] payload, Gbit/s
    np.maximum.at(wanted, turns.pair, turns.demand[turns.pair] * steady.job_wanted_gbit_s / turns.of_fastest)
    least = np.full(len(turns.job), np.inf)
    np.minimum.at(least, turns.pair, steady.job_gbit_s)
    slower = least[turns.pair] / np.maximum(steady.job_gbit_s, 1e-9)
    if (slower < _EVEN).any():
        steady = settle(fabric, _pair_jobs(turns, np.maximum(turns.share * slower, 1e-9)), degradation)
    got = np.bincount(turns.pair, steady.job_gbit_s, len(turns.job))
    slowest = np.ones(len(jobs))
    np.minimum.at(slowest, turns.job, np.minimum(got / np.maximum(wanted, 1e-9), 1.0))
    sums: list[NDArray[Any]] = [np.bincount(turns.job, rates, len(jobs)) for rates in (wanted, got)]
    return LabSteady(
        steady=steady,
        jobs=tuple(jobs),
        wanted_gbit_s=sums[0],
        gbit_s=sums[1],
        slowest=slowest,
    )


def _turns(fabric: Fabric, jobs: Sequence[LoadJob]) -> _Turns:
    """Divide the demand of every pair among the planes that lead from one end to the other."""
    ends, of_job, demand = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for number, job in enumerate(jobs):
        pairs = job_pairs(fabric, job)
        ends.append(job.hosts[pairs])
        of_job.append(np.full(len(pairs), number))
        partners = np.bincount(pairs[:, 0], minlength=len(job.hosts))
        demand.append(job.share * fabric.planes / partners[pairs[:, 0]])
    both, wants = np.concatenate(ends), np.concatenate(demand)
    if len(both) * fabric.planes > MOST_PAIRS:
        raise ConfigError(
            f"{len(both):,} pairs in {fabric.planes} planes are too many for the load of a lab (limit {MOST_PAIRS:,}): "
            "use fewer or smaller jobs"
        )
    leads = np.stack([_leads(fabric, both, plane) for plane in range(fabric.planes)], axis=1)
    leads[~leads.any(axis=1), 0] = True  # without any way packets are lost in the first plane
    pair, plane = np.nonzero(leads)
    line = _line_rates(fabric, both[:, 0])
    part = line[pair, plane] / line.max(axis=1)[pair]
    share = np.minimum((wants / leads.sum(axis=1))[pair] / part, 1.0)
    return _Turns(
        job=np.concatenate(of_job),
        demand=wants,
        pair=pair,
        ends=both[pair] + plane[:, None],
        share=share,
        of_fastest=share * part,
    )


def _line_rates(fabric: Fabric, senders: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the rate of each sender's port in each plane, float[sender, plane]; of a pulled cable the fastest's."""
    link = fabric.ports.link[senders[:, None] + np.arange(fabric.planes)]
    rates = np.append(fabric.link_rate_gbit_s, 0.0)[link]  # link -1 is none
    fastest = max(float(fabric.link_rate_gbit_s.max(initial=0.0)), 1.0)
    rates[:, :1] = np.where((rates <= 0).all(axis=1, keepdims=True), fastest, rates[:, :1])
    line: NDArray[np.float64] = np.where(rates > 0, rates, rates.max(axis=1, keepdims=True))
    return line


def _leads(fabric: Fabric, ends: NDArray[np.int64], plane: int) -> NDArray[np.bool_]:
    """Return whether a plane leads from each sender to its receiver."""
    lid = fabric.tables.lid[ends[:, 1] + plane].astype(np.int64)
    cabled = (fabric.ports.peer[ends + plane] >= 0).all(axis=1)
    packets = np.column_stack((ends[:, 0] + plane, lid, 0 * lid, np.full(len(lid), ANY), 0 * lid))
    walks = walk_all(arrays(fabric), np.ascontiguousarray(packets))
    arrives = (walks.reason == Reason.ARRIVED) & (walks.end == ends[:, 1] + plane)
    leads: NDArray[np.bool_] = cabled & (lid > 0) & arrives
    return leads


def _pair_jobs(turns: _Turns, share: NDArray[np.float64]) -> list[LoadJob]:
    """Return a job for each row: an incast from its sender alone."""
    return [
        LoadJob(name="", pattern="incast", hosts=ends, share=part)
        for ends, part in zip(turns.ends[:, ::-1], share.tolist(), strict=True)
    ]
