"""Faults during a job of `weft train`, and its goodput under failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from weft.collectives.ranks import Ranks
from weft.fabric import catalog
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.routing.engine import Options as RoutingOptions
from weft.routing.route import Routing
from weft.sim.engine import Network, Options, Progress
from weft.sim.result import Engine, Result
from weft.sim.traffic import Traffic
from weft.training.communication import OverFabric
from weft.training.failures import Disturbance, Fault, disturb, parse_fault, retries_of
from weft.training.goodput import SERVER_GPUS, Goodput, Rate, find_rate
from weft.training.goodput import constants as failure_constants
from weft.training.job import Run
from weft.training.site import Site
from weft.training.step import Step, run_step
from weft.training.storage import Busy, Transfer, checkpoint_bytes, constants, copy_s, sharing

_SERVERS_OF_STORAGE = 32  # servers of a job for each storage server: a SuperPOD's scalable unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint: its size, the time to write it, and the time that the job waits for it."""

    total_bytes: int
    written_s: float
    limit: str  # the slower one: disks or network
    blocks_s: float
    beside_step_s: float | None = None  # step time during a write over the job's fabric; None: storage has its own


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FailureReport:
    """The effects of faults, checkpoints and failures on a run; None where they were not requested."""

    run: Run
    faults: tuple[Disturbance, ...] = ()
    checkpoint: Checkpoint | None = None
    goodput: Goodput | None = None

    def report(self, tokens: float | None = None) -> dict[str, Any]:
        """Return the fields of `--json`: `faults`, `checkpoint` and `goodput`, where they were requested."""
        fields: dict[str, Any] = {}
        if self.faults:
            fields["faults"] = [fault.report() for fault in self.faults]
        if self.checkpoint is not None:
            fields["checkpoint"] = asdict(self.checkpoint)
        if self.goodput is not None:
            days = {} if tokens is None else {"days": self.run.days(tokens) / self.goodput.ettr}
            fields["goodput"] = self.goodput.report() | days
        return fields


class _Noting:
    """An engine that records the ports in use.

    Ports inside the job's servers always are, except those of GPUs of other jobs and of trays with only such GPUs.
    """

    def __init__(self, engine: Engine, ranks: Ranks) -> None:
        self._engine, self.name = engine, engine.name
        fabric, nodes = ranks.fabric, ranks.fabric.nodes
        own = np.isin(nodes.server, [fabric.find_server(name).index for name in ranks.servers])
        self.used = (own & (nodes.kind != NodeKind.HCA))[fabric.ports.node]
        for node in _unused_nodes(ranks):
            ends = [end.slot for port in fabric.node(node).ports for end in (port, port.peer) if end is not None]
            self.used[ends] = False

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        result = self._engine.run(fabric, traffic, options, progress=progress)
        self.used |= result.use.xmit_packets > 0
        return result


def _unused_nodes(ranks: Ranks) -> set[int]:
    """Return the nodes of the job's servers that belong to GPUs of other jobs: those GPUs, and trays without a GPU of
    this job."""
    fabric, unused = ranks.fabric, set[int]()
    for server in map(fabric.find_server, ranks.servers):
        unused_gpus = {gpu.index for gpu in server.gpus[ranks.per_server :]}
        own = {gpu.index for gpu in server.gpus} - unused_gpus
        trays = catalog.server(server.of_kind(NodeKind.CPU)[0].model).trays if unused_gpus else 1
        shared = (set(fabric.nodes_of(f"{server}/tray{tray}")) for tray in range(trays) if trays > 1)
        unused |= unused_gpus.union(*(tray for tray in shared if not tray & own))
    return unused


def _step_on(run: Run, fabric: Fabric, engine: Engine) -> Step:
    """Run a step of the same job on the same servers of a changed fabric."""
    over = OverFabric(run.site.place(fabric), run.layout, run.site.options, engine)
    return run_step(run.step.transformer, run.layout, run.site.gpu, over, slowest=run.step.slowest)


