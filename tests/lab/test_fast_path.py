"""Programs get the same answers with the kernel as without it, over both protocols, and it loses no MAD."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.lab.test_ibsim_server import OPEN, Program
from tests.mad.test_kernels import smp
from tests.patience import PATIENCE_S, wait_until

import weft
from weft.lab import fast_path
from weft.lab.attach import LENGTH
from weft.lab.lab import Lab
from weft.lab.layouts import ANSWER, QUESTION, USER_MAD, Question
from weft.lab.lines import FRAME_BYTES
from weft.mad.subnet import Subnet
from weft.wire.mad import MAD_BYTES

SPEC = "fat-tree:hosts=8,radix=4"
NOBODY = 65_534
DIRECTED, TIMEOUT_MS = 0x81, 200


@contextmanager
def running(*, kernel: bool, counted: list[int] | None = None) -> Iterator[Lab]:
    """Run a lab with or without the kernel; each SMP that Python handles is appended to `counted`."""
    lab = Lab(weft.load(SPEC), f"fast-{kernel:d}-{os.getpid()}")
    if kernel:
        lab.server.fast_path.load()
    if counted is not None:
        carry = lab.subnet.send

        def send(slot, mad, *more):
            counted.append(slot)
            return carry(slot, mad, *more)

        lab.subnet.send = send
    with lab:
        yield lab
    for program in OPEN:
        program.control.close()
        program.data.close()
    OPEN.clear()


class Umad:
    """An open port with one agent, like that of preload.c, in Python."""

    def __init__(self, lab: Lab, host: str) -> None:
        self.path = str(lab.socket)
        self.port, answer = self.ask(QUESTION.pack(Question.OPEN_PORT, 1, 0, 0, 0, 0, 0, 0, 0, 0, host.encode(), b""))
        (number,) = LENGTH.unpack(answer)
        once, answer = self.ask(
            QUESTION.pack(Question.REGISTER, number, 0, DIRECTED, 1, 0, 0, 0, 0, 0, host.encode(), b"")
        )
        once.close()
        (self.agent,) = LENGTH.unpack(answer)

    def __enter__(self) -> Umad:
        return self

    def __exit__(self, *what: object) -> None:
        self.port.close()

    def ask(self, question: bytes) -> tuple[socket.socket, bytes]:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.settimeout(PATIENCE_S)
        line.connect(self.path)
        line.sendall(question)
        status, length = ANSWER.unpack(self.read(line, ANSWER.size))
        assert status == 0
        return line, self.read(line, length)

    @staticmethod
    def read(line: socket.socket, size: int) -> bytes:
        result = b""
        while len(result) < size:
            more = line.recv(size - len(result))
            assert more
            result += more
        return result

    def frame(self, mad: bytes) -> bytes:
        head = USER_MAD.pack(self.agent, 0, TIMEOUT_MS, 0, 0, bytes(4), bytes(4), b"\xff\xff", 0)
        return LENGTH.pack(len(head) + len(mad)) + head + mad

    def receive(self) -> bytes:
        return self.read(self.port, FRAME_BYTES)


def some_smps(count: int, seed: int = 1) -> list[bytes]:
    """Return SMPs of a subnet manager on h1, each of which is answered."""
    subnet, draw = Subnet(weft.load(SPEC)), random.Random(seed)
    slot, result = subnet.devices.fabric.find_port("h1/1").slot, list[bytes]()
    while len(result) < count:
        mad = bytearray(smp(draw, subnet.devices, slot))
        mad[8:16] = len(result).to_bytes(8, "big")
        if subnet.send(slot, mad) is not None:
            result.append(bytes(mad))
    return result


def test_clients_of_ibsims_protocol_get_the_same_answers():
    requests, answers = some_smps(400), []
    for kernel in (False, True):
        by_python: list[int] = []
        with running(kernel=kernel, counted=by_python) as lab:
            program = Program(lab).attach("h1")
            received = []
            for mad in requests:
                program.send(mad)
                received.append(program.data.recv(1024))
            answers.append(received)
            assert lab.state()["mads"] == len(requests)
        assert (len(by_python) < 0.75 * len(requests)) == kernel
    assert answers[0] == answers[1]


def test_programs_of_the_preload_get_the_same_answers():
    requests, answers = some_smps(400), []
    for kernel in (False, True):
        by_python: list[int] = []
        with running(kernel=kernel, counted=by_python) as lab, Umad(lab, "h1") as program:
            received = []
            for mad in requests:
                program.port.sendall(program.frame(mad))
                received.append(program.receive())
            answers.append(received)
        assert (len(by_python) < 0.75 * len(requests)) == kernel
    assert answers[0] == answers[1]


def test_a_client_that_reads_late_gets_every_answer():
    requests = some_smps(300)
    with running(kernel=True) as lab:
        program = Program(lab).attach("h1")
        for mad in requests:
            program.send(mad)
        received = [program.data.recv(1024)[-MAD_BYTES:] for _ in requests]
    assert sorted(item[12:16] for item in received) == [item[12:16] for item in requests]


def test_frames_in_pieces_and_in_heaps_are_answered():
    requests, draw = some_smps(300), random.Random(2)
    with running(kernel=True) as lab, Umad(lab, "h1") as program:
        whole = b"".join(program.frame(mad) for mad in requests)
        at, received = 0, []
        while at < len(whole):
            piece = draw.choice((1, 3, 100, FRAME_BYTES, 5 * FRAME_BYTES + 7))
            program.port.sendall(whole[at : at + piece])
            at += piece
            received += [program.receive() for _ in range(min(at, len(whole)) // FRAME_BYTES - len(received))]
    assert [item[-MAD_BYTES:][12:16] for item in received] == [item[12:16] for item in requests]


def test_a_lab_that_compiles_its_kernel_ends_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(fast_path, "MANY_PORTS", 1)
    monkeypatch.setattr(fast_path, "_COMPILE", "import time; time.sleep(3600)")
    monkeypatch.setattr("weft.jit.cache_folder", lambda module: tmp_path)
    with running(kernel=False) as lab:
        wait_until(lambda: lab.server.fast_path._compiling is not None)
    assert lab.server.fast_path._compiling.poll() is not None
    assert not lab.server.fast_path._loading.is_alive()
    assert lab.server.fast_path._kernel is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_the_kernel_hears_no_other_user():
    (mad,) = some_smps(1)
    with running(kernel=True) as lab:
        program = Program(lab).attach("h1")
        program.send(mad)  # the first SMP marks it as a sweeping program
        answer = program.data.recv(1024)
        child = os.fork()
        if not child:
            os.setuid(NOBODY)
            program.send(mad)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        wait_until(lambda: lab.errors.counts["another user is not let in"] == 1)
        program.send(mad)
        assert program.data.recv(1024) == answer
        assert lab.state()["mads"] == 2
