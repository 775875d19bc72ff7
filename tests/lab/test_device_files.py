"""The files of a joined host's adapters, for containers that mount them at /sys/class and /dev/infiniband."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import weft
from weft.lab.join import device_files
from weft.lab.sysfs_tree import tree_of
from weft.mad.power_up import switch_on


@pytest.fixture
def machine(tmp_path) -> Path:
    """A machine's /sys with an Ethernet interface and an InfiniBand adapter of its own."""
    sys = tmp_path / "sys"
    for name, kind in (("eth0", "1"), ("ib7", "32")):
        (sys / "devices" / name).mkdir(parents=True)
        (sys / "devices" / name / "type").write_text(kind)
        (sys / "class/net").mkdir(parents=True, exist_ok=True)
        (sys / "class/net" / name).symlink_to(f"../../devices/{name}")
    (sys / "class/net/bonding_masters").touch()
    (sys / "class/infiniband/mlx5_9").mkdir(parents=True)
    (sys / "class/nvme").mkdir()
    return sys


def shared(folder: Path, host: str, machine: Path, spec: str = "star:hosts=2") -> Path:
    folder.mkdir(exist_ok=True)
    device_files.write(folder, tree_of(switch_on(weft.load(spec)), host), machine)
    return folder


def test_classes_are_the_machines_with_the_adapters_of_the_host_instead_of_its_own(machine, tmp_path):
    classes = shared(tmp_path / "host", "h2", machine) / "class"
    assert {path.name for path in (classes / "net").iterdir()} == {"eth0", "ib0"}
    assert os.readlink(classes / "net/eth0") == "../../devices/eth0"
    assert [path.name for path in (classes / "infiniband").iterdir()] == ["mlx5_0"]
    assert (classes / "nvme").is_dir()
    assert (classes / "infiniband/mlx5_0/ports/1/gids/0").read_text().endswith(":0002:c903:0000:0201\n")
    assert (classes / "net/ib0/device/vendor").read_text() == "0x15b3\n"


def test_each_port_has_the_character_devices_of_linux_and_programs_can_open_them(machine, tmp_path):
    folder = shared(tmp_path / "host", "dgx3", machine, "superpod:su=1")
    expected = {f"{kind}{number}" for kind in ("uverbs", "umad", "issm") for number in range(12)}
    assert {path.name for path in (folder / "dev").iterdir()} == expected | {"rdma_cm"}
    for path in (folder / "dev").iterdir():
        assert path.is_char_device()
        path.open("r+b", buffering=0).close()
    for group, device in (("infiniband_verbs", "uverbs5"), ("infiniband_mad", "umad5"), ("infiniband_mad", "issm5")):
        assert (folder / f"class/{group}/{device}/ibdev").read_text() == "mlx5_5\n"
        assert (folder / f"class/infiniband/mlx5_5/device/{group}/{device}").is_dir()
    assert (folder / "class/infiniband_mad/umad5/port").read_text() == "1\n"
    assert (folder / "class/infiniband_mad/abi_version").read_text() == "5\n"


def test_folders_that_a_container_mounts_stay_the_same_when_the_host_joins_again(machine, tmp_path):
    """A mount shows the folder, not its name: a new one would leave the container with the old files."""
    folder = shared(tmp_path / "host", "dgx1", machine, "superpod:su=1,servers=2")
    before = [(folder / name).stat().st_ino for name in ("class", "dev")]
    shared(folder, "h1", machine)
    assert [(folder / name).stat().st_ino for name in ("class", "dev")] == before
    assert {path.name for path in (folder / "dev").iterdir()} == {"issm0", "rdma_cm", "umad0", "uverbs0"}
    assert [path.name for path in (folder / "class/infiniband").iterdir()] == ["mlx5_0"]


def test_a_switch_has_no_adapters_and_no_devices(machine, tmp_path):
    folder = shared(tmp_path / "host", "leaf1", machine)
    assert [*(folder / "dev").iterdir()] == []
    assert {path.name for path in (folder / "class").iterdir()} == {"net", "nvme"}
