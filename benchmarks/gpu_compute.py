"""What a GPU does in training: matrix products, attention, passes over memory. Run on an idle GPU with PyTorch.

    python benchmarks/gpu_compute.py > measured.json

The constants of src/weft/fabric/catalog/gpu_compute.toml come from it, and the measurements stand there too. Random
numbers, not zeros: a GPU at its power limit runs slower the more bits toggle. It is warmed up first, and each shape
runs for a while, so that clocks are those of a long job.
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
GUESS_TFLOP_S = {"bf16": 600, "fp8": 1200}  # only for how often to repeat
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def timed_us(call: Callable[[], object], guess_us: float) -> float:
    """Mean time of a call, of as many as take RUN_S; first some that do not count."""
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
    """[m, k] times [n, k] transposed, as a linear layer does."""
    a, b, out = normal(m, k), normal(n, k), normal(m, n)
    if precision != "fp8":
        return lambda: torch.matmul(a, b.t(), out=out)
    one = torch.ones((), device="cuda")
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True, out=out)


def attention() -> Iterator[dict[str, Any]]:
    """Causal, of one sequence; forward, and backward alone."""
    for backend, seq, heads in itertools.product(BACKENDS, (1024, 2048, 4096, 8192, 16384), (8, 16, 24)):
        with sdpa_kernel(BACKENDS[backend]):
            forward_us, backward_us = attend(seq, heads, 128)
        shape = {"backend": backend, "seq": seq, "heads": heads, "dim": 128}
        yield shape | {"forward_us": forward_us, "backward_us": backward_us}


def attend(seq: int, heads: int, dim: int) -> tuple[float, float]:
    q, k, v = (normal(1, heads, seq, dim, requires_grad=True) for _ in range(3))

    def forward() -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def backward() -> object:
        return torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)

    flop = 2 * heads * seq * seq * dim
    out = forward()
    gradient = torch.randn_like(out)
    return timed_us(forward, flop / 400e6 + 10), timed_us(backward, 2.5 * flop / 300e6 + 10)


def passes() -> Iterator[dict[str, Any]]:
    """Bytes read and written, and time, of what is bound by memory."""
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
        for what, (element_bytes, call) in calls.items():
            moved_bytes = element_bytes * n
            yield {"what": what, "bytes": moved_bytes, "us": timed_us(call, moved_bytes / 3e6 + 5)}
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
    begun = time.monotonic()
    warm_up()
    empty = torch.empty(1, device="cuda")
    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "kernel_us": timed_us(lambda: empty.fill_(0.0), 5),
        "bf16": list(products("bf16")),
        "fp8": list(products("fp8")),
        "attention": list(attention()),
        "passes": list(passes()),
    }
    json.dump(found | {"wall_s": round(time.monotonic() - begun, 1)}, sys.stdout)


if __name__ == "__main__":
    main()
