"""NCCL's choices, compared with NCCL's own output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import weft
from weft.collectives.kinds import Algorithm, Collective, Protocol, collective
from weft.collectives.nccl.choose import choose, time_us
from weft.collectives.nccl.cluster import Cluster, Processor, from_fabric, from_server
from weft.collectives.nccl.constants import constants
from weft.collectives.nccl.graphs import Graph, Graphs, inside_gbyte_s, search
from weft.collectives.nccl.tuning import table
from weft.errors import ConfigError, UnknownName
from weft.fabric.faults import remove_link
from weft.fabric.rates import read_catalog

JUDGED = sorted(Path(__file__).parent.glob("nccl_2_*.txt"))
OLDER = Path(__file__).with_name("nccl_older.txt")
PATTERNS = {"chain": "collnet_chain", "direct": "collnet_direct"}


@dataclass
class Case:
    """The results of NCCL for one cluster."""

    name: str
    version: str
    cluster: Cluster
    channels: tuple[int, int] = (0, 0)
    graphs: dict[str, Graph] = field(default_factory=dict)
    table: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)  # collective, Ring/LL
    choices: list[list[str]] = field(default_factory=list)


def judged() -> list[Case]:
    cases: list[Case] = []
    for path in JUDGED:
        _read(path, path.stem.removeprefix("nccl_").replace("_", "."), cases)
    return cases


def _read(path: Path, version: str, cases: list[Case]) -> None:
    """Read cases; without a version, it is the first word of a case."""
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, *words = line.split()
        if kind == "case":
            its, *about = (version, *words) if version else words
            cases.append(Case(" ".join(about), its, replace(_cluster(*about), nccl=its)))
        elif kind == "graph":
            channels, intra, inter = int(words[1]), float(words[2]), float(words[3])
            result = Graph(channels=channels, intra_gbyte_s=intra, inter_gbyte_s=inter)
            cases[-1].graphs[PATTERNS.get(words[0], words[0])] = result
        elif kind == "channels":
            cases[-1].channels = int(words[0]), int(words[1])
        elif kind == "table":
            cases[-1].table[words[0], f"{words[1]}/{words[2]}"] = float(words[3]), float(words[4])
        elif kind == "choice":
            cases[-1].choices.append(words)


def _cluster(name: str, nodes: str, sharp: str, nvls: str) -> Cluster:
    if ":" not in name:
        return from_server(name, nodes=int(nodes), sharp=sharp == "1", nvls=nvls == "1")
    sm, gpus, nics, gbit_s, processor = name.split(":")
    return Cluster(
        sm=int(sm),
        gpus=int(gpus),
        nodes=int(nodes),
        nics=int(nics),
        nic_gbit_s=int(gbit_s),
        processor=Processor(processor),
        sharp=sharp == "1",
        nvls=nvls == "1",
    )


CASES = judged()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.version}-{case.name.replace(' ', '-')}")


def test_the_constants_have_a_judge_and_so_has_every_newer_version() -> None:
    """Tables of older versions up to 2.25 were run (below); those of later ones were read."""
    versions = {case.version for case in CASES}
    assert constants().version in versions
    newer = read_catalog("nccl.toml")["newer"]
    assert {item.rpartition(".")[0] for item in versions} == {constants().version.rpartition(".")[0], *newer}
    for version in versions:
        cases = [case for case in CASES if case.version == version]
        assert len(cases) > 20
        assert sum(len(case.choices) for case in cases) > 300


@each_case
def test_the_search_finds_the_channels_that_nccl_finds(case: Case) -> None:
    result = search(case.cluster)
    assert {name: getattr(result, name) for name in case.graphs} == case.graphs
    absent = {"collnet_chain", "collnet_direct", "nvls"} - case.graphs.keys()
    assert not [name for name in absent if getattr(result, name).channels]
    assert (result.channels(case.cluster), result.nvls_channels(case.cluster)) == case.channels


@each_case
def test_the_table_is_nccls(case: Case) -> None:
    _check_table(case)


def test_tables_of_older_versions_are_nccls() -> None:
    cases: list[Case] = []
    _read(OLDER, "", cases)
    minors = {case.version.rpartition(".")[0] for case in cases}
    assert minors == {f"2.{minor}" for minor in range(18, 26)} <= read_catalog("nccl.toml")["older"].keys()
    assert all(case.table for case in cases)
    for case in cases:
        _check_table(case)


def _check_table(case: Case) -> None:
    for name in ("AllReduce", "AllGather", "Broadcast"):
        rows = table(case.cluster, search(case.cluster), collective(name))
        ours = {(name, row.name): (row.latency_us, row.algo_gbyte_s) for row in rows if not row.off}
        theirs = {key: value for key, value in case.table.items() if key[0] == name}
        assert ours.keys() == theirs.keys(), (case.version, case.name)
        for key, value in theirs.items():
            assert ours[key] == pytest.approx(value, rel=2e-5), (case.version, case.name, key)


@each_case
def test_the_choice_is_nccls(case: Case) -> None:
    for name, size_bytes, algorithm, protocol, us, channels, warps in case.choices:
        choice = choose(case.cluster, collective(name), int(size_bytes))
        assert choice.row.name == f"{algorithm}/{protocol}", (name, size_bytes)
        assert choice.time_us == pytest.approx(float(us), rel=2e-5)
        assert (choice.channels, choice.threads // 32) == (int(channels), int(warps)), (name, size_bytes)


def test_reduce_scatter_goes_as_all_gather_and_reduce_as_broadcast() -> None:
    cluster = from_server("dgx-h100", nodes=4, sharp=True)
    for item, other in (
        (Collective.REDUCE_SCATTER, Collective.ALL_GATHER),
        (Collective.REDUCE, Collective.BROADCAST),
    ):
        for size_bytes in (8, 1 << 20, 1 << 30):
            a, b = choose(cluster, item, size_bytes), choose(cluster, other, size_bytes)
            assert (a.row.name, a.time_us, a.channels) == (b.row.name, b.time_us, b.channels)


def test_explain_says_what_why_and_what_is_off() -> None:
    lines = choose(from_server("dgx-h100", nodes=4), Collective.ALL_REDUCE, 64 << 20).explain().splitlines()
    assert lines[0] == ("all_reduce of 67,108,864 bytes on 4 × 8 GPUs of sm_90, 8 × 400 Gb/s each (NCCL 2.30.7)")
    assert lines[1] == "NVLSTree/Simple: 466 us, 16 channels of 640 threads"
    assert lines[2].startswith("next Ring/LL128: 587 us, ")
    assert "NVLS off: more than one node without SHARP" in lines
    assert "CollNetChain off: no SHARP" in lines


def test_adapters_behind_the_processor_cost_ll128() -> None:
    near = Cluster(sm=90, gpus=8, nodes=2, nics=8, nic_gbit_s=400)
    far = Cluster(sm=90, gpus=8, nodes=2, nics=8, nic_gbit_s=400, near=False)
    assert any(row.protocol == Protocol.LL128 and not row.off for row in choose(near, Collective.ALL_REDUCE, 8).rows)
    assert not any(row.protocol == Protocol.LL128 and not row.off for row in choose(far, Collective.ALL_REDUCE, 8).rows)
    assert "Ring/LL128 off: adapters behind the processor" in choose(far, Collective.ALL_REDUCE, 8).explain()


def test_pcie_costs_ll128_where_gpus_of_a_node_talk_over_it() -> None:
    for gpus, off in ((1, ""), (2, "GPUs joined by PCIe")):
        cards = Cluster(sm=89, gpus=gpus, nodes=2, nics=gpus, nic_gbit_s=200, nvlinks=0)
        graph = Graph(channels=2, intra_gbyte_s=20, inter_gbyte_s=20)
        graphs = Graphs(ring=graph, tree=graph)
        rows = {row.name: row.off for row in table(cards, graphs, Collective.ALL_REDUCE)}
        assert rows["Ring/LL128"] == off


@pytest.mark.parametrize(("nodes", "copied"), [(1, 1 / 3), (2, 1 / 4)])
def test_ll_over_pcie_had_a_third_in_a_node_where_nothing_is_added(nodes: int, copied: float) -> None:
    """`plan.ratio` of NCCL 2.18: 1/4 of the channels, and 1/3 in one node unless ranks add."""
    cards = Cluster(sm=80, gpus=2, nodes=nodes, nics=2, nic_gbit_s=200, nvlinks=0, nccl="2.18")
    graph = Graph(channels=2, intra_gbyte_s=3, inter_gbyte_s=3)
    for kind, share in (
        (Collective.ALL_REDUCE, 1 / 4),
        (Collective.BROADCAST, copied),
        (Collective.ALL_GATHER, copied),
    ):
        (row,) = [row for row in table(cards, Graphs(ring=graph, tree=graph), kind) if row.name == "Ring/LL"]
        assert row.bus_gbyte_s == pytest.approx(2 * 3 * share)


@pytest.mark.parametrize(("channels", "off"), [(1, "fewer than two channels"), (2, ""), (16, "")])
def test_nvls_needs_two_channels(channels: int, off: str) -> None:
    cluster = from_server("dgx-h100", nodes=1)
    graphs = replace(search(cluster), nvls=replace(search(cluster).nvls, channels=channels))
    rows = {row.name: row.off for row in table(cluster, graphs, Collective.ALL_REDUCE)}
    assert rows["NVLS/Simple"] == off


def test_a_choice_is_the_fastest_of_its_rows() -> None:
    choice = choose(from_server("dgx-a100", nodes=8), Collective.ALL_REDUCE, 1 << 20)
    ranking = choice.ranking()
    assert ranking[0] == (choice.row, choice.time_us)
    assert [time for _, time in ranking] == sorted(time for _, time in ranking)
    assert {row.algorithm for row, _ in ranking} == {Algorithm.RING, Algorithm.TREE}


def test_a_fabric_gives_the_cluster_of_its_servers() -> None:
    fabric = weft.load("superpod:su=1,server=dgx-a100")
    assert from_fabric(fabric) == from_server("dgx-a100", nodes=len(fabric.servers))
    assert from_fabric(fabric, fabric.servers[:2]) == from_server("dgx-a100", nodes=2)


def test_a_rack_that_is_one_nvlink_domain_is_a_node_and_its_adapters_are_near() -> None:
    """Published runs on such racks are read in the same way: Grace has the adapters, and C2C to the GPUs."""
    published = Cluster(sm=100, gpus=72, nodes=2, nics=72, nic_gbit_s=400, processor=Processor.ARM)
    rack = from_server("gb200-nvl72", nodes=2)
    assert rack.near
    for size_bytes in (1 << 14, 1 << 22, 1 << 32):
        item, other = (choose(cluster, Collective.ALL_REDUCE, size_bytes) for cluster in (rack, published))
        assert (item.row, item.time_us) == (other.row, other.time_us)
    assert from_fabric(weft.load("superpod:su=2,servers=2,server=gb200-nvl72")) == rack
    some = from_server("gb200-nvl64", nodes=2)
    assert (some.gpus, some.nics, some.near) == (64, 64, True)  # two trays are spare


def test_a_pulled_cable_takes_an_adapter_from_all() -> None:
    """NCCL tunes for the weakest node."""
    fabric = weft.load("superpod:su=1,server=dgx-a100")
    hurt = from_fabric(remove_link(fabric, f"{fabric.servers[3]}/mlx5_0/1"))
    assert (hurt.nics, hurt.gpus) == (7, 8)


def test_without_nvswitches_the_channels_must_be_given() -> None:
    cluster = Cluster(sm=80, gpus=8, nodes=1, nvlinks=0)
    with pytest.raises(ConfigError, match="NCCL_DEBUG_SUBSYS=GRAPH"):
        choose(cluster, Collective.ALL_REDUCE, 1 << 20)
    # NCCL's own search on eight GPUs below four PCIe 4.0 switches and two Intel processors.
    item = Graph(channels=1, intra_gbyte_s=20.0, inter_gbyte_s=20.0)
    choice = choose(cluster, Collective.ALL_REDUCE, 1 << 30, graphs=Graphs(ring=item, tree=item, same_channels=True))
    assert choice.row.name == "Ring/Simple"
    assert choice.bus_gbyte_s == pytest.approx(20, rel=0.01)
    assert "Ring/LL128 off: GPUs joined by PCIe" in choice.explain()


def test_a_pipe_whose_channels_differ_has_a_step_for_every_rank() -> None:
    """Broadcast with Simple takes the steps of a tree then: 4.0 us each on PCIe, where a ring's are 5.7."""
    cluster = Cluster(sm=80, gpus=8, nodes=1, nvlinks=0)
    item = Graph(channels=2, intra_gbyte_s=10.0, inter_gbyte_s=10.0)
    latencies_us = {}
    for same in (True, False):
        rows = table(cluster, Graphs(ring=item, tree=item, same_channels=same), Collective.BROADCAST)
        latencies_us[same] = next(row.latency_us for row in rows if row.name == "Ring/Simple")
    assert latencies_us == pytest.approx({True: 8.4 + 5.7, False: 8.4 + 8 * 4.0})


