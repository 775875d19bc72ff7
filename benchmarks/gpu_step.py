"""Measure training steps of transformers on a GPU, eager and compiled. Needs an idle GPU and PyTorch.

    python benchmarks/gpu_step.py > measured.json

The framework profiles of `weft train` are compared with it. Each line is one model and one way of running it: the time
of forward, backward and of an AdamW step, the GPU's time in matrix products, attention and all other kernels, and the
number of kernels. Then follow attention kernels of two generations over the sequence length.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
WAYS = (  # compiled, attention kernel, weights in float32
    (False, "flash", True),
    (False, "flash", False),
    (False, "cudnn", False),
    (True, "flash", True),
    (True, "cudnn", False),
)


@dataclass(frozen=True)
class Model:
    name: str
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    layers: int
    vocab: int
    seq: int
    batch: int
    is_gated: bool  # SwiGLU with RMSNorm and rotary embedding, as Llama; else GELU with LayerNorm, as GPT


MODELS = (
    Model("gpt-125m", 768, 3072, 12, 12, 12, 50368, 2048, 16, False),
    Model("gpt-1b", 2048, 8192, 16, 16, 24, 50368, 2048, 8, False),
    Model("gpt-7b", 4096, 16384, 32, 32, 8, 50368, 2048, 8, False),
    Model("llama-8b", 4096, 14336, 32, 8, 8, 128256, 8192, 1, True),
    Model("llama-70b", 8192, 28672, 64, 8, 3, 32000, 4096, 2, True),
    Model("llama-8b, 32k", 4096, 14336, 32, 8, 4, 32000, 32768, 1, True),
)


class Norm(nn.Module):
    """The RMSNorm of typical model code: in float32, in separate operations."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Block(nn.Module):
    def __init__(self, m: Model) -> None:
        super().__init__()
        self.m, head = m, m.hidden // m.heads
        norm = Norm if m.is_gated else nn.LayerNorm
        self.norm1, self.norm2 = norm(m.hidden), norm(m.hidden)
        self.qkv = nn.Linear(m.hidden, head * (m.heads + 2 * m.kv_heads), bias=False)
        self.out = nn.Linear(m.hidden, m.hidden, bias=False)
        self.up = nn.Linear(m.hidden, m.ffn, bias=False)
        self.gate = nn.Linear(m.hidden, m.ffn, bias=False) if m.is_gated else None
        self.down = nn.Linear(m.ffn, m.hidden, bias=False)
        angle = torch.outer(torch.arange(m.seq), 10000 ** (-torch.arange(0, head, 2) / head)).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        m = self.m
        head, groups = m.hidden // m.heads, (m.heads, m.kv_heads, m.kv_heads)
        parts = self.qkv(self.norm1(x)).split([head * n for n in groups], -1)
        q, k, v = (part.unflatten(-1, (n, head)).transpose(1, 2) for part, n in zip(parts, groups, strict=True))
        if m.is_gated:
            q, k = (rotate(part, self.cos, self.sin) for part in (q, k))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=m.heads != m.kv_heads)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        inner = functional.silu(self.gate(y)) * self.up(y) if self.gate else functional.gelu(self.up(y))
        return x + self.down(inner)


class Transformer(nn.Module):
    def __init__(self, m: Model) -> None:
        super().__init__()
        self.embed = nn.Embedding(m.vocab, m.hidden)
        self.blocks = nn.ModuleList(Block(m) for _ in range(m.layers))
        self.norm = Norm(m.hidden) if m.is_gated else nn.LayerNorm(m.hidden)
        self.head = nn.Linear(m.hidden, m.vocab, bias=False)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(self.norm(x)).float().flatten(0, 1), targets.flatten())


def seconds(call: Callable[[], object], least_s: float = 1.5) -> float:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < least_s:
        for _ in range(3):
            call()
        count += 3
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def kinds(call: Callable[[], object]) -> dict[str, float]:
    """Return the GPU's milliseconds by kind of kernel, and the number of kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    result = {"products_ms": 0.0, "attention_ms": 0.0, "rest_ms": 0.0, "kernels": 0.0}
    for event in profile.key_averages():
        name, ms = event.key.lower(), event.self_device_time_total / 1e3
        if any(word in name for word in ("flash", "fmha", "sdpa", "attention")):
            result["attention_ms"] += ms
        elif any(word in name for word in ("gemm", "nvjet", "cutlass", "xmma", "splitk", "cublas")):
            result["products_ms"] += ms
        else:
            result["rest_ms"] += ms
        result["kernels"] += event.count
    return {name: round(value, 3) for name, value in result.items()}


def step(m: Model, *, is_compiled: bool, backend: str, autocast: bool) -> dict[str, object]:
    torch.manual_seed(1)
    with torch.device("cuda"):
        model: nn.Module = Transformer(m)
        tokens = torch.randint(m.vocab, (m.batch, m.seq))
    if not autocast:
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), fused=is_compiled)
    run = torch.compile(model) if is_compiled else model

    def compute() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast), sdpa_kernel(BACKENDS[backend]):
            run(tokens, tokens).backward()

    def update() -> None:
        optimizer.step()

    result = {"compute_ms": 1e3 * seconds(compute), "update_ms": 1e3 * seconds(update, 0.3)} | kinds(compute)
    return {name: round(value, 3) for name, value in result.items()}


def attention(seq: int, head_dim: int, backend: str) -> dict[str, float]:
    heads = max(1, 32 * 8192 // seq)
    q, k, v = (torch.randn(1, heads, seq, head_dim, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    for part in (q, k, v):
        part.requires_grad_()
    with sdpa_kernel(BACKENDS[backend]):
        with torch.no_grad():
            forward = seconds(lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True), 0.4)
        both = seconds(
            lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True).backward(q.detach()), 0.6
        )
    flop = 2 * heads * seq * seq * head_dim  # causal: half of 4
    return {
        "forward_tflop_s": round(flop / forward / 1e12, 1),
        "backward_tflop_s": round(2.5 * flop / (both - forward) / 1e12, 1),
    }


def main() -> None:
    product = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    seconds(lambda: product @ product, 5.0)
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}))
    for m in MODELS:
        for is_compiled, backend, autocast in WAYS:
            way = {"compiled": is_compiled, "attention": backend, "autocast": autocast}
            row: dict[str, object] = {"model": m.name} | way
            try:
                row |= step(m, is_compiled=is_compiled, backend=backend, autocast=autocast)
            except Exception as error:  # out of memory, or no such kernel: the others are measured
                row["error"] = str(error)[:120]
            torch.cuda.empty_cache()
            torch._dynamo.reset()
            print(json.dumps(row), flush=True)
    for m in MODELS:
        print(json.dumps(dataclasses.asdict(m)))
    for head_dim in (64, 128):
        for seq in (1024, 2048, 4096, 8192, 32768, 131072):
            for backend in BACKENDS:
                row = {"seq": seq, "head_dim": head_dim, "attention": backend}
                print(json.dumps(row | attention(seq, head_dim, backend)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
