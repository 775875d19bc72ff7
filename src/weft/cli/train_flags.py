"""The options of `weft train`, in groups; the string below a field is its help, with the default in brackets."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from weft.cli.arguments import TABLES, Fabrics, File, Form, Kinds, OnOrOff, Servers, Whole
from weft.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The parallelism options, with Megatron's names; without any size, weft searches for the fastest layout."""

    tp: Whole | None = None
    """Tensor-parallel size: GPUs that share each matrix. [1]"""
    pp: Whole | None = None
    """Pipeline-parallel size: stages. [1]"""
    vp: Whole | None = None
    """Virtual pipeline size: interleaved chunks of layers per stage. [1]"""
    pipeline_layout: str | None = None
    """Layers of each stage, as Megatron writes them: 'Et*3|(tt|)*29,m|L'. [equally many, up to three fewer at the
    ends]"""
    cp: Whole | None = None
    """Context-parallel size: parts of a sequence. [1]"""
    ep: Whole | None = None
    """Expert-parallel size: GPUs that share the experts of a layer. [1]"""
    etp: Whole | None = None
    """Tensor-parallel size inside an expert. [as --tp]"""
    dp: Whole | None = None
    """Data-parallel size: copies of the model. [GPUs / (tp × pp × cp)] Without --gpus, it sets the number of GPUs."""
    micro_batch: Whole | None = None
    """Sequences per micro-batch. [1]"""
    zero: Whole | None = None
    """ZeRO stage, sharded over the copies: 0 nothing, 1 optimizer, 2 also gradients, 3 also parameters (FSDP). [1]"""
    recompute: str | None = None
    """Activations to recompute in the backward pass: none, selective (core_attn), full, or Megatron's modules, as in
    mlp,layernorm: core_attn, mlp, moe, moe_act, layernorm, mla_up_proj. [the least that fits]"""
    recompute_layers: Whole | None = None
    """With --recompute full: recompute only so many layers of each chunk of layers. [all]"""
    offload_layers: Whole | None = None
    """Layers of each chunk whose activations are moved to the host's memory and back. [0]"""
    offload_optimizer: OnOrOff = None
    """Keep the optimizer's states in the host's memory, and step there. [off]"""
    global_batch: Whole | None = None
    """Sequences per step. [2 for each GPU]"""
    seq: Whole | None = None
    """Tokens per sequence. [the model's usual training length]"""
    precision: str = "bf16"
    """bf16, fp16, fp8, mxfp8 or nvfp4."""
    framework: str | None = None
    """Software, which sets kernels, launches and the overlaps below: megatron, nemo-2025, torchtitan, fsdp-2025,
    fsdp-eager, deepspeed or megatron-2021. [fsdp-eager for --zero 3 without --tp and --pp before Blackwell; deepspeed
    for fp16 before Hopper; else megatron]"""
    sequence_parallel: OnOrOff = None
    """With --tp: shard norms and residuals along the sequence. [on, as the framework]"""
    overlap_grad_reduce: OnOrOff = None
    """Reduce gradients during the last backward passes. [on, as the framework]"""
    overlap_param_gather: OnOrOff = None
    """Gather parameters during the first forward passes. [on, as the framework]"""
    tp_comm_overlap: OnOrOff = None
    """Overlap tensor-parallel collectives with the adjacent matrix products. [on, as the framework]"""
    overlap_p2p: OnOrOff = None
    """Overlap sends between interleaved stages with computation. [on]"""
    overlap_moe: OnOrOff = None
    """Overlap the all-to-all of experts with another micro-batch (DualPipe). [off]"""
    dispatcher: str | None = None
    """Exchange of tokens with experts: deepep, one copy for each server (also HybridEP); alltoall, one for each expert;
    or allgather. [deepep, as the framework]"""
    fp8_dispatch: OnOrOff = None
    """Send tokens to their experts in FP8 with scales, as DeepSeek-V3 was trained; they come back in 16 bits. [off]"""
    imbalance: float | None = None
    """Tokens of the GPU with the busiest experts over the mean. [1]"""
    cuda_graphs: str | None = None
    """Kernels of layers with experts that the host launches as one graph: none, or Megatron's scopes, as in
    attn,moe_router: attn, moe_router, moe_preprocess, full_iteration. [none]"""
    lora: Whole | None = None
    """Train only LoRA adapters of this rank; all other weights are frozen. [0: train all weights]"""
    lora_modules: str | None = None
    """Matrices with LoRA adapters: linear_qkv, linear_proj, linear_fc1, linear_fc2. [all four]"""
    grad_reduce_in_fp32: OnOrOff = None
    """Reduce gradients in 32 bits; otherwise in 16. [on, as the framework]"""
    optimizer_precision: str = "fp32"
    """Precision of the optimizer states: fp32, with a copy of the weights; bf16-moments, with a copy of the weights in
    fp32; or bf16, without one."""
    fused_attention: OnOrOff = None
    """Use flash attention; otherwise attention scores are written to GPU memory. [on, as the framework]"""
    attention: str | None = None
    """Kernel of flash attention: fa1 (2022), fa2 (2023), fa3 (2024, Hopper) or cudnn. [the framework's]"""


