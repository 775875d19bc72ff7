"""Labs as processes: names, commands, and remains of a killed lab."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S, wait_until

from weft import json_lines
from weft.errors import ConfigError, SimulationBug, SubnetError
from weft.lab import control, programs, registry
from weft.lab.prompt import Prompt

SPEC = "fat-tree:hosts=8,radix=4"
Weft = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_time(tmp_path_factory, monkeypatch) -> Path:
    """A runtime folder for this test alone; paths of sockets must be short."""
    folder = tmp_path_factory.mktemp("r")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder / "weft"


@pytest.fixture
def name(run_time) -> str:
    """Return the name of a lab: socket names belong to the machine, not to the test."""
    return f"d{os.getpid()}"


@pytest.fixture
def weft(run_time, tmp_path, warm) -> Iterator[Weft]:
    def run(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(warm), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    yield run
    for entry in registry.running():
        control.end(entry)


@pytest.fixture
def entry(weft, name) -> registry.Entry:
    """A running lab."""
    weft("up", SPEC, "--daemon", "--name", name)
    return registry.find(name)


@pytest.fixture
def _preload() -> None:
    """Skip the test without the preload library, which programs on hosts need."""
    try:
        programs.environment({"socket": "", "host": "", "sockname": "", "sim_host": "", "verbs": ""})
    except ConfigError as error:
        pytest.skip(str(error))


def pid_of(entry: registry.Entry) -> int:
    return int(control.ask(entry, "state")["pid"])


def test_up_ps_break_fix_down(weft, name):
    assert f"lab {name} is up" in weft("up", SPEC, "--daemon", "--name", name).stdout
    assert name in weft("ps").stdout
    assert weft("break", "leaf1/1").stdout == "leaf1/1: broken\n"
    assert "leaf1/1" in weft("ps").stdout
    assert "is broken already" in weft("break", "leaf1/1", status=2).stderr
    assert weft("degrade", "leaf1/2", "--ber", "1e-9").stdout == "leaf1/2: bit error rate 1e-09\n"
    assert "must be in [0, 1)" in weft("degrade", "leaf1/2", "--ber", "7", status=2).stderr
    assert sorted(weft("fix").stdout.split()) == ["fixed", "fixed", "leaf1/1:", "leaf1/2:"]
    assert weft("fix").stdout == "nothing is broken\n"
    assert "there is no node, port or server 'leaf9'" in weft("break", "leaf9", status=2).stderr
    weft("down")
    assert name not in weft("ps").stdout
    assert "no lab runs" in weft("down", status=2).stderr


def test_a_stopped_lab_is_listed_as_one_that_does_not_answer_beside_the_others(weft, entry):
    other = f"{entry.name}b"
    weft("up", SPEC, "--daemon", "--name", other)
    pid = pid_of(entry)
    os.kill(pid, signal.SIGSTOP)
    try:
        listed = weft("ps").stdout
        states = {state["name"]: state for state in json.loads(weft("ps", "--json").stdout)}
    finally:
        os.kill(pid, signal.SIGCONT)
    assert f"{entry.name} does not answer: process {pid} is stopped or very busy" in listed
    assert states[entry.name] == {"name": entry.name, "pid": pid, "answers": False}
    assert states[other]["answers"]
    assert f"lab {other} is down" in weft("down", other).stdout


def test_exec_takes_the_name_of_the_lab_with_an_equals_sign_and_a_command_behind_dashes(weft, entry):
    assert weft("exec", f"--lab={entry.name}", "h1", "--", "echo", "--", "x").stdout == "-- x\n"


def test_a_lab_named_twice_is_refused(weft, entry):
    assert "not both" in weft("down", entry.name, "--lab", entry.name, status=2).stderr


def test_traffic_of_a_lab_without_a_subnet_manager_names_the_command_that_brings_it_up(weft, entry):
    refused = weft("traffic", status=1).stderr
    assert refused.startswith("weft: no host of this lab has a LID: bring it up with a subnet manager first, `weft sm ")


@pytest.mark.parametrize("error", [ConfigError, SubnetError, SimulationBug])
def test_an_error_of_a_command_keeps_its_kind(run_time, error):
    def fail() -> None:
        raise error("so it is")

    with registry.claim("kinds") as entry:
        commands = json_lines.CommandServer(entry.socket, {"fail": fail})
        try:
            with pytest.raises(error, match="so it is"):
                control.ask(entry, "fail")
        finally:
            commands.server_close()


def test_all_cables_of_a_node_break_and_come_back(entry):
    pulled = control.ask(entry, "break", name="spine1")
    assert len(pulled) > 1
    assert control.ask(entry, "state")["broken"] == pulled
    assert sorted(control.ask(entry, "fix", name="spine1")) == sorted(pulled)


def test_a_second_lab_of_the_same_name_is_refused_and_the_first_goes_on(weft, entry):
    refused = weft("up", SPEC, "--daemon", "--name", entry.name, status=2)
    assert f"a lab named {entry.name} runs already" in refused.stderr
    assert control.ask(entry, "state")["mads"] == 0


def test_with_two_labs_a_command_must_say_which(weft, entry):
    weft("up", SPEC, "--daemon", "--name", f"{entry.name}b")
    assert re.search(rf"2 labs run, {entry.name}, {entry.name}b: say which with --lab", weft("fix", status=2).stderr)
    assert weft("break", "leaf1/1", "--lab", f"{entry.name}b").stdout == "leaf1/1: broken\n"
    assert control.ask(entry, "state")["broken"] == []


def test_kill_9_leaves_nothing_that_stops_the_next_lab(weft, entry):
    os.kill(pid_of(entry), signal.SIGKILL)
    wait_until(lambda: not entry.answers())
    assert registry.running() == []
    weft("up", SPEC, "--daemon", "--name", entry.name)
    assert [item.name for item in registry.running()] == [entry.name]


def test_sigterm_ends_a_lab_and_clears_what_it_had(entry):
    os.kill(pid_of(entry), signal.SIGTERM)
    wait_until(entry.is_free)
    assert sorted(path.name for path in entry.folder.iterdir()) == [f"{entry.name}.lock", f"{entry.name}.log"]
    assert "down after 0 MADs" in entry.log.read_text()


def test_a_spec_that_cannot_be_is_told_before_anything_starts(weft, run_time):
    assert "no-such-topology" in weft("up", "no-such-topology:3", "--daemon", status=2).stderr
    assert "has no InfiniBand link" in weft("up", "star:4,speed=400GbE", "--daemon", status=2).stderr


def test_a_name_that_is_no_file_name_is_refused(weft):
    assert "cannot be named" in weft("up", SPEC, "--daemon", "--name", "../x", status=2).stderr


def test_nonsense_on_the_command_socket_is_answered_with_what_is_known(entry):
    for nonsense in (b"\n", b"{}\n", b"[1]\n", b'{"do": "dance"}\n', b"\xff" * 70_000 + b"\n", b'{"do": "break"}\n'):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.connect(str(entry.socket))
            line.sendall(nonsense)
            line.shutdown(socket.SHUT_WR)
            line.settimeout(PATIENCE_S)
            try:
                answer = line.recv(4096)
            except ConnectionResetError:  # the lab has not read everything
                answer = b""
            assert answer in (b"",) or b"error" in answer
    assert control.ask(entry, "state")["name"] == entry.name


def test_a_lab_in_front_serves_until_it_is_told_to_end(run_time, name):
    command = [sys.executable, "-m", "weft", "up", SPEC, "--name", name]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    assert child.stdout.readline().startswith(f"lab {name} is up")
    control.end(registry.find(name))
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0


@pytest.mark.usefixtures("run_time", "compiled")
def test_a_lab_in_front_has_its_manager_and_ends_with_both_on_a_signal(weft, name):
    command = [sys.executable, "-m", "weft", "up", SPEC, "--sm", "--join", "127.0.0.1:0", "--name", name]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    up, join, last = (child.stdout.readline() for _ in range(3))
    assert up.startswith("SUBNET UP by the subnet manager on h1")
    assert "weft join 127.0.0.1:" in join
    assert last.startswith(f"lab {name} is up: {SPEC}")
    (manager,) = json.loads(weft("sm", "status", "--json").stdout)
    os.kill(manager["pid"], signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{manager['pid']}").exists())
    assert "crashed" in weft("sm", "status", status=1).stdout
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0
    assert registry.running() == []


@pytest.mark.usefixtures("run_time")
def test_a_lab_in_front_that_is_killed_is_reported(name):
    command = [sys.executable, "-m", "weft", "up", SPEC, "--name", name]
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout
    assert child.stdout.readline().startswith(f"lab {name} is up")
    lab = registry.find(name).process()
    assert lab not in (None, child.pid)
    os.kill(lab, signal.SIGKILL)
    assert f"the lab {name} failed with status -9" in child.communicate(timeout=PATIENCE_S)[1]
    assert child.returncode == 1


@pytest.mark.usefixtures("_preload")
def test_exec_runs_a_program_as_that_host_and_returns_its_status(weft, entry):
    line = 'echo "$SIM_HOST$WEFT_HOST"; exit 3'
    assert weft("exec", "h2", "sh", "-c", line, status=3).stdout == "h2\n"
    assert weft("exec", "--lab", entry.name, "h2", "printf", "%s", "-o").stdout == "-o"
    assert "there is no host 'h77'" in weft("exec", "h77", "true", status=2).stderr
    assert "there is no program 'dance'" in weft("exec", "h1", "dance", status=2).stderr
    assert "needs a host and a command" in weft("exec", "h1", status=2).stderr


@pytest.mark.parametrize("is_ours", [True, False], ids=["our preload", "libumad2sim"])
@pytest.mark.usefixtures("_preload", "entry")
def test_signals_to_exec_reach_the_program(is_ours, tmp_path, monkeypatch):
    """With weft's preload `weft exec` becomes the program; otherwise it forwards signals."""
    if not is_ours:
        (tmp_path / "lib.so").touch()  # the loader ignores this empty file
        monkeypatch.setenv("WEFT_UMAD2SIM", str(tmp_path / "lib.so"))
    line = "trap 'echo again' HUP USR1; trap 'exit 7' TERM; echo $$; for i in $(seq 3000); do sleep 0.02; done"
    command = [sys.executable, "-m", "weft", "exec", "h2", "sh", "-c", line]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout
    assert (int(child.stdout.readline()) == child.pid) == is_ours
    for item in (signal.SIGHUP, signal.SIGUSR1):
        child.send_signal(item)
        assert child.stdout.readline() == "again\n"
    child.send_signal(signal.SIGTERM)
    assert child.wait(PATIENCE_S) == 7
    child.stdout.close()


