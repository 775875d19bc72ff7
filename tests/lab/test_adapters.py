"""Adapters of a host, and the default port of programs."""

from __future__ import annotations

import pytest

import weft
from weft.errors import ConfigError, UnknownName
from weft.lab.adapters import adapters_of, find_port, rate_gbit_s
from weft.lab.places import cables
from weft.mad import faults
from weft.mad.devices import Devices
from weft.mad.power_up import switch_on
from weft.wire.port_info import PortInfo, PortPhysicalState, PortState

TWO_PORTS = """\
switchguid=0x100(100)
Switch	4 "S-0000000000000100"		# "sw1" base port 0 lid 0 lmc 0
[1]	"H-0000000000000200"[1](201) 		# "h1" lid 0 4xHDR
[2]	"H-0000000000000200"[2](202) 		# "h1" lid 0 4xFDR

caguid=0x200
Ca	2 "H-0000000000000200"		# "h1"
[1](201) 	"S-0000000000000100"[1]		# lid 0 lmc 0 "sw1" lid 0 4xHDR
[2](202) 	"S-0000000000000100"[2]		# lid 0 lmc 0 "sw1" lid 0 4xFDR
"""


@pytest.fixture
def two_ports(tmp_path) -> Devices:
    (tmp_path / "two.net").write_text(TWO_PORTS)
    return switch_on(weft.load(str(tmp_path / "two.net")))


def chosen(devices: Devices, name: str = "", number: int = 0) -> int | None:
    result = find_port(devices, adapters_of(devices, "h1"), name, number)
    return result[1] if result else None


def test_a_server_has_all_its_adapters_by_the_names_that_its_driver_gives():
    devices = switch_on(weft.load("superpod:su=1"))
    names = [item.name for item in adapters_of(devices, "dgx2")]
    assert names[:3] == ["mlx5_0", "mlx5_3", "mlx5_4"]
    assert [item.name for item in adapters_of(devices, "dgx2/mlx5_3")] == ["mlx5_3"]


def test_a_switch_has_port_0():
    devices = switch_on(weft.load("fat-tree:hosts=8,radix=8"))
    (only,) = adapters_of(devices, "leaf1")
    assert (only.first_port, only.last_port) == (0, 0)


def test_an_unknown_host_suggests_one():
    with pytest.raises(UnknownName, match="h1"):
        adapters_of(switch_on(weft.load("fat-tree:hosts=8,radix=8")), "h1x")


def test_without_a_number_the_best_port_is_taken(two_ports):
    first, second = (two_ports.slot(two_ports.fabric.node_index["h1"], port) for port in (1, 2))
    assert chosen(two_ports) == 1
    PortInfo.port_state.set(two_ports.info(second), PortState.ACTIVE)
    assert chosen(two_ports) == 2  # Active before only linked
    PortInfo.port_state.set(two_ports.info(second), PortState.INITIALIZE)
    faults.pull_cable(two_ports, first)
    assert chosen(two_ports) == 2  # linked before down
    faults.pull_cable(two_ports, second)
    PortInfo.port_physical_state.set(two_ports.info(first), PortPhysicalState.DISABLED)
    assert chosen(two_ports) == 2  # anything before disabled


def test_a_number_is_taken_at_its_word(two_ports):
    assert [chosen(two_ports, "mlx5_0", number) for number in (1, 2, 3)] == [1, 2, None]
    assert [chosen(two_ports, "", number) for number in (1, 2, 3)] == [1, 2, None]
    assert chosen(two_ports, "mlx5_9") is None


def test_rates_are_rounded_as_sysfs_does(two_ports):
    node = two_ports.fabric.node_index["h1"]
    assert [rate_gbit_s(two_ports.info(two_ports.slot(node, port))) for port in (1, 2)] == [200, 56]


def test_a_tray_of_a_rack_is_pulled_with_its_four_cables() -> None:
    devices = switch_on(weft.load("superpod:su=2,server=gb200-nvl72,servers=2"))
    owners = [devices.fabric.nodes.name[devices.fabric.ports.node[slot]] for slot in cables(devices, "nvl2/tray1")]
    assert owners == ["nvl2/mlx5_8", "nvl2/mlx5_9", "nvl2/mlx5_11", "nvl2/mlx5_12"]
    assert len(cables(devices, "nvl2")) == 72
    with pytest.raises(ConfigError, match="nvl2 has tray0 to tray17"):
        cables(devices, "nvl2/tray99")
