"""opafm.xml: Virtual Fabrics become partitions, and their QoS shares of the links."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.errors import FileError
from weft.sm.opafm.virtual_fabrics import Share, VirtualFabrics, parse_virtual_fabrics
from weft.sm.pkey.partitions import Devices, Everyone
from weft.sm.pkey.tables import wanted_pkeys

FABRIC = weft.load("fat-tree:hosts=8,radix=4,speed=HDR")
SLOT = {name: int(FABRIC.first_port[node]) for node, name in enumerate(FABRIC.nodes.name)}
OWN = SLOT["h1"] + 1
ADMIN = """<VirtualFabric><Name>Admin</Name><Enable>1</Enable><PKey>0x7fff</PKey><Security>1</Security>
  <Member>Switches</Member><LimitedMember>Everybody</LimitedMember><Application>SA</Application></VirtualFabric>"""
GROUPS = f"""<DeviceGroup><Name>Everybody</Name><Select>All</Select></DeviceGroup>
<DeviceGroup><Name>Switches</Name><Select>SWE0</Select></DeviceGroup>
<DeviceGroup><Name>Hosts</Name><NodeType>FI</NodeType></DeviceGroup>
<DeviceGroup><Name>Low</Name><NodeDesc>h[2-4] *</NodeDesc></DeviceGroup>
<DeviceGroup><Name>One</Name><PortGUID>{int(FABRIC.ports.guid[SLOT["h2"] + 1]):#x}</PortGUID></DeviceGroup>
<DeviceGroup><Name>Two</Name><NodeGUID>{int(FABRIC.nodes.guid[FABRIC.node_index["h5"]]):#x}</NodeGUID>
  <IncludeGroup>One</IncludeGroup></DeviceGroup>"""


def config(fabrics: str, *, qos: str = "", groups: str = GROUPS, admin: str = ADMIN, multicast: str = "") -> str:
    return f"""<?xml version="1.0" encoding="utf-8"?>
<Config><Common><DeviceGroups>{groups}</DeviceGroups><QOSGroups>{qos}</QOSGroups>
<VirtualFabrics>{fabrics}{admin}</VirtualFabrics>
<Sm><Multicast>{multicast}</Multicast></Sm></Common></Config>"""


def fabric(name: str, inside: str) -> str:
    return f"<VirtualFabric><Name>{name}</Name><Enable>1</Enable>{inside}<Application>All</Application></VirtualFabric>"


def keys(read: VirtualFabrics, name: str) -> list[int]:
    table = wanted_pkeys(read.partitions, FABRIC, OWN).table
    return np.trim_zeros(table[SLOT[name] + 1], "b").tolist()


# -- members and keys -------------------------------------------------------------------------------------------------


def test_the_admin_fabric_is_the_default_partition_and_its_manager_a_full_member():
    read = parse_virtual_fabrics(config(""))
    assert keys(read, "h1") == [0xFFFF]
    assert keys(read, "h2") == [0x7FFF]
    assert wanted_pkeys(read.partitions, FABRIC, OWN).table[SLOT["leaf1"], 0] == 0xFFFF


def test_members_are_full_and_limited_members_are_not_whatever_the_order():
    text = config(
        fabric("Red", "<PKey>0x10</PKey><Security>1</Security><Member>Two</Member><LimitedMember>Low</LimitedMember>")
    )
    read = parse_virtual_fabrics(text)
    assert keys(read, "h2") == [0x7FFF, 0x8010]  # a member of both
    assert keys(read, "h3") == [0x7FFF, 0x0010]
    assert keys(read, "h5") == [0x7FFF, 0x8010]
    assert keys(read, "h6") == [0x7FFF]


def test_without_security_limited_members_are_full_members():
    read = parse_virtual_fabrics(config(fabric("Red", "<PKey>0x10</PKey><LimitedMember>Low</LimitedMember>")))
    assert keys(read, "h3") == [0x7FFF, 0x8010]


def test_fabrics_without_security_share_a_key_and_those_with_it_do_not():
    secure = "<Security>1</Security><Member>Low</Member>"
    text = config(
        fabric("A", "<Member>Low</Member>")
        + fabric("B", secure)
        + fabric("C", "<Member>Two</Member>")
        + fabric("D", secure)
    )
    read = parse_virtual_fabrics(text)
    assert {partition.name: partition.p_key for partition in read.partitions.partitions} == {
        "A": 2,
        "B": 3,
        "D": 4,
        "Admin": 0x7FFF,
    }
    assert keys(read, "h5") == [0x7FFF, 0x8002]
    assert any("C and A share P_Key 0x0002" in note for note in read.partitions.notes)


def test_a_full_member_in_one_of_the_fabrics_that_share_a_key_is_full():
    key = "<PKey>0x10</PKey><Security>1</Security>"
    text = fabric("A", f"{key}<Member>One</Member>") + fabric("B", f"{key}<LimitedMember>Hosts</LimitedMember>")
    read = parse_virtual_fabrics(config(text))
    assert keys(read, "h2") == [0x7FFF, 0x8010]
    assert keys(read, "h3") == [0x7FFF, 0x0010]


def test_fabrics_that_are_disabled_or_in_standby_are_left_out():
    off = "<VirtualFabric><Name>Off</Name><Enable>0</Enable><Member>Nobody knows</Member></VirtualFabric>"
    read = parse_virtual_fabrics(config(off + fabric("Sleeps", "<Standby>1</Standby><Member>Low</Member>")))
    assert [partition.name for partition in read.partitions.partitions] == ["Admin"]
    assert any("Sleeps is in standby" in note for note in read.partitions.notes)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("node[1-4]", ["node1", "node4"], ["node5", "node01", "node11"]),
        ("node[06-10]", ["node06", "node10"], ["node6", "node010"]),
        ("rack[1-2]n[01-02]", ["rack1n02"], ["rack1n2", "rack3n01"]),
        ("*Rack1*", ["a Rack1 b", "Rack1"], ["Rack2"]),
        ("n*x", ["nx", "n-1x"], ["n 1x", "nxy"]),
        ("h?", ["h", "h1"], ["h12"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_node_descriptions_match_as_the_fabric_manager_matches_them(pattern, yes, no):
    groups = GROUPS + f"<DeviceGroup><Name>G</Name><NodeDesc>{pattern}</NodeDesc></DeviceGroup>"
    read = parse_virtual_fabrics(config(fabric("Red", "<Member>G</Member>"), groups=groups))
    owner = read.partitions.partitions[0].members[0].who
    assert isinstance(owner, Devices)
    assert all(re.fullmatch(str(owner.value), name) for name in yes)
    assert not any(re.fullmatch(str(owner.value), name) for name in no)


def test_ports_of_a_node_are_chosen_by_range():
    groups = GROUPS + "<DeviceGroup><Name>G</Name><NodeDesc>h2 *:[2-3]</NodeDesc></DeviceGroup>"
    read = parse_virtual_fabrics(config(fabric("Red", "<Member>G</Member>"), groups=groups))
    assert keys(read, "h2") == [0x7FFF]  # it has port 1 only


# -- shares -----------------------------------------------------------------------------------------------------------


def shares(fabrics: str, qos: str = "") -> list[tuple[str, int, int, bool]]:
    read = parse_virtual_fabrics(config(fabrics, qos=qos))
    return [(share.name, share.sl, share.bandwidth_percent, share.high_priority) for share in read.shares]


def test_unassigned_bandwidth_goes_to_fabrics_without_a_share():
    text = "".join(
        fabric(name, f"<QOS>1</QOS>{more}<Member>Hosts</Member>")
        for name, more in (("A", "<Bandwidth>30%</Bandwidth>"), ("B", ""), ("C", "<HighPriority>1</HighPriority>"))
    )
    assert shares(text) == [("A", 0, 30, False), ("B", 1, 35, False), ("C", 2, 0, True), ("no QoS", 3, 35, False)]


def test_fabrics_of_one_qos_group_share_its_level_and_bandwidth():
    qos = """<QOSGroup><Name>Net</Name><Enable>1</Enable><Bandwidth>10%</Bandwidth><BaseSL>5</BaseSL></QOSGroup>
    <QOSGroup><Name>Unused</Name><Enable>1</Enable><Bandwidth>95%</Bandwidth></QOSGroup>"""
    in_net = "<PKey>{}</PKey><QOSGroup>Net</QOSGroup><Member>Hosts</Member>"
    text = fabric("A", in_net.format("0x10")) + fabric("B", in_net.format("0x11"))
    read = parse_virtual_fabrics(config(text, qos=qos))
    assert read.shares[0] == Share(name="Net", sl=5, bandwidth_percent=10, high_priority=False)
    assert {partition.p_key: partition.sl for partition in read.partitions.partitions} == {0x10: 5, 0x11: 5, 0x7FFF: 0}
    assert read.shares[1].bandwidth_percent == 90


def test_settings_without_a_counterpart_are_noted():
    qos = """<QOS>1</QOS><HoqLife>8ms</HoqLife><PreemptRank>4294967296</PreemptRank><MulticastSL>0</MulticastSL>
    <HighPriority>1</HighPriority><Bandwidth>10%</Bandwidth><Member>Hosts</Member>"""
    notes = parse_virtual_fabrics(config(fabric("A", qos))).partitions.notes
    assert [note.partition(": ")[2] for note in notes] == [
        "PreemptRank of A has no counterpart here: ignored",
        "HoqLife of A has no counterpart here: ignored",
        "A has high priority: its bandwidth of 10 % is ignored",
    ]
    for quiet in ("<HighPriority>1</HighPriority>", "<Bandwidth>10%</Bandwidth>"):
        text = config(fabric("A", f"<QOS>1</QOS>{quiet}<Member>Hosts</Member>"))
        assert parse_virtual_fabrics(text).partitions.notes == ()
    with pytest.raises(FileError, match="<PreemptRank> to be at most 4294967296"):
        parse_virtual_fabrics(config(fabric("A", qos.replace("4294967296", "4294967297"))))
    both = "<QOSGroup>Net</QOSGroup><QOS>1</QOS><Member>Hosts</Member><MaxMTU>2048</MaxMTU><MaxRate>Unlimited</MaxRate>"
    net = "<QOSGroup><Name>Net</Name><Enable>1</Enable></QOSGroup>"
    assert [
        note.partition(": ")[2] for note in parse_virtual_fabrics(config(fabric("A", both), qos=net)).partitions.notes
    ] == [
        "Virtual Fabric A names a QOSGroup: its own QoS settings are ignored",
        "MaxMTU of Virtual Fabric A does not limit paths: ignored",
    ]


def test_shares_may_fill_the_link_up_to_the_share_of_traffic_without_qos():
    def of_bandwidth(percent: int) -> str:
        return fabric("A", f"<QOS>1</QOS><Bandwidth>{percent}%</Bandwidth><Member>Hosts</Member>")

    assert shares(of_bandwidth(95))[-1] == ("no QoS", 1, 5, False)
    with pytest.raises(FileError, match="not 96 %"):
        shares(of_bandwidth(96))
    open_one = fabric("B", "<QOS>1</QOS><Member>Hosts</Member>")
    assert [share[2] for share in shares(of_bandwidth(94) + open_one)] == [94, 1, 5]
    with pytest.raises(FileError, match="not 95 %"):
        shares(of_bandwidth(95) + open_one)


def test_there_are_16_service_levels():
    classes = "".join(fabric(f"V{number}", "<QOS>1</QOS><Member>Hosts</Member>") for number in range(15))
    assert sorted(share[1] for share in shares(classes)) == [*range(16)]
    with pytest.raises(FileError, match="at most 16 QOSGroups and Virtual Fabrics with QoS, not 17"):
        shares(classes + fabric("V15", "<QOS>1</QOS><Member>Hosts</Member>"))
    top = "<QOS>1</QOS><BaseSL>{}</BaseSL><Member>Hosts</Member>"
    assert shares(fabric("A", top.format(15)))[0][1] == 15
    with pytest.raises(FileError, match="<BaseSL> to be at most 15"):
        shares(fabric("A", top.format(16)))


@given(st.lists(st.one_of(st.none(), st.integers(1, 40)), max_size=6))
@settings(max_examples=60)
def test_shares_fill_the_link_or_are_refused(percents):
    text = "".join(
        fabric(f"V{n}", f"<QOS>1</QOS>{f'<Bandwidth>{p}%</Bandwidth>' if p else ''}<Member>Hosts</Member>")
        for n, p in enumerate(percents)
    )
    given_percent = sum(filter(None, percents))
    if given_percent + percents.count(None) + 5 > 100:
        with pytest.raises(FileError, match="at most 100 %"):
            shares(text)
        return
    result = shares(text)
    assert sum(item[2] for item in result) == 100
    assert result[-1][2] >= 5
    assert len({item[1] for item in result}) == len(result)


# -- multicast --------------------------------------------------------------------------------------------------------


def test_groups_without_mgids_are_those_of_ipoib():
    group = "<MulticastGroup><Create>1</Create><PKey>0x0010</PKey><MTU>4096</MTU><Rate>100g</Rate></MulticastGroup>"
    text = config(fabric("Red", "<PKey>0x10</PKey><Member>Hosts</Member>"), multicast=group)
    red = parse_virtual_fabrics(text).partitions.partitions[0]
    assert (red.groups[0].rate, red.groups[0].mtu, len(red.groups)) == (16, 5, 8)
    assert str(red.groups[0].mgid) == "ff12:401b:8010:0000:0000:0000:ffff:ffff"
    assert red.groups[0].q_key == 0x0B1B


@pytest.mark.parametrize(
    ("mtu", "rate", "codes"),
    [
        ("", "", (4, 15)),
        ("<MTU>2048</MTU>", "<Rate>25g</Rate>", (4, 15)),
        ("<MTU>4096</MTU>", "<Rate>50g</Rate>", (5, 20)),
        ("<MTU>8192</MTU>", "<Rate>75g</Rate>", (5, 20)),
        ("<MTU>10240</MTU>", "<Rate>100g</Rate>", (5, 16)),
    ],
)
def test_sizes_and_rates_of_groups_have_the_standards_codes(mtu, rate, codes):
    """An MTU or a rate that InfiniBand does not have is the next lower one, with a note."""
    flags = "<TClass>255</TClass><FlowLabel>0xfffff</FlowLabel><QKey>0xffffffff</QKey>"
    group = f"<MulticastGroup><Create>1</Create><PKey>0x0010</PKey>{mtu}{rate}{flags}</MulticastGroup>"
    read = parse_virtual_fabrics(config(fabric("Red", "<PKey>0x10</PKey><Member>Hosts</Member>"), multicast=group))
    (first, *_) = read.partitions.partitions[0].groups
    assert (first.mtu, first.rate) == codes
    assert (first.t_class, first.flow_label, first.q_key) == (0xFF, 0xFFFFF, 0xFFFFFFFF)
    notes = sum("InfiniBand has no" in note for note in read.partitions.notes)
    assert notes == ("8192" in mtu or "10240" in mtu) + ("75g" in rate)


def test_groups_that_are_not_created_or_have_no_fabric_are_left_out():
    group = "<MulticastGroup><Create>{}</Create><VirtualFabric>{}</VirtualFabric></MulticastGroup>"
    multicast = group.format(0, "Red") + group.format(1, "Nobody")
    read = parse_virtual_fabrics(config(fabric("Red", "<Member>Hosts</Member>"), multicast=multicast))
    assert not any(partition.groups for partition in read.partitions.partitions)
    assert any("no enabled Virtual Fabric is meant by Nobody" in note for note in read.partitions.notes)
    twice = group.format(1, "Red") * 2
    read = parse_virtual_fabrics(config(fabric("Red", "<Member>Hosts</Member>"), multicast=twice))
    assert [len(partition.groups) for partition in read.partitions.partitions] == [8, 0]


def test_groups_by_mgid_belong_to_the_fabric_that_they_name():
    group = """<MulticastGroup><Create>1</Create><VirtualFabric>Red</VirtualFabric><MTU>10240</MTU>
    <MGID>0xff12000000000000:0x0000000000000007</MGID><QKey>0x22</QKey></MulticastGroup>"""
    read = parse_virtual_fabrics(config(fabric("Red", "<PKey>0x10</PKey><Member>Hosts</Member>"), multicast=group))
    (result,) = read.partitions.partitions[0].groups
    assert (int(result.mgid) & 0xFF, result.mtu, result.q_key) == (7, 5, 0x22)
    assert any("no MTU 10240" in note for note in read.partitions.notes)
    text = config(
        fabric("Red", "<PKey>0x10</PKey><Member>Hosts</Member>"), multicast=group.replace("<QKey>0x22</QKey>", "")
    )
    assert parse_virtual_fabrics(text).partitions.partitions[0].groups[0].q_key == 0  # not that of IPoIB


# -- bad files --------------------------------------------------------------------------------------------------------

REFUSED = {
    "not XML": ("<Config>", "well-formed XML"),
    "no admin": (config("", admin=""), "PKey 0x7fff"),
    "no such device group": (config(fabric("Red", "<Member>Nobody</Member>")), "the name of a DeviceGroup"),
    "no such QoS group": (config(fabric("R", "<QOSGroup>x</QOSGroup><Member>Low</Member>")), "an enabled QOSGroup"),
    "no members": (config(fabric("Red", "")), "a <Member> or <LimitedMember>"),
    "two of a name": (config(fabric("Admin", "<Member>Low</Member>")), "a <Name> that no other"),
    "key out of range": (config(fabric("Red", "<PKey>0x8001</PKey><Member>Low</Member>")), "from 0x1 to 0x7fff"),
    "bad range": (
        config("", groups=GROUPS.replace("[2-4]", "[4-2]"), admin=ADMIN.replace("Switches", "Low")),
        "a range",
    ),
    "bad GUID": (
        config("", groups=GROUPS.replace("<PortGUID>0x", "<PortGUID>g"), admin=ADMIN.replace("Switches", "One")),
        "GUID",
    ),
    "widest range": (
        config("", groups=GROUPS.replace("[2-4]", "[1-100001]"), admin=ADMIN.replace("Switches", "Low")),
        "less than 100,000",
    ),
    "unknown selection": (
        config("", groups=GROUPS.replace("<Select>SWE0</Select>", "<Select>Most</Select>")),
        "or Select All, Self, SWE0",
    ),
    "unknown node type": (config("", groups=GROUPS.replace("SWE0</Select>", "x</Select>")), "NodeType FI or SW"),
    "key of zero": (config(fabric("Red", "<PKey>0</PKey><Member>Low</Member>")), "from 0x1 to 0x7fff"),
    "key in words": (config(fabric("Red", "<PKey>ten</PKey><Member>Low</Member>")), "from 0x1 to 0x7fff"),
    "flag in words": (config(fabric("Red", "<Security>yes</Security><Member>Low</Member>")), "to be at most 1"),
    "flag of two": (config(fabric("Red", "<Security>2</Security><Member>Low</Member>")), "to be at most 1"),
    "bandwidth of zero": (
        config(fabric("Red", "<QOS>1</QOS><Bandwidth>0%</Bandwidth><Member>Low</Member>")),
        "from 0x1 to 0x64",
    ),
    "bandwidth above all": (
        config(fabric("Red", "<QOS>1</QOS><Bandwidth>101%</Bandwidth><Member>Low</Member>")),
        "from 0x1 to 0x64",
    ),
    "MGID in one half": (
        config("", multicast="<MulticastGroup><Create>1</Create><MGID>0xff12</MGID></MulticastGroup>"),
        "an MGID of two hexadecimal numbers",
    ),
    "groups in a ring": (
        config("", groups=GROUPS.replace("<Select>SWE0</Select>", "<IncludeGroup>Switches</IncludeGroup>")),
        "do not include each other",
    ),
    "one SL for two": (
        config("".join(fabric(n, "<QOS>1</QOS><BaseSL>3</BaseSL><Member>Low</Member>") for n in "AB")),
        "an SL for B that A does not use",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_the_fabric_manager_refuses_is_refused(name):
    text, expected = REFUSED[name]
    with pytest.raises(FileError, match=re.escape(expected)) as caught:
        parse_virtual_fabrics(text)
    assert caught.value.line is not None


@pytest.mark.parametrize(
    ("inside", "read"), [("<PKey>0x8001</PKey><Member>Low</Member>", "'0x8001'"), ("", "'<VirtualFabric>'")]
)
def test_an_error_has_the_text_of_its_element_or_if_it_has_none_the_tag(inside, read):
    with pytest.raises(FileError, match=f": {read} is not valid; expected"):
        parse_virtual_fabrics(config(fabric("Red", inside)))


def test_a_document_type_is_refused_before_its_entities_can_grow():
    bomb = '<!DOCTYPE Config [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    with pytest.raises(FileError, match="no document type") as caught:
        parse_virtual_fabrics(config("").replace("<Config>", f"{bomb}<Config>"))
    assert caught.value.line == 2


@given(st.text(alphabet="<>/VirtualFcsMemb&;! ", max_size=60))
@settings(max_examples=100)
def test_any_text_is_refused_with_a_reason(text):
    with pytest.raises(FileError):
        parse_virtual_fabrics(f"<Config>{text}</Config>")


def test_an_instance_adds_to_what_is_common():
    own = fabric("Mine", "<PKey>0x20</PKey><Member>Hosts</Member>")
    fm = f"<Fm><VirtualFabrics>{own}</VirtualFabrics></Fm>"
    text = config("").replace("</Config>", f"{fm}{fm.replace('Mine', 'Other')}</Config>")
    assert [partition.name for partition in parse_virtual_fabrics(text).partitions.partitions] == ["Admin", "Mine"]
    assert [partition.name for partition in parse_virtual_fabrics(text, instance=1).partitions.partitions] == [
        "Admin",
        "Other",
    ]


def test_settings_without_an_infiniband_form_are_noted():
    groups = GROUPS.replace("<Select>SWE0</Select>", "<Select>TFIs</Select><Select>Self</Select>")
    read = parse_virtual_fabrics(config("", groups=groups))
    assert "<Select>TFIs</Select> selects nothing" in read.partitions.notes[0]
    assert read.partitions.partitions[0].members[-1].who is Everyone.SELF
