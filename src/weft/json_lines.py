"""Commands to a running process: one line of JSON each way, over a socket that only its user can reach.

    {"do": "break", "name": "leaf1/5"}   ->   {"ok": ["leaf1/5"]}
    {"do": "break", "name": "leef1/5"}   ->   {"error": "there is no port ...", "kind": "you"}
    {"do": "traffic"}                    ->   {"progress": [4, 16]} lines, then {"ok": ...}

The kind is `you`, `fabric` or `us`, as in `errors`: clients raise the same kind of error. Any other kind belongs to the
command, which refuses with CommandRefused; clients raise that too. A connection carries any
number of commands, one after the other; it is closed after ten seconds without one. A command that reports progress
ends when its client disconnects; any other is completed.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from weft import runtime
from weft.errors import ConfigError, SimulationBug, SubnetError, WeftError

_LONGEST_BYTES = 1 << 16
_SILENT_S = 10  # closes an idle connection
_POLL_S = 0.1  # between two checks for shutdown
_ERRORS: dict[str, type[WeftError]] = {"you": ConfigError, "fabric": SubnetError, "us": SimulationBug}


def request(
    path: Path,
    do: str,
    timeout_s: float | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    /,
    **parameters: Any,
) -> Any:
    """Send a command and return its result.

    Raise OSError or ValueError if no answer comes; a WeftError or CommandRefused if the answer is an error.
    """
    with runtime.dial(path, timeout_s) as connection:
        connection.sendall(_encode(do, parameters))
        with connection.makefile("rb") as lines:
            answer: dict[str, Any] = msgspec.json.decode(lines.readline())
            while "progress" in answer:
                progress(*answer["progress"])
                answer = msgspec.json.decode(lines.readline())
    return _result(answer)


def _result(answer: Mapping[str, Any]) -> Any:
    if "error" not in answer:
        return answer["ok"]
    text, kind = answer["error"], answer["kind"]
    raise _ERRORS[kind](text) if kind in _ERRORS else CommandRefused(text, kind)


def _encode(do: str, parameters: Mapping[str, Any]) -> bytes:
    return json.dumps({"do": do, **parameters}, default=msgspec.to_builtins).encode() + b"\n"


class Connection:
    """A connection of one thread for many commands; a forked process opens its own.

    It reconnects if the server has closed the connection: only for commands that may be carried out twice.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._process = path, 0
        self._socket: socket.socket | None = None

    def request(self, do: str, timeout_s: float, /, **parameters: Any) -> Any:
        """Send a command and return its result, as the function of this name; without progress."""
        if self._socket is not None and self._process == os.getpid():
            with suppress(ConnectionError):
                return self._exchange(self._socket, _encode(do, parameters), timeout_s)
        self.close()
        self._socket, self._process = runtime.dial(self._path, timeout_s), os.getpid()
        return self._exchange(self._socket, _encode(do, parameters), timeout_s)

    def _exchange(self, connection: socket.socket, command: bytes, timeout_s: float) -> Any:
        try:
            connection.settimeout(timeout_s)
            connection.sendall(command)
            with connection.makefile("rb") as lines:  # reads no further: the server sends one line per command
                line = lines.readline()
            if not line:
                raise ConnectionResetError(errno.ECONNRESET, "connection closed by peer")
            answer: dict[str, Any] = msgspec.json.decode(line)
        except BaseException:  # a late answer would be taken for the answer to the next command
            self.close()
            raise
        return _result(answer)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self.close()


class CommandRefused(Exception):
    """An answer to a command that was neither carried out nor failed; `kind` is for the client's program."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class CommandServer(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """A server that runs each connection's commands in a thread. A command may return its JSON as bytes.

    `with_progress` names the commands that take an argument `progress`, a function of (done, total).
    """

    daemon_threads = True

    def __init__(
        self,
        path: Path,
        commands: Mapping[str, Callable[..., Any]],
        *,
        with_progress: Collection[str] = (),
        longest_bytes: int = _LONGEST_BYTES,
    ) -> None:
        self.commands, self.with_progress, self.longest_bytes = commands, with_progress, longest_bytes
        self._connections: set[socket.socket] = set()
        self._listener = runtime.Listener(path)
        super().__init__(str(path), _ConnectionHandler)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_POLL_S,), name=f"commands at {path.name}", daemon=True
        )
        self._thread.start()

    def fileno(self) -> int:
        return self._listener.fileno()

    def get_request(self) -> tuple[socket.socket, str]:
        connection = self._listener.accept()
        if connection is None:
            raise OSError("no trusted connection")
        self._connections.add(connection)
        return connection, ""

    def close_request(self, request: socket.socket) -> None:  # type: ignore[override]
        self._connections.discard(request)
        request.close()

    def server_close(self) -> None:
        """Stop the thread, which a forked process does not have, then close.

        The thread first: a closed socket would stay readable for ever.
        """
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        super().server_close()
        self._listener.close()
        for connection in tuple(self._connections):
            with suppress(OSError):  # already closed
                connection.shutdown(socket.SHUT_RD)  # an answer in progress is still sent


class _ConnectionHandler(socketserver.StreamRequestHandler):
    server: CommandServer
    timeout = _SILENT_S

    def handle(self) -> None:
        with suppress(OSError):  # the client disconnected or is idle
            while (line := self.rfile.readline(self.server.longest_bytes)).strip():
                self.wfile.write(self._answer(line) + b"\n")
                if not line.endswith(b"\n"):
                    return  # too long: the rest of the line is not a command

    def _answer(self, line: bytes) -> bytes:
        try:
            parameters = json.loads(line)
            do = parameters.pop("do")
            command = self.server.commands[do]
        except (ValueError, KeyError, AttributeError, TypeError):
            known = ", ".join(self.server.commands)
            return _error(f'{line[:80]!r} is not a command: send {{"do": ...}} with one of {known}', "you")
        if do in self.server.with_progress:
            parameters["progress"] = self._send_progress
        try:
            done = command(**parameters)
        except CommandRefused as refusal:
            return _error(str(refusal), refusal.kind)
        except WeftError as error:
            return _error(str(error), next(kind for kind, form in _ERRORS.items() if isinstance(error, form)))
        except Exception as error:  # the server continues after any error of a command
            return _error(f"{type(error).__name__}: {error}".removesuffix(": "), "us")
        return b'{"ok": ' + (done if isinstance(done, bytes) else json.dumps(done).encode()) + b"}"

    def _send_progress(self, done: int, total: int) -> None:
        """Send progress; the OSError after a disconnect ends the command."""
        self.wfile.write(json.dumps({"progress": [done, total]}).encode() + b"\n")


def _error(text: str, kind: str) -> bytes:
    return json.dumps({"error": text, "kind": kind}).encode()
