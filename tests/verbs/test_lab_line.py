"""A program's connection to its lab."""

from __future__ import annotations

import os
import select
import threading
from types import SimpleNamespace

import pytest
from tests.patience import PATIENCE_S

from weft import runtime
from weft.errors import SubnetError
from weft.verbs.carriers.lab import connection
from weft.verbs.carriers.lab.connection import NUMBER, Kind, Line, frame


def test_an_answer_that_comes_too_late_is_let_go_with_its_file():
    """A program that repeats requests to a busy lab would keep all the files."""
    listener = runtime.Listener(runtime.folder() / "late")
    line = Line(str(listener.path))
    lab = listener.accept()
    assert lab is not None
    with pytest.raises(SubnetError, match="does not answer"):
        line.ask("has_not_taken", 0.01)
    file = runtime.memory("late", 4096)
    before = len(os.listdir("/proc/self/fd"))
    runtime.socket.send_fds(lab, [frame(Kind.ANSWER, NUMBER.pack(1), b'{"has_file": true}')], [file])
    with pytest.raises(SubnetError, match="does not answer"):
        line.ask("has_not_taken", 0.01)
    assert (line._answers, len(os.listdir("/proc/self/fd"))) == ({}, before)
    lab.sendall(frame(Kind.ANSWER, NUMBER.pack(3), b'{"has_not_taken": true}'))
    assert line.ask("has_not_taken") == {"has_not_taken": True}
    os.close(file)
    for item in (line, lab, listener):
        item.close()


@pytest.fixture
def ends():
    """The program's end of a connection and the lab's."""
    listener = runtime.Listener(runtime.folder() / "line")
    line = Line(str(listener.path))
    lab = listener.accept()
    assert lab is not None
    yield line, lab
    for item in (line, lab, listener):
        item.close()


def test_a_closed_line_uses_no_file_that_got_its_number(ends):
    line, _ = ends
    line.close()
    others = [os.eventfd(5, os.EFD_NONBLOCK) for _ in range(8)]
    assert line._bell in others
    line.put([b"packet"])
    line.take()
    line.ring()
    line.wait(0)
    with pytest.raises(SubnetError):
        line.ask("find", 0.01)
    assert not line.is_idle
    assert [os.eventfd_read(file) for file in others] == [5] * 8
    for file in others:
        os.close(file)


def test_a_line_that_a_thread_polls_is_closed_by_that_thread(ends, monkeypatch):
    """If its file descriptors were closed earlier, the thread could wait for other files with the same numbers."""
    line, lab = ends
    polls, is_closed = threading.Event(), threading.Event()

    class Poll:
        def __init__(self) -> None:
            self._poller = select.epoll()
            self.register = self._poller.register

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            polls.set()
            assert is_closed.wait(PATIENCE_S)
            return self._poller.poll(milliseconds / 1e3)

    names = {name: getattr(select, name) for name in ("POLLIN", "POLLOUT", "POLLHUP")}
    monkeypatch.setattr(connection, "select", SimpleNamespace(poll=Poll, **names))
    thread = threading.Thread(target=line.wait, args=(PATIENCE_S,))
    thread.start()
    assert polls.wait(PATIENCE_S)
    line.close()
    os.fstat(line._bell)
    is_closed.set()
    thread.join(PATIENCE_S)
    assert lab.recv(1) == b"", "the lab hears of it"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(line._bell)
    line.close()


def test_a_forked_process_closes_its_copies_whoever_held_the_lock(ends):
    line, lab = ends
    with line._lock:
        line._pollers += 1
        child = os.fork()
        if not child:
            held = threading.Thread(target=line.close)  # not the thread that holds the lock
            held.start()
            held.join(PATIENCE_S)
            os._exit(held.is_alive() or line._socket.fileno() >= 0)
        line._pollers -= 1
    assert os.waitpid(child, 0)[1] == 0
    line.ring()
    lab.sendall(frame(Kind.EVENT, b"\1"))
    assert line.take() == [(Kind.EVENT, b"\1")], "the parent's are open"
