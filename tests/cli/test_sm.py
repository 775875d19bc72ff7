"""`weft sm` for a new user: one-line errors, and the status and the end of running managers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.patience import PATIENCE_S
from tests.warm import WARM

from weft.cli import app
from weft.cli.sm import _print
from weft.cli.sm_flags import SmFlags, sm_options
from weft.errors import ConfigError, FileError, UnknownName
from weft.lab import control, registry
from weft.sm.conf.options import Options, read_options
from weft.sm.control import ManagerSocket, PartitionDefinition, socket_of
from weft.sm.status import Status, read_status

SPEC = "fat-tree:hosts=8,radix=4"
XML = """<Config><Common>
<DeviceGroups><DeviceGroup><Name>Everybody</Name><Select>All</Select></DeviceGroup></DeviceGroups>
<VirtualFabrics><VirtualFabric><Name>Admin</Name><Enable>1</Enable><PKey>0x7fff</PKey><Member>Everybody</Member>
<Application>SA</Application></VirtualFabric></VirtualFabrics></Common></Config>
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    """A runtime folder for this module alone; paths of sockets must be short."""
    folder = tmp_path_factory.mktemp("r")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def lab(runtime):
    """A running lab."""
    name = f"s{os.getpid()}"
    subprocess.run(
        [os.environ[WARM], "up", SPEC, "--daemon", "--name", name], check=True, capture_output=True, timeout=PATIENCE_S
    )
    entry = registry.find(name)
    yield entry
    control.end(entry)


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """An empty runtime folder: no lab runs."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


def run(*words):
    app(["sm", *map(str, words)])


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# -- what is wrong -----------------------------------------------------------------------------------------------------


def test_without_a_lab_it_says_how_to_start_one(tmp_path):
    done = subprocess.run(
        [os.environ[WARM], "sm", "--once"],
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "weft: no lab runs: start one with `weft up fat-tree:hosts=16,radix=8`\n"


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        (("--priority", "16"), ConfigError, "sm_priority 16 is refused: it must be a number from 0 to 15"),
        (("--routing-engine", "fattree"), ConfigError, "routing_engine fattree is refused: .*fat-tree.*ftree"),
        (("--routing-engine", "lash"), ConfigError, "lash.*dfsssp"),
        (("--config", "none.conf"), FileError, r"none\.conf"),
        (("--partitions", "none.conf"), FileError, r"none\.conf"),
        (("--on", "ibsim", "--ibsim", "nobody"), ConfigError, "no ibsim or lab listens at nobody"),
        (("--ibsim", "nobody"), ConfigError, "no ibsim or lab listens at nobody"),
        (("--umad", "mlx5_0", "--on", "lab"), ConfigError, "--umad mlx5_0 has no effect with --on lab"),
        (("--lab", "one", "--ibsim", "two"), ConfigError, "--ibsim two has no effect with --on lab"),
        (("--lab", "nobody"), UnknownName, "running lab 'nobody'"),
        (("status",), ConfigError, "no state file of a subnet manager"),
        (("status", "--state", "none.json"), ConfigError, r"in none\.json: start one with `weft sm`"),
    ],
)
def test_invalid_options_are_refused_with_the_reason(words, error, says):
    with pytest.raises(error, match=says):
        run(*words)


@pytest.mark.usefixtures("nowhere")
def test_an_unknown_option_is_named_with_its_line_and_near_names(tmp_path):
    config = write(tmp_path / "opensm.conf", "# mine\nsm_prioriti 3\n")
    with pytest.raises(UnknownName, match=r"no option 'sm_prioriti'; did you mean sm_priority(.|\n)*opensm\.conf:2"):
        run("-F", config)


@pytest.mark.usefixtures("nowhere")
def test_no_m_key_contradicts_an_m_key_of_the_file(tmp_path):
    (tmp_path / "opensm.conf").write_text("m_key 0x1234\n")
    with pytest.raises(ConfigError, match="--no-m-key contradicts m_key in"):
        app(["sm", "-F", str(tmp_path / "opensm.conf"), "--no-m-key", "--once"])


def test_ports_are_protected_by_an_m_key_unless_no_m_key_is_given():
    assert [sm_options(flags).protect_tenants for flags in (SmFlags(), SmFlags(m_key=False))] == [True, False]


def test_a_bad_line_of_partitions_is_named_with_the_rule(tmp_path):
    partitions = write(tmp_path / "partitions.conf", "Default=0x7fff: ALL;\nred=0x9: blah;\n")
    with pytest.raises(FileError, match=r"partitions\.conf:2: 'blah' is not valid; expected a port GUID"):
        run("-P", partitions)


def test_a_host_that_is_not_there_brings_near_ones(lab):
    with pytest.raises(ConfigError, match="no host 'h9'; did you mean"):
        run("--lab", lab.name, "--at", "h9", "--once")
    with pytest.raises(ConfigError, match="no host 'h9'; did you mean"):
        app(["top", "--lab", lab.name, "--at", "h9"])


def test_a_folder_or_a_log_that_cannot_be_made_is_said_before_the_sweep(lab, tmp_path):
    used = write(tmp_path / "file", "")
    with pytest.raises(ConfigError, match=r"cannot create the folder .*file/dumps for dumps"):
        run("--once", "--dump", used / "dumps")
    config = write(tmp_path / "opensm.conf", f"log_file {tmp_path}/no/folder/sm.log\n")
    with pytest.raises(ConfigError, match=r"log_file .*sm\.log: cannot write this file"):
        run("--once", "-F", config)


# -- what is right -----------------------------------------------------------------------------------------------------


def test_once_brings_the_subnet_up_and_leaves(lab, capsys):
    run("--once", "--at", "h2")
    events = [line.split(" ")[2] for line in lines(capsys)]
    assert (events[0], events[-1]) == ("STARTED", "STOPPED")
    assert "SUBNET_UP" in events
    assert (lab.cache / "sm-h2.json").exists()
    assert not any(client["is_sm"] for client in control.ask(lab, "state")["clients"])


def failed_status(*words: object) -> None:
    """Run `weft sm status` without a manager: it prints, and its exit status 1 informs a probe."""
    with pytest.raises(SystemExit) as ended:
        run("status", *words)
    assert ended.value.code == 1


def test_the_status_is_a_page_of_words_and_the_same_as_json(lab, capsys):
    run("--once", "--at", "h3", "-p", "5")
    capsys.readouterr()
    failed_status()
    page = lines(capsys)
    assert page[0].startswith(f"Subnet manager at h3/1 of lab {lab.name}: stopped, ")
    for words in ("priority 5", "8 adapters", "Default 0x7fff", "SUBNET_UP 1"):
        assert any(words in line for line in page), words
    assert all(line == line.rstrip() for line in page)
    failed_status("--lab", lab.name, "--json")
    (result, *_) = [load for load in json.loads(capsys.readouterr().out) if load["port"] == "h3/1"]
    assert (result["sm_state"], result["running"], result["priority"]) == ("stopped", False, 5)
    assert result["sweep"]["engine"] == "fat-tree"


def test_the_status_is_of_labs_that_run_and_says_which(lab, runtime, capsys):
    """An ended ibsim left its state beside the labs; another process may have its process ID by now."""
    run("--once", "--at", "h3")
    left = json.loads((lab.cache / "sm-h3.json").read_text()) | {"port": "H-1/1", "subnet": "ibsim sim"}
    old = runtime / "weft" / "sm-ibsim-first-H-1.json"
    write(old, json.dumps(left | {"sm_state": "master", "pid": os.getpid(), "started": 7, "at_s": time.time() + 9}))
    capsys.readouterr()
    try:
        failed_status()
        page = capsys.readouterr().out
        assert f"Subnet manager at h3/1 of lab {lab.name}: stopped" in page
        assert "ibsim" not in page
        failed_status("--on", "ibsim")
        assert "Subnet manager at H-1/1 of ibsim sim: crashed; master, " in capsys.readouterr().out
        with pytest.raises(ConfigError, match="subnet manager of umad"):
            run("status", "--on", "umad")
    finally:
        old.unlink()


def test_a_run_with_json_prints_its_status_alone(lab, capsys):
    run("--once", "--json")
    result = json.loads(capsys.readouterr().out)
    assert result["sm_state"] == "stopped"
    assert result["sweep"]["adapters"] == 8


def test_the_options_that_it_writes_it_reads(tmp_path, capsys):
    path = tmp_path / "opensm.conf"
    run("--create-config", path, "-p", "7", "-R", "updn,ftree")
    assert capsys.readouterr().out == f"{path}: written\n"
    assert read_options(path) == Options(sm_priority=7, routing_engine=("up-down", "fat-tree"))


def test_files_log_and_dumps_are_where_the_options_say(lab, tmp_path, capsys):
    config = write(
        tmp_path / "opensm.conf",
        f"log_file {tmp_path}/sm.log\ndump_files_dir {tmp_path}/dumps\nlmc_esp0 TRUE\nlog_flags 0x07\nsm_priority 3\n",
    )
    run("--once", "-F", config, "--state", tmp_path / "state.json")
    assert capsys.readouterr().out == ""
    log = (tmp_path / "sm.log").read_text()
    assert "OPTION_IGNORED lmc_esp0 True: not followed" in log
    assert "OPTION_IGNORED log_flags 0x07" in log
    assert "SUBNET UP" in log
    assert {"opensm-subnet.lst", "opensm.fdbs"} <= {path.name for path in (tmp_path / "dumps").iterdir()}
    status = read_status(tmp_path / "state.json")
    assert status is not None
    assert status.priority == 3


def test_where_opensm_would_log_of_its_own_accord_weft_does_not(lab, tmp_path, capsys):
    config = write(tmp_path / "opensm.conf", "log_file /var/log/opensm.log\ndump_files_dir /var/log/\n")
    run("--once", "-F", config)
    assert "SUBNET UP" in capsys.readouterr().out


def test_virtual_fabrics_take_the_place_of_partitions(lab, tmp_path, capsys):
    run("--once", "-P", write(tmp_path / "opafm.xml", XML), "--json")
    assert json.loads(capsys.readouterr().out)["partitions"] == {"0x7fff": "Admin"}


# -- signals -----------------------------------------------------------------------------------------------------------


def until(found, what):
    """Return the result of `found` as soon as it is true."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.02)
    raise AssertionError(what)


