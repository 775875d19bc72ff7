"""Known ports keep their names and memberships, unless the fabric contradicts them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.tenants.memory import MemoryDriver
from tests.tenants.wanted import fabric, intent

from weft.errors import ConfigError
from weft.tenants.apply import apply
from weft.tenants.partitions import Inventory
from weft.tenants.recall import recall, remember


def names(inventory: Inventory, *, there: bool) -> dict[int, str]:
    return {port.guid: port.name for port in inventory.ports if port.is_there == there}


def without(inventory: Inventory, *hosts: str) -> Inventory:
    return replace(inventory, ports=tuple(port for port in inventory.ports if port.host not in hosts))


class Forgetful(MemoryDriver):
    """A driver that remembers ports between calls."""

    known = remember(Inventory(()))

    def inventory(self):
        result = recall(self.ports, self.known)
        self.known = remember(result)
        return result


def test_a_port_that_is_down_keeps_only_its_name():
    before = fabric(3, ports=2, lid=7)
    result = recall(without(before, "h3"), remember(before))
    assert names(result, there=False) == {0x301: "h3/1", 0x302: "h3/2"}
    assert result.ports[:4] == before.ports[:4]
    assert {(port.lid, port.is_active, port.host) for port in result.ports[4:]} == {(0, False, "h3")}
    assert recall(before, remember(result)) == before  # it is returned unchanged


def test_a_replaced_adapter_is_forgotten():
    before = fabric(3)
    ports = tuple(replace(port, guid=0x999, node_guid=0x998) if port.host == "h3" else port for port in before.ports)
    result = recall(replace(before, ports=ports), remember(recall(without(before, "h3"), remember(before))))
    assert result.ports == ports


def test_a_moved_adapter_has_its_new_name():
    before = fabric(3)
    moved = tuple(replace(port, name="h9/1", host="h9") if port.host == "h3" else port for port in before.ports)
    assert recall(replace(before, ports=moved), remember(before)).ports == moved


def test_a_booting_server_keeps_its_name():
    """Until its system is up an adapter has no name but its GUID."""
    before = fabric(3)
    boots = tuple(
        replace(port, name="H-0000000000000300/1", host="H-0000000000000300") if port.host == "h3" else port
        for port in before.ports
    )
    assert recall(replace(before, ports=boots), remember(before)) == before
    used = replace(before.ports[0], guid=0x777, name="h3/1", host="h3")  # the name is another's now
    assert recall(replace(before, ports=(*boots, used)), remember(before)).ports == (*boots, used)


def test_a_remembered_port_whose_name_a_booting_server_has_again_is_forgotten():
    before = fabric(3)
    boots = replace(before.ports[2], name="H-0000000000000300/1", host="H-0000000000000300")
    recorded = {**remember(before), 0x999: replace(before.ports[2], guid=0x999, is_there=False)}
    assert recall(replace(before, ports=(*before.ports[:2], boots)), recorded) == before


def test_an_adapter_keeps_its_name_while_another_of_its_host_is_down():
    """A single adapter is named after its host."""
    before = fabric(2)
    first, second = (replace(before.ports[1], name=f"h2/mlx5_{n}/1", guid=0x201 + n) for n in range(2))
    recorded = remember(Inventory((before.ports[0], first, second)))
    for alone, removed in ((second, first), (first, second)):
        result = recall(Inventory((before.ports[0], replace(alone, name="h2/1"))), recorded)
        assert names(result, there=True) == {0x101: "h1/1", alone.guid: alone.name}
        assert names(result, there=False) == {removed.guid: removed.name}
        recorded = remember(result)
    more = Inventory((before.ports[0], first, second))
    assert recall(more, remember(replace(more, ports=(before.ports[0], replace(first, name="h2/1"))))) == more


def test_ports_of_another_fabric_with_the_same_title_are_forgotten():
    other = Inventory(tuple(replace(port, guid=port.guid + 0x10_0000) for port in fabric(2).ports))
    assert recall(other, remember(fabric(8))) == other


def test_an_empty_inventory_forgets_no_port():
    assert names(recall(Inventory(()), remember(fabric(2))), there=False) == {0x101: "h1/1", 0x201: "h2/1"}


TENANTS = '[tenant.a]\nhosts = ["h[1-2]"]\n[tenant.b]\nhosts = ["h{}"]'


def test_a_host_that_is_down_keeps_its_memberships_and_blocks_no_change(tmp_path):
    driver = Forgetful(fabric(8, ports=2))
    apply(driver, intent(tmp_path, TENANTS.format(3)))
    driver.ports = without(driver.ports, "h2")
    change = apply(driver, intent(tmp_path, TENANTS.format(4)))
    members = {partition.name: [*partition.members] for partition in driver.allocation.partitions.values()}
    assert members == {"a": [0x101, 0x102, 0x201, 0x202], "b": [0x401, 0x402]}
    assert change.compiled.notes == (
        "tenant a: h2/1, h2/2 are not in the fabric now; they get their P_Keys when they come up",
    )  # fmt: skip
    with pytest.raises(ConfigError, match="no host 'h22'"):
        apply(driver, intent(tmp_path, TENANTS.format("22")))


def test_an_adapter_that_is_down_keeps_its_membership(tmp_path):
    driver = Forgetful(fabric(8, ports=2))
    apply(driver, intent(tmp_path, TENANTS.format(3)))
    driver.ports = replace(driver.ports, ports=tuple(port for port in driver.ports.ports if port.name != "h2/2"))
    assert apply(driver, intent(tmp_path, TENANTS.format(3))).plan.is_empty


def test_a_replaced_adapter_gets_the_membership_of_the_old_one(tmp_path):
    driver = Forgetful(fabric(8))
    apply(driver, intent(tmp_path, TENANTS.format(3)))
    present = driver.ports.ports
    driver.ports = Inventory(tuple(replace(port, guid=0x999) if port.host == "h2" else port for port in present))
    apply(driver, intent(tmp_path, TENANTS.format(3)))
    assert [*driver.allocation.partitions[1].members] == [0x101, 0x999]