def find_faults(site: Site, texts: Sequence[str]) -> list[Fault]:
    """Parse faults. Raise ConfigError if one is malformed or not of this fabric."""
    parsed = [parse_fault(text) for text in texts]
    for fault in parsed:
        fault.break_(site.ranks.fabric)
    return parsed


def disturb_run(run: Run, faults: Sequence[Fault], engine: Engine) -> list[Disturbance]:
    """Apply each fault alone; the subnet manager reroutes with few changes."""
    site, fabric = run.site, run.site.ranks.fabric
    noting = _Noting(engine, site.ranks)
    before = _step_on(run, fabric, noting)
    routing = Routing(fabric=fabric, engine="auto", options=RoutingOptions(adaptive=True), notes=())
    retries = retries_of(site.options.network or Network.INFINIBAND)
    return [
        disturb(routing, fault, partial(_step_on, run, engine=engine), before=before, retries=retries, used=noting.used)
        for fault in faults
    ]


def predict_failures(
    run: Run,
    engine: Engine,
    *,
    faults: Sequence[str] = (),
    goodput: str | None = None,
    storage: Sequence[str] = (),
    waits: bool = False,
    interval_s: float = 0.0,
) -> FailureReport:
    """Return the effects of these faults on a run, and its checkpoints and goodput.

    goodput: the name of a published failure rate. storage, waits, interval_s: as in `checkpoint_of`, `goodput_of`.
    """
    disturbed = disturb_run(run, find_faults(run.site, faults), engine) if faults else []
    checkpoint = checkpoint_of(run, waits=waits, storage=storage) if goodput is not None or storage else None
    return FailureReport(
        run=run,
        faults=tuple(disturbed),
        checkpoint=checkpoint,
        goodput=None
        if goodput is None or checkpoint is None
        else goodput_of(run, find_rate(goodput), checkpoint, interval_s=interval_s),
    )


def check_failures(
    site: Site, faults: Sequence[str] = (), goodput: str | None = None, storage: Sequence[str] | None = None
) -> None:
    """Raise the ConfigError that `predict_failures` would raise after a long run."""
    find_faults(site, faults)
    if storage is not None:
        sharing(site.ranks, storage)
    if goodput is not None:
        find_rate(goodput)


def checkpoint_of(run: Run, *, waits: bool, storage: Sequence[str] = ()) -> Checkpoint:
    """Return the checkpoint of a run.

    waits: the job waits until all is written, else until it is in the hosts' memory.
    storage: servers of the job's fabric; by default one for every 32 of the job, on a network as fast as their disks.
    """
    sizes = checkpoint_bytes(run.layout, run.step.transformer)
    if storage:
        store = sharing(run.site.ranks, storage, run.site.options)
        saved, beside_step_s = store.write(sizes), _step_on(run, run.site.ranks.fabric, Busy(store.writes())).step_s
    else:
        write_byte_s = constants()["appliance"]["write_gbyte_s"] * 1e9
        disks_s = float(sizes.sum()) / (ceil(run.site.servers / _SERVERS_OF_STORAGE) * write_byte_s)
        saved, beside_step_s = Transfer(total_bytes=int(sizes.sum()), network_s=0.0, disks_s=disks_s), None
    return Checkpoint(
        total_bytes=saved.total_bytes,
        written_s=saved.seconds,
        limit=saved.limit,
        blocks_s=saved.seconds if waits else copy_s(sizes),
        beside_step_s=beside_step_s,
    )


def goodput_of(run: Run, rate: Rate, checkpoint: Checkpoint, *, interval_s: float = 0.0) -> Goodput:
    """Return the goodput of a run, by default with the best checkpoint interval that is usual.

    A checkpoint that blocks for milliseconds would best be written every few seconds, which no storage is built for:
    the interval is at least the usual one, and as long as a checkpoint takes to be written.
    """
    nodes = ceil(run.site.gpus / SERVER_GPUS)
    least_s = float(failure_constants()["interval"]["least_s"])
    goodput = Goodput(nodes=nodes, rate=rate, blocks_s=checkpoint.blocks_s, interval_s=interval_s)
    if interval_s:
        return goodput
    return replace(goodput, interval_s=max(goodput.interval_s, checkpoint.written_s, least_s))
