"""Commands to a process that runs; what labs and managers do with them, their own tests see."""

from __future__ import annotations

import json
import threading
from contextlib import suppress

from tests.patience import PATIENCE_S

from weft import runtime
from weft.json_lines import Commands, ask


def test_a_server_that_is_closed_leaves_no_thread(tmp_path):
    """It would find the closed socket ready for ever, and take a processor for as long as the process lives."""
    made = Commands(tmp_path / "door", {"add": lambda one, two: one + two})
    assert ask(tmp_path / "door", "add", None, one=1, two=2) == {"ok": 3}
    made.server_close()
    made.server_close()
    assert not [one.name for one in threading.enumerate() if one.name == "commands at door"]


def test_a_line_that_is_too_long_is_refused_and_ends_the_connection(tmp_path):
    """What follows would be read as a command though it is the middle of a line."""
    done = []
    made = Commands(tmp_path / "door", {"note": lambda word: done.append(word)}, longest_bytes=100)
    try:
        for word, is_refused in (("x" * 40, False), ("x" * 200, True)):
            with runtime.dial(tmp_path / "door", PATIENCE_S) as line, line.makefile("rb") as answers:
                line.sendall(json.dumps({"do": "note", "word": word}).encode() + b"\n")
                line.sendall(b'{"do": "note", "word": "next"}\n')
                assert ("error" in json.loads(answers.readline())) is is_refused
                if is_refused:
                    with suppress(ConnectionResetError):  # it hung up before it had read all
                        assert answers.read() == b""
        assert "next" not in done[2:]
        assert done[0] == "x" * 40
    finally:
        made.server_close()
