"""Paths: compared with a simple walk of the tables, and selected by the components of a query."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.fabric.rates import speed
from weft.fabric.tables import NO_ROUTE
from weft.sm.conf.options import Options
from weft.sm.conf.qos_options import Qos
from weft.sm.mcast.groups import Group, Member
from weft.sm.pkey.partitions import Everyone, Membership, Partition, Partitions
from weft.sm.pkey.partitions import Member as Rule
from weft.sm.qos.policy import parse_policy
from weft.sm.sa import paths
from weft.sm.sa.path_query import CODE_OF_RANK, RANK_OF_CODE, link_ranks
from weft.sm.sa.path_tables import PathTables
from weft.wire.bulk import column, fill
from weft.wire.mad import Method
from weft.wire.port_info import Mtu, PortInfo, PortState
from weft.wire.sa import MCMemberRecord, MultiPathRecord, PathRecord, Rate, SaAttribute, SaMad, SaStatus, Selector
from weft.wire.sa_query import component_mask

MTUS = (Mtu.BYTES_1024, Mtu.BYTES_2048, Mtu.BYTES_4096)


def get(asked, method=Method.GET, **components):
    """Return the status and the records; `source` and `destination` are names of ports."""
    for ours, theirs in (("source", "sgid"), ("destination", "dgid")):
        if ours in components:
            components[theirs] = asked.gid(components.pop(ours))
    return asked.ask(SaAttribute.PATH_RECORD, PathRecord, method, **components)


def by_hand(asked, source, destination, dlid):
    """Return the MTU and the rate of a path from a walk of the tables, port by port."""
    view, fabric = asked.view, asked.view.fabric
    tables, ports = fabric.tables, fabric.ports
    mtu = column(view.port_info, PortInfo.neighbor_mtu)
    rank = link_ranks(fabric)
    crossed, local = [], source
    while local != destination:
        node = ports.node[local]
        if view.is_switch[node]:
            local = fabric.first_port[node] + tables.lft[tables.switch_row[node], dlid]
            if local == destination:
                break
        crossed.append(local)
        local = ports.peer[local]
    least = min((rank[ports.link[slot]] for slot in crossed), default=None)
    return min((int(mtu[slot]) for slot in crossed), default=None), least


def test_a_path_is_as_wide_as_its_narrowest_link(make_subnet):
    requests = make_subnet("fat-tree:hosts=16,radix=8")
    fabric, random = requests.view.fabric, np.random.default_rng(3)
    names = ("SDR", "DDR", "FDR", "EDR", "HDR")
    speeds = np.array([speed(names[n]).index for n in random.integers(0, len(names), len(fabric.links))], np.int8)
    infos = requests.view.port_info.copy()
    for a, b, mtu in zip(fabric.links.a, fabric.links.b, random.choice(MTUS, len(fabric.links)), strict=True):
        both = infos[[a, b]]
        fill(both, PortInfo.neighbor_mtu, int(mtu))
        infos[[a, b]] = both
    requests.resweep(fabric=fabric.with_links(replace(fabric.links, speed=speeds)), port_info=infos)
    ends = requests.view.end_ports
    of_lid = {int(requests.view.fabric.tables.lid[slot]): int(slot) for slot in ends}
    checked = 0
    for name in ("h1", "h16", "leaf1"):
        status, records = get(requests, Method.GET_TABLE, source=name)
        assert (status, len(records)) == (0, len(ends))
        for record in records:
            mtu, rank = by_hand(requests, requests.slot(name), of_lid[record.dlid], record.dlid)
            if rank is not None:
                assert (record.mtu, record.rate) == (mtu, CODE_OF_RANK[rank])
                checked += 1
    assert checked == 3 * len(ends) - 3


def test_a_path_record_says_how_to_get_there(tree):
    status, (record,) = get(tree, source="h2", destination="h9")
    assert status == 0
    assert (record.slid, record.dlid) == (tree.lid("h2"), tree.lid("h9"))
    assert (record.sgid, record.dgid) == (tree.gid("h2"), tree.gid("h9"))
    assert (record.p_key, record.sl, record.reversible, record.numb_path) == (0xFFFF, 0, 1, 0)
    assert (record.mtu, record.packet_life_time, record.hop_limit) == (Mtu.BYTES_4096, 18, 0)
    assert {record.mtu_selector, record.rate_selector, record.packet_life_time_selector} == {Selector.EXACTLY}


def test_ends_may_be_given_by_lid_gid_or_both(tree):
    expected = get(tree, source="h2", destination="h9")
    assert get(tree, slid=tree.lid("h2"), dlid=tree.lid("h9")) == expected
    assert get(tree, source="h2", dlid=tree.lid("h9")) == expected
    assert get(tree, source="h2", slid=tree.lid("h2"), destination="h9") == expected


def test_a_path_has_the_source_gid_that_was_asked_for(make_subnet):
    """Link-local GIDs work in a subnet with a prefix of its own."""
    prefix = 0xFEC0_0000_0000_0001
    requests = make_subnet("star:hosts=3", options=Options(subnet_prefix=prefix))
    _, (record,) = get(requests, source="h1", destination="h2")
    assert record.sgid == requests.gid("h1")
    own = prefix << 64 | requests.gid("h1") & (1 << 64) - 1
    _, (record,) = get(requests, sgid=own, destination="h2")
    assert (record.sgid, record.dgid) == (own, prefix << 64 | requests.gid("h2") & (1 << 64) - 1)


def test_a_path_to_oneself_takes_no_time(tree):
    _, (record,) = get(tree, source="h3", destination="h3")
    assert (record.slid, record.dlid, record.packet_life_time) == (tree.lid("h3"), tree.lid("h3"), 0)


@pytest.mark.parametrize(
    ("components", "status"),
    [
        ({"source": "h1", "dgid": 0xFE80 << 112 | 0xBAD}, SaStatus.INVALID_GID),
        ({"source": "h1", "dgid": 0xFEC0 << 112 | 0xBAD}, SaStatus.INVALID_GID),
        ({"source": "h1", "dlid": 0xBAD}, SaStatus.NO_RECORDS),
        ({"source": "h1", "slid": 3, "destination": "h2"}, SaStatus.REQUEST_INVALID),
        ({"source": "h1", "destination": "h2", "service_id_8msb": 1}, SaStatus.INSUFFICIENT_COMPONENTS),
        ({"source": "h1", "destination": "h2", "rate_selector": 2, "rate": 63}, SaStatus.REQUEST_INVALID),
        ({"source": "h1", "destination": "h2", "mtu_selector": 2, "mtu": 9}, SaStatus.REQUEST_INVALID),
        ({"source": "h1", "destination": "h2", "mtu_selector": 0, "mtu": 0}, SaStatus.REQUEST_INVALID),
        ({"source": "h1", "destination": "h2", "rate_selector": 0, "rate": 1}, SaStatus.REQUEST_INVALID),
        ({"source": "h1", "destination": "h2", "p_key": 0x1234}, SaStatus.NO_RECORDS),
        ({"source": "h1", "destination": "h2", "sl": 3}, 0),
    ],
)
def test_a_query_that_cannot_be_says_why(tree, components, status):
    assert get(tree, **components)[0] == status


@pytest.mark.parametrize(
    ("selector", "mtu", "found"),
    [
        (Selector.GREATER_THAN, Mtu.BYTES_2048, Mtu.BYTES_4096),
        (Selector.GREATER_THAN, Mtu.BYTES_4096, None),
        (Selector.LESS_THAN, Mtu.BYTES_4096, Mtu.BYTES_2048),
        (Selector.LESS_THAN, Mtu.BYTES_256, None),
        (Selector.EXACTLY, Mtu.BYTES_1024, Mtu.BYTES_1024),
        (Selector.BEST, Mtu.BYTES_256, Mtu.BYTES_4096),
    ],
)
def test_the_mtu_that_is_wanted(tree, selector, mtu, found):
    _, records = get(tree, source="h1", destination="h2", mtu_selector=selector, mtu=mtu)
    assert [record.mtu for record in records] == ([] if found is None else [found])


@pytest.mark.parametrize(
    ("selector", "rate", "found"),
    [
        (Selector.GREATER_THAN, Rate.GBIT_200, Rate.GBIT_400),
        (Selector.GREATER_THAN, Rate.GBIT_400, None),
        (Selector.LESS_THAN, Rate.GBIT_50, Rate.GBIT_40),  # whose codes are 20 and 7
        (Selector.LESS_THAN, Rate.GBIT_2_5, None),
        (Selector.EXACTLY, Rate.GBIT_400, Rate.GBIT_400),
        (Selector.EXACTLY, Rate.GBIT_200, None),
        (Selector.EXACTLY, Rate.GBIT_800, None),
        (Selector.BEST, Rate.GBIT_10, Rate.GBIT_400),
    ],
)
def test_the_rate_that_is_wanted(tree, selector, rate, found):
    _, records = get(tree, source="h1", destination="h2", rate_selector=selector, rate=rate)
    assert [record.rate for record in records] == ([] if found is None else [found])


@pytest.mark.parametrize(
    ("selector", "life", "found"),
    [
        (Selector.GREATER_THAN, 17, 18),
        (Selector.GREATER_THAN, 18, None),
        (Selector.LESS_THAN, 18, 17),
        (Selector.EXACTLY, 16, 16),
        (Selector.EXACTLY, 19, None),
        (Selector.BEST, 0, 18),
    ],
)
def test_the_life_time_that_is_wanted(tree, selector, life, found):
    _, records = get(tree, source="h1", destination="h2", packet_life_time_selector=selector, packet_life_time=life)
    assert [record.packet_life_time for record in records] == ([] if found is None else [found])


def test_a_selector_without_a_value_asks_nothing(tree):
    assert get(tree, source="h1", destination="h2", mtu_selector=0) == get(tree, source="h1", destination="h2")


def test_rates_are_ordered_by_what_they_are():
    assert [Rate(code).gbit_s for code in CODE_OF_RANK[1:].tolist()] == sorted(rate.gbit_s for rate in Rate)
    assert all(CODE_OF_RANK[RANK_OF_CODE[code]] == code for code in Rate)


# -- LMC ---------------------------------------------------------------------------------------------------------------


def test_paths_that_share_no_lid_come_first(make_subnet):
    requests = make_subnet("fat-tree:hosts=16,radix=8", lmc=1)
    s, d = requests.lid("h1"), requests.lid("h9")
    _, records = get(requests, Method.GET_TABLE, source="h1", destination="h9")
    result = [(record.slid - s, record.dlid - d, record.preference) for record in records]
    assert result == [(0, 0, 0), (1, 1, 0), (0, 1, 2), (1, 0, 2)]
    _, some = get(requests, Method.GET_TABLE, source="h1", destination="h9", numb_path=3)
    assert some == records[:3]
    assert get(requests, source="h1", destination="h9") == (0, records[:1])
    assert get(requests, Method.GET_TABLE, source="h1", destination="h9", numb_path=0) == (0, [])
    _, (item,) = get(requests, source="h1", dlid=d + 1)
    assert item.dlid == d + 1
    _, from_second = get(requests, Method.GET_TABLE, slid=s + 1, destination="h9")
    assert [(record.slid - s, record.dlid - d) for record in from_second] == [(1, 0), (1, 1)]
    _, to_second = get(requests, Method.GET_TABLE, source="h1", dlid=d + 1)
    assert [(record.slid - s, record.dlid - d) for record in to_second] == [(0, 1), (1, 1)]


def test_where_the_best_lids_lead_nowhere_others_are_tried(make_subnet):
    requests = make_subnet("fat-tree:hosts=16,radix=8", lmc=1)
    requests.view.fabric.tables.lft[:, requests.lid("h9")] = NO_ROUTE
    _, records = get(requests, Method.GET_TABLE, source="h1", destination="h9", numb_path=2)
    assert [record.dlid - requests.lid("h9") for record in records] == [1, 1]
    _, from_all = get(requests, Method.GET_TABLE, source="h1", numb_path=1)
    assert len(from_all) == len(requests.view.end_ports)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_port_that_is_not_active_has_no_path(make_subnet):
    requests = make_subnet("star:hosts=4")
    row = requests.view.port_info[requests.slot("h3")][None]
    fill(row, PortInfo.port_state, int(PortState.INITIALIZE))
    assert get(requests, source="h1", destination="h3")[0] == SaStatus.NO_RECORDS
    assert len(get(requests, Method.GET_TABLE, source="h1")[1]) == len(requests.view.end_ports) - 1


def test_a_path_that_leads_nowhere_or_in_a_circle_is_none(make_subnet):
    requests = make_subnet("fat-tree:hosts=16,radix=8")
    tables = requests.view.fabric.tables
    tables.lft[:, requests.lid("h9")] = NO_ROUTE
    up = tables.lft[0, requests.lid("h16")]
    tables.lft[:, requests.lid("h10")] = up  # from leaves up, and from spines down to the same leaf
    assert get(requests, source="h1", destination="h9")[0] == SaStatus.NO_RECORDS
    assert get(requests, source="h1", destination="h10")[0] == SaStatus.NO_RECORDS


def test_a_path_without_a_way_back_is_not_reversible(make_subnet):
    requests = make_subnet("fat-tree:hosts=16,radix=8")
    requests.view.fabric.tables.lft[:, requests.lid("h9")] = NO_ROUTE
    _, (record,) = get(requests, source="h9", destination="h1", reversible=0)
    assert record.reversible == 0
    assert get(requests, source="h9", destination="h1", reversible=1)[0] == SaStatus.NO_RECORDS


# -- partitions and service levels -------------------------------------------------------------------------------------


def test_a_path_is_in_a_partition_of_both_ends(make_subnet):
    requests = make_subnet("star:hosts=4")
    keys = requests.view.fabric.tables.pkey
    keys[:, 0] = 0x7FFF
    keys[requests.slot("h1"), 0] = 0xFFFF
    keys[requests.slot("h2"), 1] = 0x8001
    keys[requests.slot("h3"), 1] = 0x0001
    keys[requests.slot("h4"), 1] = 0x0001
    p_keys = {
        pair: [r.p_key for r in get(requests, source=pair[0], destination=pair[1])[1]]
        for pair in (("h2", "h3"), ("h3", "h2"), ("h3", "h4"), ("h1", "h4"), ("h4", "h1"))
    }
    assert p_keys == {
        ("h2", "h3"): [0x8001],
        ("h3", "h2"): [0x0001],
        ("h3", "h4"): [],
        ("h1", "h4"): [0xFFFF],
        ("h4", "h1"): [0x7FFF],
    }
    assert get(requests, source="h2", destination="h3", p_key=0x8001)[1][0].p_key == 0x8001
    assert get(requests, source="h1", destination="h3", p_key=0x8001)[0] == SaStatus.NO_RECORDS
    _, from_h3 = get(requests, Method.GET_TABLE, source="h3", by="h3")
    assert {record.dlid for record in from_h3} == {requests.lid("h1"), requests.lid("h2")}


def test_raw_packets_have_no_p_key(tree):
    _, (record,) = get(tree, source="h1", destination="h2", raw_traffic=1)
    assert record.p_key == 0


def test_the_routing_says_the_service_level_where_it_needs_lanes(make_subnet):
    requests = make_subnet("torus:4x4", engine="dfsssp")
    fabric = requests.view.fabric
    tables, ports = fabric.tables, fabric.ports
    for name in requests.view.fabric.nodes.name:
        if name.startswith("h"):
            _, records = get(requests, Method.GET_TABLE, source=name)
            at = tables.switch_row[ports.node[ports.peer[requests.slot(name)]]]
            assert [record.sl for record in records] == [tables.path_sl[at, record.dlid] for record in records]
    _, records = get(requests, Method.GET_TABLE)
    other = next(record for record in records if record.sl)
    assert get(requests, slid=other.slid, dlid=other.dlid, sl=0)[0] == SaStatus.NO_RECORDS
    assert get(requests, slid=other.slid, dlid=other.dlid, sl=other.sl) == (0, [other])


@pytest.mark.parametrize("spec", ["torus:4x4,hosts=1", "torus:6x6"])
@pytest.mark.parametrize("engine", ["dfsssp", "dimension-order"])
def test_every_path_of_a_torus_is_reversible_on_one_service_level(make_subnet, spec, engine):
    _, records = get(make_subnet(spec, engine=engine), Method.GET_TABLE)
    level = {(record.slid, record.dlid): record.sl for record in records}
    assert all(record.reversible for record in records)
    assert all(level[present, local] == sl for (local, present), sl in level.items())


def test_a_path_with_another_service_level_back_is_not_reversible(make_subnet):
    requests = make_subnet("torus:4x4,hosts=1", engine="dfsssp")
    tables, ports = requests.view.fabric.tables, requests.view.fabric.ports
    h1, h2 = requests.slot("h1"), requests.slot("h2")
    row = tables.switch_row[ports.node[ports.peer[h2]]]
    tables.path_sl[row, tables.lid[h1]] ^= 1
    for source, destination in (("h1", "h2"), ("h2", "h1")):
        assert get(requests, source=source, destination=destination, reversible=0)[1][0].reversible == 0
        assert get(requests, source=source, destination=destination, reversible=1)[0] == SaStatus.NO_RECORDS
    assert get(requests, source="h1", destination="h3", reversible=1)[1][0].reversible == 1


def test_a_partition_has_its_service_level_where_qos_is_on(make_subnet):
    requests = make_subnet("star:hosts=3")
    everybody = Rule(who=Everyone.ALL, membership=Membership.FULL)
    requests.state.partitions = Partitions(partitions=(Partition(name="a", p_key=0x7FFF, members=(everybody,), sl=4),))
    assert get(requests, source="h1", destination="h2")[1][0].sl == 0
    requests.state.qos = Qos.of()
    assert get(requests, source="h1", destination="h2")[1][0].sl == 4
    assert {record.sl for record in get(requests, Method.GET_TABLE, source="h1")[1]} == {4}
    assert get(requests, source="h1", destination="h2", sl=2)[1][0].sl == 2


POLICY = """
port-groups
  port-group
    name: targets
    port-guid: {guid:#x}
  end-port-group
end-port-groups
qos-levels
  qos-level
    name: DEFAULT
    sl: 1
  end-qos-level
  qos-level
    name: storage
    sl: 2
    mtu-limit: 4
    rate-limit: 7
    packet-life: 12
  end-qos-level
  qos-level
    name: alone
    sl: 3
    pkey: 0x0009
  end-qos-level
end-qos-levels
qos-match-rules
  qos-match-rule
    destination: targets
    qos-level-name: storage
  end-qos-match-rule
  qos-match-rule
    service-id: 0x1000000000000001
    qos-level-name: alone
  end-qos-match-rule
end-qos-match-rules
"""


def test_the_policy_says_level_and_limits(make_subnet):
    requests = make_subnet("star:hosts=4")
    requests.state.policy = parse_policy(POLICY.format(guid=requests.gid("h3") & (1 << 64) - 1), "policy")
    for record in (
        get(requests, source="h1", destination="h3")[1][0],
        get(requests, Method.GET_TABLE, destination="h3")[1][0],
    ):
        assert (record.sl, record.mtu, record.rate, record.packet_life_time) == (2, 4, Rate.GBIT_40, 12)
    assert get(requests, source="h1", destination="h2")[1][0].sl == 1
    assert get(requests, source="h1", destination="h2", sl=5)[0] == SaStatus.NO_RECORDS
    service = {"service_id_8msb": 0x10, "service_id_56lsb": 1}
    assert get(requests, source="h1", destination="h2", **service)[0] == SaStatus.NO_RECORDS  # not in partition 9
    keys = requests.view.fabric.tables.pkey
    keys[requests.slot("h1"), 1] = keys[requests.slot("h2"), 1] = 0x8009
    requests.resweep()
    _, (record,) = get(requests, source="h1", destination="h2", **service)
    assert (record.sl, record.p_key) == (3, 0x8009)


def test_a_service_level_that_is_dropped_on_the_way_has_no_path(make_subnet):
    requests = make_subnet("star:hosts=3")
    tables = requests.view.fabric.tables
    tables.sl2vl[:, 3] = 15
    requests.resweep()
    assert get(requests, source="h1", destination="h2", sl=3)[0] == SaStatus.NO_RECORDS
    assert get(requests, source="h1", destination="h2", sl=2)[0] == 0


# -- many, several, groups ---------------------------------------------------------------------------------------------


def test_all_paths_are_there_for_the_asking_up_to_a_limit(make_subnet, monkeypatch):
    requests = make_subnet("star:hosts=5")
    ends = len(requests.view.end_ports)
    _, records = get(requests, Method.GET_TABLE)
    assert len({(record.slid, record.dlid) for record in records}) == len(records) == ends**2
    _, to_one = get(requests, Method.GET_TABLE, destination="h2")
    assert to_one == [record for record in records if record.dlid == requests.lid("h2")]
    monkeypatch.setattr(paths, "RECORDS_MAX", ends**2 - 1)
    assert get(requests, Method.GET_TABLE)[0] == SaStatus.NO_RESOURCES
    (output,) = [line for line in requests.state.log.recent if " SA_REFUSED " in line]
    assert f"a table of {ends**2} paths is more than {ends**2 - 1}: ask for those of one port" in output


def test_a_path_to_a_group_is_the_groups(make_subnet):
    requests = make_subnet("star:hosts=3")
    mgid = 0xFF12_401B_FFFF_0000 << 64 | 0xFFFF_FFFF
    group = Group(MCMemberRecord(mgid=mgid, mlid=0xC001, p_key=0xFFFF, q_key=0xB1B, mtu=4, rate=3, sl=2))
    group.members[requests.gid("h1") & (1 << 64) - 1] = Member(1)
    requests.state.groups.by_mgid[mgid] = group
    _, (record,) = get(requests, source="h1", dgid=mgid)
    assert (record.dlid, record.mtu, record.rate, record.sl, record.p_key) == (0xC001, 4, 3, 2, 0xFFFF)
    assert (record.qos_class, record.reversible, record.numb_path, record.packet_life_time) == (0, 0, 1, 0)
    assert get(requests, source="h1", dgid=mgid, sl=3)[0] == SaStatus.NO_RECORDS
    assert get(requests, source="h2", dgid=mgid)[0] == SaStatus.NO_RECORDS
    assert get(requests, source="h1", dgid=mgid | 1 << 40)[0] == SaStatus.NO_RECORDS


def multi(asked, sources, destinations, **more):
    components = {"sgid_count": len(sources), "dgid_count": len(destinations), **more}
    record = MultiPathRecord(gids=(*sources, *destinations), **components)
    mask = component_mask(MultiPathRecord, *components)
    return asked.send(SaAttribute.MULTI_PATH_RECORD, record, Method.GET_MULTI, mask=mask)


def test_multi_path_answers_with_path_records_whose_ends_differ_first(tree):
    answer = multi(tree, [tree.gid("h1"), tree.gid("h2")], [tree.gid("h9"), tree.gid("h10")], numb_path=3)
    assert (SaMad.method.get(answer), SaMad.attribute_id.get(answer)) == (
        Method.GET_MULTI_RESP,
        SaAttribute.PATH_RECORD,
    )
    records = [PathRecord.unpack(answer, at) for at in range(56, len(answer), PathRecord.size)]
    lids = [(record.slid, record.dlid) for record in records]
    h1, h2, h9, h10 = (tree.lid(name) for name in ("h1", "h2", "h9", "h10"))
    assert lids == [(h1, h9), (h2, h10), (h1, h10)]


def test_multi_path_wants_its_counts_and_ports_that_are_there(tree):
    group = 0xFF12_401B_FFFF_0000 << 64
    for answer, status in (
        (tree.send(SaAttribute.MULTI_PATH_RECORD, method=Method.GET_MULTI), SaStatus.INSUFFICIENT_COMPONENTS),
        (multi(tree, [tree.gid("h1")], [group]), SaStatus.INVALID_GID),
        (multi(tree, [group], [tree.gid("h1")]), SaStatus.INVALID_GID),
        (multi(tree, [tree.gid("h1")], []), SaStatus.REQUEST_INVALID),
    ):
        assert SaMad.status.get(answer) == status
        assert SaMad.attribute_id.get(answer) == SaAttribute.PATH_RECORD


def test_preparing_leaves_nothing_for_the_first_query_to_make(make_subnet, monkeypatch):
    requests = make_subnet("star:hosts=3")
    requests.administrator.prepare()
    monkeypatch.setattr(PathTables, "of", None)
    assert get(requests, source="h1", destination="h2")[0] == 0
