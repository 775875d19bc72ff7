"""Machines that join a lab as hosts: permission, the joined host, its programs, and cut connections."""

from __future__ import annotations

import math
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.lab.joined import Cable, invitation, joined
from tests.lab.rdma import Host, all_active, managed, pair, wait_until
from tests.patience import PATIENCE_S

import weft
from weft import runtime
from weft.errors import ConfigError
from weft.fabric.counters import Counter
from weft.lab import layouts
from weft.lab.join import server
from weft.lab.join import session as sessions
from weft.lab.join.server import parse_address, show_address
from weft.lab.lab import Lab
from weft.verbs import enums as e
from weft.verbs import hardware
from weft.verbs.carriers.lab.connection import Line

OK = e.IBV_WC_SUCCESS
Join = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(weft.load("fat-tree:hosts=8,radix=4"), f"j{os.getpid()}") as up, managed(up):
        up.accept_joins("127.0.0.1:0")
        yield up


@pytest.fixture
def cable(lab) -> Iterator[Cable]:
    result = Cable(lab.join_server.address)
    yield result
    result.close()


@pytest.fixture
def join(lab, warm, tmp_path) -> Join:
    """A function that runs `weft join` to its end."""

    def run(*words: str, address: str = "", token: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(warm), "join", address or lab.join_server.address, *words],
            cwd=tmp_path,
            env=os.environ | {"WEFT_JOIN_TOKEN": token or lab.join_server.token},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run


class Far(Host):
    """A program on a joined host."""

    def __init__(self, lab, guest, monkeypatch) -> None:
        self.guest = guest
        super().__init__(lab, guest.host, monkeypatch, guest.environment()[hardware.LAB])


def slot_of(lab: Lab, host: str) -> int:
    return int(lab.fabric[f"{host}/1"].slot)


def events(host: Host) -> list[int]:
    host.ctx.adapter.progress()
    return [host.ctx.events.popleft().event_type for _ in range(len(host.ctx.events))]


def guests(lab: Lab) -> list[tuple[str, bool]]:
    return [(item["host"], item["is_cut"]) for item in lab.state()["join"]["hosts"]]


# -- permission -------------------------------------------------------------------------------------------------------


def test_a_program_is_run_as_the_host_and_its_status_is_the_commands(lab, join):
    code = "import os; print(os.environ['WEFT_HOST'], 'WEFT_JOIN_TOKEN' in os.environ); raise SystemExit(7)"
    done = join("--as", "h3", "--", sys.executable, "-c", code, status=7)
    assert done.stdout == "h3 False\n", done.stderr
    wait_until(lambda: guests(lab) == [])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--as", "h33", "--", "true"), "there is no host 'h33'; did you mean h3"),
        (("--as", "leaf1", "--", "true"), "leaf1 is a switch: machines join as hosts"),
        (("--as", "h3", "--token", "no such token here", "--", "true"), "the token is wrong"),
        (("--as", "h3"), "needs a command after `--`"),
        (("--", "true"), "needs a host to join as: --as h3"),
        (("--as", "h3", "--patience", "soon", "--", "true"), "--patience must be 0 to 3600 seconds, got soon"),
        (("--as", "h3", "--roce", "here", "--", "true"), "--roce here is not an IP address"),
        (("--ass", "h3", "--", "true"), "does not know '--ass'"),
        (("--as", "h3", "--", "no-such-program"), "there is no program 'no-such-program'"),
    ],
)
def test_refused_join_has_a_reason_in_one_sentence(join, words, said):
    messages = join(*words, status=2).stderr
    assert said in messages
    assert messages.startswith("weft: ")


def test_a_host_is_one_machines_at_a_time(lab, join):
    with joined(invitation(lab, "h3")):
        assert "h3 is taken: 127.0.0.1:" in join("--as", "h3", "--", "true", status=2).stderr
        join("--as", "h4", "--", "true")
    wait_until(lambda: guests(lab) == [])
    join("--as", "h3", "--", "true")