# -- the prompt --


def said(entry: registry.Entry, *lines: str) -> str:
    """Return the output of the prompt for these lines."""
    waiting, printed = [*lines, "exit"], []
    Prompt(entry, printed.append).run(lambda prompt: waiting.pop(0))
    return "\n".join(printed)


def test_the_prompt_breaks_fixes_and_lists(entry):
    printed = said(entry, "nodes", "links", "break leaf1/1", "fix", "fix", "ps", "", "help")
    assert "h1  hca" in printed
    assert "leaf1/1" in printed
    assert "nothing to do" in printed
    assert "no program is attached" in printed
    assert "h1 ibstat" in printed


@pytest.mark.usefixtures("_preload")
def test_the_prompt_runs_programs_through_the_shell(entry, capfd):
    said(entry, 'h3 echo "$SIM_HOST$WEFT_HOST" | tr h H')
    assert capfd.readouterr().out == "H3\n"


@pytest.mark.usefixtures("_preload")
def test_the_prompt_ends_what_runs_beside_it(entry):
    printed = said(entry, "h1 sleep 1000 &")
    number = int(re.search(r"process (\d+)", printed)[1])  # type: ignore[index]
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_the_prompt_says_what_is_wrong_and_goes_on(entry):
    printed = said(entry, "h99 ibstat", "h1", "degrade leaf1/1", "degrade leaf1/1 much", "break 'x", "break leaf1/1")
    for part in ("there is no host 'h99'", "h1 what?", "takes name and bit_error_rate", "could not convert", "leaf1/1"):
        assert part in printed


