"""A program as traffic: a message for each send, with its dependencies.

Ranks of one server talk over NVLink, others through the adapters of their rails. With PXN, as NCCL has it, a message to
another rail goes over NVLink to the GPU of that rail first; without, it crosses rails in the network. A program may
have all sends of a round from one rank to another as one message.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.collectives.ranks import Ranks, place
from weft.collectives.schedules.check import check
from weft.collectives.schedules.program import Program, Schedule, Sends, joined, schedule
from weft.collectives.schedules.writers import program as write_program
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.sim.traffic import Operation, Traffic, Transport

SHARP = "sharp"  # the algorithm whose sums switches make


def collective_traffic(fabric: Fabric, collective: str, algorithm: str, size_bytes: int) -> Traffic:
    """Return the traffic of a collective on all servers; its program is proved first."""
    ranks = place(fabric)
    program = write_program(collective, algorithm, nodes=len(ranks.servers), gpus=ranks.per_server)
    check(program)
    if algorithm == SHARP:
        return reduction_traffic(program, ranks, size_bytes)
    return program_traffic(program, ranks, size_bytes)


def reduction_traffic(program: Program, ranks: Ranks, size_bytes: int) -> Traffic:
    """Return a SHARP all-reduce, for the packet engine: the adapters send their summands, and the switches add them.

    With several ranks in a server, each part of the buffer is reduced on the rail of the rank that has summed it up
    over NVLink, and each chunk of a part is a reduction of its own, so that chunks follow each other through all
    stages. The message of a summand ends when its host has the result, and takes the place of all that switches send.
    """
    if program.collective is not Collective.ALL_REDUCE:
        raise ConfigError(
            f"{program.name} on {ranks.fabric.spec}: packets are added in switches for all_reduce:{SHARP}; "
            f"`weft nccl --algo CollNetDirect` has times of others"
        )
    name, ports = f"{program.name} of {size_bytes:,} bytes", ranks.port
    if ranks.per_server == 1:
        return Traffic.make(
            ports,
            ports,
            size_bytes,
            operation=Operation.SEND,
            transport=Transport.UC,
            reduction=1,
            description=name,
        )
    whole, n = schedule(replace(program, make_round=lambda number: by_chunk(program.make_round(number)))), len(ranks)
    sends = whole.sends
    up, down = ((a < n) & (b >= n) for a, b in ((sends.src, sends.dst), (sends.dst, sends.src)))
    inside = (sends.src < n) & (sends.dst < n)
    _refuse_small(program, size_bytes)
    _require_nvlinks(program, ranks, sends.src[inside])
    summand = np.arange(len(sends))  # [send] -> itself, or the summand whose result it brings
    place_of = sends.src.astype(np.int64) * program.n_chunks + sends.src_chunk
    rows = np.flatnonzero(up)[np.argsort(place_of[up])]
    results = sends.dst[down].astype(np.int64) * program.n_chunks + sends.dst_chunk[down]
    summand[down] = rows[np.searchsorted(place_of[rows], results)]
    kept = up | inside
    waiting = np.repeat(kept, np.diff(whole.after_first))
    new_index = np.cumsum(kept) - 1
    first = np.concatenate(([0], np.cumsum(np.diff(whole.after_first)[kept])))
    src, dst, chunk = sends.src[kept], np.minimum(sends.dst[kept], n - 1), sends.src_chunk[kept]
    added = up[kept]
    return Traffic.make(
        np.where(added, ports[src], ranks.nvlink[src]),
        np.where(added, ports[src], ranks.nvlink[dst]),
        message_bytes(program, sends, size_bytes)[kept],
        operation=np.where(added, Operation.SEND, Operation.WRITE),
        transport=np.where(added, Transport.UC, Transport.RC),
        reduction=np.where(added, 1 + chunk, 0),
        qp=np.where(added, src % ranks.per_server, 0),
        after=(first, new_index[summand[whole.after[waiting]]].astype(np.int32)),
        description=name,
    )


def by_chunk(sends: Sends) -> Sends:
    """Return a send for each chunk."""
    row, chunk, to = sends.chunks()
    return Sends.make(sends.src[row], sends.dst[row], chunk, to=to, add=sends.add[row])


def _require_nvlinks(program: Program, ranks: Ranks, src: NDArray[np.int32]) -> None:
    if (ranks.nvlink[src] < 0).any():
        raise ConfigError(
            f"{program.name}: ranks of one server talk over NVLink, and {ranks.fabric.spec} has none that are joined: "
            f"use weft.fabric.nvlink.join_nvlinks(fabric), or servers with GPUs"
        )


def whole_schedule(program: Program) -> Schedule:
    """Return every message of a program with its dependencies."""
    whole = schedule(program)
    return joined(whole) if program.aggregated else whole


def program_traffic(
    program: Program,
    ranks: Ranks,
    size_bytes: int,
    whole: Schedule | None = None,
    *,
    step_ps: int = 0,
    pxn: bool = True,
) -> Traffic:
    """Return the messages of a collective of `size_bytes` at each rank, in the order of its sends, then NVLink hops.

    made: a schedule other than the whole one.
    step_ps: time of a rank between a receive and the next send.
    """
    refuse_misfits(program, ranks, size_bytes)
    whole = whole_schedule(program) if whole is None else whole
    sends, per_server = whole.sends, ranks.per_server
    server = [np.asarray(end) // per_server for end in (sends.src, sends.dst)]
    inside = server[0] == server[1]
    _require_nvlinks(program, ranks, sends.src[inside])
    rail = [ranks.rail_of[np.asarray(end) % per_server] for end in (sends.src, sends.dst)]
    hops = np.flatnonzero(~inside & (rail[0] != rail[1])) if pxn and ranks.pxn else np.zeros(0, int)
    leaves = rail[0].copy()
    leaves[hops] = rail[1][hops]
    adapters = ranks.adapters if ranks.rails else np.zeros((len(ranks.servers), 1), np.int32)
    src = np.where(inside, ranks.nvlink[sends.src], adapters[server[0], leaves])
    dst = np.where(inside, ranks.nvlink[sends.dst], adapters[server[1], rail[1]])
    proxy = ranks.nvlink[server[0][hops] * per_server + np.searchsorted(ranks.rail_of, rail[1][hops])]
    bytes_each = message_bytes(program, sends, size_bytes)
    n, n_hops = len(sends), len(hops)
    first, flat = _with_hops(whole, hops)
    delay_ps = np.where(np.diff(first) > 0, step_ps, 0)
    delay_ps[hops] = 0  # a hop adds no work
    return Traffic.make(
        np.concatenate((src, ranks.nvlink[sends.src[hops]])),
        np.concatenate((dst, proxy)),
        np.concatenate((bytes_each, bytes_each[hops])),
        delay_ps=delay_ps,
        qp=np.concatenate((np.zeros(n, np.int64), np.ones(n_hops, np.int64))),
        after=(first, flat),
        description=f"{program.name} of {size_bytes:,} bytes",
    )


def message_bytes(program: Program, sends: Sends, size_bytes: int) -> NDArray[np.int64]:
    """Return the bytes of each send of a collective of `size_bytes`; 0 for a barrier."""
    chunk_bytes = 0 if program.collective is Collective.BARRIER else program.chunk_bytes(size_bytes)
    return sends.n_chunks.astype(np.int64) * chunk_bytes


def _with_hops(whole: Schedule, hops: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the dependencies with hops: a send waits for its hop, and the hop for the send's dependencies."""
    n, count = len(whole.sends), np.diff(whole.after_first)
    many = np.concatenate((count, count[hops]))
    many[hops] = 1
    first = np.concatenate(([0], np.cumsum(many)))
    where = np.concatenate((whole.after_first[:-1], whole.after_first[hops]))
    at = np.repeat(where - first[:-1], many) + np.arange(int(first[-1]))
    hop_of = np.full(n + len(hops), -1)
    hop_of[hops] = n + np.arange(len(hops))
    waits = np.repeat(hop_of, many)
    flat = np.where(
        waits >= 0, waits, whole.after[np.minimum(at, max(len(whole.after) - 1, 0))] if len(whole.after) else 0
    )
    return first.astype(np.int64), flat.astype(np.int32)


def refuse_misfits(program: Program, ranks: Ranks, size_bytes: int) -> None:
    """Raise ConfigError if these ranks cannot run the program."""
    if program.n_reducers:
        raise ConfigError(f"{program.name} adds in the network: it is more than messages between ports")
    if len(ranks) != program.n_ranks:
        raise ConfigError(f"{program.name} has {program.n_ranks} ranks, the job has {len(ranks)} on its servers")
    if program.gpus not in (1, ranks.per_server):
        raise ConfigError(
            f"{program.name} is written for nodes of {program.gpus} GPUs, {ranks.servers[0]} has {ranks.per_server} "
            f"ranks: write it for those"
        )
    _refuse_small(program, size_bytes)


def _refuse_small(program: Program, size_bytes: int) -> None:
    if program.collective is not Collective.BARRIER and size_bytes < program.n_parts:
        raise ConfigError(
            f"{program.name} cuts the buffer of a rank into {program.n_parts} chunks, {size_bytes} bytes are too few: "
            f"give {program.n_parts} bytes or more"
        )
