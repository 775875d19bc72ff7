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
