"""The computing time of a GPU, against measurements of an H200 and lower bounds."""

from __future__ import annotations

from statistics import mean
from typing import Any

import numpy as np
import pytest

from weft.errors import ConfigError
from weft.fabric import catalog
from weft.fabric.rates import read_catalog
from weft.training.gpu import OPERAND_BYTES, Gpu

HOST_BOUND_US = 25  # shorter measurements show the host's time
ATTENTION: dict[str, Any] = {"batch": 1, "head_dim": 128, "fused": True}


@pytest.fixture(scope="module")
def measured() -> Any:
    return read_catalog("gpu_compute.toml")["measured"]


@pytest.fixture
def h200() -> Gpu:
    return Gpu.of("H200")


def check(errors: list[float], *, median: float, tenth: float, mean: float) -> None:
    """Assert bounds on the median and the 90th percentile of the errors, and on their mean (bias)."""
    assert np.median(np.abs(errors)) < median
    assert np.percentile(np.abs(errors), 90) < tenth
    assert abs(np.mean(errors)) < mean


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_products_take_what_they_took(measured: Any, h200: Gpu, precision: str) -> None:
    """567 shapes in either precision, without those that waited for the host."""
    errors = []
    for m, block in measured[f"{precision}_us"].items():
        for n, row in zip(measured["n"], block, strict=True):
            for k, took_us in zip(measured["k"], row, strict=True):
                if took_us > HOST_BOUND_US:
                    errors.append(1e6 * h200.matmul_s(int(m), n, k, precision) / took_us - 1)
    assert len(errors) > 450
    check(errors, median=0.035, tenth=0.1, mean=0.02)


def test_layers_of_models_take_what_they_took(measured: Any, h200: Gpu) -> None:
    """Forward, the two products backward, of which the second adds to a sum in fp32, and forward in fp8."""
    errors: dict[str, list[float]] = {}
    for rows in (rows for model, rows in measured["layers"].items() if model != "columns"):
        for m, n, k, *took_us in rows:
            predicted_s = {
                "forward": h200.matmul_s(m, n, k, "bf16"),
                "input": h200.matmul_s(m, k, n, "bf16"),
                "weight": h200.matmul_s(n, k, m, "bf16", result_bytes=8),
                "fp8": h200.matmul_s(m, n, k, "fp8"),
            }
            for (kind, s), us in zip(predicted_s.items(), took_us, strict=True):
                errors.setdefault(kind, []).append(1e6 * s / us - 1)
    for error in errors.values():
        check(error, median=0.045, tenth=0.11, mean=0.05)


def test_experts_and_heads_in_one_kernel_take_what_they_took(measured: Any, h200: Gpu) -> None:
    for count, m, n, k, took_us in measured["grouped"]["experts"]:
        assert 1e6 * h200.matmul_s(m, n, k, "bf16", count) == pytest.approx(took_us, rel=0.17)
    for count, m, n, k, took_us in measured["grouped"]["heads"]:
        assert 1e6 * h200.matmul_s(m, n, k, "bf16", count) == pytest.approx(took_us, rel=0.35)


def test_products_of_experts_are_within_a_quarter_down_to_256_rows(measured: Any, h200: Gpu) -> None:
    """A fixed time for each tile counts twice as much in fp8, which multiplies twice as fast."""
    errors: dict[str, list[float]] = {}
    for count, m, n, k, us, weight_us, fp8_us, *_ in measured["expert_products"]["rows"]:
        if m < 256:
            continue
        predicted_s = {
            "forward": (us, h200.matmul_s(m, n, k, "bf16", count, grouped=True)),
            "weight": (weight_us, h200.matmul_s(n, k, m, "bf16", count, grouped=True)),
            "fp8": (fp8_us, h200.matmul_s(m, n, k, "fp8", count, grouped=True)),
        }
        for kind, (took_us, s) in predicted_s.items():
            errors.setdefault(kind, []).append(1e6 * s / took_us - 1)
    for kind, each in errors.items():
        assert abs(mean(each)) < 0.1, kind
        assert mean(map(abs, each)) < 0.2, kind


def test_a_layer_with_experts_waits_for_launches_of_12_to_16_microseconds(measured: Any) -> None:
    """The time of host.layer_ms and expert_ms in frameworks.toml, which have 15 for each launch."""
    for _, ms, kernels_ms, kernels in measured["expert_layer"]["rows"]:
        assert kernels_ms < 0.1 * ms
        assert 12 < 1e3 * ms / kernels < 16


