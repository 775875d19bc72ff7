"""The tuner of AWS's plugin."""

from dataclasses import replace

from weft.collectives.kinds import Algorithm, Collective, Protocol
from weft.collectives.nccl.cluster import Cluster, from_server
from weft.collectives.nccl.estimate import estimate
from weft.collectives.nccl.ideal import ideal_networks
from weft.collectives.nccl.ofi_tuner import tuned_row
from weft.collectives.nccl.tuning import Row

# Compute capability, ranks in a server, servers, collective, bytes; and the row that the plugin's own code sets to 0 in
# a table of all rows (region_get_coll_info_internal_v3 at 2daf7d30, compiled): one of each region in which any is, and
# one outside of all. All 47,520 that were asked were equal.
ANSWERS = [
    (90, 1, 11, "all_reduce", 82051, "ring/ll128"),
    (90, 1, 19, "all_reduce", 83548838, "ring/simple"),
    (90, 1, 340, "all_reduce", 2571, "tree/ll128"),
    (90, 1, 5, "all_gather", 1876, ""),
    (90, 1, 58, "all_gather", 294321973, "ring/simple"),
    (90, 1, 18, "reduce_scatter", 1370, ""),
    (90, 1, 5, "reduce_scatter", 83548838, "ring/simple"),
    (90, 2, 140, "all_reduce", 214833556, ""),
    (90, 2, 8, "all_reduce", 214833556, "nvls-tree/simple"),
    (90, 2, 11, "all_reduce", 12636215, "ring/ll128"),
    (90, 2, 19, "all_reduce", 552412911, "ring/simple"),
    (90, 2, 272, "all_reduce", 6732492, "tree/ll128"),
    (90, 2, 112, "all_reduce", 403221103, "tree/simple"),
    (90, 2, 17, "all_gather", 17001, ""),
    (90, 2, 38, "reduce_scatter", 59891, ""),
    (90, 8, 10, "all_reduce", 2666039970, ""),
    (90, 8, 218, "all_reduce", 1036823793, "nvls-tree/simple"),
    (90, 8, 9, "all_reduce", 156812815, "ring/ll128"),
    (90, 8, 3, "all_reduce", 1946014577, "ring/simple"),
    (90, 8, 14, "all_reduce", 44514272, "tree/ll128"),
    (90, 8, 18, "all_gather", 23291, ""),
    (90, 8, 13, "reduce_scatter", 1018245, ""),
    (100, 1, 11, "all_reduce", 17311614, "ring/ll128"),
    (100, 1, 19, "all_reduce", 24149638073, "ring/simple"),
    (100, 1, 9, "all_reduce", 17001, "tree/ll"),
    (100, 1, 425, "all_reduce", 12636215, "tree/ll128"),
    (100, 1, 72, "all_reduce", 12636215, "tree/simple"),
    (100, 1, 9, "all_gather", 1394996, "pat/simple"),
    (100, 1, 3, "all_gather", 17001, "ring/ll"),
    (100, 1, 19, "all_gather", 23716912, "ring/ll128"),
    (100, 1, 7, "all_gather", 24149638073, "ring/simple"),
    (100, 1, 14, "reduce_scatter", 1876, "pat/simple"),
    (100, 1, 3, "reduce_scatter", 1000, "ring/ll"),
    (100, 1, 3, "reduce_scatter", 82051, "ring/ll128"),
    (100, 1, 11, "reduce_scatter", 1946014577, "ring/simple"),
    (100, 2, 218, "all_reduce", 1036823793, ""),
    (100, 2, 11, "all_gather", 1370, ""),
    (100, 2, 9, "reduce_scatter", 17001, ""),
    (100, 8, 12, "all_reduce", 1420448596, "nvls-tree/simple"),
    (100, 8, 5, "all_reduce", 83548838, "ring/ll128"),
    (100, 8, 10, "all_reduce", 9391801932, "ring/simple"),
    (100, 8, 13, "all_reduce", 59891, "tree/ll"),
    (100, 8, 17, "all_reduce", 542514, "tree/ll128"),
    (100, 8, 10, "all_gather", 59891, "ring/ll"),
    (100, 8, 13, "all_gather", 1036823793, "ring/ll128"),
    (100, 8, 11, "all_gather", 5003890421, "ring/simple"),
    (100, 8, 14, "reduce_scatter", 3587027, "ring/ll"),
    (100, 8, 4, "reduce_scatter", 6732492, "ring/ll128"),
    (100, 8, 10, "reduce_scatter", 3652474760, "ring/simple"),
    (103, 1, 14, "all_reduce", 44514272, "ring/ll128"),
    (103, 1, 10, "all_reduce", 552412911, "ring/simple"),
    (103, 1, 8, "all_reduce", 3522, "tree/ll"),
    (103, 1, 18, "all_reduce", 289048, "tree/ll128"),
    (103, 1, 18, "all_reduce", 2618268, "tree/simple"),
    (103, 1, 17, "all_gather", 9058, "pat/simple"),
    (103, 1, 4, "all_gather", 2571, "ring/ll"),
    (103, 1, 340, "all_gather", 1036823793, "ring/ll128"),
    (103, 1, 3, "all_gather", 32492169, "ring/simple"),
    (103, 1, 58, "reduce_scatter", 83548838, "pat/simple"),
    (103, 1, 3, "reduce_scatter", 3522, "ring/ll"),
    (103, 1, 9, "reduce_scatter", 17311614, "ring/ll128"),
    (103, 1, 20, "reduce_scatter", 1036823793, "ring/simple"),
    (103, 2, 340, "all_reduce", 3587027, ""),
    (103, 2, 14, "all_gather", 743244, ""),
    (103, 2, 20, "reduce_scatter", 5003890421, ""),
    (103, 8, 47, "all_reduce", 5003890421, "nvls-tree/simple"),
    (103, 8, 6, "all_reduce", 156812815, "ring/ll128"),
    (103, 8, 19, "all_reduce", 5003890421, "ring/simple"),
    (103, 8, 90, "all_reduce", 4826, "tree/ll"),
    (103, 8, 13, "all_reduce", 83548838, "tree/ll128"),
    (103, 8, 7, "all_gather", 23291, "ring/ll"),
    (103, 8, 17, "all_gather", 2666039970, "ring/ll128"),
    (103, 8, 3, "all_gather", 3652474760, "ring/simple"),
    (103, 8, 90, "reduce_scatter", 1876, "ring/ll"),
    (103, 8, 72, "reduce_scatter", 12866768647, "ring/ll128"),
    (103, 8, 3, "reduce_scatter", 1946014577, "ring/simple"),
]


