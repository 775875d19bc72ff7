"""One optimizer step: every micro-batch through the pipeline, gradients summed, parameters changed.

    step = run_step(find("gpt3-175b"), layout, Gpu.of("H100"), over)
    step.step_s, step.tokens_per_s, step.mfu, step.parts

    params   |gather|                                                        |gather...      first use waits for it
    stages   | F F F ... F B F B ... B B B B |                               pipeline.py
    grads                            |scatter scatter|                       beside the last backwards
    end                                              |norm|adam|

All data-parallel copies of a pipeline do the same, so one is run; collectives between them take what they take while
all are at it (`communication`). What is not hidden behind compute is in the step's parts under the group's name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.collectives.kinds import Collective
from weft.errors import ConfigError
from weft.training import pipeline
from weft.training.communication import Communication
from weft.training.gpu import ADAM_BYTES, BF16_BYTES, Gpu
from weft.training.layers import Layers, Time
from weft.training.loading import Loading, loading_of
from weft.training.parallel import Layout, check
from weft.training.pipeline_layout import Division
from weft.training.shares import Shares, shares
from weft.training.transformer import Transformer

BUCKET_PARAMETERS = 40_000_000  # Megatron's: gradients are summed in pieces, each when its layers are done
Floats = NDArray[np.float64]
_PARTS = (
    "products",
    "attention",
    "memory",
    "host",
    "tp",
    "cp",
    "ep",
    "offload",
    "slowest",
    "bubble",
    "dp",
    "optimizer",
    "input",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """The time of a step; `parts` are seconds of a mean stage and add up to it."""

    transformer: Transformer
    layout: Layout
    gpu: Gpu
    step_s: float
    parts: dict[str, float]
    slowest: float  # time of the slowest GPU relative to the mean
    schedule: pipeline.Schedule
    gathered_s: Floats  # [stage, chunk] -> time to gather its parameters, beside compute or after
    summed_s: Floats  # [stage, chunk, begin or end] of the sum of its gradients over all copies
    optimizer_s: float
    loading: Loading

    @property
    def tokens_per_s(self) -> float:
        return self.layout.global_batch * self.layout.seq / self.step_s

    @property
    def mfu(self) -> float:
        """Return the model FLOPs utilisation: FLOPs as Megatron counts them, over the peak of the precision."""
        peak = self.layout.gpus * self.gpu.peak_flop_s(self.layout.precision)
        return self.tokens_per_s * self.transformer.flop_per_token(self.layout.seq) / peak


def run_step(
    transformer: Transformer, layout: Layout, gpu: Gpu, over: Communication, *, slowest: float | None = None
) -> Step:
    """Run one optimizer step.

    slowest: compute time of the slowest GPU relative to the mean; None: as many GPUs are known to vary.
    """
    check(layout, transformer)
    if slowest is not None and slowest < 1:
        raise ConfigError(f"--slowest {slowest:g} must be 1 or more: the slowest GPU relative to the mean")
    slowest = gpu.slowest_of(layout.gpus) if slowest is None else slowest
    gpu = gpu.running(layout.framework)
    layers = Layers(transformer, layout, gpu, over)
    division = layout.division(transformer.layers, transformer.mtp)
    counts = division.layers
    forward, backward = _chunk_times(layers, division)
    owned = shares(layout, transformer)
    sharded = _Sharded(layout, over, owned, counts)
    forward_s, backward_s = _seconds(forward), _seconds(backward)
    critical = int((forward_s + backward_s).sum(1).argmax())  # the slowest GPU is in the stage where it costs most
    forward_s[critical] *= slowest
    backward_s[critical] *= slowest
    computed_s = forward_s + backward_s
    if layout.zero >= 2:
        forward_s = sharded.in_passes(forward_s, backward=False)
        backward_s = sharded.in_passes(backward_s, backward=True)
    gathers_s = float((forward_s + backward_s - computed_s).sum()) * layout.micro_batches / layout.pp
    sent = layout.tokens * transformer.hidden * BF16_BYTES / layout.tp
    ready_s = sharded.ready_s(forward_s) if layout.overlap_param_gather else None
    schedule = pipeline.run(
        forward_s,
        backward_s,
        layout.micro_batches,
        send_s=over.send_s(sent) if layout.pp > 1 else 0.0,
        overlap=layout.overlap_p2p and layout.vp > 1,
        ready_s=ready_s,
    )
    summed_s = sharded.summed_s(schedule, backward_s)
    optimizer_s = _optimizer_s(
        gpu,
        layout,
        float((owned.trained / sharded.copies + owned.trained_experts / sharded.expert_copies).sum(1).max()),
    )
    gathered_s = sharded.gather_s
    after_s = 0.0 if layout.overlap_param_gather else float(gathered_s.sum(1).max())
    step_s = float(summed_s.max()) + optimizer_s + after_s
    parts = _parts([*forward, *backward], layout, schedule, step_s, optimizer_s, slowest, gathers_s)
    loading = loading_of(layout, transformer)
    parts["input"] = loading.exposed_s(step_s)
    return Step(
        transformer=transformer,
        layout=layout,
        gpu=gpu,
        step_s=step_s + parts["input"],
        parts=parts,
        slowest=slowest,
        schedule=schedule,
        gathered_s=gathered_s,
        summed_s=summed_s,
        optimizer_s=optimizer_s,
        loading=loading,
    )


def _chunk_times(layers: Layers, division: Division) -> tuple[list[list[Time]], list[list[Time]]]:
    """Return forward and backward of a micro-batch by stage and chunk; layers fill chunk after chunk of all stages."""
    layout, kinds, counts = layers.layout, layers.transformer.kinds, division.layers
    stages, chunks = len(counts), len(counts[0])
    ways = tuple([[Time() for _ in range(chunks)] for _ in range(stages)] for _ in range(2))
    layer = 0
    for chunk in range(chunks):
        for stage in range(stages):
            count = counts[stage][chunk]
            again = (layout.recompute_layers or count) if layout.recompute == "full" else 0
            chunk_kinds = Counter(
                (kinds[layer + index], index < again, again <= index < again + layout.offload_layers)
                for index in range(count)
            )
            layer += count
            for which, times in chunk_kinds.items():
                for way, time in zip(ways, layers.passes(*which), strict=True):
                    way[stage][chunk].add_all(time, times)
    for way, embedding, head, module in zip(ways, layers.embedding, layers.head, layers.mtp, strict=True):
        way[0][0].add_all(embedding)
        way[-1][-1].add_all(head, 1 + layers.transformer.mtp)
        way[division.mtp[0]][division.mtp[1]].add_all(module, layers.transformer.mtp)
    return ways[0], ways[1]


def _optimizer_s(gpu: Gpu, layout: Layout, parameters: float) -> float:
    """Return the time of Adam: on the GPU, or on processors.

    Gradients go there and weights come back. The memory of a socket, shared by its GPUs, has for each about the rate
    of its link (assumed).
    """
    moved_bytes = ADAM_BYTES[layout.optimizer_precision]
    if not layout.offload_optimizer:
        return gpu.adam_s(parameters, moved_bytes)
    return gpu.host_copy_s(parameters * (layout.gradient_bytes + BF16_BYTES + moved_bytes))


def _seconds(times: list[list[Time]]) -> Floats:
    return np.array([[time.total_s for time in stage] for stage in times])


class _Sharded:
    """The collectives between data-parallel copies: sum of gradients, and gather of sharded parameters (ZeRO)."""

    def __init__(self, layout: Layout, over: Communication, owned: Shares, counts: tuple[tuple[int, ...], ...]) -> None:
        self.layout, self.over, self.owned = layout, over, owned
        self.copies = layout.dp * layout.cp if layout.zero else 1
        self.expert_copies = layout.edp if layout.zero else 1
        self._layers = np.maximum(counts, 1.0)
        self.gradient_buckets = self._buckets(layout.overlap_grad_reduce)
        self.parameter_buckets = self._buckets(layout.overlap_param_gather)

    def _buckets(self, overlap: bool) -> Floats:
        """Return the collectives of a chunk: with ZeRO 3 each layer; else pieces to overlap, or as Megatron one."""
        if self.layout.zero == 3:
            return self._layers
        many = self.owned.trained + self.owned.trained_experts
        if not overlap:
            return np.ones(many.shape)
        return np.maximum(1, np.ceil(many / max(BUCKET_PARAMETERS, 1_000_000 * self.layout.dp)))

    def _each_s(self, collective: Collective, bytes_each: int, buckets: Floats, *, frozen: bool = False) -> Floats:
        """Return the seconds for the parameters of each [stage, chunk], bucket after bucket; `frozen` ones too."""
        owned = self.owned
        total_s = np.zeros(owned.parameters.shape)
        dense, experts = (
            (owned.parameters, owned.expert_parameters) if frozen else (owned.trained, owned.trained_experts)
        )
        for kind, many in (("dp-cp", dense), ("edp", experts)):
            sizes, index = np.unique(many / buckets * bytes_each, return_inverse=True)  # most chunks are equal
            times_s = [self.over.time_s(kind, collective, size) if size else 0.0 for size in sizes.tolist()]
            total_s += buckets * np.array(times_s)[index].reshape(total_s.shape)
        return total_s

    @cached_property
    def gather_s(self) -> Floats:
        """Return the seconds to gather the changed parameters of each [stage, chunk] on all copies, once in a step."""
        if self.layout.zero in (0, 3):
            return np.zeros(self.owned.parameters.shape)
        return self._each_s(Collective.ALL_GATHER, BF16_BYTES, self.parameter_buckets)

    def ready_s(self, forward_s: Floats) -> Floats:
        """Return the start of the first forward of each [stage, chunk] from which no layer waits for its bucket."""
        each_s = self.gather_s
        all_s = np.cumsum(each_s, axis=1)
        rest = 1 - 1 / self.parameter_buckets
        ready_s: Floats = np.maximum(all_s - each_s * rest, all_s - forward_s * rest)
        return ready_s

    def summed_s(self, schedule: pipeline.Schedule, backward_s: Floats) -> Floats:
        """Return begin and end of the sum of gradients of each [stage, chunk], bucket after bucket.

        With ZeRO 2 and 3 it is part of every backward pass.
        """
        last_s = schedule.end_s[:, :, :, 1].max(axis=2)  # [stage, chunk]
        sums_s = np.stack((last_s, last_s), axis=-1)
        if self.layout.zero >= 2:
            return sums_s
        scatters = self.layout.zero and not self.layout.software.all_reduces
        kind = Collective.REDUCE_SCATTER if scatters else Collective.ALL_REDUCE
        buckets = self.gradient_buckets
        each_s = self._each_s(kind, self.layout.gradient_bytes, buckets)
        overlap = self.layout.overlap_grad_reduce
        done_s = np.zeros(len(last_s)) if overlap else last_s.max(axis=1)
        for chunk in range(last_s.shape[1] - 1, -1, -1):
            bucket_s = each_s[:, chunk] / buckets[:, chunk]
            early_s = backward_s[:, chunk] * (1 - 1 / buckets[:, chunk]) if overlap else 0.0
            sums_s[:, chunk, 0] = np.maximum(done_s, last_s[:, chunk] - early_s)
            done_s = np.maximum(sums_s[:, chunk, 0] + each_s[:, chunk], last_s[:, chunk] + bucket_s)
            sums_s[:, chunk, 1] = done_s
        return sums_s

    def in_passes(self, compute_s: Floats, *, backward: bool) -> Floats:
        """Return the seconds of a pass of a micro-batch by [stage, chunk], with the collectives of ZeRO 2 and 3.

        Both scatter gradients in each backward pass, and ZeRO 3 gathers the parameters of a layer before both passes.
        With overlap a collective hides behind the compute of the layer beside it, which the first gather has not;
        without, it is added to the pass.
        """
        layout = self.layout
        hidden_s, shown_s = np.zeros_like(compute_s), np.zeros_like(compute_s)
        if layout.zero == 3:
            gathered_s = self._each_s(Collective.ALL_GATHER, BF16_BYTES, self._layers, frozen=True)
            hidden_s += gathered_s * layout.overlap_param_gather
            shown_s += gathered_s / self._layers if layout.overlap_param_gather else gathered_s
        if backward:
            scattered_s = self._each_s(Collective.REDUCE_SCATTER, layout.gradient_bytes, self.gradient_buckets)
            hidden_s += scattered_s * layout.overlap_grad_reduce
            shown_s += scattered_s * (not layout.overlap_grad_reduce)
        compute_s = compute_s + layout.software.contention * np.minimum(compute_s, hidden_s)
        passed_s: Floats = np.maximum(compute_s, hidden_s) + shown_s
        return passed_s


def _parts(
    times: list[list[Time]],
    layout: Layout,
    schedule: pipeline.Schedule,
    step_s: float,
    optimizer_s: float,
    slowest: float,
    gathers_s: float,
) -> dict[str, float]:
    """Return the seconds of each part for a mean stage, which waits for the stage with the slowest GPU.

    Stages wait for their copies in other pipelines before the first forward and after the last backward pass, with
    ZeRO 2 and 3 also in between (`gathers_s`). The rest of the time is the bubble.
    """
    mean = Time(dict.fromkeys(_PARTS, 0.0))
    for stage in times:
        for time in stage:
            mean.add_all(time, layout.micro_batches / layout.pp)
    mean["slowest"] = (slowest - 1) * mean.total_s
    mean["optimizer"] = optimizer_s
    mean["dp"] = gathers_s + float(schedule.begin_s.min() + step_s - optimizer_s - schedule.end_s.max())
    mean["bubble"] = max(0.0, step_s - mean.total_s)  # a sum of floats may be off by its last digit
    return mean
