"""Progress on a terminal; none in a pipe."""

from __future__ import annotations

import io
import os
import pty
import sys
from contextlib import suppress
from threading import Thread

import pytest

from weft.cli import app

WAITS = [
    (("show", "star:hosts=4"), "reading star:hosts=4"),
    (("draw", "star:hosts=4", "-o", "star.svg"), "drawing"),
    (("draw", "star:hosts=4", "-o", "star.svg", "--colour-by", "load"), "routing"),
    (("export", "star:hosts=4", "-o", "star.net"), "writing"),
    (("check", "routed/opensm-subnet.lst", "--tables", "routed"), "proving"),
    (("route", "star:hosts=4", "--dump", "routed"), "reading star:hosts=4"),
    (("route", "star:hosts=4"), "measuring"),
    (("sim", "star:hosts=4"), "permutation"),
    (("nccl", "all_reduce", "superpod:su=1", "--servers", "2", "-b", "1M", "-e", "1M"), "reading superpod:su=1"),
    (("nccl", "calibration", "h100-1"), "running h100-1 again"),
    (("perf", "calibration", "hdr100-send-lat"), "hdr100-send-lat"),
]


@pytest.fixture(scope="module", autouse=True)
def _folder(tmp_path_factory):
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("progress"))
    app(["route", "star:hosts=4", "--dump", "routed"])
    yield
    os.chdir(before)


@pytest.mark.parametrize(
    ("words", "shown"), WAITS, ids=lambda words: " ".join(words) if isinstance(words, tuple) else ""
)
def test_a_command_that_may_last_shows_that_it_is_alive(words, shown, monkeypatch):
    shows, terminal = pty.openpty()
    drawn: list[bytes] = []
    reader = Thread(target=_read, args=(shows, drawn))
    reader.start()
    with open(terminal, "w") as error:
        monkeypatch.setattr(sys, "stderr", error)
        app(words)
    reader.join()
    assert shown in b"".join(drawn).decode()


def _read(terminal: int, into: list[bytes]) -> None:
    """Read up to the end, which is an error on terminals; the writer blocks until its output is read."""
    with suppress(OSError):
        while some := os.read(terminal, 1 << 16):
            into.append(some)
    os.close(terminal)


def test_a_pipe_gets_nothing_of_it_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    app(["show", "star:hosts=4"])
    assert sys.stderr.getvalue() == ""
