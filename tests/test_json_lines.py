"""Commands to a running process. The commands of labs and subnet managers have their own tests."""

from __future__ import annotations

import json
import threading
from contextlib import suppress

import pytest
from tests.patience import PATIENCE_S

from weft import runtime
from weft.errors import ConfigError, NoResponseError, SimulationBug, SubnetError, UnknownName
from weft.json_lines import CommandRefused, CommandServer, Connection, request


def test_a_closed_server_leaves_no_thread(tmp_path):
    """A thread on a closed socket would spin for ever."""
    server = CommandServer(tmp_path / "socket", {"add": lambda a, b: a + b})
    assert request(tmp_path / "socket", "add", None, a=1, b=2) == 3
    server.server_close()
    server.server_close()
    assert not [thread for thread in threading.enumerate() if thread.name == "commands at socket"]


def test_a_line_that_is_too_long_is_refused_and_ends_the_connection(tmp_path):
    """The rest of the line must not be read as a command."""
    done = []
    server = CommandServer(tmp_path / "socket", {"note": lambda word: done.append(word)}, longest_bytes=100)
    try:
        for word, is_refused in (("x" * 40, False), ("x" * 200, True)):
            with runtime.dial(tmp_path / "socket", PATIENCE_S) as line, line.makefile("rb") as answers:
                line.sendall(json.dumps({"do": "note", "word": word}).encode() + b"\n")
                with suppress(BrokenPipeError):  # the server may have closed the connection
                    line.sendall(b'{"do": "note", "word": "next"}\n')
                assert ("error" in json.loads(answers.readline())) is is_refused
                if is_refused:
                    with suppress(ConnectionResetError):  # the server closed before it had read everything
                        assert answers.read() == b""
        assert "next" not in done[2:]
        assert done[0] == "x" * 40
    finally:
        server.server_close()


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (ConfigError("leef1"), ConfigError, "leef1"),
        (UnknownName("port", "leef1", []), ConfigError, "there is no port 'leef1'"),
        (SubnetError("no LID"), SubnetError, "no LID"),
        (NoResponseError("silent"), SubnetError, "silent"),
        (SimulationBug("twice"), SimulationBug, "twice"),
        (ZeroDivisionError("by 0"), SimulationBug, "ZeroDivisionError: by 0"),
        (CommandRefused("later", "late"), CommandRefused, "later"),
    ],
)
def test_an_error_of_a_command_is_raised_by_its_kind(tmp_path, error, expected, message):
    def fail() -> None:
        raise error

    server = CommandServer(tmp_path / "socket", {"fail": fail})
    try:
        for ask in (request, lambda path, *words: Connection(path).request(*words)):
            with pytest.raises(expected) as raised:
                ask(tmp_path / "socket", "fail", PATIENCE_S)
            assert type(raised.value) is expected
            assert str(raised.value) == message
            assert getattr(raised.value, "kind", "late") == "late"
    finally:
        server.server_close()
