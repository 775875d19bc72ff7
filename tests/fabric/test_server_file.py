"""User templates: the catalog's data in a file give the catalog's server; errors name the field."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from weft.collectives.nccl.cluster import from_fabric, from_server
from weft.errors import ConfigError, FileError
from weft.fabric import catalog
from weft.fabric.files.nccl_topology import to_text
from weft.fabric.rates import Technology
from weft.fabric.server_file import read
from weft.fabric.spec import load
from weft.fabric.timing import timings

SMALL = """\
gpu: H100
gpus: 2
nvlink_spread: [9, 9]
cpus: 1
pcie_switches: 1
pcie: 16xPCIe5
compute_adapter: ConnectX-7
compute: [mlx5_0, mlx5_1]
storage_adapter: ConnectX-6
storage: [mlx5_2]
height_u: 4
pcie_tree:
  cpu0: [pcie0, mlx5_2]
  pcie0: [gpu0, gpu1, mlx5_0, mlx5_1]
bus_id: {gpu0: "0000:1b:00.0"}
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "my-server.yaml"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize("name", [one.name for one in catalog.servers()])
def test_a_template_of_the_catalog_in_a_file_is_the_same(name: str, tmp_path: Path) -> None:
    facts = msgspec.to_builtins(catalog.server(name))
    path = tmp_path / "same.yaml"
    path.write_text(json.dumps({key: value for key, value in facts.items() if key != "name" and value is not None}))
    assert msgspec.structs.replace(catalog.server(str(path)), name=name) == catalog.server(name)


def test_a_template_with_like_lists_only_differences(tmp_path: Path) -> None:
    path = tmp_path / "like.yaml"
    path.write_text("like: dgx-h100\ngpu: H200\n")
    result = msgspec.structs.replace(catalog.server(str(path)), name="", source="", note="")
    same = msgspec.structs.replace(catalog.server("dgx-h200"), name="", source="", note="", date=result.date)
    assert result == same


def test_a_fabric_of_such_servers_runs_by_its_path(own: Path) -> None:
    fabric = load(f"star:hosts=2,server={own}")
    cluster = from_fabric(fabric)
    assert cluster == from_server(str(own), nodes=2)
    assert (cluster.gpus, cluster.nics, cluster.nvlinks, cluster.near) == (2, 2, 18, True)
    assert f'busid="{catalog.server(str(own)).bus_id["gpu0"]}"' in to_text(fabric, fabric.servers[0])
    assert timings().switch_ns(str(own), Technology.NVLINK) == timings().switch_ns("dgx-h100", Technology.NVLINK)
    assert catalog.server(f"{own}+ConnectX-8+1rails").compute == ("mlx5_0",)
    assert catalog.find(str(own)).summary == "2 × H100, 2 × ConnectX-7"


def test_a_file_that_changes_is_read_anew(own: Path) -> None:
    assert catalog.server(str(own)).height_u == 4
    own.write_text(SMALL.replace("height_u: 4", "height_u: 10"))
    assert catalog.server(str(own)).height_u == 10


def test_fewer_devices_than_those_of_like_take_their_addresses_with_them(own: Path) -> None:
    own.write_text("like: dgx-h100\nnvlink_spread: [9, 9]\n")
    result = catalog.server(str(own))
    assert "nvswitch1" in result.bus_id
    assert "nvswitch2" not in result.bus_id


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gpus: 2", "devices: 2", ":2: 'devices' is not valid; expected one of the keys like, .*gpus"),
        ("gpus: 2", "gpus: two", ":2: 'two' is not valid; expected a whole number"),
        ("gpus: 2", "gpus: 3", ":1[23]: .* expected gpu2 below a cpu or a PCIe switch: it has no parent"),
        ("gpus: 2", "gpus: 999", "'999' is not valid; expected a number from 0 to 576"),
        (
            "height_u: 4",
            "height_u: 4\ntrays: 4",
            "expected the same number of GPUs and rails in each tray",
        ),
        ("gpu: H100", "gpu: H10", ":1: 'H10' is not valid; .*did you mean H100"),
        ("gpu: H100\n", "", "both gpu and gpus"),
        ("[9, 9]", "[9, 10]", "at most 18 links, as a H100 has"),
        ("[9, 9]", "[0]", "from 1 to 64"),
        ("ConnectX-7", "ConnectX-77", "did you mean ConnectX-7"),
        ("16xPCIe5", "4xHDR", "PCIe lanes and generation"),
        ("[mlx5_0, mlx5_1]\n", "[]\n", "one for each rail"),
        ("[mlx5_0, mlx5_1]\n", "[mlx5_0, mlx5_0]\n", "mlx5_0 is in compute, storage and spare twice"),
        ("[mlx5_0, mlx5_1]\n", "[gpu0, mlx5_1]\n", "as its driver has it"),
        ("storage_adapter: ConnectX-6\n", "", "both or neither"),
        ("cpus: 1", "cpus: 0", "GPUs and adapters are below processors"),
        ("pcie0: [", "pcie1: [", "pcie1 to be one of cpu0, pcie0"),
        ("gpu1, mlx5_0, mlx5_1]", "gpu1, mlx5_0]", "mlx5_1 below a cpu or a PCIe switch: it has no parent"),
        ("cpu0: [pcie0, mlx5_2]", "cpu0: [mlx5_2]", "pcie0 below a cpu or a PCIe switch: it has no parent"),
        ("cpu0: [pcie0, mlx5_2]", "cpu0: [mlx5_2, gpu0, pcie0]", "gpu0 once: it is already below cpu0"),
        (
            "cpu0: [pcie0, mlx5_2]",
            "cpu0: [mlx5_2, mlx5_9, pcie0]",
            "mlx5_9' is not valid; expected a PCIe switch",
        ),
        ("pcie0: [gpu0", "pcie0: [pcie0, gpu0", "pcie0 once"),
        ('gpu0: "0000', 'gpu7: "0000', "'gpu7' is not valid; expected .*gpu0"),
        ("0000:1b:00.0", "1b", "a PCI address such as"),
        ("height_u: 4\n", "", "expected height_u as well; or like: dgx-h100"),
        ("height_u: 4", "height_u: 4\nname: mine", "'name' is not valid; expected one of the keys like"),
        (SMALL, "like: dgx-h10", "did you mean dgx-h100"),
        (SMALL, "like: other.yaml", "not another file"),
        (SMALL, "- 1", "a mapping: gpu, gpus"),
    ],
)
def test_errors_name_the_line(own: Path, old: str, new: str, says: str) -> None:
    assert old in SMALL
    own.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(FileError, match=says) as error:
        catalog.server(str(own))
    assert str(own) in str(error.value)


def test_a_circle_of_switches_and_a_file_that_is_not_there(own: Path) -> None:
    text = SMALL.replace("pcie_switches: 1", "pcie_switches: 3")
    own.write_text(text.replace("  pcie0: [", "  pcie1: [pcie2]\n  pcie2: [pcie1]\n  pcie0: ["))
    with pytest.raises(FileError, match="is below itself"):
        catalog.server(str(own))
    with pytest.raises(FileError, match="no such file"):
        load("star:hosts=2,server=nowhere.yaml")
    with pytest.raises(ConfigError, match="a \\+ begins a variant"):
        read("a+b.yaml")