@pytest.mark.parametrize(
    ("greeting", "said", "status"),
    [
        (b"weft join 0.0.1 abcd\n", "is of weft 0.0.1, this is", 2),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is no lab that hosts can join", 2),
        (b"", "closed the connection during the handshake", 1),
    ],
)
def test_other_version_of_a_lab_is_named(join, greeting, said, status):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as item:
                item.sendall(greeting)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        messages = join("--as", "h3", "--", "true", address=address, status=status).stderr
        thread.join(PATIENCE_S)
    assert said in messages


def test_absent_lab_is_reported(join):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    assert f"no lab answers at {address}" in join("--as", "h3", "--", "true", address=address, status=1).stderr


def test_server_must_know_the_token_too(lab, join):
    """An impostor's lab would accept every client."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as item:
                item.sendall(f"weft join {weft.__version__} {'0' * 64}\n".encode())
                item.recv(4096)
                item.sendall(b'{"session": "x", "received": 0, "host": "h3", "lab": "l"}\n' + b"0" * 64 + b"\n")
                item.recv(4096)

        threading.Thread(target=answer, daemon=True).start()
        messages = join("--as", "h3", "--", "true", address=f"127.0.0.1:{server.getsockname()[1]}", status=2).stderr
    assert "does not know the token" in messages


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("10.0.0.1:7471", ("10.0.0.1", 7471)),
        ("[fd00::1]:65535", ("fd00::1", 65535)),
        ("lab.example:0", ("lab.example", 0)),
    ],
)
def test_an_address_is_a_name_or_an_address_of_either_ip_version(address, parts):
    assert parse_address(address) == parts
    assert show_address(parts) == address


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "7471",
        "fd00::1:7471",
        "[fd00::1:7471",
        "fd00::1]:7471",
        "127.0.0.1:65536",
        "127.0.0.1:\u0663",
        "127.0.0.1:-1",
        ":7471",
    ],
)
def test_an_address_has_a_host_and_a_port(address):
    with pytest.raises(ConfigError, match=r"7471"):
        parse_address(address)


def test_a_lab_listens_at_addresses_of_its_machine_alone(lab):
    with Lab(weft.load("fat-tree:hosts=8,radix=4"), f"k{os.getpid()}") as other:
        with pytest.raises(ConfigError, match=r"--join 192\.0\.2\.1:7471: no host can join there"):
            other.accept_joins("192.0.2.1:7471")
        with pytest.raises(ConfigError, match="has 5 characters: a token needs 16 or more"):
            other.accept_joins("127.0.0.1:0", "short")
        assert other.state()["join"] is None


# -- the joined host --------------------------------------------------------------------------------------------------


def ask_umad(path: str, kind: int, *, host: str, number: int = 0) -> tuple[int, bytes, socket.socket]:
    """Send a request as preload.c does; return the status, the answer and the connection."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(PATIENCE_S)
    connection.connect(path)
    words = kind, number, 0, 3, 2, 0, 0, 0, 0, 0
    connection.sendall(layouts.QUESTION.pack(*words, host.encode(), b""))
    status, length = layouts.ANSWER.unpack(connection.recv(layouts.ANSWER.size, socket.MSG_WAITALL))
    return status, connection.recv(length, socket.MSG_WAITALL) if length else b"", connection