def test_a_lab_behind_a_prompt_ends_with_it(weft, name):
    """Even if the prompt is killed: the lab detects the end of a pipe."""
    start = f"daemon.start(weft.load({SPEC!r}), {name!r}, follow=True)"
    code = f"import time, weft; from weft.lab import daemon; {start}; time.sleep(9999)"
    child = subprocess.Popen([sys.executable, "-c", code])
    wait_until(registry.entry(name).answers)
    child.kill()
    child.wait()
    wait_until(registry.entry(name).is_free)
    assert registry.running() == []


def test_a_runtime_folder_that_others_may_use_is_refused(run_time):
    run_time.mkdir(mode=0o755)
    run_time.chmod(0o755)
    with pytest.raises(ConfigError, match="only its owner can enter"):
        registry.running()


# -- short of files --


def files_of(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


@pytest.mark.parametrize("end", [".umad", ".verbs", ".sock"])
def test_a_lab_that_ran_out_of_files_recovers_and_keeps_no_other_waiting(weft, entry, run_time, tmp_path, end):
    weft("up", SPEC, "--daemon", "--name", f"{entry.name}-2")
    process = control.ask(entry, "state")["pid"]
    before = files_of(process)
    resource.prlimit(process, resource.RLIMIT_NOFILE, (before + 20, before + 20))
    lines = []
    for _ in range(before + 60):
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.settimeout(PATIENCE_S)
        line.connect(str(entry.folder / f"{entry.name}{end}"))
        lines.append(line)
    assert lines[-1].recv(1) == b""  # a client above the limit gets an answer at once
    assert weft("exec", "--lab", f"{entry.name}-2", "h1", "true").returncode == 0
    for line in lines:
        line.close()
    wait_until(lambda: files_of(process) <= before)
    assert control.ask(entry, "state")["name"] == entry.name
