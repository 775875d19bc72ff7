"""Measure the kernels of layers with experts on a GPU. Needs an idle GPU and PyTorch.

python benchmarks/gpu_experts.py > experts.jsonl

products   `experts` matrices with `rows` rows each: one grouped kernel, separate products, one product of all rows
permute    tokens sorted by expert, and their sum in the order of tokens
attention  forward and backward in cuDNN for the heads of models with experts
launches   forward and backward of a layer on so few tokens that the GPU waits for the host
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def seconds(call: Callable[[], object], least_s: float = 0.1) -> float:
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < least_s:
        for _ in range(5):
            call()
        count += 5
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def measure(call: Callable[[], object], graph: bool = False) -> float | str:
    """Return microseconds, or the error. graph: launched as a CUDA graph, so that the host is not in the way."""
    try:
        if not graph:
            return round(1e6 * seconds(call), 1)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            call()
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=stream):
            call()
        return round(1e6 * seconds(captured.replay), 1)
    except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:
        return str(error).splitlines()[0][:120]


def products(experts: int, rows: int, inputs: int, outputs: int) -> dict[str, float | str]:
    x = torch.randn(experts * rows, inputs, device="cuda", dtype=torch.bfloat16)
    dy = torch.randn(experts * rows, outputs, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(experts, outputs, inputs, device="cuda", dtype=torch.bfloat16)
    ends = torch.arange(rows, experts * rows + 1, rows, device="cuda", dtype=torch.int32)
    parts, gradients = x.split(rows), dy.split(rows)
    x8, w8 = x.clamp(-1, 1).to(torch.float8_e4m3fn), weight.clamp(-1, 1).to(torch.float8_e4m3fn)
    parts8 = x8.split(rows)
    scale = torch.ones((), device="cuda")
    per_row = torch.ones(experts * rows, device="cuda")
    per_column = torch.ones(experts, outputs, device="cuda")
    return {
        "grouped_us": measure(lambda: torch._grouped_mm(x, weight.transpose(1, 2), offs=ends)),
        "grouped_weight_us": measure(lambda: torch._grouped_mm(dy.t(), x, offs=ends)),
        "grouped_fp8_us": measure(
            lambda: torch._scaled_grouped_mm(
                x8, w8.transpose(1, 2), per_row, per_column, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
            )
        ),
        "separate_us": measure(lambda: [p @ w.T for p, w in zip(parts, weight, strict=True)], graph=True),
        "separate_weight_us": measure(lambda: [g.T @ p for p, g in zip(parts, gradients, strict=True)], graph=True),
        "separate_fp8_us": measure(
            lambda: [
                torch._scaled_mm(p, w.T, scale, scale, out_dtype=torch.bfloat16)
                for p, w in zip(parts8, w8, strict=True)
            ],
            graph=True,
        ),
        "launched_us": measure(lambda: [p @ w.T for p, w in zip(parts, weight, strict=True)]),
        "whole_us": measure(lambda: x @ weight[0].T),
    }


def permute(tokens: int, hidden: int, topk: int, experts: int) -> dict[str, float | str]:
    x = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    chosen = torch.rand(tokens, experts, device="cuda").topk(topk).indices
    order = chosen.flatten().argsort(stable=True)
    source = order // topk
    back = order.argsort()
    sorted_x = x[source]
    weights = torch.rand(tokens, topk, 1, device="cuda", dtype=torch.bfloat16)
    zeros = torch.zeros_like(x)
    return {
        "sort_us": measure(lambda: chosen.flatten().argsort(stable=True)),
        "gather_us": measure(lambda: x[source]),
        "add_us": measure(lambda: zeros.index_add(0, source, sorted_x)),
        "gather_sum_us": measure(lambda: (sorted_x[back].view(tokens, topk, hidden) * weights).sum(1)),
    }


def attention(batch: int, seq: int, heads: int, kv_heads: int, qk: int, v: int) -> dict[str, float | str]:
    def tensor(count: int, width: int) -> torch.Tensor:
        return torch.randn(batch, count, seq, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    q, k, value = tensor(heads, qk), tensor(kv_heads, qk), tensor(kv_heads, v)

    def forward() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(q, k, value, is_causal=True, enable_gqa=heads != kv_heads)

    try:
        out = forward()
    except RuntimeError as error:
        return {"error": str(error).splitlines()[0][:120]}
    gradient = torch.randn_like(out)
    backward = measure(lambda: torch.autograd.grad(out, (q, k, value), gradient, retain_graph=True))
    return {"forward_us": measure(forward), "backward_us": backward}


class Layer(nn.Module):
    """A layer with experts in eager PyTorch, as model codes write it."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, experts: int, topk: int, width: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.topk = heads, kv_heads, topk
        self.norm1, self.norm2 = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * 128, bias=False)
        self.out = nn.Linear(heads * 128, hidden, bias=False)
        self.router = nn.Linear(hidden, experts, bias=False)
        self.up = nn.ModuleList(nn.Linear(hidden, 2 * width, bias=False) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(width, hidden, bias=False) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = [128 * n for n in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (part.unflatten(-1, (-1, 128)).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(sizes, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        tokens = self.norm2(x).flatten(0, 1)
        weights, chosen = torch.topk(self.router(tokens).float().softmax(-1), self.topk)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.up)).tolist()  # waits for the GPU
        pieces = tokens[order // self.topk].split(counts)
        results = []
        for piece, up, down in zip(pieces, self.up, self.down, strict=True):
            gate, value = up(piece).chunk(2, -1)
            results.append(down(functional.silu(gate) * value))
        scaled = torch.cat(results) * weights.flatten()[order, None].type_as(x)
        return x + torch.zeros_like(tokens).index_add(0, order // self.topk, scaled).view_as(x)


def launches(experts: int) -> dict[str, float]:
    layer = Layer(1024, 8, 2, experts, 2, 256).to("cuda", torch.bfloat16)
    x = torch.randn(1, 256, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def step() -> None:
        layer(x).sum().backward()

    taken = seconds(step, 1.0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    events = profile.key_averages()
    kernels = sum(event.count for event in events)
    gpu_ms = sum(event.self_device_time_total for event in events) / 1e3
    return {"step_ms": round(1e3 * taken, 3), "gpu_ms": round(gpu_ms, 3), "kernels": kernels}


def show(part: str, shape: dict[str, int], result: dict[str, float | str] | dict[str, float]) -> None:
    print(json.dumps({"part": part, **shape, **result}), flush=True)


def main() -> None:
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    warm = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    seconds(lambda: warm @ warm, 4.0)
    for experts in (2, 4, 8, 16, 32):
        show("launches", {"local_experts": experts}, launches(experts))
    for inputs, outputs in (
        (2048, 1536),
        (768, 2048),
        (4096, 3072),
        (1536, 4096),
        (2880, 5760),
        (2880, 2880),
        (7168, 4096),
        (2048, 7168),
        (6144, 16384),
    ):
        for experts, rows in (
            (2, 2048),
            (2, 8192),
            (4, 512),
            (4, 2048),
            (16, 128),
            (16, 256),
            (16, 512),
            (16, 1024),
            (16, 2048),
            (16, 8192),
            (32, 1024),
        ):
            shape = {"inputs": inputs, "outputs": outputs, "experts": experts, "rows": rows}
            show("products", shape, products(experts, rows, inputs, outputs))
    for tokens, hidden, topk, experts in (
        (4096, 2048, 8, 128),
        (16384, 2048, 8, 128),
        (16384, 2880, 4, 128),
        (4096, 4096, 8, 128),
        (4096, 7168, 8, 256),
    ):
        shape = {"tokens": tokens, "hidden": hidden, "topk": topk, "experts": experts}
        show("permute", shape, permute(tokens, hidden, topk, experts))
    for batch, seq, heads, kv_heads, qk, v in (
        (1, 4096, 64, 8, 64, 64),
        (4, 4096, 64, 8, 64, 64),
        (1, 4096, 32, 4, 128, 128),
        (4, 4096, 32, 4, 128, 128),
        (1, 4096, 128, 128, 192, 128),
        (1, 8192, 16, 2, 256, 256),
    ):
        shape = {"batch": batch, "seq": seq, "heads": heads, "kv_heads": kv_heads, "qk": qk, "v": v}
        show("attention", shape, attention(batch, seq, heads, kv_heads, qk, v))


if __name__ == "__main__":
    sys.exit(main())
