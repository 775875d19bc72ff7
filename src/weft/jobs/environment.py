"""Environment variables of a rank: its host (as `weft exec` sets it), torchrun's variables, and its adapter."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from weft.collectives.live.store import VARIABLE
from weft.jobs.placement import Place, Placement

ADAPTER = "WEFT_ADAPTER"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """The values that all ranks of a job share."""

    name: str
    store: str  # address of the job's store
    port: int  # TCP port of rank 0 (MASTER_PORT)

    @property
    def mark(self) -> dict[str, str]:
        """The variable by which the janitor recognises processes of the job."""
        return {VARIABLE: self.store}


def variables(
    place: Place, placement: Placement, job_environment: JobEnvironment, host: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a rank, without those of the launcher. `host`: the variables of its host."""
    world, local, hosts = len(placement.places), placement.on(place.host), placement.hosts
    torchrun = {
        "RANK": place.rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": place.local_rank,
        "LOCAL_WORLD_SIZE": local,
        "GROUP_RANK": hosts.index(place.host),
        "GROUP_WORLD_SIZE": len(hosts),
        "ROLE_RANK": place.rank,
        "ROLE_WORLD_SIZE": world,
        "ROLE_NAME": "default",
        "MASTER_ADDR": placement.address,
        "MASTER_PORT": job_environment.port,
        "TORCHELASTIC_RUN_ID": job_environment.name,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_USE_AGENT_STORE": False,  # rank 0 serves PyTorch's store
    }
    adapter = {
        ADAPTER: place.adapter,
        "UCX_NET_DEVICES": f"{place.adapter}:1",
        "NCCL_IB_HCA": f"={place.adapter}:1",  # `=` matches exactly; else mlx5_1 also matches mlx5_10
    }
    unless_set = {
        "PYTHONUNBUFFERED": "1",  # print lines without delay
        "UCX_TLS": "rc_v,self",  # no shared memory, which would bypass the lab
    }
    if world > 1:
        unless_set["OMP_NUM_THREADS"] = "1"
    result = dict(host) | {name: str(value) for name, value in torchrun.items()} | adapter | job_environment.mark
    return result | {name: value for name, value in unless_set.items() if name not in os.environ}