def test_few_rows_take_what_memory_takes(measured: Any, h200: Gpu) -> None:
    for m, n, k, took_us in measured["small"]["bf16"]:
        if took_us > HOST_BOUND_US:
            assert 1e6 * h200.matmul_s(m, n, k, "bf16") == pytest.approx(took_us, rel=0.15)


def test_attention_takes_what_it_took(measured: Any, h200: Gpu) -> None:
    """Causal or not, with few heads of keys or many, narrow or wide."""
    for batch, seq, heads, kv_heads, head_dim, causal, *took_us in measured["attention"]["cudnn"]:
        shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "causal": causal}
        for backward, host_us, us, within in zip((False, True), (50, 150), took_us, (0.06, 0.13), strict=True):
            if us > host_us:
                predicted_s = h200.attention_s(**shape, queries=seq, keys=seq, backward=backward, fused=True)
                assert 1e6 * predicted_s == pytest.approx(us, rel=within), (shape, seq)


def test_passes_over_memory_take_what_they_took(measured: Any, h200: Gpu) -> None:
    """Kernels differ by how well they are written; Adam and the norm of today's models are near."""
    for kind, share in {
        "add": 0.25,
        "copy": 0.25,
        "layer_norm": 0.3,
        "gelu": 0.2,
        "rms_norm": 0.1,
        "adam": 0.1,
    }.items():
        moved_bytes, took_us = measured["passes"][kind][-1]
        assert 1e6 * h200.pass_s(moved_bytes) == pytest.approx(took_us, rel=share), kind
    parameters = measured["passes"]["adam"][-1][0] / 28  # PyTorch's step writes no bf16 copy
    assert h200.adam_s(parameters) == pytest.approx(h200.adam_s(parameters, moved_bytes=28) * 30 / 28)


@pytest.mark.parametrize("name", [gpu.name for gpu in catalog.gpus()])
def test_no_product_beats_peak_or_memory(name: str) -> None:
    gpu = Gpu.of(name)
    for precision, tflop_s in gpu.entry.peak_tflop_s.items():
        size = OPERAND_BYTES[precision]
        for m, n, k in ((1, 8192, 8192), (64, 4096, 28672), (777, 5120, 640), (8192, 8192, 8192)):
            took_s = gpu.matmul_s(m, n, k, precision)
            assert took_s > 2 * m * n * k / (gpu.entry.sustained * tflop_s * 1e12) * (1 - 1e-9)
            assert took_s > (size * (m + n) * k + 2 * m * n) / gpu.memory_byte_s


def test_the_same_chip_with_slower_memory_is_slower_where_memory_binds() -> None:
    h100, h200 = Gpu.of("h100"), Gpu.of("H200")
    assert h100.matmul_s(16, 16384, 16384, "bf16") == pytest.approx(
        4800 / 3350 * h200.matmul_s(16, 16384, 16384, "bf16")
    )
    assert h100.matmul_s(16384, 16384, 16384, "bf16") == pytest.approx(
        h200.matmul_s(16384, 16384, 16384, "bf16"), rel=0.01
    )


def test_experts_in_one_kernel_are_launched_once(h200: Gpu) -> None:
    one_s = h200.matmul_s(16, 512, 512, "bf16")
    assert h200.matmul_s(16, 512, 512, "bf16", count=32) < 2 * one_s


def test_gradients_in_fp32_cost_their_way_to_memory(h200: Gpu) -> None:
    """A weight of 8192 x 8192 takes six more bytes per element, at nine tenths of the bandwidth."""
    to_bf16_s = h200.matmul_s(8192, 8192, 4096, "bf16")
    assert h200.matmul_s(8192, 8192, 4096, "bf16", result_bytes=8) - to_bf16_s == pytest.approx(
        6 * 8192**2 / (0.9 * 4.8e12), rel=0.05
    )


def test_causal_attention_is_half_of_it_when_long_and_less_where_queries_are_the_last_keys(h200: Gpu) -> None:
    long = ATTENTION | {"heads": 32, "kv_heads": 8, "keys": 65536, "backward": False}
    whole_s = h200.attention_s(**long, queries=65536, causal=False)
    assert h200.attention_s(**long, queries=65536, causal=True) == pytest.approx(whole_s / 2, rel=0.02)
    assert h200.attention_s(**long, queries=16384, causal=True) == pytest.approx(whole_s / 4 * 7 / 8, rel=0.02)


