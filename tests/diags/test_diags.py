"""Output and errors of the tools; tests/interop/test_diags.py compares them with the real ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from weft.cli import subnets
from weft.cli.diag import diag
from weft.diags import TOOLS, show, tool
from weft.diags.ibnetdiscover import to_text
from weft.diags.ibstat import query_own_node
from weft.diags.query import Target, get_counters, get_smp, parse_target
from weft.errors import ConfigError, SubnetError, UnknownName
from weft.fabric.model import Fabric
from weft.fabric.views import Port
from weft.mad import faults, pma
from weft.mad.discover import discover
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.routing.route import route
from weft.wire.mad import ClassPortInfo
from weft.wire.perf import PerfAttribute
from weft.wire.port_info import Capability, Capability2, LinkSpeed, PortInfo, PortState
from weft.wire.smp import NodeInfo, SmpAttribute, SwitchInfo


@pytest.fixture
def carrier() -> LocalCarrier:
    """Return the carrier of h1 of a fabric without a subnet manager."""
    clock = ManualClock()
    subnet = Subnet(weft.load("fat-tree:hosts=8,radix=4"), clock=clock)
    return LocalCarrier(subnet, subnet.devices.fabric.find_port("h1/1").slot, sleep=clock.sleep)


def devices_of(carrier):
    return carrier._subnet.devices


def test_discovery_finds_every_node_and_cable(carrier):
    fabric = devices_of(carrier).fabric
    result = discover(carrier)
    assert sorted(result.nodes) == sorted(int(guid) for guid in fabric.nodes.guid)
    cables = {
        frozenset(((node.guid, port.number), port.peer))
        for node in result.nodes.values()
        for port in node.ports.values()
        if port.peer
    }
    assert len(cables) == len(fabric.links)
    for node in result.nodes.values():
        assert fabric.nodes.description[list(fabric.nodes.guid).index(node.guid)] == node.description
    assert result.start.description == "h1 mlx5_0"
    assert not result.unanswered


def test_discovery_does_not_cross_a_pulled_cable(carrier):
    devices = devices_of(carrier)
    faults.pull_cable(devices, devices.fabric.find_port("h2/1").slot)
    result = discover(carrier)
    assert len(result.nodes) == len(devices.nodes) - 1


def test_discovery_names_nodes_that_do_not_answer(carrier):
    devices = devices_of(carrier)
    faults.kill(devices, devices.fabric.node_index["h2"])
    result = discover(carrier, timeout_ms=10, retries=0)
    assert len(result.nodes) == len(devices.nodes) - 1


def test_ibnetdiscover_output_is_read_as_the_same_fabric(carrier, tmp_path):
    (tmp_path / "found.net").write_text(tool("ibnetdiscover")(carrier, []))
    fabric, read = devices_of(carrier).fabric, weft.load(str(tmp_path / "found.net"))
    assert sorted(read.nodes.guid) == sorted(fabric.nodes.guid)
    assert len(read.links) == len(fabric.links)


def test_ibnetdiscover_prints_switches_first(carrier):
    words = [line.split()[0] for line in tool("ibnetdiscover")(carrier, []).splitlines() if line[:3] in ("Swi", "Ca\t")]
    assert words == sorted(words, reverse=True)
    assert set(words) == {"Switch", "Ca"}


@pytest.mark.parametrize(
    ("mask", "mask2", "speed"),
    [
        (0, 0, "QDR"),
        (0, Capability2.IS_EXTENDED_SPEEDS_2_SUPPORTED, "QDR"),
        (Capability.IS_EXTENDED_SPEEDS_SUPPORTED, 0, "NDR"),
        (Capability.IS_EXTENDED_SPEEDS_SUPPORTED, Capability2.IS_EXTENDED_SPEEDS_2_SUPPORTED, "XDR"),
    ],
)
def test_ibnetdiscover_reads_extended_speeds_only_if_masks_of_the_adapter_or_of_port_0_have_them(mask, mask2, speed):
    """The masks at the other ports of a switch do not count, unless its port 0 was not found."""
    fabric = weft.load("star:hosts=2")
    subnet, switch, host = Subnet(fabric), fabric.switches[0].index, fabric.find_port("h1/1")
    carrier, infos, first = LocalCarrier(subnet, host.slot), subnet.devices.port_info, int(fabric.first_port[switch])
    for slot in (host.slot, host.peer.slot):
        infos[slot][:] = PortInfo.unpack(bytes(infos[slot])).replace(**LinkSpeed.XDR.active_fields).raw
    for slot, reverse in ((host.slot, False), (first, False), (host.peer.slot, True)):
        both = (Capability.IS_EXTENDED_SPEEDS_SUPPORTED, Capability2.IS_EXTENDED_SPEEDS_2_SUPPORTED)
        PortInfo.capability_mask.set(infos[slot], mask ^ both[0] if reverse else mask)
        PortInfo.capability_mask2.set(infos[slot], mask2 ^ both[1] if reverse else mask2)

    def speeds(text: str) -> list[str]:
        return [line.split()[-1] for line in text.splitlines() if '# "h1 mlx5_0" lid' in line or line[:4] == "[1]("][:2]

    found = discover(carrier)
    assert speeds(to_text(found)) == [f"4x{speed}"] * 2
    del found.nodes[int(fabric.nodes.guid[switch])].ports[0]
    assert speeds(to_text(found))[0] == f"4x{'QDR' if mask else 'NDR' if mask2 else 'XDR'}"


@pytest.mark.parametrize(("description", "name"), [("h1", "mlx5_0"), ("h1 mlx5_7", "mlx5_7"), ("", "mlx5_0")])
def test_the_name_of_an_adapter_is_the_last_word_of_its_description(carrier, description, name):
    node = devices_of(carrier).fabric.find_node("h1").index
    devices_of(carrier).node_description[node] = description.encode().ljust(64, b"\0")
    assert query_own_node(carrier)[1] == name


def configured(spec: str) -> tuple[Subnet, Fabric]:
    """Return a subnet with Active ports and tables."""
    fabric = route(weft.load(spec)).fabric
    subnet = Subnet(fabric)
    for slot, info in enumerate(subnet.devices.port_info):
        if info is not None and subnet.devices.peer(slot) >= 0:
            PortInfo.port_state.set(info, PortState.ACTIVE)
    for info in subnet.devices.switch_info.values():
        SwitchInfo.linear_fdb_top.set(info, int(fabric.tables.lid.max()))
    return subnet, fabric


def trace(subnet: Subnet, local: Port, present: Port) -> list[str]:
    return tool("ibtracert")(LocalCarrier(subnet, local.slot), [str(local.lid), str(present.lid)]).splitlines()


def test_ibtracert_follows_tables_of_more_than_one_block():
    """LIDs above 64 are in the second block of a forwarding table."""
    subnet, fabric = configured("fat-tree:hosts=72,radix=12")
    local, present = fabric.find_port("h1/1"), fabric.find_port("h72/1")
    assert present.lid > 64
    (first,) = (fabric.port(slot) for slot in np.flatnonzero(fabric.tables.lid == 64).tolist())
    assert "lid 64-64" in trace(subnet, local, first)[-1]
    output = trace(subnet, local, present)
    assert output[0].startswith("From ca")
    assert output[-1] == f'To ca {{0x{present.node.guid:016x}}} portnum 1 lid {present.lid}-{present.lid} "h72 mlx5_0"'
    assert len(output) == 2 + 4  # leaf, spine, leaf, host


def test_ibtracert_names_a_switch_without_a_route_and_a_port_that_is_not_active():
    subnet, fabric = configured("star:hosts=3")
    local, present = fabric.find_port("h1/1"), fabric.find_port("h3/1")
    assert len(trace(subnet, local, present)) == 2 + 2
    (info,) = subnet.devices.switch_info.values()
    SwitchInfo.linear_fdb_top.set(info, present.lid - 1)
    with pytest.raises(SubnetError, match=f"has no route to LID {present.lid}: its entry is 3, its table ends at"):
        trace(subnet, local, present)
    SwitchInfo.linear_fdb_top.set(info, present.lid)
    assert len(trace(subnet, local, present)) == 2 + 2
    NodeInfo.num_ports.set(subnet.devices.node_info[fabric.switches[0].index], present.peer.number)
    assert len(trace(subnet, local, present)) == 2 + 2
    NodeInfo.num_ports.set(subnet.devices.node_info[fabric.switches[0].index], present.peer.number - 1)
    with pytest.raises(SubnetError, match=f"has no route to LID {present.lid}: its entry is 3, its table ends at"):
        trace(subnet, local, present)
    SwitchInfo.linear_fdb_top.set(info, int(fabric.tables.lid.max()))
    subnet.devices.tables.lft[:, present.lid] = 255
    with pytest.raises(SubnetError, match=f"has no route to LID {present.lid}: its entry is 255"):
        trace(subnet, local, present)
    PortInfo.port_state.set(subnet.devices.port_info[local.slot], PortState.ARMED)
    with pytest.raises(SubnetError, match="port 1 of h1 mlx5_0 is not Active"):
        trace(subnet, local, present)


def test_an_attribute_is_queried_by_lid_by_path_and_by_a_path_from_a_lid():
    subnet, fabric = configured("star:hosts=3")
    carrier = LocalCarrier(subnet, fabric.find_port("h1/1").slot)
    switch = fabric.switches[0]
    out = fabric.find_port("h3/1").peer.number
    targets = [Target(fabric.find_port("h2/1").lid), Target(None, bytes([1])), Target(switch.lid, bytes([out]))]
    answers = [get_smp(carrier, target, SmpAttribute.NODE_INFO) for target in targets]
    assert {len(answer) for answer in answers} == {64}
    guids = [NodeInfo.unpack(answer).node_guid for answer in answers]
    assert guids == [fabric.find_node("h2").guid, switch.guid, fabric.find_node("h3").guid]


def test_ibstat_and_ibstatus_of_a_port_without_a_manager(carrier):
    stat = tool("ibstat")(carrier, [])
    assert stat.startswith("CA 'mlx5_0'\n")
    assert "\t\tState: Initializing\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n" in stat
    status = tool("ibstatus")(carrier, [])
    assert "\trate:\t\t 400 Gb/sec (4X NDR)\n" in status
    assert "\tstate:\t\t 2: INIT\n" in status


@pytest.mark.parametrize(
    ("name", "arguments", "rule"),
    [
        ("smpquery", ["portinfo"], "smpquery OPERATION LID"),
        ("smpquery", ["portinf", "1"], "portinfo"),
        ("smpquery", ["portinfo", "x"], "give a LID, a number"),
        ("smpquery", ["-D", "portinfo", "0,a"], "write a path as 0,1,3"),
        ("smpquery", ["-D", "pkeys", "0,1", "99"], "there is no port 99"),
        ("perfquery", [], "has no LID"),
        ("sminfo", [], "no subnet manager"),
        ("ibtracert", ["0", "1"], "not a unicast LID"),
        ("ibstat", ["-q"], "usage: ibstat"),
    ],
)
def test_invalid_arguments_are_refused_with_the_rule(carrier, name, arguments, rule):
    with pytest.raises(ConfigError, match=rule):
        tool(name)(carrier, arguments)


def test_lids_of_a_query_are_unicast():
    assert [parse_target(text, directed=False).lid for text in ("1", "0xbfff")] == [1, 0xBFFF]
    with pytest.raises(ConfigError, match="0xc000 is not a unicast LID: give 1 to 49151"):
        parse_target("0xc000", directed=False)


def test_perfquery_prints_additional_extended_counters_only_if_the_port_has_them(monkeypatch):
    subnet, fabric = configured("star:hosts=3")
    carrier, lid = LocalCarrier(subnet, fabric.find_port("h1/1").slot), fabric.find_port("h2/1").lid
    assert "SymbolErrorCounter" in tool("perfquery")(carrier, ["-x", str(lid), "1"])
    counters = tool("perfquery")(carrier, [str(lid), "1"])
    assert counters.startswith(f"# Port counters: Lid {lid} port 1 (CapMask: 0x")
    assert "PortXmitWait" in counters
    plain = ClassPortInfo.unpack(pma._CLASS_INFO).replace(capability_mask2=1 << 4).raw
    monkeypatch.setattr(pma, "_CLASS_INFO", plain.ljust(192, b"\0"))
    text = tool("perfquery")(carrier, ["-x", str(lid), "1"])
    assert "CapMask2: 0x0000010)" in text
    assert "PortMulticastRcvPkts" in text
    assert "SymbolErrorCounter" not in text


def test_a_missing_answer_is_an_error_with_the_target(carrier):
    with pytest.raises(SubnetError, match="PORT_INFO of Lid 9"):
        tool("smpquery")(carrier, ["portinfo", "9"])


def test_an_unknown_tool_suggests_one():
    with pytest.raises(UnknownName, match="ibstat"):
        tool("ibsta")
    assert all(callable(tool(name)) for name in TOOLS)


def test_the_command_lists_its_tools_and_refuses_two_subnets(capsys):
    diag()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(TOOLS)
    with pytest.raises(ConfigError, match="use one of"):
        diag("ibstat", subnet=subnets.Subnet(lab="a", ibsim="b"))
    with pytest.raises(ConfigError, match=r"--at .* has no effect with --umad"):
        diag("ibstat", subnet=subnets.Subnet(at="h1", umad="any"))
    with pytest.raises(ConfigError, match="no ibsim or lab listens at nowhere-at-all"):
        diag("ibstat", subnet=subnets.Subnet(ibsim="nowhere-at-all"))


@pytest.mark.parametrize(
    ("style", "value", "text"),
    [
        (show.speed, 0, "Extended speed"),
        (show.speed, 1, "2.5 Gbps"),
        (show.speed, 4, "10.0 Gbps"),
        (show.speed, 8, "undefined (8)"),
        (show.speeds, 1, "2.5 Gbps"),
        (show.speeds, 2, "5.0 Gbps (IBA extension)"),
        (show.speeds, 7, "2.5 Gbps or 5.0 Gbps or 10.0 Gbps"),
        (show.speed_ext, 0, "No Extended Speed"),
        (show.speed_ext, 1, "14.0625 Gbps"),
        (show.speed_ext, 2, "25.78125 Gbps"),
        (show.speed_ext, 4, "53.125 Gbps"),
        (show.speed_ext, 8, "106.25 Gbps"),
        (show.speed_ext, 16, "undefined (16)"),
        (show.speeds_ext, 0, "0"),
        (show.speeds_ext, 3, "14.0625 Gbps or 25.78125 Gbps"),
        (show.speeds_ext_enabled, 30, "Extended link speeds disabled"),
        (show.speeds_ext_enabled, 1, "14.0625 Gbps"),
        (show.width, 1, "1X"),
        (show.width, 2, "4X"),
        (show.width, 4, "8X"),
        (show.width, 8, "12X"),
        (show.width, 16, "2X"),
        (show.width, 3, "undefined (3)"),
        (show.port_state, 0, "NoChange"),
        (show.port_state, 4, "Active"),
        (show.port_state, 5, "?(5)"),
        (show.down_default_state, 2, "Polling"),
        (show.down_default_state, 3, "?(3)"),
        (show.mtu, 5, "4096"),
        (show.mtu, 6, "?(6)"),
        (show.lanes, 0, "?(0)"),
        (show.lanes, 5, "VL0-14"),
        (show.operational_lanes, 0, "No change"),
        (show.capabilities, 0b1011, "0xb\n\t\t\t\tIsSM\n\t\t\t\tIsTrapSupported"),
        (show.capabilities, 0, "0x0"),
        (show.capabilities2, 1 << 10, "0x400\n\t\t\t\tIsLinkSpeedNDRSupported"),
        (show.node_type, 1, "Channel Adapter"),
        (show.node_type, 2, "Switch"),
        (show.node_type, 3, "Router"),
        (show.node_type, 4, "?(4)?"),
    ],
)
def test_values_print_as_in_libibmad(style, value, text):
    assert style(value) == text


def test_sets_of_widths_that_the_standard_lacks_are_marked():
    """rdma-core libibmad/dump.c, dump_linkwidth."""
    plain = [mask for mask in range(1, 32) if "IBA extension" not in show.widths_supported(mask)]
    assert plain == [1, 3, 7, 11, 15, 17, 19, 23, 27, 31]


def test_counters_of_a_lid_without_a_port_and_of_a_port_that_is_absent_are_errors():
    subnet, fabric = configured("star:hosts=3")
    clock = ManualClock()
    carrier = LocalCarrier(subnet, fabric.find_port("h1/1").slot, sleep=clock.sleep)
    with pytest.raises(SubnetError, match="no answer: counters of Lid 99 port 1"):
        get_counters(carrier, 99, PerfAttribute.PORT_COUNTERS, 1)
    with pytest.raises(SubnetError, match="port 200: status 0x"):
        get_counters(carrier, fabric.find_port("h1/1").lid, PerfAttribute.PORT_COUNTERS, 200)


def test_smpquery_prints_the_tables_of_ports():
    subnet, fabric = configured("star:hosts=3")
    carrier, tables = LocalCarrier(subnet, fabric.find_port("h1/1").slot), subnet.devices.tables
    random, switch, host = np.random.default_rng(4), fabric.switches[0], fabric.find_port("h2/1")
    tables.pkey[:] = random.integers(1, 1 << 16, tables.pkey.shape)
    tables.sl2vl[:] = random.integers(0, 15, tables.sl2vl.shape)
    tables.vl_arbitration[:] = random.integers(1, 15, tables.vl_arbitration.shape)

    def numbers(operation: str, pattern: str, *words: object) -> list[int]:
        text = tool("smpquery")(carrier, [operation, *map(str, words)])
        return [int(number.strip(), 0) for number in re.findall(pattern, text)]

    for port, words in ((switch.port(2), (switch.lid, 2)), (host, (host.lid, 1))):
        keys = numbers("pkeys", "0x[0-9a-f]{4}", *words)
        assert keys == tables.pkey[port.slot, : len(keys)].tolist()
        assert len(keys) in numbers("pkeys", r"(\d+) pkeys capacity", *words)
        weights = numbers("vlarb", "0x[0-9A-F]+ ?(?=[|])", *words)
        assert sorted(weights) == sorted(tables.vl_arbitration[port.slot].ravel().tolist())
    ports = len(switch.ports) + 1
    rows = tables.first_pair[switch.index] + np.arange(ports) * ports + 2
    assert numbers("sl2vl", r"(?<=[|]) ?\d+(?=[|])", switch.lid, 2)[16:] == tables.sl2vl[rows].ravel().tolist()
    own = tables.sl2vl[tables.first_pair[host.node.index] + 1].tolist()
    assert numbers("sl2vl", r"(?<=[|]) ?\d+(?=[|])", host.lid, 1)[16:] == own
    assert tool("smpquery")(carrier, ["pkeys", str(switch.lid)]) == tool("smpquery")(
        carrier, ["pkeys", str(switch.lid), "0"]
    )
    assert numbers("guids", "0x[0-9a-f]{16}", host.lid)[0] == host.guid
    for capacity in (1, 2, 3, 9):
        PortInfo.guid_cap.set(subnet.devices.port_info[host.slot], capacity)
        assert numbers("guids", r"(?m)^ *(\d+): 0x\S+ 0x\S+$", host.lid) == list(range(0, capacity, 2))
    PortInfo.vl_arbitration_low_cap.set(subnet.devices.port_info[host.slot], 40)
    assert len(numbers("vlarb", "0x[0-9A-F]+ ?(?=[|])", host.lid, 1)) == 2 * (40 + 64)
    assert "ports: in  0, out  0: |" in tool("smpquery")(carrier, ["sl2vl", str(host.lid), "1"])
    (info,) = subnet.devices.switch_info.values()
    SwitchInfo.enhanced_port_0.set(info, 0)
    assert "No VLArbitration tables" in tool("smpquery")(carrier, ["vlarb", str(switch.lid), "0"])
    assert "# Low priority VL" in tool("smpquery")(carrier, ["vlarb", str(switch.lid), "2"])
