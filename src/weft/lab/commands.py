"""The end of a lab that takes commands; `control` is the other end."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from weft import runtime
from weft.errors import ConfigError, SubnetError
from weft.lab.lab import Lab
from weft.lab.registry import Entry

_LONGEST = 1 << 16


def _commands(lab: Lab) -> dict[str, Callable[..., Any]]:
    return {
        "state": lab.state,
        "break": lab.break_cable,
        "degrade": lab.degrade,
        "fix": lab.fix,
        "host": lab.host,
        "traffic": lab.traffic,
        "nodes": lambda: [
            [node.name, node.kind.name.lower()] for node in map(lab.fabric.node, lab.subnet.devices.nodes)
        ],
        "links": lambda: [[str(link.a), str(link.b), link.label] for link in lab.fabric.all_links()],
        "down": lab.server.stop,
    }


class CommandServer(socketserver.ThreadingMixIn, socketserver.BaseServer):
    """Takes commands in threads of its own; the lab carries them out between two MADs."""

    daemon_threads = True

    def __init__(self, lab: Lab, entry: Entry) -> None:
        self.commands = _commands(lab)
        self._listener = runtime.Listener(entry.socket)
        super().__init__(str(entry.socket), _Conversation)
        threading.Thread(target=self.serve_forever, name="weft commands", daemon=True).start()

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
    server: CommandServer
    timeout = 10  # for a client that says nothing

    def handle(self) -> None:
        with suppress(OSError):  # it went away
            line = self.rfile.readline(_LONGEST)
            if line.strip():
                self.wfile.write(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            command = self.server.commands[asked.pop("do")]
        except (ValueError, KeyError, AttributeError, TypeError):
            known = ", ".join(self.server.commands)
            return {"error": f'{line[:80]!r} is no command: send {{"do": ...}} with one of {known}'}
        if command == self.server.commands["traffic"]:
            asked["progress"] = self._tell_progress
        try:
            return {"ok": command(**asked)}
        except (ConfigError, SubnetError) as error:
            return {"error": str(error)}
        except Exception as error:  # the lab goes on, whatever a command did
            return {"error": f"{type(error).__name__}: {error}".removesuffix(": ")}

    def _tell_progress(self, done: int, of: int) -> None:
        """Raises, and so ends the work, when nobody is there any more."""
        self.wfile.write(json.dumps({"progress": [done, of]}).encode() + b"\n")