def test_a_joined_machine_acts_as_its_host_alone(lab):
    """Other hosts named in its programs' requests are ignored."""
    with joined(invitation(lab, "h3")) as guest:
        variables = guest.environment()
        status, output, line = ask_umad(variables["WEFT_SOCKET"], layouts.Question.GET_PORT, host="h5", number=1)
        line.close()
        guid = lab.subnet.devices.port_guid(slot_of(lab, "h3"))
        assert (status, layouts.PORT.unpack_from(output)[11]) == (0, guid)
        verbs = Line(variables[hardware.LAB])
        assert verbs.ask("attach", host="h5", device="mlx5_0")["guid"] == int.from_bytes(guid, "big")
        verbs.close()
        _, opened, local = ask_umad(str(lab.socket), layouts.Question.OPEN_PORT, host="h5")
        (number,) = struct.unpack("=I", opened)
        status, _, line = ask_umad(variables["WEFT_SOCKET"], layouts.Question.REGISTER, host="h5", number=number)
        line.close()
        assert status == 19, "ENODEV: another host's port, though its number is right"
        status, _, line = ask_umad(str(lab.socket), layouts.Question.REGISTER, host="h5", number=number)
        line.close()
        local.close()
        assert status == 0


def test_no_memory_is_shared_with_another_machine(lab):
    """In neither direction; hosts of the lab still share theirs."""

    def is_granted(door: str, host: str, far: str) -> bool:
        line = Line(door)
        line.ask("attach", host=host, device="mlx5_0")
        path = {"lid": lab.subnet.lid(slot_of(lab, far)), "sl": 0, "path_bits": 0}
        guid = line.ask("metered_path", meter=0, p_key=0xFFFF, mtu_bytes=256, **path)["guid"]
        line.close()
        return bool(guid)

    local = str(lab.verbs_socket)
    with joined(invitation(lab, "h3")) as guest:
        assert not is_granted(guest.environment()[hardware.LAB], "h3", "h5")
        assert not is_granted(local, "h5", "h3")
        assert is_granted(local, "h5", "h4")
    wait_until(lambda: guests(lab) == [])
    assert is_granted(local, "h5", "h3"), "and when it has left, with it too"


# -- programs ---------------------------------------------------------------------------------------------------------


def test_messages_cross_between_a_joined_host_and_one_of_the_lab_and_ports_count_them(lab, monkeypatch):
    data = bytes(n % 251 for n in range(5000))
    with joined(invitation(lab, "h3")) as guest:
        local, present = Host(lab, "h1", monkeypatch), Far(lab, guest, monkeypatch)
        item, other = pair(e.IBV_QPT_RC, local, present)
        before = lab.fabric.counters[slot_of(lab, "h3"), Counter.PORT_RCV_PKTS]
        for sender, qp, receiver, far in ((local, item, present, other), (present, other, local, item)):
            receiver.post_receive(far, 6000)
            sender.send(qp, data)
            assert [done.status for done in sender.poll() + receiver.poll()] == [OK] * 2
            assert receiver.mr.read(5000, 1 << 15) == data
        assert lab.fabric.counters[slot_of(lab, "h3"), Counter.PORT_RCV_PKTS] - before >= 5
        local.close()
        present.close()


# -- cuts -------------------------------------------------------------------------------------------------------------


def test_a_cut_pulls_the_cable_and_programs_go_on_when_the_connection_is_back(lab, cable, monkeypatch):
    with joined(invitation(lab, "h3", cable.address)) as guest:
        local, present = Host(lab, "h1", monkeypatch), Far(lab, guest, monkeypatch)
        item, other = pair(e.IBV_QPT_RC, local, present, timeout=8, retry_cnt=1)
        present.ctx.query_port(1)
        cable.cut()
        wait_until(lambda: lab.state()["broken"] == ["h3/1"])
        assert guests(lab) == [("h3", True)]
        wait_until(lambda: e.IBV_EVENT_PORT_ERR in events(present))
        local.send(item, b"into the dark")
        assert [done.status for done in local.poll()] == [e.IBV_WC_RETRY_EXC_ERR]
        cable.mend()
        wait_until(lambda: e.IBV_EVENT_PORT_ACTIVE in events(present))
        assert guests(lab) == [("h3", False)]
        wait_until(lambda: all_active(lab))
        item, other = pair(e.IBV_QPT_RC, local, present)
        present.post_receive(other, 100)
        local.send(item, b"light again")
        assert [done.status for done in local.poll() + present.poll()] == [OK] * 2
        local.close()
        present.close()
    assert lab.state()["broken"] == []


