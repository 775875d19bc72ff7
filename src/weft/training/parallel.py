"""The layout of a transformer on GPUs: the sizes of the parallel groups, and the ranks of each.

Ranks are in Megatron's default order, tp-cp-ep-dp-pp, the first fastest: of 16 GPUs with tp=2, cp=2, dp=2, pp=2

    rank   0  1 | 2  3 | 4  5 | 6  7 || 8 ...
    tp     one group of neighbours    ||
    cp     {0,2} {1,3} {4,6} {5,7}    ||  the next stage of the pipeline
    dp     {0,4} {1,5} {2,6} {3,7}    ||

Experts are cut on a grid of their own in the same ranks (Megatron Core's parallel folding): etp, then ep, then edp.
A Layout is checked when it is created; `check` compares it with a transformer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, UnknownName, find_named
from weft.training.framework import DEFAULT, Framework, find_framework, kernels
from weft.training.pipeline_layout import Division, read_pipeline
from weft.training.transformer import Transformer

RECOMPUTE = ("none", "selective", "full")
MODULES = ("core_attn", "mlp", "moe", "moe_act", "layernorm", "mla_up_proj")  # of selective recomputation, by Megatron
GRAPHS = ("attn", "moe_router", "moe_preprocess", "full_iteration")  # scopes of CUDA graphs, as Megatron names them
DISPATCHERS = ("deepep", "alltoall", "allgather")
ADAPTED = ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")  # matrices with LoRA adapters, as NeMo names them
PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4")
NARROW = ("fp8", "mxfp8", "nvfp4")  # products in fewer than 16 bits
OPTIMIZER_BYTES = {"fp32": 12, "bf16-moments": 8, "bf16": 4}  # for each parameter: two moments and a 32-bit weight
KINDS = ("tp", "cp", "dp", "dp-cp", "pp", "ep", "etp", "edp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The sizes of parallel groups and the options of a training step, as Megatron names them."""

    gpus: int
    tp: int = 1  # tensor
    pp: int = 1  # pipeline: stages
    vp: int = 1  # virtual stages: chunks of layers that a stage has (interleaved schedule)
    pipeline_layout: str = ""  # layers of each stage, as Megatron writes them, Et*3|(tt|)*29,m|L; empty: equally many
    cp: int = 1  # context: pieces of a sequence
    ep: int = 1  # GPUs over which experts are spread
    etp: int = 0  # tensor parallel inside an expert; 0: as tp
    micro_batch: int = 1  # sequences
    global_batch: int  # sequences
    seq: int
    sequence_parallel: bool = True  # with tp > 1: norms and residuals are cut along the sequence
    zero: int = (
        1  # 0 none, 1 optimizer states sharded (distributed optimizer), 2 and gradients, 3 and parameters (FSDP)
    )
    recompute: str = "none"  # selective: core_attn; modules, "mlp,layernorm"; full: a layer's input alone is kept
    recompute_layers: int = 0  # with full: so many layers of each chunk; 0: all
    offload_layers: int = 0  # layers of each chunk whose activations wait in the host's memory
    offload_optimizer: bool = False  # states and step of the optimizer in the host's memory and processors
    precision: str = "bf16"
    grad_reduce_in_fp32: bool = True  # Megatron's default for bf16; NVIDIA's performance recipes set it off
    optimizer_precision: str = "fp32"  # bf16-moments: Megatron's precision-aware optimizer; bf16: no 32-bit weights
    overlap_grad_reduce: bool = True
    overlap_param_gather: bool = True
    tp_comm_overlap: bool = True
    overlap_p2p: bool = True
    overlap_moe: bool = False  # experts' exchanges behind another micro-batch's compute (DualPipe, Megatron's 1F1B)
    dispatcher: str = "deepep"  # a token goes once to each server with experts of it; alltoall: once to each expert
    fp8_dispatch: bool = False  # tokens go to experts in FP8 with scales, and come back in 16 bits (DeepSeek-V3)
    imbalance: float = 1.0  # tokens of the GPU with the busiest experts over the mean
    cuda_graphs: str = "none"  # kernels that the host launches as one graph
    lora: int = 0  # rank of LoRA adapters, which alone are trained; 0: all parameters are
    lora_modules: str = ",".join(ADAPTED)
    fused_attention: bool = True  # flash attention; False: scores are written to memory (before 2022)
    attention: str = ""  # its kernel: fa1, fa2, fa3 or cudnn; empty: the framework's
    sample_bytes: float = 0.0  # of a sequence in storage; 0: that of its tokens
    sample_ms: float = 0.0  # of a processor core to prepare a sequence; 0: that of tokens
    loader_workers: int = 2  # processes that load for a copy of the model; 0: between steps
    storage_gbyte_s: float = 0.0  # that storage reads for all GPUs; 0: what an appliance for each 256 GPUs does
    framework: str = DEFAULT  # software, by its name in frameworks.toml

    def __post_init__(self) -> None:
        for field in ("gpus", "tp", "pp", "vp", "cp", "ep", "micro_batch", "global_batch", "seq"):
            if getattr(self, field) < 1:
                raise ConfigError(f"{field} = {getattr(self, field)}; it is a number from 1 up")
        if self.etp < 0:
            raise ConfigError(f"etp = {self.etp}; it is a number from 1 up, or 0 for that of tp")
        if self.zero not in range(4):
            raise ConfigError(f"zero = {self.zero}; the stages of ZeRO are 0, 1, 2 and 3")
        if self.recompute not in RECOMPUTE:
            for module in self.recompute.split(","):
                known = dict.fromkeys((*RECOMPUTE, *MODULES))
                find_named("recompute", module, known, f"Modules may be joined by commas: {', '.join(MODULES)}.")
        find_named("precision", self.precision, dict.fromkeys(PRECISIONS))
        find_named("optimizer_precision", self.optimizer_precision, OPTIMIZER_BYTES)
        find_named("dispatcher", self.dispatcher, dict.fromkeys(DISPATCHERS))
        for scope in self.graphs:
            find_named("scope of cuda_graphs", scope, dict.fromkeys(GRAPHS), "Scopes may be joined by commas, or none.")
        for module in self.lora_modules.split(","):
            find_named("module of lora_modules", module, dict.fromkeys(ADAPTED), "Modules may be joined by commas.")
        find_framework(self.framework)
        if self.attention:
            find_named("attention", self.attention, kernels())
        self._check_options()
        self._check_ranks()
        self._check_batch()

    def _check_options(self) -> None:
        for field in ("recompute_layers", "offload_layers", "lora"):
            if getattr(self, field) < 0:
                raise ConfigError(f"{field} = {getattr(self, field)}; it is a number from 0 up")
        if self.recompute_layers and self.recompute != "full":
            raise ConfigError(
                f"recompute_layers = {self.recompute_layers} needs recompute = full, not {self.recompute}"
            )
        if self.offload_layers and self.recompute == "full" and not self.recompute_layers:
            raise ConfigError("offload_layers has no activations to move with recompute = full: leave out one of them")
        for field in ("sample_bytes", "sample_ms", "loader_workers", "storage_gbyte_s"):
            if not 0 <= getattr(self, field) < inf:
                raise ConfigError(f"{field} = {getattr(self, field):g} must be 0 or more")
        if self.imbalance < 1:
            raise ConfigError(f"imbalance = {self.imbalance:g} must be 1 or more: the busiest GPU relative to the mean")

    def _check_ranks(self) -> None:
        unit = self.tp * self.pp * self.cp
        if self.gpus % unit:
            raise ConfigError(
                f"gpus = {self.gpus} is not a multiple of tp*pp*cp = {self.tp}*{self.pp}*{self.cp} = {unit}; "
                f"nearest: gpus = {_multiples(self.gpus, unit)}"
            )
        stage, unit = self.gpus // self.pp, self.expert_tp * self.ep
        if stage % unit:
            fitting = _divisors(self.ep, stage // self.expert_tp) if stage % self.expert_tp == 0 else ""
            way_out = f"ep = {fitting}" if fitting else f"etp = {_divisors(self.expert_tp, stage)}"
            raise ConfigError(
                f"ep*etp = {self.ep}*{self.expert_tp} = {unit} does not divide gpus/pp = {stage}, "
                f"the GPUs that hold the experts of a stage; nearest: {way_out}"
            )

    def _check_batch(self) -> None:
        unit = self.dp * self.micro_batch
        if self.global_batch % unit:
            raise ConfigError(
                f"global_batch = {self.global_batch} is not a multiple of dp*micro_batch = {self.dp}*{self.micro_batch}"
                f" = {unit}; nearest: global_batch = {_multiples(self.global_batch, unit)}"
            )
        if self.pipeline_layout and self.pp == 1:
            raise ConfigError("pipeline_layout divides layers among stages, and pp = 1: set pp > 1, or leave it out")
        if self.vp > 1 and self.pp == 1:
            raise ConfigError(f"vp = {self.vp} interleaves the stages of a pipeline, and pp = 1: set vp = 1 or pp > 1")
        if self.vp > 1 and self.micro_batches % self.pp:
            raise ConfigError(
                f"micro-batches = global_batch/(dp*micro_batch) = {self.micro_batches} is not a multiple of "
                f"pp = {self.pp}, as the interleaved schedule (vp = {self.vp}) needs; set vp = 1, or nearest: "
                f"global_batch = {_multiples(self.global_batch, unit * self.pp)}"
            )
        if self.cp > 1 and self.seq % (2 * self.cp):
            raise ConfigError(
                f"seq = {self.seq} is not a multiple of 2*cp = {2 * self.cp} (each rank has an early and a late piece, "
                f"so that causal attention is balanced); nearest: seq = {_multiples(self.seq, 2 * self.cp)}"
            )
        if self.cuts_sequence and self.seq % (self.cp * self.tp):
            raise ConfigError(
                f"seq = {self.seq} is not a multiple of cp*tp = {self.cp}*{self.tp}, as sequence parallel needs; "
                f"nearest: seq = {_multiples(self.seq, self.cp * self.tp)}"
            )

    @property
    def recomputed(self) -> tuple[str, ...]:
        """Return the modules whose activations are recomputed, if not whole layers are."""
        if self.recompute in ("none", "full"):
            return ()
        return ("core_attn",) if self.recompute == "selective" else tuple(self.recompute.split(","))

    @property
    def graphs(self) -> tuple[str, ...]:
        """Return the scopes of CUDA graphs."""
        return () if self.cuda_graphs == "none" else tuple(self.cuda_graphs.split(","))

    @property
    def adapted(self) -> tuple[str, ...]:
        """Return the matrices with LoRA adapters."""
        return tuple(self.lora_modules.split(",")) if self.lora else ()

    @property
    def software(self) -> Framework:
        return find_framework(self.framework)

    @property
    def dp(self) -> int:
        return self.gpus // (self.tp * self.pp * self.cp)

    @property
    def expert_tp(self) -> int:
        return self.etp or self.tp

    @property
    def edp(self) -> int:
        """Return the number of copies of an expert."""
        return self.gpus // (self.pp * self.ep * self.expert_tp)

    @property
    def micro_batches(self) -> int:
        """Return the micro-batches of one pipeline in a step."""
        return self.global_batch // (self.dp * self.micro_batch)

    @property
    def gradient_bytes(self) -> int:
        """Return the bytes of a gradient, in memory and on the network."""
        return 4 if self.grad_reduce_in_fp32 and self.precision != "fp16" else 2

    @property
    def optimizer_bytes(self) -> int:
        """Return the bytes of optimizer state for each parameter that is trained."""
        return OPTIMIZER_BYTES[self.optimizer_precision]

    @property
    def cuts_sequence(self) -> bool:
        """Return whether norms and residuals are cut along the sequence: with sequence parallel and tp > 1."""
        return self.sequence_parallel and self.tp > 1

    @property
    def tokens(self) -> int:
        """Return the tokens of a micro-batch on one rank: the rows of matrix products."""
        return self.micro_batch * self.seq // self.cp

    @property
    def residual_tokens(self) -> int:
        """Return the tokens whose norms and residuals a rank holds."""
        return self.tokens // self.tp if self.cuts_sequence else self.tokens

    def chunks(self, layers: int, mtp: int = 0) -> tuple[tuple[int, ...], ...]:
        """Return layers by stage and virtual chunk; tokens pass the first chunk of every stage, then the second.

        The first and the last chunk also hold the embeddings: where layers do not divide, they have up to three fewer.
        With multi-token prediction the last chunk has its modules and gives up all of them, if it has so many.
        """
        return self.division(layers, mtp).layers

    def division(self, layers: int, mtp: int = 0) -> Division:
        """Return the layers by stage and chunk, and the chunk with the modules of multi-token prediction."""
        if self.pipeline_layout:
            return read_pipeline(self.pipeline_layout, self.pp, self.vp, layers, mtp)
        return Division(chunk_sizes(layers, self.pp, self.vp, mtp), (self.pp - 1, self.vp - 1))

    def ranks(self, kind: str) -> NDArray[np.int64]:
        """Return the ranks of all groups of a kind as [group, member], ordered by their first ranks."""
        world = np.arange(self.gpus)
        if kind in ("ep", "etp", "edp"):
            axes = ("pp", "edp", "ep", "etp")
            grid = world.reshape(self.pp, self.edp, self.ep, self.expert_tp)
        elif kind in KINDS:
            axes = ("pp", "dp", "cp", "tp")
            grid = world.reshape(self.pp, self.dp, self.cp, self.tp)
        else:
            raise UnknownName("kind of group", kind, KINDS)
        members = [axes.index(name) for name in kind.split("-")]
        size = int(np.prod([grid.shape[axis] for axis in members]))
        return np.moveaxis(grid, members, range(-len(members), 0)).reshape(-1, size)


@lru_cache(maxsize=1024)
def chunk_sizes(layers: int, pp: int, vp: int, mtp: int = 0) -> tuple[tuple[int, ...], ...]:
    """Return the layers of each stage and chunk."""
    size, missing = _chunk(layers, pp * vp)
    at_end = min(missing, size) if mtp else (missing + 1) // 2
    counts = np.full((vp, pp), size)
    counts[-1, -1] -= at_end
    counts[0, 0] -= missing - at_end
    return tuple(tuple(int(count) for count in stage) for stage in counts.T)


def check(layout: Layout, transformer: Transformer) -> None:
    """Raise ConfigError if the transformer does not divide by this layout."""
    for field, value, size in (
        ("heads", transformer.heads, "tp"),
        ("ffn", transformer.ffn, "tp"),
        ("experts", transformer.experts, "ep"),
        ("expert_ffn", transformer.expert_ffn, "etp"),
        ("ssm_heads", transformer.ssm_heads, "tp"),
    ):
        parts = layout.expert_tp if size == "etp" else getattr(layout, size)
        if value % parts:
            raise ConfigError(
                f"{transformer.name}: {field} = {value} does not divide by {size} = {parts}; "
                f"nearest: {size} = {_divisors(parts, value)}"
            )
    _check_experts(layout, transformer)
    if transformer.kv_heads % layout.tp and layout.tp % transformer.kv_heads:
        fitting = [
            tp for tp in _dividing(transformer.heads) if not (transformer.kv_heads % tp and tp % transformer.kv_heads)
        ]
        raise ConfigError(
            f"{transformer.name}: kv_heads = {transformer.kv_heads} neither divides by tp = {layout.tp} nor divides it "
            f"(then each rank has a copy of one); nearest: tp = {_around(layout.tp, fitting)}"
        )
    if transformer.learned_positions and layout.seq > transformer.seq:
        raise ConfigError(
            f"{transformer.name} has learned positions for {transformer.seq} tokens: seq = {layout.seq} is too long; "
            f"set seq to {transformer.seq} at most"
        )
    _check_chunks(layout, transformer)


def _check_experts(layout: Layout, transformer: Transformer) -> None:
    if not transformer.experts and layout.ep > 1:
        raise ConfigError(f"{transformer.name} is dense: ep = {layout.ep} has no experts to spread; set ep = 1")
    if transformer.experts and layout.tp > 1 and not layout.sequence_parallel:
        raise ConfigError(
            f"{transformer.name} has experts: with tp = {layout.tp} and without sequence_parallel every rank of a "
            "tensor group would send them the same tokens; set sequence_parallel, or tp = 1"
        )


def _check_chunks(layout: Layout, transformer: Transformer) -> None:
    layers, parts = transformer.layers, layout.pp * layout.vp
    if layout.pipeline_layout:
        layout.chunks(layers, transformer.mtp)
    elif not cuts(layers, parts):
        fitting = {
            "pp": [pp for pp in range(1 if layout.vp == 1 else 2, layers + 1) if cuts(layers, pp * layout.vp)],
            "vp": [vp for vp in range(1, layers + 1) if cuts(layers, layout.pp * vp)],
        }
        nearest = [f"{size} = {_around(getattr(layout, size), sizes)}" for size, sizes in fitting.items() if sizes]
        raise ConfigError(
            f"{transformer.name}: layers = {layers} do not divide by pp*vp = {layout.pp}*{layout.vp} = {parts}, "
            "even with up to three fewer in the first and last chunk (pipeline_layout sets others); nearest: "
            + (", or ".join(nearest) or f"pp = {layers}, vp = 1")
        )


def _chunk(layers: int, parts: int) -> tuple[int, int]:
    """Return the layers of a full chunk, and the number missing in the first and last chunk together."""
    size = -(-layers // parts)
    return size, size * parts - layers


def cuts(layers: int, parts: int) -> bool:
    """Return whether layers divide into parts: evenly, or with up to three fewer in the first and last part.

    Megatron counts embedding and loss as layers so (Llama 3: 126 layers in 16 or 128 parts; DeepSeek-V3: 61).
    """
    size, missing = _chunk(layers, parts)
    return missing == 0 or (missing <= 3 and parts > 1 and size >= (missing + 1) // 2)


def _dividing(number: int) -> list[int]:
    return [part for part in range(1, number + 1) if number % part == 0]


def _divisors(target: int, number: int) -> str:
    return _around(target, _dividing(number))


def _multiples(number: int, unit: int) -> str:
    below = number // unit * unit
    return f"{below} or {below + unit}" if below else f"{unit}"


def _around(target: int, fitting: Iterable[int]) -> str:
    """Return the nearest smaller and the nearest larger value, in words."""
    fitting = list(fitting)
    below, above = [size for size in fitting if size < target], [size for size in fitting if size > target]
    return " or ".join(str(size) for size in (*below[-1:], *above[:1]))
