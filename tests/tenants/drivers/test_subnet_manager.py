"""What the driver of weft's subnet manager asks of it."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec

from weft.sm.inventory import Nodes, Ports, Subnet
from weft.tenants.drivers.subnet_manager import ManagerDriver

EMPTY = {type_: type_(**{field.name: [] for field in msgspec.structs.fields(type_)}) for type_ in (Nodes, Ports)}


def test_the_inventory_is_asked_for_again_only_when_the_subnet_has_changed():
    revision, asked = ["a"], []

    def subnet() -> Subnet:
        asked.append(revision[0])
        return Subnet(revision=revision[0], nodes=EMPTY[Nodes], ports=EMPTY[Ports])

    status = SimpleNamespace(master="0x0002c90300000101")
    manager = SimpleNamespace(
        status=lambda: SimpleNamespace(subnet_revision=revision[0], **vars(status)), subnet=subnet
    )
    driver = ManagerDriver(manager)
    driver.inventory(), driver.inventory()
    revision[0] = "b"
    driver.inventory(), driver.inventory()
    assert asked == ["a", "b"]
    status.master = "0x0002c90300000201"
    assert driver.inventory().manager_guid == 0x0002C90300000201
