"""Other traffic on the fabric of a service: jobs of other tenants, and exchanges between servers of one replica.

A job sends all the time, as `weft load` counts it: the share of a port that its hosts demand is a mean. So is the
traffic of steps: layers exchange for tens to hundreds of microseconds, hand-offs take milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.inference.deployment import Deployment
from weft.inference.serving.links import Others
from weft.inference.serving.state import Role
from weft.sim.steady import LoadJob, check_job, job_pairs
from weft.training.gpu import BF16_BYTES, OPERAND_BYTES

if TYPE_CHECKING:
    from weft.inference.serving.run import Served


@dataclass(frozen=True, kw_only=True, eq=False)
class Beside:
    """Traffic that shares links with hand-offs."""

    fabric: Fabric  # the one whose port slots jobs have
    jobs: Sequence[LoadJob] = ()
    exchanged_byte_s: Sequence[float] = ()  # [pool] that a server of a replica sends to others of it; empty: none
    lane: float | None = None  # share of each link that a lane of their own guarantees hand-offs; None: one lane

    def __post_init__(self) -> None:
        if self.lane is not None and not 0 < self.lane <= 1:
            raise ConfigError(f"--handoff-lane must be above 0 and at most 100%, got {100 * self.lane:g}%")
        for job in self.jobs:
            check_job(job)

    def on(
        self,
        fabric: Fabric,
        slots: Sequence[NDArray[np.int64]],
        gpus_of: Sequence[range],
        pool_of: Sequence[int],
        gpus_of_server: int,
    ) -> Others:
        """Return the flows on a fabric, which may lack some cables; `slots` are the ports of each replica's GPUs."""
        parts = [_job_flows(job, self.fabric, fabric) for job in self.jobs]
        if self.exchanged_byte_s:
            parts += [
                _exchange_flows(fabric, own, gpus, gpus_of_server, self.exchanged_byte_s[pool])
                for own, gpus, pool in zip(slots, gpus_of, pool_of, strict=True)
                if own.min() >= 0
            ]
        src, dst, share = (np.concatenate([np.zeros(0), *(part[i] for part in parts)]) for i in range(3))
        return Others(
            src=src.astype(np.int32),
            dst=dst.astype(np.int32),
            qp=np.repeat(np.arange(1, len(parts) + 1, dtype=np.int32), [len(part[0]) for part in parts]),
            share=share,
            jobs=sum(len(part[0]) for part in parts[: len(self.jobs)]),
            lane=self.lane,
        )


_Flows = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]  # senders, receivers, share of their port


def _job_flows(job: LoadJob, named: Fabric, fabric: Fabric) -> _Flows:
    """Return the flows of a job among its hosts that a fabric has."""
    names = [named.port(slot).name for slot in job.hosts.tolist()]
    left = [fabric.find_port(name) for name in names if name in fabric]
    hosts = np.array([port.slot for port in left if port.link is not None], np.int64)
    pairs = job_pairs(fabric, replace(job, hosts=hosts))
    src, dst = hosts[pairs[:, 0]], hosts[pairs[:, 1]]
    _, sender, partners = np.unique(src, return_inverse=True, return_counts=True)
    return src, dst, job.share / partners[sender]


def _exchange_flows(fabric: Fabric, slots: NDArray[np.int64], gpus: range, each: int, sent_byte_s: float) -> _Flows:
    src, dst = exchange_ends(slots, gpus, each)
    line_byte_s = fabric.link_rate_gbit_s[fabric.ports.link[src]] * 1e9 / 8
    share = sent_byte_s / each / max(len(gpus) // each - 1, 1) / line_byte_s
    return src[share > 0], dst[share > 0], share[share > 0]


def exchange_ends(slots: NDArray[np.int64], gpus: range, each: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the ports between which a replica exchanges: those of GPUs of the same number in its servers."""
    server, number = np.divmod(np.array(gpus), each)
    source, target = np.nonzero((number[:, None] == number) & (server[:, None] != server))
    return slots[source], slots[target]


def exchanges_of(served: Served, pools: Sequence[Deployment]) -> tuple[float, ...]:
    """Return the bytes per second that a server sends to others of its replica while it computes, by pool."""
    requests, busy_s = served.requests, np.asarray(served.replicas.busy_s)
    prompts = float((requests.prompt - requests.hit).sum(dtype=np.int64))
    answers = float(requests.output.sum(dtype=np.int64))
    roles = np.asarray(served.replicas.role)
    tokens = {Role.BOTH: prompts + answers, Role.PREFILL: prompts, Role.DECODE: answers}
    found = []
    for deployment, role in zip(pools, dict.fromkeys(Role(int(role)) for role in roles), strict=True):
        found.append(bytes_of_token(deployment) * tokens[role] / max(float(busy_s[roles == role].sum()), 1e-9))
    return tuple(found)


def bytes_of_token(deployment: Deployment) -> float:
    """Return the bytes that a server sends to others of its replica for each token: to experts, sums, activations."""
    each, model = deployment.site.template.gpus, deployment.model
    span, width = deployment.replica_gpus // each, model.hidden * BF16_BYTES
    if span < 2:
        return 0.0
    of_token = 0.0  # bytes that leave a server for each token of the replica
    if deployment.dp > 1:
        reached = (span - 1) * (1 - (1 - 1 / span) ** model.topk)  # other servers with its experts
        back_and_forth = width + model.hidden * OPERAND_BYTES[deployment.precision]
        of_token += sum("experts" in kind for kind in model.kinds) * reached * back_and_forth
    if deployment.tp > each:
        of_token += 2 * len(model.kinds) * 2 * (span - 1) * width  # two all-reduces for each layer, as rings
    if deployment.pp > 1:
        of_token += (span - 1) * width
    return of_token / span