def _partitions(state):
    status = read_status(state)
    return {} if status is None else status.partitions


def test_sighup_reads_the_files_again_and_sigterm_ends_it_in_order(lab, tmp_path, capsys):
    partitions = write(tmp_path / "partitions.conf", "Default=0x7fff: ALL;\n")
    state, log = tmp_path / "state.json", tmp_path / "log"
    with log.open("w") as stream:
        words = [os.environ[WARM], "sm", "-P", partitions, "--lab", lab.name, "--at", "h4", "--state", state]
        process = subprocess.Popen(words, stdout=stream, stderr=stream)
    try:
        until(lambda: "SUBNET UP" in log.read_text(), "no SUBNET UP")
        assert log.read_text().startswith(f"state in {state}: see `weft sm status`; Ctrl-C ends it\n")
        assert any(client["is_sm"] for client in control.ask(lab, "state")["clients"])
        partitions.write_text("Default=0x7fff: ALL;\nred=0x9: ALL;\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: "0x0009" in _partitions(state), "SIGHUP changes nothing")
        ManagerSocket(socket_of(state)).allocate(define=[PartitionDefinition(name="blue", p_key=0x0007)])
        run("status", "--state", state, "--json")
        output = json.loads(capsys.readouterr().out)[0]["partitions"]
        assert output == {"0x7fff": "Default", "0x0009": "red", "0x0007": "blue"}
        partitions.write_text("nonsense\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: "what was read before stays" in log.read_text(), "a bad file is not told")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
    status = read_status(state)
    assert status is not None
    assert (status.sm_state, status.is_running) == ("stopped", False)
    assert {"0x0009", "0x0007"} <= status.partitions.keys()
    assert not any(client["is_sm"] for client in control.ask(lab, "state")["clients"])
    assert "Traceback" not in log.read_text()


# -- the manager of a lab ----------------------------------------------------------------------------------------------


@pytest.fixture
def own_lab(runtime):
    """The name of a lab that a test starts; the lab ends with the test."""
    name = f"u{os.getpid()}"
    yield name
    for entry in registry.running():
        if entry.name == name:
            control.end(entry)


def up(name, *words):
    app(["up", SPEC, "--daemon", "--name", name, *map(str, words)])


def test_the_manager_of_a_lab_takes_the_options_of_weft_sm_and_obeys_the_same_signals(own_lab, tmp_path):
    partitions = write(tmp_path / "partitions.conf", "Default=0x7fff: ALL;\nred=0x8: ALL;\n")
    words = ("--sm", "--at", "h3", "-P", partitions, "-R", "updn", "-p", "9", "-Q", "--dump", tmp_path / "dumps")
    subprocess.run(
        [os.environ[WARM], "up", SPEC, "--daemon", "--name", own_lab, *map(str, words)], check=True, timeout=PATIENCE_S
    )
    entry = registry.find(own_lab)
    state = entry.cache / "sm-h3.json"
    status = read_status(state)
    assert (status.port, status.priority, status.sweep.engine) == ("h3/1", 9, "up-down")
    assert "0x0008" in status.partitions
    assert (tmp_path / "dumps" / "opensm.fdbs").exists()
    partitions.write_text("Default=0x7fff: ALL;\nred=0x9: ALL;\n")
    os.kill(status.pid, signal.SIGHUP)
    until(lambda: "0x0009" in _partitions(state), "SIGHUP changes nothing")
    assert read_status(state).is_running
    os.kill(status.pid, signal.SIGTERM)
    until(lambda: read_status(state).sm_state == "stopped", "SIGTERM does not end it")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--sm", "-P", "none.conf"), r"none\.conf"),
        (("--sm", "-R", "fattree"), "routing_engine fattree is refused"),
        (("--sm", "-p", "16"), "sm_priority 16 is refused"),
        (("--sm", "--at", "h99"), "no host 'h99'"),
        (("-P", "none.conf", "-Q"), "--partitions, --qos needs a subnet manager: add --sm"),
    ],
)
def test_invalid_manager_options_are_refused_before_the_lab_starts(own_lab, words, says):
    with pytest.raises(ConfigError, match=says):
        up(own_lab, *words)
    assert own_lab not in [entry.name for entry in registry.running()]


def a_status(**fields):
    few = {"version": "1", "pid": 1, "at_s": 0.0, "sm_state": "master", "guid": "0x1", "port": "h1/1", "lid": 1}
    return Status(**few | {"priority": 0, "master": "0x1", "sweeps": 1, "mads": 1, "events": {}, "recent": ()} | fields)


def test_the_status_breaks_no_line_inside_a_name(capsys, monkeypatch):
    """A name with hyphens can be copied from a narrow terminal."""
    monkeypatch.setenv("COLUMNS", "50")
    name = "rack-12-leaf-switch-07"
    recent, drift = f"the port of the switch named {name} has come up", f"the tables of a certain switch, {name}"
    _print(Path("sm.json"), a_status(recent=(recent,), drift=(drift,)))
    assert capsys.readouterr().out.count(name) == 2


@pytest.mark.parametrize(("adjacent", "says"), [((), False), ((0xFEC0_0000_0000_0002,), True)])
def test_the_status_says_that_groups_end_at_routers_to_other_subnets(capsys, adjacent, says):
    _print(Path("sm.json"), a_status(groups=3, adjacent=adjacent))
    text = " ".join(capsys.readouterr().out.split())
    assert ("3 multicast groups of this subnet alone (routers forward no multicast)" in text) is says
