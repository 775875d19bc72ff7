"""How long a GPU computes: matrix products, attention, passes over memory.

    Gpu.of("H100").matmul_s(8192, 12288, 12288, "bf16")

A product is cut into tiles, and every SM computes one tile at a time; the SM with the most of them ends last:

     n                        waves = ceil(tiles / SMs)       6 tiles on 4 SMs: 2 waves, as long as 8 tiles
    ┌────┬────┬────┐          tile  = multiply along k, at the SM's part of the sustained peak
  m │ t0 │ t1 │ t2 │                + write the result, at its part of the bandwidth
    ├────┼────┼────┤          time  = waves x tile; of the tile shapes, and of the ways to split k, the fastest
    │ t3 │ t4 │ t5 │
    └────┴────┴────┘          but no less than memory takes for the three matrices, or the host for the launch

The constants are in `catalog/gpus.toml` and `catalog/gpu_compute.toml`; docs/design/0019-compute.md compares them with
what was measured. Backward of a linear layer is two more products: `matmul_s(m, k, n)` for the gradient of its input,
and `matmul_s(n, k, m)` for that of its weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil
from statistics import NormalDist

import msgspec

from weft.errors import find_named
from weft.fabric import catalog
from weft.fabric.rates import read_catalog

BF16_BYTES = 2
FP8_BYTES = 1
ADAM_BYTES = (
    30  # of a parameter: gradient, parameter and two moments read in fp32, the last three written, and its bf16 copy
)


class _Product(msgspec.Struct, frozen=True):
    tiles: tuple[tuple[int, int], ...]
    splits: tuple[int, ...]
    partial_bytes: int
    launch_us: float


class _Attention(msgspec.Struct, frozen=True):
    tile: int
    forward: float
    backward: float
    forward_us: float
    backward_us: float


class _Memory(msgspec.Struct, frozen=True):
    product: float
    fused: float
    launch_us: float


class _Variation(msgspec.Struct, frozen=True):
    spread: float


class _Constants(msgspec.Struct, frozen=True):
    """Those of kernels, of any GPU; explained in `catalog/gpu_compute.toml`."""

    variation: _Variation
    product: _Product
    attention: _Attention
    memory: _Memory


@cache
def _constants() -> _Constants:
    return msgspec.convert(read_catalog("gpu_compute.toml"), _Constants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """An accelerator of the catalog, with a clock."""

    entry: catalog.Gpu

    @staticmethod
    def of(name: str) -> Gpu:
        """The GPU of that name in the catalog, in any case."""
        return Gpu(entry=catalog.gpu(name))

    def peak_flop_s(self, precision: str) -> float:
        """Dense peak in bf16, fp16 or fp8, where it has that."""
        peaks = self.entry.peak_tflop_s
        has = f"Its tensor cores have {', '.join(peaks)}."
        return 1e12 * find_named(f"number format of {self.entry.name}", precision, peaks, has)

    @property
    def memory_byte_s(self) -> float:
        """Bandwidth of its memory, as the datasheet has it."""
        return 1e9 * self.entry.memory_gbyte_s

    def slowest_of(self, count: int) -> float:
        """How many times longer than a mean one the slowest of so many takes: the expected largest of normal times."""
        if count == 1:
            return 1.0
        return 1 + _constants().variation.spread * NormalDist().inv_cdf((count - 0.375) / (count + 0.25))

    def matmul_s(
        self, m: int, n: int, k: int, precision: str, count: int = 1, *, result_bytes: int = BF16_BYTES
    ) -> float:
        """Time of `count` products [m, k] x [k, n] in one kernel (experts, heads).

        `result_bytes` go to and from memory for an element of the result: 8 where it is added to gradients in fp32.
        """
        rate_flop_s = self.entry.sustained * self.peak_flop_s(precision)
        operand_bytes = FP8_BYTES if precision == "fp8" else BF16_BYTES
        return _matmul_s(m, n, k, count, operand_bytes, result_bytes, rate_flop_s, self.memory_byte_s, self.entry.sms)

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
    ) -> float:
        """Time of softmax(Q K') V, or of its gradients, in 16 bits. Causal queries are the last ones of the keys.

        Not fused, as before 2022, scores of all pairs go through memory: out of a product, through softmax, through
        dropout, into the next product; a causal mask spares nothing.
        """
        if not fused:
            return self._unfused_attention_s(batch * heads, queries, keys, head_dim, backward)
        kernel = _constants().attention
        products = 5 if backward else 2
        rate_flop_s = (kernel.backward if backward else kernel.forward) * self.peak_flop_s("bf16")
        start_s = 1e-6 * (kernel.backward_us if backward else kernel.forward_us)
        # A tile on the diagonal is computed whole.
        seen = keys - (queries - kernel.tile) / 2 if causal else keys
        flop = 2 * products * head_dim * batch * heads * queries * seen
        # SMs end at different times: on the average half of the longest piece of work before the last one.
        tail_flop = products * head_dim * kernel.tile * keys * self.entry.sms
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
        """Time of a kernel that reads and writes so many bytes and computes little: norms, activations, additions."""
        memory = _constants().memory
        return max(1e-6 * memory.launch_us, moved_bytes / (memory.fused * self.memory_byte_s))

    def adam_s(self, parameters: float, moved_bytes: int = ADAM_BYTES) -> float:
        """Time of a fused Adam step over so many parameters, of which each moves so many bytes."""
        return self.pass_s(parameters * moved_bytes)

    def fp8_cast_s(self, elements: float) -> float:
        """What a matrix costs before its products in fp8: once for each activation, each gradient, each changed weight.

        It is read in bf16, its largest element found on the way, and written in fp8 twice: as it is, and transposed,
        since Hopper multiplies fp8 only along rows, and a backward product goes along the other side.
        """
        return self.pass_s(elements * (BF16_BYTES + 2 * FP8_BYTES))


@cache
def _matmul_s(
    m: int,
    n: int,
    k: int,
    count: int,
    operand_bytes: int,
    result_bytes: int,
    rate_flop_s: float,
    memory_byte_s: float,
    sms: int,
) -> float:
    product, memory = _constants().product, _constants().memory
    byte_s = memory.product * memory_byte_s
    fastest_s = float("inf")
    for high, wide in product.tiles:
        tiles = count * ceil(m / high) * ceil(n / wide)
        for split in product.splits:
            multiply_s = 2 * high * wide * k / split / (rate_flop_s / sms)
            element_bytes = result_bytes if split == 1 else max(result_bytes, product.partial_bytes)
            write_s = high * wide * element_bytes / (byte_s / sms)
            fastest_s = min(fastest_s, ceil(tiles * split / sms) * (multiply_s + write_s))
    moved_bytes = count * (operand_bytes * (m + n) * k + result_bytes * m * n)
    return max(1e-6 * product.launch_us, fastest_s, moved_bytes / byte_s)
