"""The table of step times of a deployment, for the simulation of requests in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from weft.fabric.model import Fabric
from weft.inference.communication import Exchange
from weft.inference.deployment import Deployment
from weft.inference.step import PARTS, Step
from weft.inference.table import LOADS, StepTable
from weft.sim.engine import Options, Progress
from weft.sim.result import Engine, Result
from weft.sim.traffic import Traffic

_POINTS_PER_DOUBLING = 2


class _EngineShared:
    """An engine of `sim` whose messages share their links with a load of other traffic."""

    def __init__(self, engine: Engine, load: float) -> None:
        self.name, self._engine, self._load = engine.name, engine, load

    def run(
        self, fabric: Fabric, traffic: Traffic, options: Options | None = None, *, progress: Progress | None = None
    ) -> Result:
        size_bytes = np.rint((1 + self._load) * traffic.size_bytes).astype(traffic.size_bytes.dtype)
        longer = replace(traffic, size_bytes=size_bytes)
        return replace(self._engine.run(fabric, longer, options, progress=progress), traffic=traffic)


def tabulate_shared(
    deployment: Deployment,
    clock: Engine | None = None,
    *,
    context: float = 0.0,
    first_gpu: int = 0,
    slow: Callable[[Engine], Engine] = lambda engine: engine,
) -> StepTable:
    """Return the table of a replica, with steps whose exchanges between servers share their links."""

    def table(load: float) -> StepTable:
        def shared(engine: Engine) -> Engine:
            return _EngineShared(slow(engine), load) if load else slow(engine)

        exchange = Exchange(deployment, clock, first_gpu=first_gpu, slow=shared)
        return tabulate(deployment, Step(deployment, exchange), context=context)

    alone = table(0.0)
    if deployment.replica_gpus <= deployment.site.template.gpus:
        return alone
    slowed_s = [table(load).parts_s.sum(axis=0) - alone.parts_s.sum(axis=0) for load in LOADS]
    return replace(alone, slowed_s=np.maximum(slowed_s, 0.0))


def tabulate(deployment: Deployment, step: Step | None = None, *, context: float = 0.0) -> StepTable:
    """Return the table of a replica, up to the most tokens of a step.

    context: mean tokens of a sequence, which matter to attention with a window.
    """
    step = step or Step(deployment)
    most = max(deployment.token_limit, deployment.batch_limit * (1 + deployment.drafts))
    powers = np.arange(0, _POINTS_PER_DOUBLING * np.log2(most) + 1) / _POINTS_PER_DOUBLING
    tokens = np.unique(np.append(np.round(2**powers), most).astype(np.int64))
    tokens = tokens[tokens <= most]
    rows = np.minimum(tokens / (1 + deployment.drafts), deployment.batch_limit)
    columns = [step.parts(float(count), float(row)) for count, row in zip(tokens, rows, strict=True)]
    parts = tuple(part for part in PARTS if any(part in column for column in columns))
    share = deployment.cached_share(context)
    return StepTable(
        tokens=tokens,
        parts=parts,
        parts_s=np.array([[column.get(part, 0.0) for column in columns] for part in parts]),
        attention_s_per_pair=share * step.attention_s_per_pair,
        kv_s_per_token=share * step.kv_s_per_token,
        kv_room_tokens=int(deployment.kv_room_tokens / share),
        kv_bytes_per_token=share * deployment.kv_bytes_per_token,
        gpus=deployment.replica_gpus,
    )