def _every_row() -> list[Row]:
    return [
        Row(algorithm=algorithm, protocol=protocol, latency_us=1, algo_gbyte_s=1, bus_gbyte_s=1)
        for algorithm in Algorithm
        for protocol in Protocol
    ]


def _efa(server: str, nodes: int, **changes: object) -> tuple[Cluster, dict]:
    cluster = replace(from_server(server, nodes=nodes), **changes)
    return cluster, ideal_networks(cluster, network="roce", transport="srd")


def test_choices_equal_those_of_the_plugins_own_code():
    rows = _every_row()
    for sm, per, nodes, collective, size_bytes, row in ANSWERS:
        cluster = Cluster(sm=sm, gpus=per, nodes=nodes, nics=per, nic_gbit_s=400)
        chosen = tuned_row(cluster, Collective(collective), size_bytes, rows)
        name = f"{chosen.algorithm}/{chosen.protocol}" if chosen else ""
        assert name == row, (sm, per, nodes, collective, size_bytes)


def test_an_all_reduce_over_efa_takes_the_tuners_choice_from_three_servers_on():
    for nodes, tuned, own in ((2, "NVLSTree/Simple", "NVLSTree/Simple"), (16, "Tree/LL128", "NVLSTree/Simple")):
        cluster, networks = _efa("dgx-h100", nodes)
        internal = replace(cluster, ofi_tuner=False)
        found = [estimate(each, Collective.ALL_REDUCE, 256 << 20, networks=networks) for each in (cluster, internal)]
        assert [each.name for each in found] == [tuned, own]
        assert any("EFA" in doubt for doubt in found[0].doubts) == (nodes > 2)
        assert not any("EFA" in doubt for doubt in found[1].doubts)


def test_the_tuner_leaves_other_networks_older_nccls_and_disabled_rows_alone():
    cluster, networks = _efa("dgx-h100", 16)
    size_bytes = 256 << 20
    without = {
        "InfiniBand": estimate(cluster, Collective.ALL_REDUCE, size_bytes),
        "an NCCL without tuners' tables": estimate(
            replace(cluster, nccl="2.20"), Collective.ALL_REDUCE, size_bytes, networks=networks
        ),
        "NCCL_ALGO=NVLSTree": estimate(
            replace(cluster, algorithms=(Algorithm.NVLS_TREE,)), Collective.ALL_REDUCE, size_bytes, networks=networks
        ),
    }
    assert {name: each.name for name, each in without.items()} == dict.fromkeys(without, "NVLSTree/Simple")
