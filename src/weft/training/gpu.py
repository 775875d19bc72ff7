"""Compute times of a GPU: matrix products, attention, passes over memory.

    Gpu.of("H100").matmul_s(8192, 12288, 12288, "bf16")

A product multiplies at the share of the peak that power sustains, and then writes its result:

    time = max(flop / sustained peak + bytes of the result / bandwidth,
               bytes of all three matrices / bandwidth,
               launch by the host)

Waves of tiles, and interpolation of what was measured, predict no better within the noise: docs/design/0019-compute.md
has the errors. The constants are in `catalog/gpus.toml` and `catalog/gpu_compute.toml`. Backward of a linear layer is
two more products: `matmul_s(m, k, n)` for the gradient of its input, and `matmul_s(n, k, m)` for that of its weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

import msgspec

from weft.errors import find_named
from weft.fabric import catalog
from weft.fabric.rates import read_catalog
from weft.training.framework import DEFAULT, Framework, find_framework, find_kernel

BF16_BYTES = 2
FP8_BYTES = 1
OPERAND_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1, "mxfp8": 1, "nvfp4": 0.5}
# Bytes that Adam moves for each parameter: gradient, value and two moments are read, the last three written; with an
# optimizer in fp32 also a copy of the value in bf16; bf16-moments: the value is in fp32, the moments are not.
ADAM_BYTES = {
    "fp32": 4 * 4 + 3 * 4 + BF16_BYTES,
    "bf16-moments": 4 + 2 * (4 + 2 * BF16_BYTES) + BF16_BYTES,
    "bf16": (4 + 3) * BF16_BYTES,
}

_TILES = ((128, 256), (256, 128), (128, 128))  # the large ones of cuBLAS
_SMALL_TILES = (*_TILES, (64, 128), (16, 128))  # few rows
_GENERATIONS = ((100, "Blackwell"), (90, "Hopper"), (89, "Ada"), (0, "Ampere"))  # from which compute capability
_POWER_BOUND_SM = 89  # compute capability from which power limits large products


class _Kernel(msgspec.Struct, frozen=True):
    memory: float
    launch_us: float


class _Graph(msgspec.Struct, frozen=True):
    start_us: float
    least_us: float
    memory: float
    exponent: float
    pass_us: float


class _Attention(msgspec.Struct, frozen=True):
    tile: int
    forward_us: float
    backward_us: float


class _Experts(msgspec.Struct, frozen=True):
    grouped: float


class _Variation(msgspec.Struct, frozen=True):
    spread: float


class _Constants(msgspec.Struct, frozen=True):
    """The constants of kernels on any GPU; `catalog/gpu_compute.toml` explains them."""

    variation: _Variation
    product: _Kernel
    passes: _Kernel
    graph: _Graph
    attention: _Attention
    experts: _Experts


@cache
def _constants() -> _Constants:
    return msgspec.convert(read_catalog("gpu_compute.toml"), _Constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """An accelerator of the catalog with the software that runs on it."""

    entry: catalog.Gpu
    software: Framework
    in_graph: bool = False  # kernels are launched as a CUDA graph: the host delays none of them

    @staticmethod
    def of(name: str, framework: str = DEFAULT) -> Gpu:
        """Return the GPU of that name in the catalog; case does not matter."""
        return Gpu(entry=catalog.gpu(name), software=find_framework(framework))

    @staticmethod
    def of_server(template: catalog.Server) -> Gpu:
        """Return the GPU of a server, with the changes of its template."""
        return Gpu(entry=template.gpu_entry, software=find_framework(DEFAULT))

    def running(self, framework: str) -> Gpu:
        """Return the same GPU with another framework."""
        return replace(self, software=find_framework(framework))

    def with_graphs(self) -> Gpu:
        """Return the same GPU with kernels that are launched as CUDA graphs."""
        return replace(self, in_graph=True)

    @property
    def generation(self) -> str:
        """Return the name of its architecture; AMD's by its number, gfx942."""
        return self.entry.gcn or next(name for sm, name in _GENERATIONS if self.entry.sm >= sm)

    def peak_flop_s(self, precision: str) -> float:
        """Return the dense peak in a number format."""
        peaks = dict(self.entry.peak_tflop_s)
        if "nvfp4" in peaks:
            peaks["mxfp8"] = peaks["fp8"]  # tensor cores with 4 bits scale blocks of 32 themselves
        has = f"Its tensor cores have {', '.join(peaks)}."
        return 1e12 * find_named(f"number format of {self.entry.name}", precision, peaks, has)

    @property
    def memory_byte_s(self) -> float:
        """Return the memory bandwidth of the datasheet."""
        return 1e9 * self.entry.memory_gbyte_s

    @property
    def clock(self) -> float:
        """Return the clock under load relative to that of the catalog's GPU: lower under a power limit."""
        return self.entry.sustained / catalog.gpu(self.entry.name).sustained

    def host_copy_s(self, moved_bytes: float) -> float:
        """Return the time of a copy to or from the memory of the host."""
        return moved_bytes / (1e9 * self.entry.host_gbyte_s)

    def slowest_of(self, count: int) -> float:
        """Return the time of the slowest of `count` GPUs relative to the mean: the expected maximum of normal times."""
        if count == 1:
            return 1.0
        return 1 + _constants().variation.spread * NormalDist().inv_cdf((count - 0.375) / (count + 0.25))

    def matmul_s(
        self,
        m: int,
        n: int,
        k: int,
        precision: str,
        count: int = 1,
        *,
        result_bytes: int = BF16_BYTES,
        grouped: bool = False,
        weight_bytes: float | None = None,
        exponent: float | None = None,
        rate: float = 1.0,
    ) -> float:
        """Return the time of `count` products [m, k] x [k, n] in one kernel (experts, heads).

        `result_bytes` go to and from memory for an element of the result: 8 where it is added to gradients in fp32.
        `grouped`: products of experts, whose numbers of rows differ.
        `weight_bytes` are read for an element of [k, n] that is stored in another format than it is multiplied in.
        `rate`: of multiplying, relative to that of other products.
        `exponent`: in a CUDA graph, how well reading and multiplying overlap; infinite: entirely, 1: not at all.
        """
        product = _constants().product
        share = rate * self.entry.sustained * self.software.product_share(self.entry.sm, precision)
        rate_flop_s = share * self.peak_flop_s(precision)
        if grouped:
            rate_flop_s /= 1 + _constants().experts.grouped * 1e-15 * rate_flop_s / min(m, n, k)
        multiply_s = 2 * m * n * k / rate_flop_s * self._waves(m, n, count)
        graph = _constants().graph
        streamed = self.entry.streamed or graph.memory
        byte_s = (streamed if self.in_graph else product.memory) * self.memory_byte_s
        operand_bytes = OPERAND_BYTES[precision]
        read_s = (operand_bytes * m + (operand_bytes if weight_bytes is None else weight_bytes) * n) * k / byte_s
        write_s = result_bytes * m * n / byte_s
        if self.in_graph:
            power = exponent or graph.exponent
            both_s: float = (multiply_s**power + read_s**power) ** (1 / power)
            return max(1e-6 * graph.least_us, 1e-6 * graph.start_us + count * (both_s + write_s))
        return max(1e-6 * product.launch_us, count * (max(multiply_s, read_s) + write_s))

    def _waves(self, m: int, n: int, count: int) -> float:
        """Return the time of whole waves of tiles relative to that of their work: the last wave leaves SMs idle.

        On Hopper and later it does not show (docs/design/0019-compute.md): power is the limit there, not the SMs.
        """
        if self.entry.sm >= _POWER_BOUND_SM:
            return 1.0
        lost = []
        for rows, columns in _SMALL_TILES if self.in_graph else _TILES:
            tiles = count * -(-m // rows) * -(-n // columns)
            if self.in_graph and tiles < self.entry.sms:  # the sum over k is split among the SMs
                lost.append(tiles * rows * columns / (count * m * n))
                continue
            lost.append(-(-tiles // self.entry.sms) * self.entry.sms * rows * columns / (count * m * n))
        return min(lost)

    def attention_s(
        self,
        *,
        batch: int,
        heads: int,
        kv_heads: int,
        queries: int,
        keys: int,
        head_dim: int,
        causal: bool,
        backward: bool,
        fused: bool,
        window: int = 0,
        kernel: str = "",
    ) -> float:
        """Return the time of softmax(Q K') V, or of its gradients, in 16 bits. Causal queries are the last of the keys.

        window: keys that a query sees, if not all before it. kernel: one of frameworks.toml, if not the framework's.
        Not fused, as before 2022, scores of all pairs go through memory: out of a product, through softmax, through
        dropout, into the next product; a causal mask spares nothing.
        """
        if not fused:
            return self._unfused_attention_s(batch * heads, queries, keys, head_dim, backward)
        attention, fused_kernel = _constants().attention, find_kernel(kernel or self.software.attention)
        products = 5 if backward else 2
        width = max(head_dim, fused_kernel.narrow)
        # A tile on the diagonal is computed whole. Work is uneven then, and SMs do not end together: from the first to
        # the last it takes half of the longest piece.
        visible = min(keys, keys - (queries - attention.tile) / 2) if causal else keys
        if window:  # and a tile at its other end
            visible = min(visible, window + attention.tile)
        flop = 2 * products * width * batch * heads * queries * visible
        longest = min(keys, window + attention.tile) if window else keys
        tail_flop = products * width * attention.tile * longest * self.entry.sms if causal else 0
        rate_flop_s = fused_kernel.share(self.entry.sm, backward=backward) * self.clock * self.peak_flop_s("bf16")
        start_s = 1e-6 * (attention.backward_us if backward else attention.forward_us)
        moved_bytes = products * BF16_BYTES * head_dim * batch * (heads * queries + kv_heads * keys)
        return start_s + max((flop + tail_flop) / rate_flop_s, moved_bytes / self.memory_byte_s)

    def _unfused_attention_s(self, count: int, queries: int, keys: int, head_dim: int, backward: bool) -> float:
        scores = count * queries * keys
        to_scores = self.matmul_s(queries, keys, head_dim, "bf16", count)
        from_scores = self.matmul_s(queries, head_dim, keys, "bf16", count)
        dropout_s = self.pass_s(scores * (2 * BF16_BYTES + 1))  # with its mask, a byte each
        if not backward:
            return to_scores + self.pass_s(scores * 2 * BF16_BYTES) + dropout_s + from_scores
        to_keys = self.matmul_s(keys, head_dim, queries, "bf16", count)
        return to_scores + dropout_s + self.pass_s(scores * 3 * BF16_BYTES) + from_scores + 2 * to_keys

    def pass_s(self, moved_bytes: float) -> float:
        """Return the time of a kernel that is bound by the bytes it moves: norms, activations, additions."""
        passes = _constants().passes
        work_s = moved_bytes / (passes.memory * self.memory_byte_s)
        return 1e-6 * _constants().graph.pass_us + work_s if self.in_graph else max(1e-6 * passes.launch_us, work_s)

    def adam_s(self, parameters: float, moved_bytes: int = ADAM_BYTES["fp32"]) -> float:
        """Return the time of an Adam step over `parameters`, each of which moves `moved_bytes` in a fused kernel."""
        return self.pass_s(parameters * moved_bytes * self.software.passes.optimizer)

    def fp8_cast_s(self, elements: float) -> float:
        """Return the time to cast a matrix to fp8: once for each activation, each gradient, each changed weight.

        It is read in bf16 to find its largest element, and written in fp8 twice: as it is, and transposed,
        since Hopper multiplies fp8 only along rows, and a backward product goes along the other side.
        """
        return self.pass_s(elements * (BF16_BYTES + 2 * FP8_BYTES))
