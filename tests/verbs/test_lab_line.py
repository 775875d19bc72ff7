"""A program's connection to its lab."""

from __future__ import annotations

import os

import pytest

from weft import runtime
from weft.errors import SubnetError
from weft.verbs.carriers.lab.connection import NUMBER, Kind, Line, frame


def test_an_answer_that_comes_too_late_is_let_go_with_its_file():
    """A program that asks a busy lab again and again would keep them all."""
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