@pytest.mark.parametrize("writes_state", [True, False])
def test_a_port_that_flaps_is_reported_held_down_until_it_is_active(tmp_path, capfd, monkeypatch, writes_state):
    """The lab reads the end of the hold time from the state file of weft's manager; others do not publish it."""
    monkeypatch.setattr(server, "ACTIVATION_S", PATIENCE_S if writes_state else 0.0)
    with Lab(weft.load("fat-tree:hosts=8,radix=4"), f"f{os.getpid()}") as flapping:
        folder = runtime.private_folder(runtime.folder() / f"{flapping.name}.cache")
        state_file = (folder if writes_state else tmp_path) / "sm-h1.json"
        options = {"flap_limit": 1, "flap_window_s": 3600.0, "state_file": state_file}
        printed = ""

        def prints(text: str) -> bool:
            nonlocal printed
            printed += capfd.readouterr().err
            return text in printed

        with managed(flapping, **options) as manager:
            cable = Cable(flapping.accept_joins("127.0.0.1:0").address)
            with joined(invitation(flapping, "h3", cable.address)):
                cable.cut()
                wait_until(lambda: manager.state.flaps.next_due_s() < math.inf)
                cable.mend()
                reason = "is held down by the subnet manager" if writes_state else "manager has made h3/1 Active"
                wait_until(lambda: prints(reason))
                assert ("until 20" in printed) == writes_state
                assert f"weft sm status --lab {flapping.name}" in printed
                assert "every port of h3 is Active" not in printed
                manager.state.flaps.limit = 100
                manager.reload()
                wait_until(lambda: prints("every port of h3 is Active"))
            cable.close()
        shutil.rmtree(folder)


def test_replaced_host_is_disconnected_with_a_notice(lab, cable, join, capfd):
    with joined(invitation(lab, "h3", cable.address)) as guest:
        cable.cut()
        wait_until(lambda: lab.state()["broken"] == ["h3/1"])
        join("--as", "h3", "--", "true")
        assert lab.state()["broken"] == [], "its cable is in again"
        cable.mend()
        wait_until(lambda: guest._is_over)
    assert "h3 is a host no more" in capfd.readouterr().err


def test_a_host_that_stays_away_loses_its_place_and_its_cable(lab, cable):
    with joined(invitation(lab, "h3", cable.address, timeout_s=0.0)) as guest:
        cable.cut()
        wait_until(lambda: guest._is_over)
        wait_until(lambda: guests(lab) == [])
        assert lab.state()["broken"] == ["h3/1"]
    with joined(invitation(lab, "h3")):
        assert lab.state()["broken"] == []
    wait_until(lambda: all_active(lab))


def test_silence_is_a_cut(lab, monkeypatch):
    with joined(invitation(lab, "h3")):
        monkeypatch.setattr(sessions, "SILENT_S", -1.0)
        wait_until(lambda: lab.state()["errors"].get("a joined host is cut off", 0) > 0)
        monkeypatch.undo()
        wait_until(lambda: guests(lab) == [("h3", False)])
    wait_until(lambda: all_active(lab))


def test_programs_end_with_the_lab(warm, tmp_path):
    """The lab announces its end, so no program waits."""
    with Lab(weft.load("fat-tree:hosts=8,radix=4"), f"m{os.getpid()}") as other:
        gate = other.accept_joins("127.0.0.1:0")
        code = "import sys; print('up', flush=True); sys.stdin.read()"
        command = [str(warm), "join", gate.address, "--as", "h3", "--", sys.executable, "-c", code]
        with subprocess.Popen(
            command,
            env=os.environ | {"WEFT_JOIN_TOKEN": gate.token},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "up\n"
            other.stop()
            assert child.stderr is not None
            assert f"h3 is a host no more: the lab {other.name} is down" in child.stderr.readline()
            child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 0
