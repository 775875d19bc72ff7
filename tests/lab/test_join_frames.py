"""The connection of a joined host: cuts lose no data of a stream, and unsigned data are refused."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab.joined import joined
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.errors import ConfigError
from weft.lab.join.client import Invitation
from weft.lab.join.frames import BODY_BYTES, HEADER, NUMBER, Forged, Frame, FrameSigner, Kind, Reader, Wire, pack
from weft.lab.join.handshake import JoinRequest, ServerHandshake, proof, shake_hands
from weft.lab.join.server import _MOST_PENDING, _PendingConnection
from weft.lab.join.session import WINDOW_BYTES, Session, Watch
from weft.lab.lab import Lab

KEY, TOKEN = b"k" * 32, "a token of some length"
FRAMES = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=50)), max_size=6)


def sealed(frames: list[bytes]) -> bytes:
    sealer = FrameSigner(KEY)
    return b"".join(frame + sealer.seal(frame) for frame in frames)


# -- frames -----------------------------------------------------------------------------------------------------------


@given(FRAMES, st.lists(st.integers(0, 500), max_size=5))
def test_frames_come_out_as_they_went_in_however_the_bytes_are_cut(given_frames, cuts):
    data = sealed([pack(Kind.DATA, channel, body) for channel, body in given_frames])
    reader, edges = Reader(KEY), sorted({0, *(min(cut, len(data)) for cut in cuts), len(data)})
    result = [frame for at, end in itertools.pairwise(edges) for frame in reader.read(data[at:end])]
    assert result == [Frame(Kind.DATA, channel, body) for channel, body in given_frames]


@given(FRAMES.filter(bool), st.data())
def test_a_bit_that_changed_on_the_way_is_noticed(given_frames, data):
    frames = [pack(Kind.DATA, channel, body) for channel, body in given_frames]
    wrong = bytearray(sealed(frames))
    bit = data.draw(st.integers(0, 8 * len(wrong) - 1))
    wrong[bit // 8] ^= 1 << bit % 8
    reader, result = Reader(KEY), []
    try:
        for at in range(len(wrong)):
            result += reader.read(bytes(wrong[at : at + 1]))
    except Forged:
        pass
    assert len(result) < len(frames)
    assert [pack(*frame) for frame in result] == frames[: len(result)]


def test_a_frame_is_not_taken_twice():
    once = sealed([pack(Kind.DATA, 1, b"x")])
    reader = Reader(KEY)
    assert len(reader.read(once)) == 1
    with pytest.raises(Forged, match="wrong seal"):
        reader.read(once)


@given(st.binary(max_size=300))
def test_noise_is_refused_or_waited_for(noise):
    with contextlib.suppress(Forged):
        assert Reader(KEY).read(noise) == []


def test_a_frame_that_is_too_long_is_refused_before_it_has_come():
    with pytest.raises(Forged, match="the most are 65536"):
        Reader(KEY).read(HEADER.pack(BODY_BYTES + 1, 0, Kind.DATA))


# -- sessions ---------------------------------------------------------------------------------------------------------


class Pair:
    """A pair of sessions, and programs at both ends of streams; `near` opened them."""

    def __init__(self) -> None:
        self.cuts: list[str] = []
        self.watches = Watch(), Watch()
        self.accepted: list[socket.socket] = []
        self._sockets: list[socket.socket] = []
        self.near = Session(self.watches[0], on_cut=self.cuts.append, on_bye=self.cuts.append)
        self.far = Session(self.watches[1], accept=self._accept, on_cut=self.cuts.append, on_bye=self.cuts.append)
        self.connect()

    def _accept(self, door: int) -> socket.socket | None:
        if door:
            return None
        local, present = self._stream()
        self.accepted.append(present)
        return local

    def _stream(self) -> tuple[socket.socket, socket.socket]:
        result = socket.socketpair()
        for end in result:
            end.setblocking(False)
        self._sockets.extend(result)
        return result

    def open(self, door: int = 0) -> socket.socket:
        program, local = self._stream()
        self.near.open(door, local)
        return program

    def connect(self) -> None:
        a, b = socket.socketpair()
        self.near.connect(Wire(a, b"n" * 32, b"f" * 32), self.far.received)
        self.far.connect(Wire(b, b"f" * 32, b"n" * 32), self.near.received)

    def cut(self) -> None:
        """Drop the messages in flight."""
        self.near.disconnect()
        self.far.disconnect()

    def move(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            for watch in self.watches:
                watch.step(0)

    def close(self) -> None:
        for session in (self.near, self.far):
            session.end()
        for item in self._sockets:
            item.close()
        for watch in self.watches:
            watch.close()


@pytest.fixture
def sessions() -> Iterator[Pair]:
    result = Pair()
    yield result
    result.close()


def drain(end: socket.socket) -> bytes:
    result = b""
    try:
        while more := end.recv(1 << 16):
            result += more
    except BlockingIOError:
        pass
    return result


STEPS = st.lists(st.one_of(st.tuples(st.integers(0, 1), st.binary(min_size=1, max_size=2000)), st.just("cut")))


@given(STEPS, st.integers(0, 3))
def test_streams_lose_nothing_however_often_the_connection_is_cut(steps, rounds):
    both = Pair()
    try:
        programs = [both.open(), both.open()]
        sent, back = [b"", b""], [b"", b""]
        both.move()
        for step in steps:
            if step == "cut":
                both.cut()
                both.connect()
            else:
                choice, data = step
                programs[choice].sendall(data)
                both.accepted[choice].sendall(data[::-1])
                sent[choice] += data
                back[choice] += data[::-1]
            both.move(rounds)
        both.move(20)
        assert [drain(item) for item in both.accepted] == sent
        assert [drain(item) for item in programs] == back
        assert both.cuts == []
        for program in programs:
            program.close()
        both.move()
        assert both.near.channels == both.far.channels == {}
    finally:
        both.close()


def test_reader_that_stops_delays_only_itself(sessions):
    idle, busy = sessions.open(), sessions.open()
    sessions.move()
    sent = 0
    for _ in range(400):
        with contextlib.suppress(BlockingIOError):
            sent += idle.send(bytes(1 << 16))
        sessions.move(2)
    remaining = sum(map(len, sessions.near._kept))
    waiting = sum(len(channel.unsent) for channel in sessions.far.channels.values())
    assert sent < 8 * WINDOW_BYTES
    assert remaining + waiting < 2 * WINDOW_BYTES
    busy.sendall(b"hello")
    sessions.move()
    assert drain(sessions.accepted[1]) == b"hello"
    for _ in range(400):
        drain(sessions.accepted[0])
        sessions.move(2)
    idle.sendall(b"last")
    sessions.move()
    assert drain(sessions.accepted[0]).endswith(b"last"), "when it reads, all goes on"


def test_a_door_that_is_not_there_closes_the_stream(sessions):
    program = sessions.open(door=7)
    sessions.move()
    assert program.recv(1) == b""


BODIES = st.one_of(st.binary(max_size=40), st.integers(0, 2**64 - 1).map(NUMBER.pack), st.just(b"\0"))


@given(st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 5), BODIES), max_size=20))
def test_signed_garbage_ends_only_its_own_session(frames):
    both = Pair()
    try:
        both.open()
        both.move()
        for kind, channel, body in frames:
            if both.near.wire is not None:
                both.near.wire.put(pack(kind, channel, body))
                both.near.wire.flush()
            both.move(2)
        assert len(both.cuts) <= 2, "one at each end"
    finally:
        both.close()


# -- handshake --------------------------------------------------------------------------------------------------------


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each, max_size=3), max_leaves=4
    )
)
def test_malformed_join_request_is_refused(value):
    for output in (value, {"host": value}, {"host": "h3", "received": value}, {"host": "h3", "x": value}):
        talk = ServerHandshake(TOKEN)
        line = json.dumps(output).encode() + b"\n"
        try:
            request = talk.hear(line + proof(TOKEN, b"host", talk.hello + line))
        except ValueError:
            continue
        assert request is not None
        assert isinstance(request.host, str)
        assert type(request.received) is int


def test_proof_is_valid_for_one_handshake_only():
    """A recorded proof cannot be replayed."""
    heard, again = ServerHandshake(TOKEN), ServerHandshake(TOKEN)
    line = json.dumps({"host": "h3"}).encode() + b"\n"
    output = line + proof(TOKEN, b"host", heard.hello + line)
    assert heard.hear(output) == JoinRequest(host="h3")
    with pytest.raises(ConfigError, match="the token is wrong"):
        again.hear(output)


def play(lines: bytes, answer: Callable[[bytes], bytes]) -> socket.socket:
    """Return a socket whose peer sends these lines, then the answer to the received data."""
    local, present = socket.socketpair()
    local.settimeout(PATIENCE_S)

    def speak() -> None:
        with present:
            present.sendall(lines)
            present.sendall(answer(present.recv(4096)))

    threading.Thread(target=speak, daemon=True).start()
    return local


def test_replayed_answers_of_a_lab_are_refused():
    """A recorded handshake allows replaying the lab's messages only."""
    talk, heard = ServerHandshake(TOKEN), []

    def welcome(data: bytes) -> bytes:
        assert talk.hear(data) is not None
        heard.append(talk.answer({"host": "h3"}))
        return heard[0]

    with play(talk.hello, welcome) as lab:
        assert shake_hands(lab, TOKEN, JoinRequest(host="h3"), "A")[0] == {"host": "h3"}
    with play(talk.hello, lambda data: heard[0]) as thief, pytest.raises(ConfigError, match="not know the token"):
        shake_hands(thief, TOKEN, JoinRequest(host="h3"), "A")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(weft.load("fat-tree:hosts=8,radix=4"), f"f{os.getpid()}") as up:
        up.accept_joins("127.0.0.1:0", TOKEN)
        yield up


