"""Commands to a process that runs: one line of JSON each way, over a socket that only its user can reach.

    {"do": "break", "name": "leaf1/5"}   ->   {"ok": ["leaf1/5"]}
    {"do": "break", "name": "leef1/5"}   ->   {"error": "there is no port ...", "kind": "you"}
    {"do": "traffic"}                    ->   {"progress": [4, 16]}, as often as there is any, before that

The kind is `you`, `fabric` or `us`, as in `errors`, or a word that a command has for its clients.
Who goes away ends work that tells its progress; any other is done all the same.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
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
        line.sendall(json.dumps({"do": do, **words}).encode() + b"\n")
        with line.makefile("rb") as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.readline())
            while "progress" in found:
                progress(*found["progress"])
                found = msgspec.json.decode(answer.readline())
    return found


class Refusal(Exception):
    """What a command answers where it neither did it nor failed: `kind` is for the client's program."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class Commands(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """Takes commands in threads of its own. One that returns bytes has written its JSON already.

    `tells` is the name of a command that is given `progress`, to be called as often as there is any.
    """

    daemon_threads = True

    def __init__(
        self,
        path: Path,
        commands: Mapping[str, Callable[..., Any]],
        *,
        tells: str = "",
        longest_bytes: int = _LONGEST_BYTES,
    ) -> None:
        self.commands, self.tells, self.longest_bytes = commands, tells, longest_bytes
        self._listener = runtime.Listener(path)
        super().__init__(str(path), _Conversation)
        threading.Thread(
            target=self.serve_forever, args=(_LISTEN_S,), name=f"commands at {path.name}", daemon=True
        ).start()

    def fileno(self) -> int:
        return self._listener.fileno()

    def get_request(self) -> tuple[socket.socket, str]:
        made = self._listener.accept()
        if made is None:
            raise OSError("nobody is let in")
        return made, ""

    def close_request(self, request: socket.socket) -> None:  # type: ignore[override]
        request.close()

    def server_close(self) -> None:
        super().server_close()
        self._listener.close()


class _Conversation(socketserver.StreamRequestHandler):
    server: Commands
    timeout = _SILENT_S

    def handle(self) -> None:
        with suppress(OSError):  # it went away
            line = self.rfile.readline(self.server.longest_bytes)
            if line.strip():
                self.wfile.write(self._answer(line) + b"\n")

    def _answer(self, line: bytes) -> bytes:
        try:
            asked = json.loads(line)
            do = asked.pop("do")
            command = self.server.commands[do]
        except (ValueError, KeyError, AttributeError, TypeError):
            known = ", ".join(self.server.commands)
            return _error(f'{line[:80]!r} is no command: send {{"do": ...}} with one of {known}', "you")
        if do == self.server.tells:
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
