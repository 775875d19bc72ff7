"""The speed of a link is the same for the cable, its trained ports, the tools, the SM and verbs."""

from __future__ import annotations

import re

import pytest

from weft.diags import tool
from weft.fabric.build import FabricBuilder
from weft.fabric.kinds import NodeKind
from weft.fabric.model import Fabric
from weft.fabric.rates import Technology, parse_label, speeds
from weft.lab.adapters import rate_gbit_s
from weft.mad import faults
from weft.mad.local import LocalCarrier, ManualClock
from weft.mad.subnet import Subnet
from weft.mad.walk import walk
from weft.sm.discovery.view import make_view
from weft.verbs.carriers.lab.port_facts import Facts
from weft.wire.port_info import LANES, WIDTHS, LinkSpeed, PortInfo, join_speeds, split_speeds

LABELS = [
    one.label(width) for one in speeds() if one.technology is Technology.INFINIBAND for width in one.widths
]  # 1xSDR ... 12xGDR
SAID = [label for label in LABELS if not label.endswith("GDR")]  # PortInfo has no code for GDR yet


def wired(label: str) -> Fabric:
    """Return the fabric h1 -- sw1 -- h2 with links of this speed."""
    builder = FabricBuilder("pair")
    hosts = builder.add_nodes(NodeKind.HCA, ["h1", "h2"], n_ports=1, vendor_id=0x2C9)
    switch = builder.add_nodes(NodeKind.SWITCH, ["sw1"], n_ports=2, vendor_id=0x2C9)
    builder.add_links(hosts, 1, switch, [1, 2], label)
    return builder.build()


def carrier_of(fabric: Fabric) -> LocalCarrier:
    clock = ManualClock()
    subnet = Subnet(fabric, clock=clock)
    return LocalCarrier(subnet, fabric.find_port("h1/1").slot, sleep=clock.sleep)


def views(carrier: LocalCarrier) -> dict[str, set[str]]:
    """Return the labels of h1's link by the fabric, the subnet manager, and ibnetdiscover."""
    devices = carrier._subnet.devices
    now, managed = faults.fabric_now(devices), make_view(walk(carrier)).fabric.links
    lines = set(zip(managed.speed.tolist(), managed.width.tolist(), strict=True))
    by_sm = {speeds()[item].label(width) for item, width in lines}
    by_tool = set(re.findall(r" (\d+x\w+)$", tool("ibnetdiscover")(carrier, []), re.M))
    if LinkSpeed.FDR10.name in now.find_port("h1/1").link.label:
        by_sm = by_tool  # PortInfo reports QDR, and the subnet manager reads no other attribute
    return {"fabric": {now.find_port("h1/1").link.label}, "ibnetdiscover": by_tool, "subnet manager": by_sm}


@pytest.mark.parametrize("label", SAID)
def test_a_link_says_what_it_runs_at_to_everybody_before_and_after_it_trained(label):
    carrier = carrier_of(wired(label))
    devices = carrier._subnet.devices
    slot = devices.fabric.find_port("h1/1").slot
    powered, before = bytes(devices.info(slot)), views(carrier)
    assert before == {owner: {label} for owner in before}
    faults.mend(devices, slot)
    assert bytes(devices.info(slot)) == powered
    assert views(carrier) == before


@pytest.mark.parametrize("label", [label for label in SAID if not label.startswith("8x")])
def test_a_cable_that_falls_back_is_seen_to_by_everybody(label):
    carrier = carrier_of(wired("12xXDR"))
    devices = carrier._subnet.devices
    faults.slow(devices, devices.fabric.find_port("h1/1").slot, label)
    faults.slow(devices, devices.fabric.find_port("h2/1").slot, label)
    assert views(carrier) == {view: {label} for view in views(carrier)}


@pytest.mark.parametrize("label", SAID)
def test_hosts_are_told_the_rate_of_their_link(label):
    """sysfs, verbs and ibstat; FDR10 has QDR's rate there."""
    carrier = carrier_of(wired(label))
    devices = carrier._subnet.devices
    info = bytes(devices.info(devices.fabric.find_port("h1/1").slot))
    result, lanes = parse_label(label)
    item = LinkSpeed[result.name]
    gbit_s = item.lane_tenths * lanes // 10
    attr = Facts(PortInfo.unpack(info), (1,), (0xFFFF,)).port_attr()
    assert rate_gbit_s(info) == gbit_s
    assert f"Rate: {gbit_s}\n" in tool("ibstat")(carrier, [])
    observed = LinkSpeed.QDR if item is LinkSpeed.FDR10 else item
    assert (attr.active_speed_ex or attr.active_speed, LANES[attr.active_width]) == (observed, lanes)
    assert attr.active_speed == min(observed, LinkSpeed.NDR)  # as ibv_query_port(3) has it


def test_speed_unknown_to_portinfo_runs_as_cabled():
    carrier = carrier_of(wired("4xGDR"))
    assert views(carrier) == {"fabric": {"4xGDR"}, "ibnetdiscover": {"4xXDR"}, "subnet manager": {"4xXDR"}}


def test_every_set_of_speeds_is_told_apart_in_the_fields():
    """Encoding is reversible: each speed is in one field, and widths are lane counts."""
    assert all(join_speeds(*split_speeds(speeds)) == speeds for speeds in range(512))
    assert all(sum(map(bool, split_speeds(item))) == 1 for item in LinkSpeed)
    assert {lanes: LANES[width] for lanes, width in WIDTHS.items()} == {1: 1, 2: 2, 4: 4, 8: 8, 12: 12}