def test_trees_of_middle_sizes_are_corrected_up_to_256_mib() -> None:
    """The factor for 512 MiB is in NCCL's list, but not used."""
    cluster = from_server("dgx-h100", nodes=4)
    result = search(cluster)
    row = next(item for item in table(cluster, result, Collective.ALL_REDUCE) if item.name == "Tree/Simple")
    for size_bytes, factor in ((63, 1.0), (64, 0.9), (1 << 18, 0.5), (1 << 28, 0.9), (1 << 29, 1.0)):
        expected_us = row.latency_us + size_bytes / (1000 * row.algo_gbyte_s * factor)
        assert time_us(cluster, result, Collective.ALL_REDUCE, row, size_bytes) == pytest.approx(expected_us), (
            size_bytes
        )


def test_invalid_choice_is_refused() -> None:
    cluster = from_server("dgx-h100", nodes=2)
    with pytest.raises(ConfigError, match="sends and receives between pairs"):
        choose(cluster, Collective.ALL_TO_ALL, 8)
    with pytest.raises(ConfigError, match="0 bytes"):
        choose(cluster, Collective.ALL_REDUCE, 0)
    with pytest.raises(ConfigError, match="has no peers"):
        Cluster(sm=90, gpus=1, nodes=1)
    with pytest.raises(ConfigError, match="nodes talk over adapters"):
        Cluster(sm=90, gpus=8, nodes=2)
    with pytest.raises(ConfigError, match="sm_107 are Rubin"):
        Cluster(sm=107, gpus=8, nodes=1)
    with pytest.raises(ConfigError, match="has no GPUs"):
        from_server("host", nodes=2)
    with pytest.raises(ConfigError, match="has no GPUs"):
        from_fabric(weft.load("star:hosts=2"))
    with pytest.raises(UnknownName, match="dgx1"):
        from_fabric(weft.load("superpod:su=1"), ["dgx1x"])


