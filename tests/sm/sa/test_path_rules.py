"""Rules of path queries one by one: which ports a requester sees, orders, limits by level and partition, and counts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from tests.sm.sa.test_paths import POLICY, get, multi

from weft.sm.conf.qos_options import Qos
from weft.sm.flids import Flids
from weft.sm.mcast.groups import Group, Member
from weft.sm.pkey.partitions import Partition, Partitions
from weft.sm.qos.policy import parse_policy
from weft.sm.sa.path_tables import Directory
from weft.sm.sa.paths import _count, _lid_offsets
from weft.wire.mad import Method
from weft.wire.sa import MCMemberRecord, PathRecord, Rate, SaMad, SaStatus


def put_keys(requests, **keys: tuple[int, ...]) -> None:
    table = requests.view.fabric.tables.pkey
    table[:] = 0
    for name, values in keys.items():
        table[requests.slot(name), : len(values)] = values
    requests.resweep()


def paths_of(answer: bytes) -> list[PathRecord]:
    return [PathRecord.unpack(answer, at) for at in range(56, len(answer), PathRecord.size)]


# -- visible ports ----------------------------------------------------------------------------------------------------


def test_a_port_sees_ports_that_share_a_partition_and_those_without_any(make_subnet):
    requests = make_subnet("star:hosts=6")
    put_keys(requests, h1=(0x8001,), h2=(0x0001,), h3=(0x0001,), h4=(0x8002,), h5=(0x7FFF, 0x8001))
    directory = Directory(requests.view)
    names = [f"h{number}" for number in range(1, 7)]
    seen = {
        name: [other for other in names if directory.visible(requests.slot(name))[requests.slot(other)]]
        for name in names
    }
    assert seen == {
        "h1": ["h1", "h2", "h3", "h5", "h6"],
        "h2": ["h1", "h2", "h5", "h6"],
        "h3": ["h1", "h3", "h5", "h6"],
        "h4": ["h4", "h6"],
        "h5": ["h1", "h2", "h3", "h5", "h6"],
        "h6": names,
    }
    assert not directory.visible(requests.slot("h2"))[requests.slot("h3")]


def test_all_ports_of_a_switch_have_the_lid_of_its_port_0(tree):
    fabric, directory = tree.view.fabric, Directory(tree.view)
    for switch in fabric.switches:
        first, count = int(fabric.first_port[switch.index]), int(fabric.nodes.n_ports[switch.index]) + 1
        assert set(directory.lid[first : first + count].tolist()) == {tree.lid(switch.name)}
        assert directory.slot_at(tree.lid(switch.name)) == first
    assert directory.lid[tree.slot("h1")] == tree.lid("h1")
    assert [directory.slot_at(lid) for lid in (0, 0xBFFF)] == [-1, -1]


def test_the_p_key_of_two_ports_is_the_first_of_the_source_that_fits(make_subnet):
    requests = make_subnet("star:hosts=4")
    put_keys(requests, h1=(0x0003, 0x8002, 0x8001), h2=(0x8001, 0x0002, 0x8003), h3=(0x0001, 0x0003), h4=(0x9000,))
    directory = Directory(requests.view)
    h1, h2, h3, h4 = (requests.slot(name) for name in ("h1", "h2", "h3", "h4"))
    assert [directory.p_key(*pair) for pair in ((h1, h2), (h2, h1), (h1, h3), (h3, h1), (h1, h4))] == [
        0x0003,
        0x8001,
        0x8001,
        0x0001,
        0,
    ]
    wanted = [directory.p_key(h1, h2, p_key) for p_key in (0x0001, 0x8001, 0x8002, 0x0004)]
    assert wanted == [0x8001, 0x8001, 0x8002, 0]
    pairs = np.array([h1, h2, h1, h3]), np.array([h2, h1, h3, h1])
    assert directory.p_keys(*pairs).tolist() == [0x0003, 0x8001, 0x8001, 0x0001]
    assert directory.p_keys(*pairs, 0x0001).tolist() == [0x8001, 0x8001, 0x8001, 0x0001]


@pytest.mark.parametrize("pair", [("h2", "h3"), ("h3", "h2")])
def test_both_ends_of_a_path_must_be_visible_to_the_requester(make_subnet, pair):
    """h1 sees only h2; h2 and h3 share a partition."""
    requests = make_subnet("star:hosts=3")
    put_keys(requests, h1=(0x8001,), h2=(0x8001, 0x8002), h3=(0x8002,))
    source, destination = pair
    assert get(requests, source=source, destination=destination)[0] == SaStatus.NO_RECORDS
    assert len(get(requests, source=source, destination=destination, by="h2")[1]) == 1
    gids = [requests.gid(name) for name in ("h1", "h2", "h3")]
    assert paths_of(multi(requests, gids[1:2], gids[2:])) == []
    assert [record.dlid for record in paths_of(multi(requests, gids[1:2], gids))] == [1, 2]
    assert [requests.lid(name) for name in ("h1", "h2", "h3")] == [1, 2, 3]


# -- orders and counts ------------------------------------------------------------------------------------------------


def test_multi_paths_pair_the_ends_in_turns(tree):
    names = [f"h{number}" for number in range(1, 7)]
    lids = {tree.lid(name): name for name in names}
    answer = multi(tree, [tree.gid(name) for name in names[:3]], [tree.gid(name) for name in names[3:]])
    pairs = [(lids[record.slid], lids[record.dlid]) for record in paths_of(answer)]
    assert pairs == [
        ("h1", "h4"), ("h2", "h5"), ("h3", "h6"),
        ("h1", "h5"), ("h2", "h6"), ("h3", "h4"),
        ("h1", "h6"), ("h2", "h4"), ("h3", "h5"),
    ]  # fmt: skip


def test_multi_paths_need_an_end_on_either_side(tree):
    gid = tree.gid("h1")
    for sources, destinations in (([], [gid]), ([gid], [])):
        assert SaMad.status.get(multi(tree, sources, destinations)) == SaStatus.REQUEST_INVALID


@pytest.mark.parametrize(
    ("sources", "destinations", "at_most", "count"),
    [
        ([1], [1], None, 1),
        ([4], [4], None, 16),
        ([4], [4], 9, 9),
        ([1, 4], [1, 1, 2], None, 2 * 3 * 8),
        ([1, 4], [1], 3, 2 * 3),
        ([1, 4], [1], 9, 2 * 4),
        ([], [4], None, 0),
    ],
)
def test_the_number_of_paths_is_estimated_from_the_lids_of_ports(sources, destinations, at_most, count):
    lids = np.array([*sources, *destinations], np.int64)
    ends = np.arange(len(lids))
    query = SimpleNamespace(at_most=at_most)
    assert _count(SimpleNamespace(lids=lids), query, ends[: len(sources)], ends[len(sources) :]) == count  # type: ignore[arg-type]


def test_pairs_of_lids_without_a_common_one_come_first():
    assert _lid_offsets(2, 2, None).tolist() == [[0, 0, 0], [1, 1, 0], [0, 1, 2], [1, 0, 2]]
    assert _lid_offsets(1, 2, None).tolist() == [[0, 0, 0], [0, 1, 2]]
    assert _lid_offsets(2, 2, 3).tolist() == [[0, 0, 0], [1, 1, 0], [0, 1, 2]]
    assert _lid_offsets(2, 2, 0).tolist() == []


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_level_without_limits_has_those_of_the_subnet(make_subnet):
    requests = make_subnet("star:hosts=4")
    requests.state.policy = parse_policy(POLICY.format(guid=requests.gid("h3") & (1 << 64) - 1), "policy")
    for records in (
        get(requests, source="h1", destination="h2")[1],
        get(requests, Method.GET_TABLE, destination="h2")[1][:1],
    ):
        assert [(r.sl, r.mtu, r.rate, r.packet_life_time) for r in records] == [(1, 5, Rate.GBIT_400, 18)]
    assert get(requests, source="h1", destination="h2", sl=1)[1][0].sl == 1
    assert get(requests, source="h1", destination="h3", sl=1)[0] == SaStatus.NO_RECORDS


def test_a_level_with_partitions_needs_one_that_both_ends_have(make_subnet):
    requests = make_subnet("star:hosts=4")
    requests.state.policy = parse_policy(POLICY.format(guid=1), "policy")
    put_keys(requests, h1=(0xFFFF, 0x8009), h2=(0xFFFF, 0x0009), h3=(0xFFFF,), h4=(0x0009, 0xFFFF))
    alone = {"service_id_8msb": 0x10, "service_id_56lsb": 1}
    _, (record,) = get(requests, source="h1", destination="h2", p_key=0x8009, **alone)
    assert (record.sl, record.p_key) == (3, 0x8009)
    for name, p_key in (("h2", 0xFFFF), ("h3", 0x8009)):
        assert get(requests, source="h1", destination=name, p_key=p_key, **alone)[0] == SaStatus.NO_RECORDS
    assert get(requests, source="h2", destination="h4", **alone)[0] == SaStatus.NO_RECORDS  # limited members
    _, records = get(requests, Method.GET_TABLE, source="h1", **alone)
    assert {record.dlid for record in records} == {requests.lid(name) for name in ("h1", "h2", "h4")}


def test_each_path_of_a_table_has_the_service_level_of_its_partition(make_subnet):
    requests = make_subnet("star:hosts=4")
    put_keys(requests, h1=(0x8001, 0x8002), h2=(0x8001,), h3=(0x8002,), h4=(0x8003,))
    partitions = tuple(Partition(name=f"p{n}", p_key=n, members=(), sl=n + 3) for n in (1, 2))
    requests.state.partitions, requests.state.qos = Partitions(partitions=partitions), Qos.of()
    _, records = get(requests, Method.GET_TABLE, source="h1")
    levels = {record.dlid: (record.p_key, record.sl) for record in records}
    assert levels[requests.lid("h2")] == (0x8001, 4)
    assert levels[requests.lid("h3")] == (0x8002, 5)
    assert requests.lid("h4") not in levels
    _, records = get(requests, Method.GET_TABLE, source="h1", sl=2)
    assert {record.sl for record in records} == {2}


def test_gids_of_records_have_the_floating_lids_of_their_ports(make_subnet):
    requests = make_subnet("star:hosts=3")
    own = np.zeros(len(requests.view.fabric.ports), np.int64)
    own[requests.slot("h1")], own[requests.slot("h2")] = 1000, 1001
    requests.state.flids = Flids(own=own, there={}, without=np.zeros(0, np.intp))
    _, records = get(requests, Method.GET_TABLE, slid=requests.lid("h1"))
    by_lid = {record.dlid: record for record in records}
    assert {record.sgid for record in records} == {requests.gid("h1") | 1000 << 80}
    assert by_lid[requests.lid("h2")].dgid == requests.gid("h2") | 1001 << 80
    assert by_lid[requests.lid("h3")].dgid == requests.gid("h3")
    for sgid in (requests.gid("h1"), requests.gid("h1") | 1000 << 80):
        _, (record,) = get(requests, sgid=sgid, destination="h3")
        assert record.sgid == sgid, "a component that the query names"


# -- groups -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "hop_limit"), [(2, 7), (5, 255), (0xE, 255)])
def test_paths_to_groups_beyond_the_subnet_allow_all_hops(make_subnet, scope, hop_limit):
    requests = make_subnet("star:hosts=3")
    mgid = 0xFF10_401B_FFFF_0000 << 64 | scope << 112 | 0xFFFF_FFFF
    record = MCMemberRecord(
        mgid=mgid, mlid=0xC001, p_key=0xFFFF, hop_limit=7, t_class=3, flow_label=9, packet_life_time=12
    )
    group = Group(record)
    group.members[requests.gid("h1") & (1 << 64) - 1] = Member(1)
    requests.state.groups.by_mgid[mgid] = group
    for more in ({"source": "h1"}, {}):
        _, (path,) = get(requests, dgid=mgid, **more)
        assert (path.hop_limit, path.t_class, path.flow_label, path.packet_life_time) == (hop_limit, 3, 9, 12)
    assert get(requests, dgid=mgid, hop_limit=hop_limit)[0] == 0
    for wrong in ({"hop_limit": 8}, {"t_class": 4}, {"flow_label": 8}, {"p_key": 0x8001}, {"dlid": 0xC002}):
        assert get(requests, dgid=mgid, **wrong)[0] == SaStatus.NO_RECORDS
