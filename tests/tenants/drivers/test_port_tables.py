"""Differences between P_Key tables and partitions, read with MADs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sm.conftest import Net

from weft.tenants.drivers.port_tables import read_port_tables
from weft.tenants.partitions import Member, Partition
from weft.wire.port_info import PortInfo


@pytest.fixture
def net() -> Net:
    result = Net("star:hosts=3")
    result.fabric.tables.pkey[:, 0] = 0x7FFF
    return result


def guid(net: Net, name: str) -> int:
    return int(net.fabric[name].guid)


def set_keys(net: Net, name: str, *keys: int) -> None:
    row = net.fabric.tables.pkey[net.fabric[name].slot]
    row[:] = 0
    row[: len(keys)] = keys


def differences(net: Net, *expected) -> list[str]:
    return read_port_tables(net.carrier).differences(*expected)


def test_every_port_that_differs_is_named(net):
    red = Partition(
        name="red", p_key=0x101, members={guid(net, "h1/1"): Member(), guid(net, "h2/1"): Member(full=False)}
    )
    assert differences(net, [red], frozenset(), None) == ["h1/1 lacks 0x8101", "h2/1 lacks 0x0101"]
    set_keys(net, "h1/1", 0x7FFF, 0x8101)
    set_keys(net, "h2/1", 0x7FFF, 0x8101)
    set_keys(net, "h3/1", 0x7FFF, 0x0102)
    assert differences(net, [red], frozenset(), None) == [
        "h2/1 lacks 0x0101 and still has 0x8101",
        "h3/1 still has 0x0102",
    ]
    assert differences(net, [red], frozenset({0x101, 0x102}), None) == [
        "h1/1 lacks 0x8101",
        "h2/1 lacks 0x0101",
    ]
    absent = Partition(name="absent", p_key=0x103, members={0xDEAD: Member()})
    set_keys(net, "h2/1", 0x7FFF, 0x0101)
    set_keys(net, "h3/1", 0x7FFF)
    assert differences(net, [red, absent], frozenset(), None) == []


def test_index_0_is_checked(net):
    red = Partition(name="red", p_key=0x101, members={guid(net, "h1/1"): Member(index0=True)})
    set_keys(net, "h1/1", 0x7FFF, 0x8101)
    assert differences(net, [red], frozenset(), None) == ["h1/1 has 0x7fff at index 0, not 0x0101"]
    set_keys(net, "h1/1", 0x8101, 0x7FFF)
    assert differences(net, [red], frozenset(), None) == []
    set_keys(net, "h1/1", 0x8200, 0x8101, 0x7FFF)
    assert differences(net, [red], frozenset({0x200}), None) == ["h1/1 has 0x0200 at index 0, not 0x0101"]
    plain = Partition(name="red", p_key=0x101, members={guid(net, "h1/1"): Member()})
    assert differences(net, [plain], frozenset({0x200}), None) == []
    set_keys(net, "h1/1", 0x8101, 0x7FFF)
    assert differences(net, [plain], frozenset(), None) == ["h1/1 has 0x0101 at index 0, not 0x7fff"]


def test_default_is_checked_unless_the_operator_has_rules(net):
    """Full members are all ports, or only the subnet manager."""
    assert differences(net, [], frozenset(), False) == []
    assert len(differences(net, [], frozenset(), True)) == 3
    set_keys(net, "h2/1", 0xFFFF)
    assert differences(net, [], frozenset(), False) == ["h2/1 lacks 0x7fff and still has 0xffff"]
    infos = net.fabric.tables.port_info
    for name, lid in (("h1/1", 7), ("h2/1", 8)):
        row = infos[net.fabric[name].slot]
        row[:] = np.frombuffer(PortInfo.unpack(row.tobytes()).replace(lid=lid, master_sm_lid=8).raw, np.uint8)
    assert differences(net, [], frozenset(), False) == []


@pytest.mark.parametrize("side", ["inbound", "outbound"])
def test_tables_of_enforcing_switch_ports_are_checked(net, side):
    red = Partition(name="red", p_key=0x101, members={guid(net, "h1/1"): Member()})
    set_keys(net, "h1/1", 0x7FFF, 0x8101)
    facing = net.fabric["h1/1"].peer
    row = net.fabric.tables.port_info[facing.slot]
    row[:] = np.frombuffer(PortInfo.unpack(row.tobytes()).replace(**{f"partition_enforcement_{side}": 1}).raw, np.uint8)
    assert differences(net, [red], frozenset(), None) == [f"{facing} lacks 0x8101"]
    set_keys(net, str(facing), 0x7FFF, 0x8101)
    assert differences(net, [red], frozenset(), None) == []
