"""Endpoints for other processes are created in one place and belong to their owner alone."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import weft
from weft import runtime
from weft.errors import ConfigError

SOURCE = Path(weft.__file__).parent
MADE_IN_RUNTIME = {
    "AF_UNIX",
    "memfd_create",
    "shared_memory",
    "mkfifo",
    "UnixStreamServer",
    "ThreadingUnixStreamServer",
    "UnixDatagramServer",
    "open_unix_connection",
    "start_unix_server",
    "SO_PASSCRED",
    "SO_PEERCRED",
}
# They create folders that the user named, caches and state in the user's home, mounts that only one program sees, or
# temporary folders of one process.
MAKE_OTHER_FOLDERS = {
    "cli/route.py",
    "cli/run.py",
    "cli/sm_flags.py",
    "cli/tenant_drivers.py",
    "cli/up.py",
    "fabric/files/__init__.py",
    "jit/cache.py",
    "lab/doctor.py",
    "lab/join/device_files.py",
    "lab/join/share.py",
    "lab/preload.py",
    "lab/sysfs_mount.py",
    "mad/keyed.py",
    "plan/folder.py",
    "plan/growth/growth.py",
    "scenarios/real_workloads.py",
    "serve/console/runs.py",
    "sm/status.py",
    "user_cache.py",
    "verbs/c/build.py",
    "verbs/perftest/programs.py",
}


def words(text: str) -> set[str]:
    """Return the names, attributes and imports that a module uses, and XDG_RUNTIME_DIR if it is in a string."""
    result = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            result.add(node.attr)
        elif isinstance(node, ast.Name):
            result.add(node.id)
        elif isinstance(node, ast.alias):
            result.add(node.name.rpartition(".")[2])
        elif isinstance(node, ast.Constant) and node.value == "XDG_RUNTIME_DIR":
            result.add(node.value)
    return result


def test_no_other_module_makes_sockets_folders_or_memory_that_others_reach():
    folders = {"mkdir", "makedirs"}
    watched = MADE_IN_RUNTIME | folders | {"XDG_RUNTIME_DIR"}
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if name == "runtime.py":
            continue
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in watched):
            continue
        used = words(text)
        assert not used & (watched - folders), f"{name}: let weft.runtime make it"
        if used & folders:
            assert name in MAKE_OTHER_FOLDERS, f"{name} makes a folder: by weft.runtime, or say above why not"


@pytest.fixture
def place(tmp_path_factory) -> Path:
    return runtime.private_folder(tmp_path_factory.mktemp("r") / "weft")


def test_sockets_and_memory_are_their_owners(place):
    listener, inbox, memory = runtime.Listener(place / "a"), runtime.Inbox(place / "b"), runtime.memory("test", 4096)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (place, place / "a", place / "b")]
    assert modes == [0o700, 0o600, 0o600]
    assert stat.S_IMODE(os.fstat(memory).st_mode) == 0o600
    with pytest.raises(PermissionError):
        os.ftruncate(memory, 0)
    os.close(memory)
    listener.close()
    inbox.close()
    assert list(place.iterdir()) == []


def test_a_name_is_taken_while_its_process_lives_and_free_afterwards(place):
    code = f"from pathlib import Path; from weft.runtime import *; made = {{}}(Path({str(place / 'a')!r}))"
    for kind in (runtime.Listener, runtime.Inbox):
        program = f"{code.format(kind.__name__)}; print('made', flush=True); import time; time.sleep(999)"
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        assert child.stdout
        assert child.stdout.readline() == "made\n"
        assert runtime.is_alive(place / "a")
        with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
            kind(place / "a")
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert not runtime.is_alive(place / "a")
        kind(place / "a").close()


@pytest.mark.parametrize("kind", [runtime.Listener, runtime.Inbox])
def test_a_late_close_does_not_remove_the_successors_socket(place, kind):
    """A lab's folder is deleted with it, and the next lab of that name creates the same files again."""
    late = kind(place / "name")
    (place / "name").unlink()
    successor = kind(place / "name")
    late.close()
    assert (place / "name").is_socket()
    successor.close()
    assert not (place / "name").exists()


def test_connecting_waits_while_the_backlog_is_full(place, monkeypatch):
    listener, waiting = runtime.Listener(place / "a"), []
    with suppress(OSError):  # any error
        while True:
            waiting.append(runtime.dial(place / "a", 0))
    monkeypatch.setattr(runtime.time, "sleep", lambda _: waiting.append(listener.accept()))
    with runtime.dial(place / "a", 600) as late:
        assert late.gettimeout() == 600
    monkeypatch.undo()
    with pytest.raises(TimeoutError, match="backlog of 128 is full"):
        runtime.dial(place / "a", 0.01)
    for item in waiting:
        item.close()
    listener.close()


def test_only_sockets_of_killed_processes_are_removed(place):
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(str(place / "dead"))
    dead.close()
    (place / "file").write_text("no socket")
    living = runtime.Listener(place / "living")
    runtime.clear(place)
    assert sorted(path.name for path in place.iterdir()) == ["file", "living"]
    living.close()


def test_a_runtime_folder_in_one_that_others_can_change_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigError, match="is writable by other users"):
        runtime.folder()
    tmp_path.chmod(0o1777)
    assert runtime.folder() == tmp_path / "weft"


def test_a_path_too_long_for_a_socket_is_said(place):
    with pytest.raises(ConfigError, match="set XDG_RUNTIME_DIR to a shorter folder"):
        runtime.Inbox(place / ("x" * 108))


def test_tracing_is_allowed_to_one_peer_then_any_then_none(place, monkeypatch):
    """Linux accepts one process, or any."""
    named: list[int] = []

    class C:
        def prctl(self, option: int, who, *rest: int) -> None:
            assert option == 0x59616D61  # PR_SET_PTRACER of Linux's prctl.h
            named.append(who.value)

    monkeypatch.setattr(runtime, "libc", C)
    monkeypatch.setattr(runtime, "peer", lambda guest: runtime.Credentials(guest, 0, 0))
    for guests in ([], [7], [7, 7], [7, 8], [8], []):
        runtime.allow_tracing(guests)
    assert named == [0, 7, 7, (1 << 64) - 1, 8, 0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_another_user_made_first_is_refused_with_advice_that_the_victim_can_follow(tmp_path):
    folder = tmp_path / "weft-0"
    folder.mkdir(mode=0o700)
    os.chown(folder, 54_321, -1)
    with pytest.raises(ConfigError, match=r"belongs to user 54321: set XDG_RUNTIME_DIR to an existing folder of yours"):
        runtime.private_folder(folder)


def test_descriptors_beyond_1023_can_be_waited_for():
    """select() cannot wait for them, and a lab with many programs needs them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    reader, writer = os.pipe()
    high = fcntl.fcntl(reader, fcntl.F_DUPFD, 1024)
    try:
        assert not runtime.wait_ready([high])
        assert runtime.wait_ready([], [writer])
        os.write(writer, b"x")
        assert runtime.wait_ready([high])
    finally:
        for item in (reader, writer, high):
            os.close(item)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
