"""Paths to other subnets: the selected router, the hop limit, and the reachable prefixes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from weft.fabric.kinds import NodeKind
from weft.ids import Gid
from weft.sm.alias_gids import upload_alias_gids
from weft.sm.discovery.known import carried_over
from weft.sm.events import Event
from weft.sm.flids import Flids, add_routes
from weft.sm.sweep import _equal_prefixes
from weft.wire.bulk import fill
from weft.wire.mad import Method
from weft.wire.port_info import PortInfo, PortState
from weft.wire.sa import MCMemberRecord, PathRecord, SaAttribute, SaStatus

THERE = 0xFEC0_0000_0000_0002
FAR = THERE << 64 | 0x0002_C903_0000_0501


@pytest.fixture
def subnet(make_subnet):
    """Return subnet 1 of two with two routers, whose other ports are Active and have a prefix."""
    subnet = make_subnet("subnets:2,routers=2,of=star:hosts=4")
    set_far_ports(subnet, PortState.ACTIVE, THERE)
    return subnet


def set_far_ports(subnet, state: PortState, prefix: int) -> None:
    fabric, infos = subnet.view.fabric, subnet.view.port_info.copy()
    slots = fabric.first_port[fabric.of_kind(NodeKind.ROUTER)] + 2
    for field, value in ((PortInfo.port_state, int(state)), (PortInfo.gid_prefix, prefix)):
        rows = infos[slots]
        fill(rows, field, value)
        infos[slots] = rows
    subnet.resweep(port_info=infos)


def path_to(subnet, dgid: int, source: str = "s1-h1", **more):
    components = {"sgid": subnet.gid(source), "dgid": dgid, "numb_path": 1, **more}
    return subnet.ask(SaAttribute.PATH_RECORD, PathRecord, Method.GET, by=source, **components)


def test_path_to_another_subnet_leads_to_a_router(subnet):
    status, (record,) = path_to(subnet, FAR)
    assert status == 0
    assert record.dlid in {subnet.lid("router1"), subnet.lid("router2")}
    assert (record.dgid, record.sgid, record.hop_limit) == (FAR, subnet.gid("s1-h1"), 255)
    assert (record.slid, record.p_key, record.mtu, record.reversible) == (subnet.lid("s1-h1"), 0xFFFF, 5, 1)
    _, (local,) = path_to(subnet, subnet.gid("s1-h2"))
    assert local.hop_limit == 0


def test_routers_share_pairs_of_ports(subnet):
    far = [THERE << 64 | 0x0002_C903_0000_0001 + (number << 8) for number in range(4, 8)]
    used = {path_to(subnet, gid, source)[1][0].dlid for gid in far for source in ("s1-h1", "s1-h2")}
    assert used == {subnet.lid("router1"), subnet.lid("router2")}


def test_dlid_of_a_query_must_be_that_of_the_router(subnet):
    dlid = path_to(subnet, FAR)[1][0].dlid
    assert path_to(subnet, FAR, dlid=dlid)[0] == 0
    assert path_to(subnet, FAR, dlid=subnet.lid("s1-h2"))[0] == SaStatus.REQUEST_INVALID


@pytest.mark.parametrize(
    ("state", "prefix"), [(PortState.ACTIVE, THERE + 1), (PortState.INITIALIZE, THERE), (PortState.DOWN, THERE)]
)
def test_subnet_that_no_router_leads_to_is_an_invalid_gid(subnet, state, prefix):
    set_far_ports(subnet, state, prefix)
    assert path_to(subnet, FAR)[0] == SaStatus.INVALID_GID


def test_router_outside_of_the_partition_is_not_used(subnet):
    keys = subnet.view.fabric.tables.pkey
    for name in ("s1-h1", "router1"):
        keys[subnet.slot(name), 1] = 0x8010
    used = {path_to(subnet, FAR + (number << 8), p_key=0x8010)[1][0].dlid for number in range(8)}
    assert used == {subnet.lid("router1")}
    keys = subnet.view.fabric.tables.pkey.copy()
    keys[subnet.slot("router1"), 1] = 0
    subnet.view.fabric.tables.pkey[:] = keys
    subnet.resweep()
    assert path_to(subnet, FAR, p_key=0x8010)[0] == SaStatus.NO_RECORDS


def test_two_subnets_with_the_same_prefix_are_reported(subnet):
    own = subnet.state.options.subnet_prefix
    assert _equal_prefixes(subnet.view, own) == []
    set_far_ports(subnet, PortState.ACTIVE, own)
    first, second = _equal_prefixes(subnet.view, own)
    assert first.startswith("equal-prefix: router1/1 leads to another subnet with the prefix 0xfe80000000000000")
    assert second.startswith("equal-prefix: router2/1")


def create_group(subnet, scope: int) -> int:
    fields = {"p_key": 0xFFFF, "q_key": 1, "sl": 0, "flow_label": 0, "t_class": 0, "join_state": 1}
    mgid = (0xFF10 | scope) << 112 | 0xA01C << 96 | 0x1234
    port_gid = subnet.gid("s1-h1")
    ports = {"mgid": mgid, "port_gid": port_gid} | fields
    return subnet.ask(SaAttribute.MC_MEMBER_RECORD, MCMemberRecord, Method.SET, by="s1-h1", **ports)[0]


@pytest.mark.parametrize("scope", [2, 5, 14])
def test_log_states_that_a_group_of_any_scope_stays_in_its_subnet(subnet, scope):
    assert create_group(subnet, scope) == 0
    group = Gid((0xFF10 | scope) << 112 | 0xA01C << 96 | 0x1234)
    assert [line.split(" ", 3)[2:] for line in subnet.state.log.recent if "stays in this subnet" in line] == [
        [Event.MULTICAST, f"{group} stays in this subnet: routers forward no multicast"]
    ]


def test_log_of_a_subnet_without_a_way_out_has_no_such_line(subnet):
    set_far_ports(subnet, PortState.DOWN, THERE)
    assert create_group(subnet, 5) == 0
    assert not any("stays in this subnet" in line for line in subnet.state.log.recent)


def test_alias_gid_names_the_port_with_its_lid(subnet):
    alias = subnet.gid("s1-h2") >> 64 << 64 | subnet.lid("s1-h2")
    assert path_to(subnet, alias)[0] == SaStatus.INVALID_GID  # this alias is not written to the port
    subnet.state.known = SimpleNamespace(alias_lid=subnet.view.fabric.tables.lid)
    status, (record,) = path_to(subnet, alias)
    assert (status, record.dlid, record.dgid, record.hop_limit) == (0, subnet.lid("s1-h2"), alias, 0)
    own = subnet.gid("s1-h1") >> 64 << 64 | subnet.lid("s1-h1")
    status, (record,) = path_to(subnet, FAR, sgid=own)
    assert (status, record.slid, record.sgid) == (0, subnet.lid("s1-h1"), own)
    assert path_to(subnet, subnet.gid("s1-h2") >> 64 << 64 | 0xBFFF)[0] == SaStatus.INVALID_GID


class Noting:
    """A sender to ports that accept all writes, except those of `refusing`."""

    def __init__(self, *refusing: int) -> None:
        self.refusing, self.written = refusing, []

    def set(self, route, attribute, number, data):
        self.written = [tuple(int.from_bytes(row[at : at + 8].tobytes(), "big") for at in (0, 8)) for row in data]
        return data, np.array([row not in self.refusing for row in range(len(data))])


def test_adapters_have_their_lid_as_a_second_guid_where_routers_lead_to_other_subnets(subnet, make_subnet):
    view, contents = subnet.view, carried_over(None, subnet.view)
    hosts = [view.fabric.find_port(f"s1-h{number}/1").slot for number in range(1, 5)]
    expected = [(int(view.fabric.ports.guid[slot]), int(view.fabric.tables.lid[slot])) for slot in hosts]
    sender = Noting(1)
    assert upload_alias_gids(sender, view, contents) == [view.name(hosts[1])]
    assert sender.written == expected
    sender = Noting()
    assert upload_alias_gids(sender, view, contents) == []
    assert sender.written == expected[1:2]
    sender = Noting()
    assert (upload_alias_gids(sender, view, contents), sender.written) == ([], [])
    view.fabric.tables.lid[hosts[2]] += 100  # an alias names an old LID
    upload_alias_gids(sender, view, contents)
    assert sender.written == [(expected[2][0], expected[2][1] + 100)]
    alone = make_subnet("star:hosts=4").view
    assert upload_alias_gids(None, alone, carried_over(None, alone)) == []


def test_path_to_a_gid_with_a_floating_lid_has_that_as_its_dlid(subnet):
    routers = (subnet.slot("router2"), subnet.slot("router1"))
    own = np.zeros(len(subnet.view.fabric.ports), np.int64)
    subnet.state.flids = Flids(own=own, there={1500: routers}, without=np.zeros(0, np.intp))
    add_routes(subnet.view, subnet.state.flids)
    with_flid, without = FAR | 1500 << 80, FAR | 1501 << 80
    status, (record,) = path_to(subnet, with_flid)
    assert (status, record.dlid, record.dgid, record.hop_limit) == (0, 1500, with_flid, 255)
    assert path_to(subnet, with_flid, dlid=1500)[1] == [record]
    assert path_to(subnet, with_flid, dlid=subnet.lid("router1"))[0] == SaStatus.REQUEST_INVALID
    assert path_to(subnet, without)[1][0].dlid in {subnet.lid("router1"), subnet.lid("router2")}  # not enabled
    lft = subnet.view.fabric.tables.lft
    assert (lft[:, 1500] == lft[:, subnet.lid("router2")]).all()
