"""Latencies of the catalog, and the parts that they apply to."""

from __future__ import annotations

import pytest

from weft.fabric import catalog
from weft.fabric.rates import Technology, speeds
from weft.fabric.timing import timings


def test_an_adapter_goes_by_its_server_then_its_model_then_its_technology() -> None:
    recorded = timings()
    plain = recorded.of_adapter("ConnectX-6", Technology.INFINIBAND)
    assert recorded.of_adapter("ConnectX-6", Technology.INFINIBAND, "dgx-a100").gap_ns > 1.5 * plain.gap_ns
    assert recorded.of_adapter("ConnectX-6", Technology.INFINIBAND, "dgx-h100") is plain
    assert recorded.of_adapter("ConnectX-99", Technology.ETHERNET) is recorded.adapter["ethernet"]


def test_every_entry_is_of_something_in_the_catalog() -> None:
    """A misspelt name would never be looked up, without any error."""
    adapters = {item.name for item in catalog.adapters()}
    servers = {item.name for item in catalog.servers()}
    for name in timings().adapter:
        server, _, model = name.rpartition("/")
        assert name in set(Technology) or (model in adapters and (not server or server in servers)), name
    assert set(timings().line) <= {"default", *(speed.name for speed in speeds())}


def test_every_technology_that_can_be_run_has_an_adapter() -> None:
    assert {Technology.INFINIBAND, Technology.ETHERNET, Technology.OMNI_PATH} <= set(timings().adapter)


def test_figures_are_possible() -> None:
    for name, adapter in timings().adapter.items():
        costs = {key: getattr(adapter, key) for key in adapter.__struct_fields__ if key.endswith("_ns")}
        assert all(cost >= 0 for cost in costs.values()), name
        least_ns = 300 if name == Technology.NVLINK else 500
        assert adapter.post_ns + adapter.receive_ns >= least_ns, f"{name}: no adapter is that fast"
    for name, line in timings().line.items():
        assert (
            0
            <= line.overhead
            < (0.31 if name.startswith("xGMI") else 0.25 if name.startswith(("NVLink", "PCIe")) else 0.05)
        ), name
        assert 0 <= line.fec_ns < 200, name
    assert 0 < timings().pcie.lone < timings().pcie.stream < 1


@pytest.mark.parametrize("speed", ["HDR", "NDR", "XDR", "200GbE", "400GbE", "800GbE"])
def test_lines_with_four_levels_correct_errors(speed: str) -> None:
    """PAM4 does without on no cable (IEEE 802.3bs)."""
    assert timings().of_line(speed).fec_ns > 0
    assert timings().of_line("SDR").fec_ns == 0


@pytest.mark.parametrize("server", ["dgx-h100", "dgx-h100+ConnectX-8", "dgx-h100+4rails"])
def test_nvswitches_of_a_variant_are_as_fast_as_those_of_its_box(server: str) -> None:
    for technology in (Technology.INFINIBAND, Technology.ETHERNET):
        assert timings().switch_ns(server, technology) == timings().switch.nvlink_ns