def test_older_versions_choose_by_their_own_code() -> None:
    """Before 2.28 NCCL expected half of the adapters' rate for an NVLS tree over many nodes; 2.29 changed the
    threshold.
    """
    cluster = from_server("dgx-h100", nodes=8)
    result = {
        version: choose(replace(cluster, nccl=version), Collective.ALL_REDUCE, 1 << 30).row.name
        for version in ("2.24", "2.26.2", "2.27", "2.28", "2.30", "")
    }
    assert result == dict.fromkeys(("2.24", "2.26.2", "2.27"), "Ring/Simple") | dict.fromkeys(
        ("2.28", "2.30", ""), "NVLSTree/Simple"
    )
    two = from_server("dgx-h100", nodes=2)
    early, late = (
        choose(replace(two, nccl=item), Collective.ALL_REDUCE, 1 << 20).row.name for item in ("2.28", "2.29")
    )
    assert (early, late) == ("NVLSTree/Simple", "Tree/LL128")


def test_since_2_31_sharp_wants_an_adapter_for_every_gpu() -> None:
    cluster = Cluster(sm=90, gpus=8, nodes=4, nics=4, nic_gbit_s=400, sharp=True)
    late = replace(cluster, nccl="2.31")
    assert choose(cluster, Collective.ALL_REDUCE, 8 << 30).row.name == "CollNetChain/Simple"
    assert "CollNetChain off: fewer adapters than GPUs" in choose(late, Collective.ALL_REDUCE, 8 << 30).explain()