@given(noise=st.binary(max_size=6000))
def test_no_stranger_disturbs_a_lab(lab, noise):
    host, _, port = lab.join_server.address.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as stranger:
        assert stranger.recv(4096).startswith(b"weft join ")
        stranger.sendall(noise)
        stranger.shutdown(socket.SHUT_WR)
        try:
            output = stranger.recv(4096)
        except ConnectionResetError:
            output = b""
    assert not output or json.loads(output)["error"]
    assert lab.state()["join"]["hosts"] == []
    assert "the server failed on an event" not in " ".join(lab.state()["errors"])


def test_silent_connections_keep_no_host_out_and_are_not_kept_without_limit(lab):
    """At the limit the oldest is closed for a new one."""
    host, _, port = lab.join_server.address.rpartition(":")
    with contextlib.ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
            for _ in range(_MOST_PENDING + 36)
        ]
        for item in silent:
            assert item.recv(4096).startswith(b"weft join ")
        assert len(lab.join_server._pending) == _MOST_PENDING
        assert all(item.recv(1) == b"" for item in silent[:36])
        stack.enter_context(
            joined(Invitation(address=lab.join_server.address, token=TOKEN, request=JoinRequest(host="h3")))
        )
        assert [item["host"] for item in lab.state()["join"]["hosts"]] == ["h3"]
    wait_until(lambda: lab.state()["join"]["hosts"] == [])


def test_of_silent_connections_those_of_the_machine_with_most_go_first(lab):
    places = {"10.0.0.1:5": 1.0, "10.0.0.2:6": 3.0, "10.0.0.2:7": 2.0}
    waiting = {
        _PendingConnection(socket.socket(), place, ServerHandshake(TOKEN), until_s) for place, until_s in places.items()
    }

    def choose() -> str:
        before, lab.join_server._pending = lab.join_server._pending, waiting
        try:
            return lab.join_server._most_crowding().place
        finally:
            lab.join_server._pending = before

    assert lab.server.call(choose) == "10.0.0.2:7"
    for item in waiting:
        item.connection.close()
