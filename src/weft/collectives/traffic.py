"""A program as traffic of a network: a message for each send, which waits for what it must have received before.

Where a program says so, all sends of a round from one rank to another are one message, which waits for all that its
parts wait for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from weft.collectives.kinds import Collective
from weft.collectives.program import Program, joined, schedule
from weft.errors import ConfigError
from weft.sim.traffic import Traffic


def program_traffic(program: Program, ports: ArrayLike, size_bytes: int) -> Traffic:
    """The messages of a collective of `size_bytes` at each rank; `ports` is the slot of each rank's network port."""
    slots = np.asarray(ports, np.int32)
    if program.n_reducers:
        raise ConfigError(f"{program.name} adds in the network: it is more than messages between ports")
    if len(slots) != program.n_ranks:
        raise ConfigError(f"{program.name} has {program.n_ranks} ranks, and there are {len(slots)} ports for them")
    if program.gpus > 1:
        raise ConfigError(
            f"{program.name} has sends inside its nodes of {program.gpus} GPUs, which go over NVLink: "
            f"use weft.collectives.run.run_program"
        )
    if program.collective is not Collective.BARRIER and size_bytes < program.n_parts:
        raise ConfigError(
            f"{program.name} cuts the buffer of a rank into {program.n_parts} chunks, {size_bytes} bytes are too few: "
            f"give {program.n_parts} bytes or more"
        )
    made = schedule(program)
    if program.aggregated:
        made = joined(made)
    chunk_bytes = 0 if program.collective is Collective.BARRIER else program.chunk_bytes(size_bytes)
    return Traffic.make(
        slots[made.sends.src],
        slots[made.sends.dst],
        made.sends.n_chunks.astype(np.int64) * chunk_bytes,
        after=(made.after_first, made.after),
        description=f"{program.name} of {size_bytes:,} bytes",
    )
