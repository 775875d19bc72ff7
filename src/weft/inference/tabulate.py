"""The table of step times of a deployment, for the simulation of requests in time."""

from __future__ import annotations

import numpy as np

from weft.inference.deployment import Deployment
from weft.inference.step import PARTS, Step
from weft.inference.table import StepTable

_POINTS_PER_DOUBLING = 2


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
