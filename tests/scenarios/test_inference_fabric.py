"""Serving models on fabrics; docs/scenarios.md runs the whole comparison."""

from __future__ import annotations

import pytest

from weft.errors import ConfigError
from weft.scenarios import inference_fabric
from weft.scenarios.inference_fabric import FABRICS, _apart

IB, _, TCP = FABRICS


def test_a_hand_off_takes_its_bytes_over_the_adapters_and_delays_the_first_token_alone():
    """Eight adapters carry 80 layers of 8 heads of 128 keys and values in bf16; TCP has 15 Gbit/s a connection."""
    kv_bytes = 2048 * 80 * 2 * 8 * 128 * 2
    arguments = {"prompt": 2048, "answer": 64, "users": 1, "seed": 1}
    (ib_s, ib_ttft_s), (tcp_s, tcp_ttft_s) = (_apart(name, arguments) for name in (IB, TCP))
    for handoff_s, gbyte_s in ((ib_s, 50), (tcp_s, 15 / 8)):
        assert handoff_s == pytest.approx(0.4e-3 + kv_bytes / (0.75 * 8 * gbyte_s * 1e9), rel=0.02)
    assert tcp_ttft_s - ib_ttft_s == pytest.approx(tcp_s - ib_s, rel=0.05)


@pytest.mark.parametrize("flag", ["prompt", "answer", "users"])
def test_lengths_and_users_below_one_are_refused(flag):
    with pytest.raises(ConfigError, match=f"--{flag} must be 1 or more, got 0"):
        inference_fabric.run(**{flag: 0})


def test_rows_and_the_sentence_have_the_figures_of_their_fabric(monkeypatch):
    monkeypatch.setattr(inference_fabric, "_inside", lambda name, _: {IB: 1000.0}.get(name, 900.0))
    monkeypatch.setattr(inference_fabric, "_experts", lambda name, _: (500.0, 0.1) if name == IB else (50.0, 0.9))
    monkeypatch.setattr(inference_fabric, "_apart", lambda name, _: (0.01, 0.5) if name == IB else (0.2, 0.7))
    finding = inference_fabric.run(prompt=8192)
    assert finding.rows[0] == ("NDR InfiniBand", 1000.0, 500.0, 10.0, 10.0, 500.0)
    assert finding.rows[2] == ("TCP on 100G Ethernet", 900.0, 50.0, 90.0, 200.0, 700.0)
    assert finding.figures["experts_waits"][TCP] == 0.9
    assert "500 tokens/s on InfiniBand, 50 on RoCE and 50 on TCP, 10 times fewer" in finding.finding
    assert "8,192 tokens moves in 10 ms on InfiniBand and 200 ms on TCP, 2.0% and 29% of the time" in finding.finding
