"""Calls of the driver for weft's subnet manager."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest

from weft.errors import ConfigError
from weft.fabric.kinds import NodeKind
from weft.sm.allocation import NOTHING, FileConfig, changed, described
from weft.sm.conf.qos_options import QosOptions
from weft.sm.control import OutOfDate
from weft.sm.inventory import Nodes, Ports, Subnet
from weft.sm.pkey.definitions import PartitionDefinition
from weft.sm.pkey.partitions import NO_FILE
from weft.tenants.drivers.driver import FabricChangedError, Observed, inventory_of
from weft.tenants.drivers.partition_files import check_index0
from weft.tenants.drivers.subnet_manager import ManagerDriver
from weft.tenants.partitions import Allocation, Member, Partition

EMPTY = {type_: type_(**{field.name: [] for field in msgspec.structs.fields(type_)}) for type_ in (Nodes, Ports)}


def test_the_inventory_is_read_again_only_after_a_change_of_the_subnet():
    revision, requests = ["a"], []

    def subnet() -> Subnet:
        requests.append(revision[0])
        return Subnet(revision=revision[0], nodes=EMPTY[Nodes], ports=EMPTY[Ports])

    status = SimpleNamespace(master="0x0002c90300000101")
    manager = SimpleNamespace(
        status=lambda: SimpleNamespace(subnet_revision=revision[0], **vars(status)), subnet=subnet
    )
    driver = ManagerDriver(manager)
    driver.inventory(), driver.inventory()
    revision[0] = "b"
    driver.inventory(), driver.inventory()
    assert requests == ["a", "b"]
    status.master = "0x0002c90300000201"
    assert driver.inventory().manager_guid == 0x0002C90300000201


def test_only_ports_of_adapters_that_have_a_guid_can_be_members():
    """Ports: switch port 0, an adapter's ports 1 and 2, and a switch port that the first of them is cabled to."""
    nodes = {"name": ["sw1", "h1/mlx5_0"], "kind": [NodeKind.SWITCH.label, NodeKind.HCA.label], "guid": [0x10, 0x20]}
    ports = {
        "node": [0, 1, 1, 0],
        "number": [0, 1, 2, 1],
        "guid": [0x10, 0x21, 0, 0],
        "lid": [1, 2, 0, 1],
        "state": ["Active", "Active", "Down", "Active"],
        "peer": [-1, 3, -1, 1],
        "data_vls": [8, 8, 8, 4],
    }
    subnet = Subnet(
        revision="a",
        nodes=msgspec.structs.replace(EMPTY[Nodes], **nodes, partition_cap=[8, 32]),
        ports=msgspec.structs.replace(EMPTY[Ports], **ports),
    )
    (port,) = inventory_of(subnet, 0x21).ports
    assert (port.guid, port.name, port.host, port.is_active) == (0x21, "h1/mlx5_0/1", "h1", True)
    assert (port.data_vls, port.p_keys, port.lid) == (4, 32, 2)
    alone = msgspec.structs.replace(subnet, ports=msgspec.structs.replace(subnet.ports, peer=[-1] * 4))
    assert inventory_of(alone, 0x21).ports[0].data_vls == 8
    first = msgspec.structs.replace(subnet.ports, peer=[1, 0, -1, -1], data_vls=[2, 8, 8, 4])
    assert inventory_of(msgspec.structs.replace(subnet, ports=first), 0x21).ports[0].data_vls == 2


def test_a_standby_manager_reports_its_master_as_a_difference():
    status = SimpleNamespace(sm_state="standby", master="0x0001", subnet="")
    checks = []
    manager = SimpleNamespace(status=lambda: status, path="sm", check=lambda repair: checks.append(repair))
    driver = ManagerDriver(manager)
    assert driver.check(repair=True).differences == ("this subnet manager is standby; 0x0001 is the master",)
    status.sm_state = "master"
    driver.check(repair=True)
    assert (checks, driver.title) == ([True], "the subnet manager at sm")
    status.subnet = "lab mine"
    assert driver.title == "lab mine"


