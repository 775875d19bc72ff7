"""Measure the operations of training on a GPU: matrix products, attention, passes over memory. Needs an idle GPU and
PyTorch.

    python benchmarks/gpu_compute.py [bf16 fp8 layers ...] > measured.json

The constants of src/weft/fabric/catalog/gpu_compute.toml come from it, and the measurements are in that file too.
Data is
random, not zeros: a GPU at its power limit runs slower the more bits toggle. The GPU is warmed up first, and each
shape runs
for a while, so that clocks are those of a long job.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

SIZES = (512, 1024, 2048, 4096, 6144, 8192, 12288, 16384, 28672)
ROWS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
RUN_S, WARM_UP_S = 0.04, 6.0
GUESS_TFLOP_S = {"bf16": 600, "fp8": 1200}  # only for the number of repetitions
LAYERS = {  # n and k, on one GPU
    "gpt3-175b, tp 8": ((4608, 12288), (12288, 1536), (6144, 12288), (12288, 6144)),
    "gpt3-175b, tp 4": ((9216, 12288), (12288, 3072), (12288, 12288)),
    "gpt-7.5b": ((12288, 4096), (4096, 4096), (16384, 4096), (4096, 16384), (51200, 4096)),
    "llama3-8b": ((6144, 4096), (28672, 4096), (4096, 14336), (128256, 4096)),
    "llama3-70b, tp 4": ((2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168)),
    "llama3-405b, tp 8": ((2304, 16384), (16384, 2048), (13312, 16384), (16384, 6656)),
    "nemotron4-15b, tp 2": ((4096, 6144), (6144, 3072), (12288, 6144), (6144, 12288)),
}
EXPERTS = (  # count, m, n, k
    (8, 512, 28672, 4096),
    (8, 2048, 28672, 4096),
    (8, 2048, 4096, 14336),
    (32, 256, 4096, 7168),
    (32, 1024, 4096, 7168),
    (32, 1024, 7168, 2048),
)
HEADS = ((12, 2048, 2048, 128), (12, 2048, 128, 2048), (96, 2048, 2048, 128), (96, 2048, 128, 2048))
ATTENTION = (  # batch, seq, heads, kv_heads, head_dim, causal
    (1, 8192, 16, 2, 128, True),
    (1, 8192, 32, 8, 128, True),
    (4, 2048, 12, 12, 128, True),
    (2, 4096, 32, 32, 128, True),
    (1, 4096, 16, 16, 128, False),
    (1, 8192, 16, 16, 128, False),
    (1, 8192, 16, 16, 64, True),
)
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def timed_us(call: Callable[[], object], guess_us: float) -> float:
    """Return the mean time of a call over RUN_S, after a few that do not count."""
    times = max(5, int(RUN_S * 1e6 / guess_us))
    for _ in range(3):
        call()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize()
    return round(start.elapsed_time(end) * 1000 / times, 2)


def normal(*shape: int, **options: Any) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, **options)


def products(precision: str) -> Iterator[dict[str, float]]:
    for m, n, k in itertools.product(ROWS, SIZES, SIZES):
        guess_us = 2 * m * n * k / GUESS_TFLOP_S[precision] / 1e6 + 5
        yield {"m": m, "n": n, "k": k, "us": timed_us(product(m, n, k, precision), guess_us)}


def product(m: int, n: int, k: int, precision: str) -> Callable[[], object]:
    """Return a product of [m, k] and [n, k] transposed, as in a linear layer."""
    a, b, out = normal(m, k), normal(n, k), normal(m, n)
    if precision != "fp8":
        return lambda: torch.matmul(a, b.t(), out=out)
    scale = torch.ones((), device="cuda")
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    return lambda: torch._scaled_mm(a, b.t(), scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True, out=out)


def accumulators() -> Iterator[dict[str, float]]:
    """Measure FP8 with fast accumulators, as in forward, and with split ones, as in Transformer Engine's backward."""
    unit_scale = torch.ones((), device="cuda")
    for m, size in itertools.product((2048, 4096, 8192), (4096, 6144, 8192, 12288)):
        a, b = (normal(rows, size).to(torch.float8_e4m3fn) for rows in (m, size))
        guess_us = 2 * m * size * size / GUESS_TFLOP_S["fp8"] / 1e6 + 5
        fast_us, split_us = (
            timed_us(
                lambda a=a, b=b, fast=fast: torch._scaled_mm(
                    a, b.t(), unit_scale, unit_scale, out_dtype=torch.bfloat16, use_fast_accum=fast
                ),
                guess_us,
            )
            for fast in (True, False)
        )
        yield {"m": m, "n": size, "k": size, "fast_us": fast_us, "split_us": split_us}


