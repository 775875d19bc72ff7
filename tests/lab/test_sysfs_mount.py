"""A program on a host of a lab finds its adapters in /sys, beside this machine's devices; other programs do not."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import ROOT
from tests.lab.mounts import need_mounts

import weft
from weft import compiler
from weft.fabric.counters import Counter
from weft.lab import sysfs_mount
from weft.lab.lab import Lab

GUID = "00:02:c9:03:00:00:02:01"
ADDRESS = f"00:00:00:48:fe:80:00:00:00:00:00:00:{GUID}"
PERMANENT_ADDRESS = """
import ctypes, fcntl, socket, struct, sys
asked = (ctypes.c_ubyte * 64)(*struct.pack("=II", 0x20, 32))  # ETHTOOL_GPERMADDR
name = sys.argv[1].encode().ljust(16, b"\\0")
fcntl.ioctl(socket.socket(), 0x8946, name + struct.pack("P", ctypes.addressof(asked)))
print(bytes(asked[8 : 8 + asked[4]]).hex(":"))
"""


@pytest.fixture(scope="module")
def lab():
    need_mounts()
    with Lab(weft.load("star:hosts=2"), "sysfs") as up:
        yield up


def shell(lab, text: str) -> str:
    done = lab.run("h2", "sh", "-c", text, sysfs=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_sees_the_adapters_of_its_host(lab):
    result = shell(lab, "cd /sys/class/net/ib0 && cat address device/vendor device/infiniband/mlx5_0/ports/1/state")
    assert result.splitlines() == [ADDRESS, "0x15b3", "2: INIT"]


def test_a_program_sees_what_ports_have_counted(lab):
    counters = lab.fabric.counters[lab.fabric.find_port("h2/1").slot]
    counters[[Counter.SYMBOL_ERROR, Counter.PORT_RCV_DATA_WORDS, Counter.VL15_DROPPED]] = 5, 1 << 40, 3
    files = "symbol_error port_rcv_data VL15_dropped port_xmit_packets"
    assert shell(lab, f"cd /sys/class/infiniband/mlx5_0/ports/1/counters && cat {files}").split() == [
        "5", str(1 << 40), "3", "0",
    ]  # fmt: skip


def test_entries_of_the_machine_are_kept(lab):
    machine = Path("/sys")
    remaining = [path for path in ("class/net/lo", "devices/system/cpu/online", "kernel") if (machine / path).exists()]
    shell(lab, "\n".join(f"test -e /sys/{path} || exit 1" for path in remaining))
    assert len(remaining) == 3


def test_other_processes_do_not_see_them(lab):
    shell(lab, "test -d /sys/class/infiniband/mlx5_0")
    assert not Path("/sys/devices/pci1000:00").exists()


def test_it_cannot_be_written(lab):
    assert "Read-only file system" in lab.run("h2", "touch", "/sys/x", sysfs=True).stderr


def test_a_program_is_started_as_it_would_be_without(lab, tmp_path):
    text = "pwd; id -u; grep SigIgn /proc/self/status; ls /proc/self/fd; exit 3"
    both = [lab.run("h2", "sh", "-c", text, folder=tmp_path, sysfs=sysfs) for sysfs in (False, True)]
    assert both[0].stdout == both[1].stdout
    assert both[0].returncode == both[1].returncode == 3


def test_a_program_that_runs_beside_has_it_too_and_is_told_signals(lab, tmp_path):
    running = lab.start("h2", "sh", "-c", "cat /sys/class/net/ib0/address; kill -TERM $$", folder=tmp_path, sysfs=True)
    assert running.wait() == -signal.SIGTERM
    assert (tmp_path / "output").read_text() == f"{ADDRESS}\n"


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv of util-linux")
def test_other_users_see_them_in_a_user_namespace(lab, tmp_path):
    """Root without the right to mount stands in for other users."""
    (tmp_path / "tree").write_text(json.dumps(lab.sysfs("h2")))
    less = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"] if os.geteuid() == 0 else []
    need_mounts(*less)
    with (tmp_path / "tree").open() as tree:
        words = [sys.executable, "-I", "-S", sysfs_mount.__file__, str(tree.fileno())]
        text = "cat /proc/self/uid_map /sys/class/net/ib0/address"
        command = [*less, *words, "/bin/sh", "-c", text]
        done = subprocess.run(command, pass_fds=[tree.fileno()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(os.geteuid())] * 2 + ["1", ADDRESS]


def test_missing_permission_is_named_with_the_remedy(monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sysfs_mount, "_call", refuse)
    arguments = os.memfd_create("tree")
    os.write(arguments, b"{}")
    os.lseek(arguments, 0, os.SEEK_SET)
    with pytest.raises(SystemExit, match="2"):
        sysfs_mount.main([str(arguments), "/bin/true"])
    output = capsys.readouterr().err
    assert "--sysfs needs mounts of its own" in output
    assert "Operation not permitted" in output
    assert "CAP_SYS_ADMIN" in output


def test_command_that_cannot_run_is_named(lab, tmp_path):
    (tmp_path / "text").write_text("no program")
    (tmp_path / "text").chmod(0o755)
    done = lab.run("h2", str(tmp_path / "text"), sysfs=True)
    assert done.returncode == 2
    assert done.stderr == f"weft: {tmp_path}/text cannot be run: Exec format error\n"


def test_a_commissioning_script_finds_ports_and_client_ids_without_lspci(lab):
    script = ROOT / "examples/maas-infiniband.sh"
    (port,) = [load for load in json.loads(shell(lab, f"'{script}'")) if load["pci"].startswith("1000:")]
    assert port["guid"] == f"0x{GUID.replace(':', '')}"
    assert port["client_id"] == f"ff:00:00:00:00:00:02:00:00:02:c9:00:{GUID}"
    assert (port["interface"], port["adapter"], port["port"], port["link"]) == ("ib0", "mlx5_0", 1, "down")
    assert json.loads(lab.run("leaf1", str(script), sysfs=True).stdout) == [], "a switch has none"


@pytest.mark.skipif(compiler.find() is None, reason="no C compiler")
def test_the_kernel_seems_to_know_their_permanent_address(lab):
    done = lab.run("h2", sys.executable, "-c", PERMANENT_ADDRESS, "ib0", sysfs=True)
    assert done.stdout.strip() == ADDRESS, done.stderr
    absent = lab.run("h2", sys.executable, "-c", PERMANENT_ADDRESS, "ib7", sysfs=True)
    assert "[Errno 19] No such device" in absent.stderr


def test_infiniband_of_the_machine_is_not_shown(tmp_path):
    for name, kind in (("ib0", "32"), ("eth0", "1")):
        (tmp_path / "class/net" / name).mkdir(parents=True)
        (tmp_path / "class/net" / name / "type").write_text(f"{kind}\n")
    (tmp_path / "class/net/bonding_masters").write_text("")
    hidden = {
        (folder, name)
        for folder, name in (
            ("/class/net", "ib0"),
            ("/class/net", "eth0"),
            ("/class/net", "bonding_masters"),
            ("/class", "infiniband_mad"),
            ("/class", "input"),
        )
        if sysfs_mount.is_infiniband(str(tmp_path), folder, name)
    }
    assert hidden == {("/class/net", "ib0"), ("/class", "infiniband_mad")}
