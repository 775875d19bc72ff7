"""Tests of other projects use labs by the fixtures of weft's plug-in for pytest."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weft import testing

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
MORE = """

NAMES = pathlib.Path("names.txt")


def test_a_changed_lab_is_replaced_and_an_unchanged_one_is_shared(lab):
    names = [*(NAMES.read_text().split() if NAMES.exists() else []), lab.name]
    NAMES.write_text(" ".join(names))
    if len(names) == 2:
        assert names[0] == names[1]
        lab.break_cable("h1")
    if len(names) == 3:
        assert names[2] != names[1]


test_again = test_once_more = test_a_changed_lab_is_replaced_and_an_unchanged_one_is_shared


def test_programs_are_killed_after_a_test(lab, host):
    global left
    left = host("h1").start("sleep", "600", ANSWER="42")
    assert left.poll() is None


def test_then_none_is_left(lab):
    assert left.poll() is not None
    assert lab.programs == []


@pytest.mark.weft_lab("star:hosts=2", sm=False)
def test_without_a_subnet_manager_ports_are_not_active(host):
    assert "State: Initializing" in host("h1").run("ibstat").stdout


def test_a_program_that_ends_before_it_listens_is_reported(lab, host):
    with pytest.raises(TimeoutError, match="nothing listens at port .*\\n.*no such file"):
        host("h1").start("sh", "-c", "echo no such file").wait_for_port(lab.free_port())


def test_environment_variables_reach_the_program(host):
    ended = host("h2").run("sh", "-c", "echo $ANSWER; exit 3", ANSWER="42")
    assert (ended.returncode, ended.stdout) == (3, "42\\n")


@pytest.mark.weft_lab("no-such-topology:hosts=2")
def test_a_wrong_topology_is_an_error_of_the_test(lab):
    raise AssertionError("not reached")
"""


def run_pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "weft.testing", "-p", "no:cacheprovider", "-p", "no:xdist"]
    return subprocess.run([*words, str(folder)], cwd=folder, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_the_project_of_the_page_passes_outside_of_the_repository(tmp_path):
    (block,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "test_mine.py").write_text(f"import pathlib\n{block}{MORE}")
    ended = run_pytest(tmp_path)
    assert "10 passed, 1 error" in ended.stdout, ended.stdout + ended.stderr
    assert "there is no topology 'no-such-topology'" in ended.stdout
    assert ended.returncode == 1
    listed = subprocess.run([sys.executable, "-m", "weft", "ps"], capture_output=True, text=True, check=True).stdout
    names = (tmp_path / "names.txt").read_text().split()
    assert len(set(names)) == 2
    assert not [name for name in names if name in listed]


def program(*command: str, log: Path) -> testing.Program:
    with log.open("w") as output:
        started = testing.Program([sys.executable, "-S", *command], stdout=output, text=True)
    started.log = log
    return started


def test_a_port_listens_while_a_socket_accepts_connections_there():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert not testing._is_listening(port)  # bound, but not listening
        listener.listen()
        assert testing._is_listening(port)
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert not testing._is_listening(client.getsockname()[1])
    assert not testing._is_listening(port)


def test_waiting_for_a_port_ends_when_it_listens_when_the_program_ends_and_after_its_time(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        ended = program("-c", "print('no such device')", log=tmp_path / "ended.log")
        ended.wait()
        with pytest.raises(TimeoutError, match=f"nothing listens at port {port}; the program printed:\nno such device"):
            ended.wait_for_port(port)
        running = program("-c", "import time; time.sleep(600)", log=tmp_path / "running.log")
        with pytest.raises(TimeoutError):
            running.wait_for_port(port, timeout_s=0)
        later = threading.Timer(0.2, listener.listen)
        later.start()
        running.wait_for_port(port)
        later.join()
        lab = testing.RunningLab("pytest-1", "star:hosts=2", tmp_path, [running])
        lab.end_programs()
    assert (lab.programs, running.returncode) == ([], -signal.SIGKILL)


def test_changes_of_a_lab_mark_it_and_questions_do_not(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("weft.lab.registry.find", lambda name: name)
    monkeypatch.setattr("weft.lab.control.ask", lambda lab, do, **words: asked.append((lab, do, words)) or [])
    monkeypatch.setattr(testing, "_weft", lambda *words: asked.append(words))
    for change in ("port_counts", "break_cable", "degrade", "fix"):
        lab = testing.RunningLab("pytest-1", "star:hosts=2", tmp_path)
        getattr(lab, change)(*(["leaf1/1"] if change != "port_counts" else []))
        assert lab.is_changed is (change != "port_counts")
    assert asked == [
        ("pytest-1", "port_counts", {}),
        ("pytest-1", "break", {"name": "leaf1/1"}),
        ("degrade", "leaf1/1", "--lab", "pytest-1"),
        ("pytest-1", "fix", {"name": "leaf1/1"}),
    ]
