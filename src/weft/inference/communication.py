"""Times of the exchanges of a step: all-reduces of tensor ranks, tokens to experts and back, sends between stages.

Small all-reduces inside a server are kernels of the engine that read the memory of the other GPUs over NVLink:

    one shot    every GPU reads all the others' data: start + (n - 1) S / rate
    two shots   every GPU reduces its part and gathers the rest: start + 2 (n - 1)/n S / rate

The engine takes the fastest of both and NCCL's. All other exchanges, and all between servers, are NCCL's over the
fabric's routes (`weft.training.communication`); experts' are fused kernels (`weft.collectives.experts`) where all links
allow them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from weft.collectives.experts.bench import run as run_experts
from weft.collectives.experts.estimate import links_of
from weft.collectives.experts.kernels import PAIRS
from weft.collectives.experts.routing import Layer
from weft.collectives.kinds import Collective
from weft.collectives.ranks import subset
from weft.inference.deployment import Deployment
from weft.sim.analytic import AnalyticEngine
from weft.sim.engine import Network
from weft.sim.flow.engine import FlowEngine
from weft.sim.result import Engine as Clock
from weft.training.communication import Communication
from weft.training.gpu import BF16_BYTES, OPERAND_BYTES

_GRID = tuple(2**power for power in range(15))  # tokens of a GPU at which exchanges with experts are estimated


class Exchange:
    """The communication of a deployment, over its fabric by a simulation engine.

    first_gpu: the first GPU of the replica. slow: a function that returns an engine as it is beside other traffic.
    """

    def __init__(
        self,
        deployment: Deployment,
        clock: Clock | None = None,
        *,
        first_gpu: int = 0,
        slow: Callable[[Clock], Clock] = lambda engine: engine,
    ) -> None:
        self.deployment, self._clock = deployment, slow(clock or FlowEngine())
        self._first_gpu, self._slow = first_gpu, slow

    @cached_property
    def _over(self) -> Communication:
        return self.deployment.site.over(self.deployment.layout, self._clock)

    @cached_property
    def _inside(self) -> bool:
        """Return whether a tensor group lies in one server with NVLink."""
        site = self.deployment.site
        return self.deployment.tp <= site.template.gpus and site.cluster.nvlink

    @cached_property
    def _line_byte_s(self) -> float:
        return 1e9 * links_of(self.deployment.site.cluster, None).inside_gbyte_s

    def all_reduce_s(self, size_bytes: float) -> float:
        """Return the time of an all-reduce over each tensor group."""
        deployment, ranks = self.deployment, self.deployment.tp
        times_s = [self._over.time_s("tp", Collective.ALL_REDUCE, size_bytes)]
        if self._inside:
            engine, rate_byte_s = deployment.engine, deployment.engine.shot_share * self._line_byte_s
            times_s.append(1e-6 * engine.one_shot_us + (ranks - 1) * size_bytes / rate_byte_s)
            times_s.append(1e-6 * engine.two_shot_us * ranks + 2 * (ranks - 1) / ranks * size_bytes / rate_byte_s)
        return min(times_s)

    def gather_s(self, size_bytes: float) -> float:
        """Return the time of an all-gather over each tensor group, of so many bytes in all."""
        return self._over.time_s("tp", Collective.ALL_GATHER, size_bytes)

    def send_s(self, tokens: float) -> float:
        """Return the time to send the activations of so many tokens to the next stage, cut over tensor ranks."""
        deployment = self.deployment
        return self._over.send_s(tokens * deployment.model.hidden * BF16_BYTES / deployment.tp)

    def experts_s(self, tokens: float) -> tuple[float, float]:
        """Return the times of dispatch and combine with so many tokens on each GPU."""
        grid, dispatch_s, combine_s = self._expert_times
        return float(np.interp(tokens, grid, dispatch_s)), float(np.interp(tokens, grid, combine_s))

    @cached_property
    def _expert_times(self) -> tuple[list[int], list[float], list[float]]:
        """Return dispatch and combine at some numbers of tokens, by the kernels that are fastest for both together."""
        kernels = map(self._times_of, self.kernels)
        best = [min(times, key=lambda both: both[0] + both[1]) for times in zip(*kernels, strict=True)]
        return [*_GRID], [both[0] for both in best], [both[1] for both in best]

    @property
    def kernels(self) -> tuple[str, ...]:
        """Return the kernels among which an engine chooses by the size of its batch."""
        site = self.deployment.site
        gpus = self.deployment.tp * self.deployment.dp
        if not site.cluster.nvlink or (gpus > site.template.gpus and site.options.network is Network.TCP):
            return (PAIRS,)
        return ("one-sided",) if gpus <= site.template.gpus else ("deepep", "deepep-ll")

    def _times_of(self, kernel: str) -> list[tuple[float, float]]:
        deployment, site = self.deployment, self.deployment.site
        gpus = deployment.tp * deployment.dp
        layers = [self._layer_of(tokens, gpus) for tokens in _GRID]
        if gpus <= site.template.gpus:
            part = None if gpus == site.template.gpus else gpus
            table = run_experts(site.ranks, layers, kernel=kernel, gpus=part, options=site.options)
        else:
            servers = subset(site.ranks, range(self._first_gpu, self._first_gpu + gpus))
            engine = self._slow(AnalyticEngine())
            table = run_experts(servers, layers, kernel=kernel, options=site.options, engine=engine)
        scale = deployment.imbalance
        return [
            (scale * 1e-6 * (row.dispatch.time_us + row.notify_us), scale * 1e-6 * row.combine.time_us)
            for row in table.rows
        ]

    def _layer_of(self, tokens: int, gpus: int) -> Layer:
        """Return the layer, with experts added until each GPU has equally many: engines copy the busiest."""
        deployment, model = self.deployment, self.deployment.model
        placed = -(-model.experts // gpus) * gpus
        narrow = OPERAND_BYTES[deployment.precision] <= 1
        return Layer(
            tokens=tokens, topk=model.topk, hidden=model.hidden, experts=placed, dispatch_bytes=1 if narrow else 2
        )
