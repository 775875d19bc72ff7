"""Commands to a process that runs: one line of JSON each way, over a socket that only its user can reach.

    {"do": "break", "name": "leaf1/5"}   ->   {"ok": ["leaf1/5"]}
    {"do": "break", "name": "leef1/5"}   ->   {"error": "there is no port ...", "kind": "you"}
    {"do": "traffic"}                    ->   {"progress": [4, 16]}, as often as there is any, before that

The kind is `you`, `fabric` or `us`, as in `errors`, or a word that a command has for its clients. A connection may have
many commands, one after the other; who says nothing for ten seconds is hung up on.
Who goes away ends work that tells its progress; any other is done all the same.
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
from weft.errors import ConfigError, SubnetError

_LONGEST_BYTES = 1 << 16
_SILENT_S = 10  # a client that says nothing
_LISTEN_S = 0.1  # how often it looks whether it shall end


def ask(
    path: Path,
    do: str,
    patience_s: float | None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    /,
    **words: Any,
) -> dict[str, Any]:
    """The answer, `ok` or `error`; OSError or ValueError where nobody gives one."""
    with runtime.dial(path, patience_s) as line:
        line.sendall(_command(do, words))
        with line.makefile("rb") as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.readline())
            while "progress" in found:
                progress(*found["progress"])
                found = msgspec.json.decode(answer.readline())
    return found


def _command(do: str, words: Mapping[str, Any]) -> bytes:
    return json.dumps({"do": do, **words}).encode() + b"\n"


class Line:
    """A connection for many commands, of one thread; a process that was forked has its own.

    Where the other end has hung up it dials again: for commands that may as well be done twice.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._process = path, 0
        self._socket: socket.socket | None = None

    def ask(self, do: str, patience_s: float, /, **words: Any) -> dict[str, Any]:
        """As the function of this name; no progress."""
        if self._socket is not None and self._process == os.getpid():
            with suppress(ConnectionError):
                return self._ask(self._socket, _command(do, words), patience_s)
        self.close()
        self._socket, self._process = runtime.dial(self._path, patience_s), os.getpid()
        return self._ask(self._socket, _command(do, words), patience_s)

    def _ask(self, line: socket.socket, command: bytes, patience_s: float) -> dict[str, Any]:
        try:
            line.settimeout(patience_s)
            line.sendall(command)
            with line.makefile("rb") as answer:  # which reads no further: nothing follows before it is asked again
                said = answer.readline()
            if not said:
                raise ConnectionResetError(errno.ECONNRESET, "it hung up")
            found: dict[str, Any] = msgspec.json.decode(said)
        except BaseException:  # an answer may still come: it would be taken for the next one
            self.close()
            raise
        return found

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self.close()


class Refusal(Exception):
    """What a command answers where it neither did it nor failed: `kind` is for the client's program."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class Commands(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """Takes commands in threads of its own. One that returns bytes has written its JSON already.

    `tells` are the names of commands that are given `progress`, to be called as often as there is any.
    """

    daemon_threads = True

    def __init__(
        self,
        path: Path,
        commands: Mapping[str, Callable[..., Any]],
        *,
        tells: Collection[str] = (),
        longest_bytes: int = _LONGEST_BYTES,
    ) -> None:
        self.commands, self.tells, self.longest_bytes = commands, tells, longest_bytes
        self._conversations: set[socket.socket] = set()
        self._listener = runtime.Listener(path)
        super().__init__(str(path), _Conversation)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(_LISTEN_S,), name=f"commands at {path.name}", daemon=True
        )
        self._thread.start()

    def fileno(self) -> int:
        return self._listener.fileno()

    def get_request(self) -> tuple[socket.socket, str]:
        made = self._listener.accept()
        if made is None:
            raise OSError("nobody is let in")
        self._conversations.add(made)
        return made, ""

    def close_request(self, request: socket.socket) -> None:  # type: ignore[override]
        self._conversations.discard(request)
        request.close()

    def server_close(self) -> None:
        """Its thread first, which a process that was forked has not: a closed socket would be ready for ever."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        super().server_close()
        self._listener.close()
        for one in tuple(self._conversations):
            with suppress(OSError):  # it ended meanwhile
                one.shutdown(socket.SHUT_RD)  # an answer that is under way still goes


class _Conversation(socketserver.StreamRequestHandler):
    server: Commands
    timeout = _SILENT_S

    def handle(self) -> None:
        with suppress(OSError):  # it went away, or says nothing more
            while (line := self.rfile.readline(self.server.longest_bytes)).strip():
                self.wfile.write(self._answer(line) + b"\n")
                if not line.endswith(b"\n"):
                    return  # too long, and what follows is no command

    def _answer(self, line: bytes) -> bytes:
        try:
            asked = json.loads(line)
            do = asked.pop("do")
            command = self.server.commands[do]
        except (ValueError, KeyError, AttributeError, TypeError):
            known = ", ".join(self.server.commands)
            return _error(f'{line[:80]!r} is no command: send {{"do": ...}} with one of {known}', "you")
        if do in self.server.tells:
            asked["progress"] = self._tell_progress
        try:
            done = command(**asked)
        except Refusal as refusal:
            return _error(str(refusal), refusal.kind)
        except (ConfigError, SubnetError) as error:
            return _error(str(error), "you" if isinstance(error, ConfigError) else "fabric")
        except Exception as error:  # the process goes on, whatever a command did
            return _error(f"{type(error).__name__}: {error}".removesuffix(": "), "us")
        return b'{"ok": ' + (done if isinstance(done, bytes) else json.dumps(done).encode()) + b"}"

    def _tell_progress(self, done: int, of: int) -> None:
        """Raises, and so ends the work, when nobody is there any more."""
        self.wfile.write(json.dumps({"progress": [done, of]}).encode() + b"\n")


def _error(text: str, kind: str) -> bytes:
    return json.dumps({"error": text, "kind": kind}).encode()