@dataclass(frozen=True, kw_only=True)
class Input:
    """The data that a step reads; the step before hides its loading as far as it lasts."""

    sample_bytes: float | None = None
    """Bytes of a sequence in storage: 600000 with an image. [2 or 4 for each token, by the vocabulary]"""
    sample_ms: float | None = None
    """Time of a processor core to prepare a sequence, as to decode and augment an image. [1]"""
    loader_workers: Whole | None = None
    """Processes that load sequences for each copy of the model; 0: it loads them itself, between steps. [2, or 8 with
    fsdp-eager]"""
    storage_gbyte_s: float | None = None
    """Gigabytes per second that storage reads for all GPUs together. [90 for every 256 GPUs]"""

    def __post_init__(self) -> None:
        for field in ("sample_bytes", "sample_ms", "storage_gbyte_s"):
            value = getattr(self, field)
            if value is not None and not 0 < value < inf:
                raise ConfigError(f"--{field.replace('_', '-')} {value:g} must be above 0")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The dimensions of the model that differ from its preset."""

    layers: Whole | None = None
    """Transformer layers."""
    hidden: Whole | None = None
    """Hidden size."""
    ffn: Whole | None = None
    """Inner size of a feed-forward layer."""
    heads: Whole | None = None
    """Attention heads."""
    kv_heads: Whole | None = None
    """Key-value heads, which the attention heads share (GQA)."""
    head_dim: Whole | None = None
    """Size of a head."""
    vocab: Whole | None = None
    """Vocabulary size."""
    experts: Whole | None = None
    """Experts per layer; 0 for a dense model."""
    topk: Whole | None = None
    """Experts per token."""
    expert_ffn: Whole | None = None
    """Inner size of an expert."""
    mtp: Whole | None = None
    """Modules of multi-token prediction; 0 for a model that is trained without them."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """The hardware of the job."""

    gpus: Whole | None = None
    """Number of GPUs. [all of the fabric]"""
    fabric: str | None = None
    """The fabric: a name of `weft catalog` (ndr, roce-400, eth-100-tcp), which builds a SuperPOD; or a topology, or
    the path of a file. [that of the server's adapters]"""
    kinds: Kinds = ""
    servers: Servers = ""
    server: str | None = None
    """Server template, with a fabric of the catalog: dgx-a100, dgx-b200 or the path of your own template,
    my-server.yaml. [dgx-h100]"""
    network: str | None = None
    """Protocol: infiniband, omni-path, roce, roce-v1 or tcp. [as the fabric's]"""
    paths: str | None = None
    """Choice of paths: table, adaptive, ecmp or spray. [as the fabric's]"""
    slowest: float | None = None
    """Compute time of the slowest GPU over the mean, 1.3; all GPUs wait for it. [the usual spread of so many GPUs]"""
    engine: str | None = None
    """Simulation engine: flow (fair rates), analytic (closed forms over the routes) or packet (each packet of
    part of the job). [flow]"""
    seed: Whole = 1
    """Random seed, for ECMP hashing."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The results to compute, print and write."""

    tokens: str | None = None
    """Also print the time to train on this many tokens: 15T, 300B."""
    search: bool = False
    """List the fastest layouts that fit, in closed form; sizes that you set stay."""
    fabrics: Fabrics = None
    scale: str | None = None
    """Run with each of these numbers of GPUs: 8..16384, doubling; or 8,64,512. The global batch grows in proportion."""
    strong: bool = False
    """With --scale: keep the same global batch (strong scaling)."""
    explain: bool = False
    """Print more: the memory and rates of the layout, notes, the engine and the seed."""
    picture: File = None
    """The picture to write: the results of --scale or --fabrics, .png, .svg or .pdf."""
    timeline: File = None
    """Draw the timeline of each pipeline stage, .png, .svg or .pdf."""
    trace: File = None
    """Write the timeline for Perfetto or chrome://tracing, .json."""
    validate: bool = False
    """Compare published figures with weft's: step times; run nothing else."""
    form: Form = TABLES


NO_CUT, NO_INPUT, NO_SHAPE, NO_WHERE, NO_OUTPUTS = Cut(), Input(), Shape(), Where(), Outputs()  # the defaults
