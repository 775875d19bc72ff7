"""A joined host in a shared folder: its contents for programs of another container, its start and its end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.errors import ConfigError
from weft.lab.join import device_files
from weft.lab.join.share import _script
from weft.lab.lab import Lab
from weft.lab.sysfs_tree import Tree
from weft.verbs.c import build

pytestmark = pytest.mark.skipif(build.folder() is None, reason="no C compiler")
Share = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(weft.load("star:hosts=2"), f"s{os.getpid()}") as running:
        running.accept_joins("127.0.0.1:0")
        yield running


@pytest.fixture
def start(lab, warm) -> Iterator[Share]:
    started: list[subprocess.Popen[str]] = []

    def run(folder: Path, *words: str) -> subprocess.Popen[str]:
        assert lab.join_server is not None
        command = [str(warm), "join", lab.join_server.address, *words, "--share", str(folder)]
        variables = {"WEFT_JOIN_TOKEN": lab.join_server.token, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, env=os.environ | variables, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield run
    for child in started:
        child.kill()
        child.communicate()


def joined(child: subprocess.Popen[str], folder: Path) -> None:
    assert child.stdout is not None
    assert child.stdout.readline() == f"h2 is joined: `{folder}/run ibstat` runs a program as this host\n"


def test_programs_of_others_run_as_the_host_until_a_signal(lab, start, tmp_path):
    folder = tmp_path / "host"
    child = start(folder, "--as", "h2", "--sysfs")
    joined(child, folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    own = {"PATH": "/own:/usr/bin:/bin", "PYTHONPATH": "/mine", "LD_PRELOAD": ""}
    listing = "ibv_devices && echo $WEFT_HOST $PATH:$PYTHONPATH && echo $LD_PRELOAD"
    printed = subprocess.run(
        [folder / "run", "sh", "-c", listing], env=own, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    ).stdout.splitlines()
    assert printed[-3].split() == ["mlx5_0", "0002c90300000200"]
    assert printed[-2].startswith("h2 ")
    assert ":/own:/usr/bin:/bin:" in printed[-2]
    assert printed[-2].endswith(":/mine")
    libraries = printed[-1].split(":")
    assert all(Path(library).is_file() and library.startswith(f"{folder}/lib/") for library in libraries)
    assert (folder / "class/net/lo").is_symlink()  # the machine's
    assert (folder / "dev/uverbs0").is_char_device()
    port = folder / "class/infiniband/mlx5_0/ports/1"
    assert (port / "gids/0").read_text() == "fe80:0000:0000:0000:0002:c903:0000:0201\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE_S) == 0
    assert not (folder / "env").exists()
    assert list(folder.glob("*.umad")) == []
    wait_until(lambda: lab.state()["join"]["hosts"] == [])


def test_the_end_of_the_lab_ends_it_with_a_failure(lab, start, tmp_path):
    folder = tmp_path / "host"
    child = start(folder, "--as", "h2")
    joined(child, folder)
    lab.stop()
    assert child.wait(PATIENCE_S) == 1
    assert not (folder / "env").exists()


def test_environment_of_one_that_was_killed_goes_before_the_next_has_joined(start, tmp_path):
    """Otherwise a probe would report the host as joined."""
    folder = tmp_path / "host"
    folder.mkdir(mode=0o700)
    (folder / "env").touch()
    child = start(folder, "--as", "h3")
    assert child.wait(PATIENCE_S) == 2
    assert not (folder / "env").exists()


def test_a_folder_is_one_hosts_and_its_users_alone(start, tmp_path):
    folder = tmp_path / "host"
    joined(start(folder, "--as", "h2"), folder)
    second = start(folder, "--as", "h1")
    assert second.wait(PATIENCE_S) == 2
    assert second.stderr is not None
    assert "has a joined host: give another folder" in second.stderr.read()
    assert (folder / "env").is_file()
    (tmp_path / "open").mkdir(mode=0o755)
    third = start(tmp_path / "open", "--as", "h1")
    assert third.wait(PATIENCE_S) == 2
    assert third.stderr is not None
    assert "only its owner can enter" in third.stderr.read()


def test_values_are_the_shells(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin")
    script = _script({"PATH": "/a b:/usr/bin", "WEFT_HOST": "it's $h1"})
    text = subprocess.run(
        ["sh", "-c", f'{script}printf "%s|%s" "$PATH" "$WEFT_HOST"'], capture_output=True, text=True, check=True
    )
    assert text.stdout == "/a b:/usr/bin|it's $h1"


@pytest.mark.parametrize("path", ["../x", "/etc/x", "class/../../x"])
def test_a_lab_cannot_write_outside_of_the_folder(path, tmp_path):
    for tree in (Tree({path: ""}, {}), Tree({}, {path: "y"})):
        with pytest.raises(ConfigError, match=r"the lab sent a file outside of /sys: "):
            device_files.write(tmp_path, tree)
    assert list(tmp_path.iterdir()) == []