def test_rings_of_blackwell_in_one_node_have_the_plateau_since_2_31() -> None:
    """40 % more latency; since 2.32 only 30 % from 512 KiB of a channel on, and all_reduce has it too."""
    cluster = from_server("dgx-b200", nodes=1)
    result = search(cluster)
    part_bytes = {"small": 64 << 10, "large": 1 << 20}
    rows = {
        kind: next(row for row in table(cluster, result, kind) if row.name == "Ring/Simple")
        for kind in (Collective.ALL_GATHER, Collective.ALL_REDUCE)
    }
    longer = {
        (version, kind, size): (
            time_us(replace(cluster, nccl=version), result, kind, row, n) - n / row.algo_gbyte_s / 1000
        )
        / row.latency_us
        for version in ("2.30", "2.31", "2.32")
        for kind, row in rows.items()
        for size, n in ((key, part * result.channels(cluster) * cluster.ranks) for key, part in part_bytes.items())
    }
    expected = {(v, k, s): 1.0 for v in ("2.30", "2.31") for k in rows for s in part_bytes}
    expected |= {("2.31", Collective.ALL_GATHER, s): 1.4 for s in part_bytes}
    expected |= {("2.32", k, s): 1.4 if s == "small" else 1.3 for k in rows for s in part_bytes}
    assert longer == pytest.approx(expected, rel=1e-3)