PAPER = {  # TFLOP/s by the figures of FlashAttention-3 (Shah et al., 2024): H100, 16 heads of 128, 16,384 tokens in all
    ("fa3", False, False): (638, 646, 648),
    ("fa3", True, False): (579, 602, 616),
    ("fa3", False, True): (542, 559, 561),
    ("fa2", False, False): (368, 370, 370),
    ("fa2", True, False): (319, 333, 335),
    ("fa2", False, True): (310, 318, 322),
}


@pytest.mark.parametrize(("case", "published"), PAPER.items(), ids=str)
def test_flash_attention_is_as_fast_as_its_authors_measured(case, published):
    kernel, causal, backward = case
    for seq, tflop_s in zip((4096, 8192, 16384), published, strict=True):
        shape: dict[str, Any] = {"batch": 16384 // seq, "heads": 16, "kv_heads": 16, "head_dim": 128}
        flop = 4 * 16384 * seq * 16 * 128 * (2.5 if backward else 1) / (2 if causal else 1)
        taken_s = Gpu.of("H100").attention_s(
            **shape, queries=seq, keys=seq, causal=causal, backward=backward, fused=True, kernel=kernel
        )
        assert flop / taken_s / 1e12 == pytest.approx(tflop_s, rel=0.05), seq


def test_flash_attention_3_is_refused_where_it_does_not_run():
    for name in ("A100", "B200"):
        with pytest.raises(ConfigError, match="take fa2 or cudnn"):
            Gpu.of(name).attention_s(
                **ATTENTION, heads=8, kv_heads=8, queries=4096, keys=4096, causal=True, backward=False, kernel="fa3"
            )


def test_unfused_attention_is_its_products_and_passes_of_scores(h200: Gpu) -> None:
    """Softmax reads and writes two bytes, dropout too, with a mask of one; backward, softmax reads one matrix more."""
    shape: dict[str, Any] = {"batch": 2, "heads": 12, "kv_heads": 12, "queries": 2048, "keys": 2048, "head_dim": 128}
    scores = 2 * 12 * 2048**2
    to_scores_s = h200.matmul_s(2048, 2048, 128, "bf16", count=24)
    from_scores_s = h200.matmul_s(2048, 128, 2048, "bf16", count=24)
    for backward, passes_bytes, narrow in ((False, 4 + 5, 1), (True, 5 + 6, 3)):
        unfused_s = h200.attention_s(**shape, causal=True, backward=backward, fused=False)
        assert unfused_s == pytest.approx(to_scores_s + narrow * from_scores_s + h200.pass_s(scores * passes_bytes))
        assert unfused_s > 2 * h200.attention_s(**shape, causal=True, backward=backward, fused=True)


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_products_of_few_rows_in_a_graph_take_as_long_as_measured(measured: Any, h200: Gpu, precision: str) -> None:
    """From 1 to 1,024 rows; long products run faster than a job of weeks sustains, so that the largest lean up."""
    decode, gpu = measured["decode"], h200.with_graphs()
    errors = [
        1e6 * gpu.matmul_s(m, n, k, precision) / us - 1
        for n, k, *row in decode[precision]
        for m, us in zip(decode["m"], row, strict=True)
    ]
    check(errors, median=0.09, tenth=0.21, mean=0.06)


def test_weights_in_four_bits_are_read_faster_and_multiplied_alike(h200: Gpu) -> None:
    gpu = h200.with_graphs()
    few, many = 1, 8192
    assert gpu.matmul_s(few, 8192, 8192, "bf16", weight_bytes=0.5) < gpu.matmul_s(few, 8192, 8192, "bf16") / 2.5
    ratio = gpu.matmul_s(many, 8192, 8192, "bf16", weight_bytes=0.5) / gpu.matmul_s(many, 8192, 8192, "bf16")
    assert ratio == pytest.approx(1, abs=0.01)


def test_fp8_casts_are_passes(h200: Gpu) -> None:
    assert h200.fp8_cast_s(8192 * 8192) == h200.pass_s(4 * 8192 * 8192)


def test_a_format_that_a_gpu_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match=r"(?s)number format of A100.*fp8.*bf16"):
        Gpu.of("a100").matmul_s(512, 512, 512, "fp8")
    with pytest.raises(ConfigError, match="H1000"):
        Gpu.of("H1000")
