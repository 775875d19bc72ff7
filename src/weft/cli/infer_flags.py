"""The options of `weft infer`, in groups; the string below a field is its help, with the default in brackets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from weft.cli.arguments import TABLES, Fabrics, File, Form, OnByDefault, Servers, Whole


@dataclass(frozen=True, kw_only=True)
class Where:
    """The hardware that serves the model."""

    gpus: Whole | None = None
    """Number of GPUs; more than a replica needs hold several. [one replica; all of a fabric that is a topology]"""
    fabric: str | None = None
    """The fabric: a name of `weft catalog` (ndr, roce-400, eth-100-tcp), which builds a SuperPOD; or a topology, or
    the path of a file. [that of the server's adapters]"""
    servers: Servers = ""
    server: str | None = None
    """Server template, with a fabric of the catalog: dgx-h200, gb200-nvl72 or the path of your own template,
    my-server.yaml. [dgx-h100]"""
    network: str | None = None
    """Protocol: infiniband, omni-path, roce, roce-v1 or tcp. [as the fabric's]"""
    paths: str | None = None
    """Choice of paths: table, adaptive, ecmp or spray. [as the fabric's]"""
    engine: str | None = None
    """Simulation engine: flow (fair rates), analytic (closed forms over the routes) or packet. [flow]"""
    seed: Whole = 1
    """Random seed, for ECMP hashing."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The layout of a replica, the formats of its numbers and the software."""

    tp: Whole = 1
    """Tensor-parallel size: GPUs that share each matrix."""
    pp: Whole = 1
    """Pipeline-parallel size: stages."""
    dp: Whole = 1
    """Data-parallel size: attention ranks of a replica that share its experts (DP attention)."""
    ep: Whole = 1
    """Expert-parallel size: GPUs over which the experts of a layer are spread, a divisor of tp × dp."""
    weights: str | None = None
    """Format of the weights: bf16, fp8, nvfp4 or mxfp4. [bf16; that of a config.json with quantization_config]"""
    dense_weights: str | None = None
    """Format of all matrices but routed experts. [bf16 beside experts in 4 bits, else as --weights]"""
    kv: str | None = None
    """Format of the KV cache: bf16, fp8 or nvfp4. [bf16; fp8 with TensorRT-LLM and narrower weights]"""
    activations: str | None = None
    """Format in which tensor cores multiply: bf16, fp8, mxfp8 or nvfp4. [that of the weights if the GPU has it]"""
    framework: str = "vllm"
    """Software, which sets kernels, memory and the host's work: vllm, sglang, tensorrt-llm or tensorrt-llm-2023."""
    graphs: OnByDefault = True
    """Launch kernels as CUDA graphs; otherwise the host launches each."""
    overlap: bool = False
    """Two-batch overlap: half of a batch computes while the other half dispatches or combines."""
    imbalance: float | None = None
    """Tokens of the GPU with the busiest experts over the mean. [1.11, measured with a load balancer]"""
    drafts: Whole = 0
    """Draft tokens of each request in a step (speculative decoding, MTP)."""
    acceptance: float | None = None
    """With --drafts: the probability that a draft token is accepted. [0.85]"""
    max_batch: Annotated[Whole | None, Parameter(name=("--max-batch", "--max-num-seqs"))] = None
    """Requests in a step of a replica at most. [as the framework]"""
    max_tokens: Annotated[Whole | None, Parameter(name=("--max-tokens", "--max-num-batched-tokens"))] = None
    """Tokens in a step of a replica at most: the size of a prefill chunk. [as the framework]"""


@dataclass(frozen=True, kw_only=True)
class Requests:
    """The load. Without --concurrency and --batch-size all requests wait, and the engine is always full."""

    input_len: Whole = 1024
    """Tokens of a prompt; in --phase decode, cached tokens of a request."""
    output_len: Whole | None = None
    """Tokens of an answer. [128]"""
    concurrency: Whole = 0
    """Users, each of whom sends the next request when the last is answered."""
    batch_size: Whole = 0
    """Requests of a static batch: all prompts, then all answers."""
    phase: str = ""
    """Only prefill (steps of --max-tokens) or only decode (--batch-size requests), as with disaggregated serving."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The results to compute, print and write."""

    fabrics: Fabrics = None
    pareto: bool = False
    """List the layouts and numbers of users that no others beat in tokens/s of a user and tokens/s of a GPU."""
    explain: bool = False
    """Print more: memory, rates, the engine and the seed."""
    picture: File = None
    """The picture to write: the curve of --pareto, .png, .svg or .pdf."""
    validate: bool = False
    """Compare published figures with weft's: throughput and latency; run nothing else."""
    form: Form = TABLES


NO_WHERE, NO_CUT, NO_REQUESTS, NO_OUTPUTS = Where(), Cut(), Requests(), Outputs()  # the defaults
