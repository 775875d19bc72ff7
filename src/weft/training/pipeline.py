"""The schedule of a pipeline, operation by operation: 1F1B, or interleaved with virtual stages (Megatron, SC'21).

    stage 0   F1 F2 F3 F4          B1 F5 B2 F6 ...            4 stages, one chunk of layers each
    stage 1      F1 F2 F3       B1 F4 B2 F5 ...
    stage 2         F1 F2    B1 F3 B2 F4 ...
    stage 3            F1 B1 F2 B2 F3 B3 ...

A stage works through its operations in Megatron's order. A forward waits for the one of the stage before (of the last
stage's previous chunk, for the first), a backward for the one after, both with the send between them. The time that a
stage waits is the bubble.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.jit import lean_kernel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """The begin and end of each operation, in seconds."""

    begin_s: NDArray[np.float64]  # [stage, chunk, micro-batch, forward or backward]
    end_s: NDArray[np.float64]
    busy_s: NDArray[np.float64]  # [stage]


def run(
    forward_s: NDArray[np.float64],
    backward_s: NDArray[np.float64],
    micro_batches: int,
    *,
    send_s: float = 0.0,
    overlap: bool = True,
    ready_s: NDArray[np.float64] | None = None,
) -> Schedule:
    """Return the schedule of a pipeline.

    forward_s, backward_s: seconds of a micro-batch by [stage, chunk].
    send_s: seconds to send activations or gradients to the next stage; without `overlap` the sender waits.
    ready_s: [stage, chunk] the time at which the parameters of a chunk have arrived.
    """
    stages, chunks = forward_s.shape
    begin_s = np.full((stages, chunks, micro_batches, 2), -1.0)
    end_s = np.full((stages, chunks, micro_batches, 2), -1.0)
    ready_s = np.zeros((stages, chunks)) if ready_s is None else ready_s
    done, free_s = np.zeros((stages, 2), np.int64), np.zeros(stages)
    blocked_s = 0.0 if overlap or stages == 1 else send_s
    _run(np.stack((forward_s, backward_s), -1), send_s, blocked_s, ready_s, done, free_s, begin_s, end_s)
    return Schedule(begin_s=begin_s, end_s=end_s, busy_s=(end_s - begin_s).sum(axis=(1, 2, 3)))


@lean_kernel
def _run(time_s, send_s, blocked_s, ready_s, done, free_s, begin_s, end_s):
    """Advance each stage as far as its inputs allow until all operations are done; `done` [stage, kind] counts them."""
    stages, chunks, micro_batches, _ = begin_s.shape
    total = chunks * micro_batches
    left = 2 * stages * total
    while left > 0:
        for stage in range(stages):
            warm_up = stages - stage - 1 if chunks == 1 else 2 * (stages - stage - 1) + (chunks - 1) * stages
            warm_up = min(warm_up, total)
            while done[stage, 0] + done[stage, 1] < 2 * total:
                ahead = done[stage, 0] - done[stage, 1]
                kind = 0 if done[stage, 0] < total and ahead <= warm_up else 1
                at = done[stage, kind]
                chunk = at % (stages * chunks) // stages
                micro = at // (stages * chunks) * stages + at % stages
                if kind == 1:
                    chunk = chunks - 1 - chunk
                when_s = free_s[stage]
                if kind == 0:
                    when_s = max(when_s, ready_s[stage, chunk])
                before, part = (stage - 1, chunk) if kind == 0 else (stage + 1, chunk)
                if before < 0:
                    before, part = stages - 1, chunk - 1
                elif before == stages:
                    before, part = 0, chunk + 1
                if 0 <= part < chunks:
                    arrived_s = end_s[before, part, micro, kind]
                    if arrived_s < 0:
                        break
                    when_s = max(when_s, arrived_s + (send_s if before != stage else 0.0))
                begin_s[stage, chunk, micro, kind] = when_s
                end_s[stage, chunk, micro, kind] = when_s + time_s[stage, chunk, kind]
                ends = (stage == stages - 1 and chunk == chunks - 1) if kind == 0 else (stage == 0 and chunk == 0)
                free_s[stage] = end_s[stage, chunk, micro, kind] + (0.0 if ends else blocked_s)
                done[stage, kind] += 1
                left -= 1