def test_racks_with_fast_adapters_have_more_nvls_channels() -> None:
    """More than two nodes with 800 Gb/s have 24 channels for up to eight GPUs, 32 for more
    (ncclNvlsTreeSm100Tuning).
    """
    for gpus, channels in ((8, 24), (16, 32)):
        cluster = Cluster(sm=100, gpus=gpus, nodes=4, nics=gpus, nic_gbit_s=800)
        assert search(cluster).nvls_channels(cluster) == channels


@pytest.mark.parametrize(
    ("server", "nodes", "channels"), [("dgx-b300", 2, 16), ("dgx-b300", 3, 16), ("dgx-h100", 2, 8)]
)
def test_few_channels_are_doubled_between_nodes_with_fast_rings(server: str, nodes: int, channels: int) -> None:
    pairs = replace(from_server(server, nodes=nodes), gpus=2, nics=2)
    found = search(pairs)
    assert (found.ring.channels, found.channels(pairs)) == (4, channels)


@pytest.mark.parametrize("server", ["rtx-pro-6000-8", "amd-mi300x", "dgx-h100"])
def test_channels_of_two_gpus_share_the_links_between_them(server: str) -> None:
    pair = replace(from_server(server, nodes=2), gpus=2, nics=2)
    for graph in (search(pair).ring, search(pair).tree):
        assert graph.channels * graph.intra_gbyte_s <= inside_gbyte_s(pair)


def test_channels_can_be_bounded_for_rings_and_trees_alone() -> None:
    cluster = from_server("dgx-h100", nodes=4)
    for least, most, channels in ((1, 64, 16), (24, 64, 24), (1, 8, 8)):
        bounded = replace(cluster, min_channels=least, max_channels=most)
        assert search(bounded).channels(bounded) == channels
        assert search(bounded).nvls_channels(bounded) == 16
    with pytest.raises(ConfigError, match="NCCL_MIN_NCHANNELS=9 NCCL_MAX_NCHANNELS=8"):
        replace(cluster, min_channels=9, max_channels=8)


def test_blackwell_had_as_many_channels_as_nvls_before_2_28() -> None:
    cluster = from_server("dgx-b200", nodes=4)
    channels = {
        item: search(replace(cluster, nccl=item)).channels(replace(cluster, nccl=item)) for item in ("2.27", "2.28")
    }
    assert channels == {"2.27": 32, "2.28": 16}


def test_versions_that_nobody_read_are_refused() -> None:
    cluster = from_server("dgx-b200", nodes=4)
    with pytest.raises(ConfigError, match=r"has read the code of 2\.18, .*, 2\.32"):
        choose(replace(cluster, sm=90, nccl="2.99"), Collective.ALL_REDUCE, 8)
    with pytest.raises(ConfigError, match=r"a version is 2\.28"):
        constants("newest")
    with pytest.raises(ConfigError, match=r"2\.24 knows no GPUs of sm_100: 2\.25"):
        replace(cluster, nccl="2.24")


def test_ctas_bound_the_channels() -> None:
    cluster = from_server("dgx-h100", nodes=4)
    for least, most, channels in ((1, 64, 16), (24, 64, 24), (1, 8, 8)):
        bounded = replace(cluster, min_ctas=least, max_ctas=most)
        assert choose(bounded, Collective.ALL_GATHER, 8 << 30).channels == channels
        assert search(bounded).nvls_channels(bounded) == channels
    with pytest.raises(ConfigError, match="NCCL_MIN_CTAS=9 NCCL_MAX_CTAS=8"):
        replace(cluster, min_ctas=9, max_ctas=8)


def test_pat_can_be_switched_off() -> None:
    cluster = Cluster(sm=90, gpus=1, nodes=32, nics=1, nic_gbit_s=400)
    for pat, algorithm in ((True, Algorithm.PAT), (False, Algorithm.RING)):
        assert choose(replace(cluster, pat=pat), Collective.ALL_GATHER, 4096).algorithm == algorithm
