"""What `weft train` can be told, in groups; a string below a field is its help, with the default in brackets."""

from __future__ import annotations

from dataclasses import dataclass

from weft.cli.arguments import TABLES, File, Form, Kinds, OnByDefault, Servers, Whole


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How the model is cut, in Megatron's words; with none of the sizes, the fastest layout is searched."""

    tp: Whole | None = None
    """Tensor parallel: GPUs that share every matrix. [1]"""
    pp: Whole | None = None
    """Pipeline parallel: stages. [1]"""
    vp: Whole | None = None
    """Virtual stages: chunks of layers that each stage has, interleaved. [1]"""
    cp: Whole | None = None
    """Context parallel: pieces of a sequence. [1]"""
    ep: Whole | None = None
    """Expert parallel: GPUs over which experts are spread. [1]"""
    etp: Whole | None = None
    """Tensor parallel inside an expert. [as --tp]"""
    dp: Whole | None = None
    """Data parallel: copies. [GPUs / (tp × pp × cp); without --gpus it says how many those are]"""
    micro_batch: Whole | None = None
    """Sequences that go through a stage at once. [1]"""
    zero: Whole | None = None
    """Sharded over copies: 0 nothing, 1 optimizer, 2 and gradients, 3 and parameters (FSDP). [1]"""
    recompute: str | None = None
    """What backward computes once more: none, selective (attention) or full. [none]"""
    global_batch: Whole | None = None
    """Sequences of a step. [2 for each GPU]"""
    seq: Whole | None = None
    """Tokens of a sequence. [as the model is usually trained]"""
    precision: str = "bf16"
    """bf16, fp16 or fp8."""
    sequence_parallel: OnByDefault = True
    """With --tp: norms and residuals are cut along the sequence."""
    overlap_grad_reduce: OnByDefault = True
    """Gradients are summed beside the last backward passes."""
    overlap_param_gather: OnByDefault = True
    """Parameters are gathered beside the first forward passes."""
    tp_comm_overlap: OnByDefault = True
    """Tensor-parallel collectives hide behind the products beside them."""
    overlap_p2p: OnByDefault = True
    """Interleaved stages send while they compute."""
    overlap_moe: bool = False
    """Tokens on their way to experts hide behind another micro-batch (DualPipe)."""
    grad_reduce_in_fp32: OnByDefault = True
    """Gradients are summed in 32 bits; else in 16."""
    optimizer_precision: str = "fp32"
    """Of the optimizer's states: fp32, with a copy of the weights; or bf16, without one."""
    fused_attention: OnByDefault = True
    """Flash attention; else scores go through memory."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of the model, where it is another than the preset's."""

    layers: Whole | None = None
    """How many."""
    hidden: Whole | None = None
    """Width of a token between layers."""
    ffn: Whole | None = None
    """Inner width of a feed-forward layer."""
    heads: Whole | None = None
    """Of attention."""
    kv_heads: Whole | None = None
    """Keys and values that heads share."""
    head_dim: Whole | None = None
    """Width of a head."""
    vocab: Whole | None = None
    """Words."""
    experts: Whole | None = None
    """Of a layer; 0 for a dense model."""
    topk: Whole | None = None
    """Experts that a token goes to."""
    expert_ffn: Whole | None = None
    """Inner width of an expert."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """What it runs on."""

    gpus: Whole | None = None
    """How many. [all of a fabric that is given as SPEC]"""
    fabric: str | None = None
    """By name as in `weft catalog`: ndr, roce-400, eth-100-tcp, a SuperPOD of it; or a topology, or the path of a file.
    [that of the server's adapters]"""
    kinds: Kinds = ""
    servers: Servers = ""
    server: str | None = None
    """With a fabric by name: dgx-a100, dgx-b200 or the path of a template of your own, my-server.yaml. [dgx-h100]"""
    network: str | None = None
    """infiniband, omni-path, roce, roce-v1 or tcp. [as the fabric's]"""
    paths: str | None = None
    """table, adaptive, ecmp or spray. [as the fabric's]"""
    slowest: float | None = None
    """How many times longer than the mean the slowest GPU computes, 1.3: all wait for it. [as so many GPUs differ]"""
    engine: str | None = None
    """flow (fair rates), analytic (closed forms over the routes) or packet (every packet, for a slice). [flow]"""
    seed: Whole = 1
    """Of the hashes by which Ethernet switches choose paths."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """What is asked, printed and written."""

    tokens: str | None = None
    """How long until so many are seen: 15T, 300B."""
    search: bool = False
    """Find the fastest layouts that fit, in closed form; sizes that are given are kept."""
    compare: str | None = None
    """The same job on these fabrics, by commas: ndr,roce-400,eth-100-tcp."""
    scale: str | None = None
    """From so many GPUs to so many, doubling: 8..16384; or 8,64,512. The batch grows along, from --global-batch."""
    strong: bool = False
    """With --scale: the same batch at every size."""
    picture: File = None
    """What --scale or --compare found, .png, .svg or .pdf."""
    timeline: File = None
    """What every stage does when, .png, .svg or .pdf."""
    trace: File = None
    """The same for Perfetto or chrome://tracing, .json."""
    validate: bool = False
    """Print published steps beside weft's, and run nothing else."""
    form: Form = TABLES


NO_CUT, NO_SHAPE, NO_WHERE, NO_OUTPUTS = Cut(), Shape(), Where(), Outputs()  # nothing was given