def test_manager_gets_only_changed_partitions_and_reads_them_back():
    filed, runtime, sent = FileConfig(partitions=NO_FILE), [NOTHING], []

    def allocate(revision: str, *, define: list[PartitionDefinition], remove: list[int], **words: object) -> None:
        sent.append(([definition.p_key for definition in define], remove))
        runtime[0] = changed(runtime[0], filed, define=define, remove=remove, qos=None, default_is_full=None)

    manager = SimpleNamespace(path="", allocation=lambda: described(filed, runtime[0]), allocate=allocate)
    members = {0x11: Member(), 0x12: Member(full=False), 0x13: Member(index0=True)}
    plain = Partition(name="plain", p_key=0x0101, members={0x11: Member(), 0x12: Member(full=False)})
    limits = Partition(
        name="limits", p_key=0x0102, members=members, ipoib=True, sl=2, mtu_bytes=4096, rate_gbit_s=100.0
    )
    lost = Partition(name="lost", p_key=0x0103, mtu_bytes=4096, ipoib=False)  # without IPoIB an MTU is not kept
    driver = ManagerDriver(manager)
    driver.write(Allocation(partitions={item.p_key: item for item in (plain, limits, lost)}), over=driver.read())
    kept = {0x0101: plain, 0x0102: limits, 0x0103: replace(lost, mtu_bytes=None)}
    assert driver.read().allocation.partitions == kept
    larger = replace(plain, members={**plain.members, 0x14: Member()})
    driver.write(Allocation(partitions={0x0101: larger, 0x0102: limits}), over=driver.read())
    assert sent == [([0x0101, 0x0102, 0x0103], []), ([0x0101], [0x0103])]
    assert driver.read().allocation.partitions == {0x0101: larger, 0x0102: limits}


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        (Allocation(), {}),
        (Allocation(lanes=QosOptions()), {"qos": QosOptions()}),
        (Allocation(default_is_full=False), {"default_is_full": False}),
    ],
)
def test_only_changed_common_settings_are_sent(desired, expected):
    sent: list[dict[str, object]] = []
    manager = SimpleNamespace(allocate=lambda revision, **words: sent.append({"revision": revision, **words}))
    driver, observed = ManagerDriver(manager), Observed(allocation=Allocation(), revision="7")
    driver.write(desired, over=observed)
    driver.write(Allocation(), over=replace(observed, allocation=desired))
    words = {"revision": "7", "define": [], "remove": []}
    back = {"qos": {"qos": None}, "default_is_full": {"default_is_full": True}}
    assert sent == [words | expected, words | (back[next(iter(expected))] if expected else {})]


def test_an_outdated_revision_is_reported_as_a_changed_fabric():
    def allocate(revision: str, **_: object) -> None:
        raise OutOfDate(f"{revision} is out of date")

    manager = SimpleNamespace(allocate=allocate, status=lambda: SimpleNamespace(subnet="lab mine"))
    with pytest.raises(FabricChangedError, match="lab mine: 7 is out of date"):
        ManagerDriver(manager).write(Allocation(), over=Observed(allocation=Allocation(), revision="7"))


def test_two_partitions_with_index_0_of_a_port_are_refused():
    first, second = (Partition(name=f"p{n}", p_key=n, members={0x11: Member(index0=True)}) for n in (1, 2))
    other = Partition(name="p3", p_key=3, members={0x11: Member(), 0x12: Member(index0=True)})
    check_index0([first, other])
    with pytest.raises(
        ConfigError, match=r"p1=0x0001 and p2=0x0002 both request index 0 of the port 0x0000000000000011"
    ):
        check_index0([first, other, second])
    with pytest.raises(ConfigError, match="both request index 0"):
        ManagerDriver(None).write(Allocation(partitions={1: first, 2: second}), over=Observed(allocation=Allocation()))
