"""The /sys of a host in a lab describes its adapters with Linux's paths and formats."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import weft
from weft.lab.sysfs_tree import tree_of
from weft.mad import faults
from weft.mad.power_up import switch_on
from weft.wire.port_info import PortInfo, PortState

TWO_PORTS = """\
Ca 2 "H-0002c90300000010" # "db1 HCA-1"
[1](2c90300000011) "S-0002c90300000020"[1] # 4xEDR
[2](2c90300000012) "S-0002c90300000020"[2] # 4xEDR

Switch 2 "S-0002c90300000020" # "leaf1"
[1] "H-0002c90300000010"[1] # 4xEDR
[2] "H-0002c90300000010"[2] # 4xEDR
"""


@pytest.fixture(scope="module")
def star():
    return switch_on(weft.load("star:hosts=2"))


def read(tree, path: str) -> str:
    """Return the content of a path of /sys, through its links."""
    for _ in range(9):
        link = next((item for item in tree.links if path.startswith(f"{item}/")), None)
        if link is None:
            return tree.files[path].removesuffix("\n")
        path = os.path.normpath(f"{os.path.dirname(link)}/{tree.links[link]}/{path.removeprefix(f'{link}/')}")
    raise AssertionError(f"{path} leads in a circle")


def test_a_server_has_one_card_and_one_interface_for_each_adapter_in_the_order_of_their_names():
    devices = switch_on(weft.load("superpod:su=1"))
    tree = tree_of(devices, "dgx3")
    for number in range(12):
        name = f"mlx5_{number}"
        port = devices.fabric[f"dgx3/{name}/1"]
        guid = int(devices.fabric.ports.guid[port.slot]).to_bytes(8, "big")
        assert read(tree, f"class/net/ib{number}/address").endswith(guid.hex(":"))
        assert len(read(tree, f"class/net/ib{number}/address")) == len("ff:") * 20 - 1
        assert read(tree, f"class/net/ib{number}/device/infiniband/{name}/ports/1/gids/0").endswith(guid.hex(":", -2))
        assert read(tree, f"class/infiniband/{name}/device/net/ib{number}/type") == "32"
    assert "class/net/ib12" not in tree.links


def test_a_card_is_mellanox_and_its_driver_is_found_both_ways(star):
    tree = tree_of(star, "h2")
    assert read(tree, "class/net/ib0/device/vendor") == "0x15b3"
    assert read(tree, "class/net/ib0/device/device") == f"{4129:#06x}"  # ConnectX-7, MT4129
    assert read(tree, "bus/pci/drivers/mlx5_core/1000:01:00.0/class") == "0x020700"
    assert Path(tree.links["devices/pci1000:00/1000:01:00.0/driver"]).name == "mlx5_core"
    assert read(tree, "bus/pci/devices/1000:01:00.0/infiniband/mlx5_0/node_guid") == "0002:c903:0000:0200"


def test_each_link_leads_to_what_is_there(star):
    tree = tree_of(star, "h1")
    for link, to in tree.links.items():
        path = os.path.normpath(f"{os.path.dirname(link)}/{to}")
        assert any(item.startswith(f"{path}/") for item in [*tree.files, *tree.links]), f"{link} -> {to}"


def test_a_port_says_what_port_info_says(star):
    slot = star.fabric["h1/1"].slot
    port, interface = "class/infiniband/mlx5_0/ports/1", "class/net/ib0"
    waits = tree_of(star, "h1")
    assert read(waits, f"{port}/state") == "2: INIT"
    assert read(waits, f"{port}/phys_state") == "5: LinkUp"
    assert read(waits, f"{port}/rate") == "400 Gb/sec (4X NDR)"
    assert [read(waits, f"{interface}/{name}") for name in ("carrier", "operstate", "mtu")] == ["0", "down", "4092"]

    PortInfo.port_state.set(star.info(slot), PortState.ACTIVE)
    PortInfo.lid.set(star.info(slot), 0x2A)
    PortInfo.gid_prefix.set(star.info(slot), 0xFEC0 << 48)
    star.tables.pkey[slot, 1] = 0x8101
    runs = tree_of(star, "h1")
    assert read(runs, f"{port}/state") == "4: ACTIVE"
    assert read(runs, f"{port}/lid") == "0x2a"
    assert [read(runs, f"{port}/pkeys/{n}") for n in range(3)] == ["0xffff", "0x8101", "0x0000"]
    assert read(runs, f"{port}/gids/0") == "fec0:0000:0000:0000:0002:c903:0000:0101"
    assert read(runs, f"{interface}/address") == "00:00:00:48:fe:c0:00:00:00:00:00:00:00:02:c9:03:00:00:01:01"
    assert [read(runs, f"{interface}/{name}") for name in ("carrier", "operstate")] == ["1", "up"]


def test_a_port_without_a_cable_is_down():
    devices = switch_on(weft.load("star:hosts=2"))
    faults.pull_cable(devices, devices.fabric["h1/1"].slot)
    tree = tree_of(devices, "h1")
    assert read(tree, "class/infiniband/mlx5_0/ports/1/state") == "1: DOWN"
    assert read(tree, "class/infiniband/mlx5_0/ports/1/phys_state") == "2: Polling"


def test_two_ports_of_one_card_are_told_apart_by_dev_port(tmp_path):
    net = tmp_path / "two.net"
    net.write_text(TWO_PORTS)
    tree = tree_of(switch_on(weft.load(str(net))), "db1 HCA-1")
    assert [read(tree, f"class/net/ib{n}/dev_port") for n in (0, 1)] == ["0", "1"]
    assert [read(tree, f"class/net/ib{n}/dev_id") for n in (0, 1)] == ["0x0", "0x1"]
    assert [read(tree, f"class/net/ib{n}/address")[-5:] for n in (0, 1)] == ["00:11", "00:12"]
    assert sum(link.startswith("bus/pci/devices/") for link in tree.links) == 1


def test_a_switch_has_no_card(star):
    tree = tree_of(star, "leaf1")
    assert not tree.files
    assert not tree.links