def layers() -> Iterator[dict[str, Any]]:
    """Measure linear layers of models for some numbers of tokens: forward, and the gradients of input and weight.

    The weight gradient is added to a sum in fp32, as in Megatron.
    """
    for (model, shapes), m in itertools.product(LAYERS.items(), (2048, 8192)):
        for n, k in shapes:
            y, w, x = normal(m, n), normal(n, k), normal(m, k)
            total = torch.zeros(n, k, device="cuda")
            calls: dict[str, Callable[[], object]] = {
                "forward_us": lambda x=x, w=w, y=y: torch.matmul(x, w.t(), out=y),
                "input_us": lambda x=x, w=w, y=y: torch.matmul(y, w, out=x),
                "weight_us": lambda x=x, total=total, y=y: torch.addmm(
                    total, y.t(), x, out_dtype=torch.float32, out=total
                ),
                "fp8_us": product(m, n, k, "fp8"),
            }
            guess_us = 2 * m * n * k / GUESS_TFLOP_S["bf16"] / 1e6 + 5
            times_us = {}
            for figure, call in calls.items():
                # Sums grow, and repeated products overflow: keep the numbers random.
                y.normal_(), x.normal_(), total.zero_()
                times_us[figure] = timed_us(call, guess_us)
            yield {"model": model, "m": m, "n": n, "k": k} | times_us


def experts() -> Iterator[dict[str, float]]:
    """Measure products of experts in one kernel."""
    for count, m, n, k in EXPERTS:
        x, w = normal(count * m, k), normal(count, n, k)
        ends = torch.arange(m, count * m + 1, m, device="cuda", dtype=torch.int32)
        guess_us = 2 * count * m * n * k / GUESS_TFLOP_S["bf16"] / 1e6 + 5

        def call(x: torch.Tensor = x, w: torch.Tensor = w, ends: torch.Tensor = ends) -> object:
            return torch._grouped_mm(x, w.transpose(1, 2), offs=ends)

        yield {"count": count, "m": m, "n": n, "k": k, "us": timed_us(call, guess_us)}


def batched() -> Iterator[dict[str, float]]:
    """Measure products of heads, as in attention before it was fused."""
    for count, m, n, k in HEADS:
        a, b, out = normal(count, m, k), normal(count, n, k), normal(count, m, n)
        guess_us = 2 * count * m * n * k / GUESS_TFLOP_S["bf16"] / 1e6 + 5
        call_us = timed_us(lambda a=a, b=b, out=out: torch.bmm(a, b.transpose(1, 2), out=out), guess_us)
        yield {"count": count, "m": m, "n": n, "k": k, "us": call_us}


def small() -> Iterator[dict[str, float]]:
    """Measure products of few rows, launched as a graph: the GPU time without the host's overhead."""
    for m, (n, k) in itertools.product((16, 128, 512, 1024), ((1024, 1024), (4096, 1024), (4096, 4096), (8192, 8192))):
        call = product(m, n, k, "bf16")
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(20):
                call()
        yield {"m": m, "n": n, "k": k, "us": round(timed_us(graph.replay, 400) / 20, 2)}


