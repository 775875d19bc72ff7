"""Symmetric kernels: NCCL's choices, compared with its library, and their times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from weft.collectives.kinds import Algorithm, Collective, collective
from weft.collectives.nccl.band import band_of
from weft.collectives.nccl.choose import choose
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.symmetric import kernels, penalty, pick
from weft.errors import ConfigError, UnknownName
from weft.units import gbyte_s

JUDGED = sorted(Path(__file__).parent.glob("nccl_2_*.txt"))
SUMS = (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)


def judged(path: Path, kind: str) -> list[list[str]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split()[1:] for line in lines if line.startswith(f"{kind} ")]


def cluster_of(words: str, path: Path) -> Cluster:
    sm, gpus, nodes = map(int, words.split(":"))
    version = path.stem.removeprefix("nccl_").replace("_", ".")
    return Cluster(sm=sm, gpus=gpus, nodes=nodes, nics=gpus, nic_gbit_s=400, nccl=version, windows=True)


@pytest.mark.parametrize("path", JUDGED, ids=lambda path: path.stem)
def test_nccl_itself_takes_the_same_kernels(path: Path) -> None:
    """The number of blocks and the time agree too; since 2.31 the time includes the penalty for blocks."""
    output = judged(path, "pick")
    assert len(output) > 100
    for where, name, size_bytes, kernel, us, blocks in output:
        cluster = cluster_of(where, path)
        result = pick(cluster, collective(name), int(size_bytes))
        assert (result.name if result else "none") == kernel, (where, size_bytes)
        if result is not None:
            times = 1.0 if path.stem == "nccl_2_30_7" else 1 + penalty(cluster, result) * result.blocks
            assert (result.time_us * times, result.blocks) == (pytest.approx(float(us), rel=3e-5), int(blocks))


@pytest.mark.parametrize("path", [one for one in JUDGED if one.stem != "nccl_2_30_7"], ids=lambda path: path.stem)
def test_and_believes_the_same_of_every_other(path: Path) -> None:
    output = judged(path, "kernel")
    assert len(output) > 200
    for where, name, size_bytes, kernel, us, blocks in output:
        cluster = cluster_of(where, path)
        result = next(item for item in kernels(cluster, collective(name), int(size_bytes)) if item.name == kernel)
        believed_us = result.time_us * (1 + penalty(cluster, result) * result.blocks)
        assert (believed_us, result.blocks) == (pytest.approx(float(us), rel=3e-5), int(blocks)), (where, kernel)


def test_without_windows_there_is_none() -> None:
    cluster = from_server("dgx-h100", nodes=1)
    assert estimate(cluster, Collective.ALL_REDUCE, 1 << 20).kernel == ""
    assert choose(cluster, Collective.ALL_REDUCE, 1 << 20).kernel is None
    switched_off = replace(cluster, windows=True, win_enable=False)
    assert estimate(switched_off, Collective.ALL_REDUCE, 1 << 20).name == "Ring/LL"
    assert {kernel.off for kernel in kernels(switched_off, Collective.ALL_REDUCE, 8)} == {"switched off"}


def test_versions_have_the_kernels_of_their_code() -> None:
    cluster = replace(from_server("dgx-h100", nodes=1), windows=True)
    count = {version: len(constants(version).symmetric.kernels) for version in ("2.26", "2.27", "2.28", "2.29", "2.30")}
    assert count == {"2.26": 0, "2.27": 11, "2.28": 11, "2.29": 14, "2.30": 18}
    assert estimate(replace(cluster, nccl="2.26"), Collective.ALL_REDUCE, 1 << 20).kernel == ""
    four = replace(from_server("dgx-h100", nodes=4), windows=True)
    result = {v: estimate(replace(four, nccl=v), Collective.ALL_GATHER, 1 << 30).name for v in ("2.28", "2.29", "2.32")}
    assert result == {"2.28": "Ring/Simple"} | dict.fromkeys(("2.29", "2.32"), "AllGather_RailRing_LsaSTMC")


def test_two_gpus_have_multicast_before_2_29_only() -> None:
    two = Cluster(sm=90, gpus=2, nodes=1, windows=True)
    early, late = (pick(replace(two, nccl=item), Collective.ALL_REDUCE, 64 << 20) for item in ("2.28", "2.29"))
    assert early is not None
    assert late is not None
    assert (early.multicast, late.multicast) == (True, False)


def test_all_reduce_between_nodes_has_none() -> None:
    cluster = replace(from_server("dgx-h100", nodes=4), windows=True)
    assert pick(cluster, Collective.ALL_REDUCE, 1 << 20) is None
    assert estimate(cluster, Collective.ALL_REDUCE, 1 << 20).algorithm is not None
    assert pick(replace(cluster, sym_gin=False), Collective.REDUCE_SCATTER, 1 << 20) is None


def test_tma_is_for_blackwell_and_unless_switched_off_since_2_31() -> None:
    cluster = replace(from_server("dgx-b200", nodes=1), windows=True)
    size_bytes = 8 << 30
    for version, tma, on in (("2.30", None, False), ("2.30", True, True), ("2.32", None, True), ("2.32", False, False)):
        requests = replace(cluster, nccl=version, sym_tma=tma)
        offered = kernels(requests, Collective.ALL_GATHER, size_bytes)
        assert any(item.tma and not item.off for item in offered) == on, (version, tma)
    hopper = replace(from_server("dgx-h100", nodes=1), windows=True, sym_tma=True)
    assert not any(item.tma and not item.off for item in kernels(hopper, Collective.ALL_GATHER, size_bytes))


def test_since_2_31_nccl_algo_goes_before_kernels() -> None:
    cluster = replace(from_server("dgx-h100", nodes=1), windows=True)
    result = {
        version: estimate(
            replace(cluster, nccl=version), Collective.ALL_REDUCE, 1 << 20, algorithm=Algorithm.RING
        ).name.partition("/")[0]
        for version in ("2.30", "2.31")
    }
    assert result == {"2.30": "AllReduce_RSxLDMC_AGxSTMC", "2.31": "Ring"}


def test_a_kernel_can_be_asked_for_and_its_blocks() -> None:
    cluster = replace(from_server("dgx-h100", nodes=1), windows=True, sym_kernel="AllReduce_RSxLD_AGxST", sym_ctas=4)
    result = estimate(cluster, Collective.ALL_REDUCE, 1 << 30)
    assert (result.name, result.channels, result.bound) == ("AllReduce_RSxLD_AGxST", 4, "channels")
    with pytest.raises(ConfigError, match=r"AllReduce_RSxLD_AGxST .*not for all_gather"):
        estimate(cluster, Collective.ALL_GATHER, 1 << 30)
    with pytest.raises(ConfigError, match="no multicast"):
        estimate(replace(cluster, sym_kernel="AllReduce_AGxLLMC_R", nvls=False), Collective.ALL_REDUCE, 8)
    with pytest.raises(UnknownName, match="AllReduce_RSxLD_AGxST"):
        estimate(replace(cluster, sym_kernel="AllReduce_RSxLD"), Collective.ALL_REDUCE, 8)
    with pytest.raises(ConfigError, match=r"2\.27 is the first"):
        estimate(replace(cluster, nccl="2.26"), Collective.ALL_REDUCE, 8)


@pytest.mark.parametrize(("ctas", "size_bytes", "blocks"), [(0, 8, 1), (0, 1 << 20, 8), (4, 8, 4), (4, 1 << 20, 4)])
def test_little_data_gives_a_tma_kernel_fewer_blocks_unless_their_number_is_asked_for(
    ctas: int, size_bytes: int, blocks: int
) -> None:
    """Each of n blocks needs 16 KiB for each of the 8 GPUs: 1 MiB is enough for 8 blocks."""
    cluster = replace(
        from_server("dgx-b200", nodes=1),
        windows=True,
        nccl="2.32",
        sym_tma=True,
        sym_kernel="AllReduce_RSxTmaLD_AGxTmaST",
        sym_ctas=ctas,
    )
    result = pick(cluster, Collective.ALL_REDUCE, size_bytes)
    assert result is not None
    assert result.blocks == blocks


@pytest.mark.parametrize("server", ["dgx-h100", "dgx-b200"])
@pytest.mark.parametrize("nodes", [1, 4])
def test_no_kernel_is_faster_than_its_links(server: str, nodes: int) -> None:
    cluster = replace(from_server(server, nodes=nodes), windows=True)
    for kind in SUMS:
        result = estimate(cluster, kind, 16 << 30)
        if result.kernel:
            adds = "LDMC" in result.kernel and kind == Collective.ALL_REDUCE
            most = cluster.nvlink_gbyte_s * (2 if adds else 1)
            assert result.bus_gbyte_s < most
        if nodes > 1:  # data from GPUs of the same node cross no adapter
            outside = (cluster.ranks - cluster.gpus) / (cluster.ranks - 1)
            assert result.bus_gbyte_s * outside < cluster.nics * gbyte_s(cluster.nic_gbit_s)


def test_small_messages_take_the_kernels_latency_and_large_ones_nvlink() -> None:
    cluster = replace(from_server("dgx-h100", nodes=1), windows=True)
    small, large = (estimate(cluster, Collective.ALL_REDUCE, size) for size in (1024, 1 << 30))
    assert small.parts["launch"] == 4.5  # LL
    assert small.time_us < 5.5
    assert (large.bound, large.parts["launch"]) == ("NVLink", 7.8)


def test_a_ring_of_rails_waits_for_its_first_chunk_or_for_all_of_a_smaller_message() -> None:
    cluster = replace(from_server("dgx-h100", nodes=4), windows=True)
    results = [estimate(cluster, Collective.ALL_GATHER, size) for size in (1 << 20, 1 << 21, 1 << 26, 1 << 27)]
    assert {result.kernel for result in results} == {"AllGather_RailRing_LsaSTMC"}
    waits_us = [result.parts["pipeline"] for result in results]
    assert waits_us[1] == pytest.approx(2 * waits_us[0])
    assert waits_us[2] == waits_us[3]


def test_a_band_says_that_nobody_published_kernels() -> None:
    cluster = replace(from_server("dgx-h100", nodes=1), windows=True)
    result = band_of(estimate(cluster, Collective.ALL_REDUCE, 1 << 20))
    assert "no published run of AllReduce_RSxLDMC_AGxSTMC" in result.far
    assert "no published run of symmetric kernels of one server" in result.far
    assert result.kind == "any kind"


def test_explain_has_the_kernel_the_others_and_why_not() -> None:
    cluster = replace(from_server("dgx-h100", nodes=1), windows=True)
    lines = choose(cluster, Collective.ALL_REDUCE, 1 << 20).explain().splitlines()
    assert lines[1] == "AllReduce_RSxLDMC_AGxSTMC: 9.4 us, 1 blocks of 512 threads; without windows"
    assert lines[2].startswith("Ring/LL: ")
    assert "AllReduce_RSxTmaLD_AGxTmaST off: GPUs before Blackwell" in lines
    assert any(line.startswith("AllReduce_RSxLD_AGxST: ") for line in lines)