def attention() -> Iterator[dict[str, Any]]:
    """Measure forward, and backward alone: first causal, of one sequence; then other shapes with cuDNN."""
    for backend, seq, heads in itertools.product(BACKENDS, (1024, 2048, 4096, 8192, 16384), (8, 16, 24)):
        yield {"backend": backend} | attend(backend, 1, seq, heads, heads, 128, True)
    for batch, seq, heads, kv_heads, dim, causal in ATTENTION:
        yield {"backend": "cudnn"} | attend("cudnn", batch, seq, heads, kv_heads, dim, causal)


def attend(backend: str, batch: int, seq: int, heads: int, kv_heads: int, dim: int, causal: bool) -> dict[str, Any]:
    q, k, v = (normal(batch, n, seq, dim, requires_grad=True) for n in (heads, kv_heads, kv_heads))

    def forward() -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv_heads)

    def backward() -> object:
        return torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)

    flop = (2 if causal else 4) * batch * heads * seq * seq * dim
    with sdpa_kernel(BACKENDS[backend]):
        out = forward()
        gradient = torch.randn_like(out)
        forward_us, backward_us = timed_us(forward, flop / 400e6 + 10), timed_us(backward, 2.5 * flop / 300e6 + 10)
    shape = {"batch": batch, "seq": seq, "heads": heads, "kv_heads": kv_heads, "dim": dim, "causal": causal}
    return shape | {"forward_us": forward_us, "backward_us": backward_us}


def passes() -> Iterator[dict[str, Any]]:
    """Measure memory-bound operations: bytes read and written, and time."""
    width = 4096
    weight = torch.ones(width, device="cuda", dtype=torch.bfloat16)
    for mbyte in (1, 4, 16, 64, 256, 1024):
        n = mbyte * (1 << 20) // 2
        a, b, out = normal(n), normal(n), normal(n)
        rows = a.view(-1, width)
        calls: dict[str, tuple[int, Callable[[], object]]] = {
            "add": (6, lambda a=a, b=b, out=out: torch.add(a, b, out=out)),
            "copy": (4, lambda a=a, out=out: out.copy_(a)),
            "rms_norm": (4, lambda rows=rows: functional.rms_norm(rows, (width,), weight)),
            "layer_norm": (4, lambda rows=rows: functional.layer_norm(rows, (width,), weight, weight)),
            "gelu": (4, lambda a=a: functional.gelu(a)),
            "softmax": (4, lambda rows=rows: torch.softmax(rows, -1)),
        }
        for name, (element_bytes, call) in calls.items():
            moved_bytes = element_bytes * n
            yield {"what": name, "bytes": moved_bytes, "us": timed_us(call, moved_bytes / 3e6 + 5)}
    for million in (1, 16, 256, 1024):
        parameter = torch.nn.Parameter(torch.randn(million * 1_000_000, device="cuda"))
        parameter.grad = torch.randn_like(parameter)
        adam = torch.optim.AdamW([parameter], fused=True)
        moved_bytes = 28 * parameter.numel()
        yield {"what": "adam", "bytes": moved_bytes, "us": timed_us(adam.step, moved_bytes / 3e6 + 20)}


def warm_up() -> None:
    a = normal(8192, 8192)
    until = time.monotonic() + WARM_UP_S
    while time.monotonic() < until:
        for _ in range(50):
            torch.matmul(a, a)
        torch.cuda.synchronize()


def main() -> None:
    parts: dict[str, Callable[[], Iterator[dict[str, Any]]]] = {
        "bf16": lambda: products("bf16"),
        "fp8": lambda: products("fp8"),
        "accumulators": accumulators,
        "layers": layers,
        "experts": experts,
        "batched": batched,
        "small": small,
        "attention": attention,
        "passes": passes,
    }
    warm_up()
    empty = torch.empty(1, device="cuda")
    figures: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "kernel_us": timed_us(lambda: empty.fill_(0.0), 5),
    }
    for part in sys.argv[1:] or parts:
        figures[part] = list(parts[part]())
    json.dump(figures, sys.stdout)


if __name__ == "__main__":
    main()
