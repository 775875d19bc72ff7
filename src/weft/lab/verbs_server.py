"""The lab's end of the lines of RDMA programs: weft.verbs.carriers.lab_line says what goes over them.

Nothing here waits for a program: what its socket does not take is queued, and beyond a limit packets are lost. A line
that ends takes its program's port and lanes with it.

`fileno` is an epoll of all sockets: whoever serves watches it, and calls `on_ready` when it is ready.
"""

from __future__ import annotations

import json
import select
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.lab.verbs_ports import Program, VerbsPorts
from weft.verbs.carriers.lab_line import BELL, MOST_BYTES, NUMBER, READ_BYTES, Kind, frame, frames_in, packets_in


@dataclass(slots=True, eq=False)
class _Line:
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    unsent: deque[tuple[memoryview, list[int]]] = field(default_factory=deque)  # with files
    unsent_bytes: int = 0
    program: Program | None = None


class VerbsServer:
    """At a path that it makes and takes away again."""

    def __init__(self, ports: VerbsPorts, path: Path, lab: str) -> None:
        self.ports, self.path, self._lab = ports, path, lab
        self._lines: dict[int, _Line] = {}
        self._epoll = select.epoll()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listening.bind(str(path))
        self._listening.listen(128)
        self._epoll.register(self._listening, select.EPOLLIN)

    def close(self) -> None:
        for line in list(self._lines.values()):
            self._drop(line)
        self._listening.close()
        self.path.unlink(missing_ok=True)
        self._epoll.close()

    def fileno(self) -> int:
        return self._epoll.fileno()

    def slots(self) -> list[int]:
        return self.ports.slots()

    def next_deadline_s(self) -> float | None:
        """Nothing here is in a hurry."""
        return None

    def on_time(self) -> None:
        """At least every two seconds: counters that nobody asked for are not far behind."""
        self.ports.lanes.collect()

    def after_round(self) -> None:
        """Something may have changed: whoever it is for is told."""
        self.ports.lanes.check()
        self.ports.look()
        self.ports.deliver()

    def on_ready(self) -> None:
        for fd, events in self._epoll.poll(0):
            line = self._lines.get(fd)
            if line is None:
                if fd == self._listening.fileno():
                    self._on_dial()
                continue
            if events & select.EPOLLOUT:
                self._on_writable(line)
            if events & ~select.EPOLLOUT:
                self._on_readable(line)

    # -- lines --------------------------------------------------------------------------------------------------------

    def _on_dial(self) -> None:
        dialled, _ = self._listening.accept()
        dialled.setblocking(False)
        self._lines[dialled.fileno()] = _Line(dialled)
        self._epoll.register(dialled, select.EPOLLIN)

    def _drop(self, line: _Line) -> None:
        if self._lines.pop(line.socket.fileno(), None) is None:
            return
        line.socket.close()
        if line.program is not None:
            self.ports.detach(line.program)
            line.program = None

    def _on_readable(self, line: _Line) -> None:
        try:
            chunk = line.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._drop(line)
            return
        line.received += chunk
        for kind, body in frames_in(line.received):
            if kind == Kind.PACKETS and line.program is not None:
                self.ports.send(line.program, list(packets_in(body)))
            elif kind == Kind.RING and len(body) == BELL.size:
                self.ports.wake(*BELL.unpack(body))
            elif kind == Kind.QUESTION:
                self._on_question(line, body)

    def _write(self, line: _Line, data: bytes, files: list[int] | None = None) -> None:
        line.unsent.append((memoryview(data), files or []))
        line.unsent_bytes += len(data)
        if len(line.unsent) == 1:
            self._on_writable(line)

    def _push(self, line: _Line, data: bytes) -> None:
        """What may be lost."""
        if line.unsent_bytes < MOST_BYTES:
            self._write(line, data)

    def _on_writable(self, line: _Line) -> None:
        unsent = line.unsent
        try:
            while unsent:
                data, files = unsent[0]
                sent = socket.send_fds(line.socket, [data], files) if files else line.socket.send(data)
                line.unsent_bytes -= sent
                if sent == len(data):
                    unsent.popleft()
                else:
                    unsent[0] = data[sent:], []
        except BlockingIOError:
            self._epoll.modify(line.socket, select.EPOLLIN | select.EPOLLOUT)
            return
        except OSError:
            unsent.clear()  # the program is gone: reading will tell
        if line.socket.fileno() >= 0:
            self._epoll.modify(line.socket, select.EPOLLIN)

    # -- questions ----------------------------------------------------------------------------------------------------

    def _on_question(self, line: _Line, body: bytes) -> None:
        number = body[: NUMBER.size]

        def answer(said: dict[str, Any], files: list[int] | None = None) -> None:
            if line.socket.fileno() in self._lines:
                self._write(line, frame(Kind.ANSWER, number, json.dumps(said).encode()), files)

        try:
            asked = json.loads(body[NUMBER.size :])
            question = _QUESTIONS[asked.pop("do")]
            question(self, line, answer, **asked)
        except ConfigError as error:
            answer({"error": str(error)})
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            answer({"error": f"that is no question: {error}"})

    def _devices(self, line: _Line, answer: Answer, host: str) -> None:
        answer({"devices": self.ports.found(host)})

    def _attach(self, line: _Line, answer: Answer, host: str, device: str) -> None:
        if line.program is not None:
            raise ConfigError("a line is for one device: dial again for another")
        slot = self.ports.find(host, device)
        line.program = self.ports.attach(slot, lambda data: self._push(line, data))
        said = {"program": line.program.number, "facts": self.ports.facts(slot).hex(), "lab": self._lab}
        said["guid"] = int.from_bytes(self.ports.devices.port_guid(slot), "big")
        answer(said | {"has_file": True}, [line.program.meters.file])

    def _lane(self, line: _Line, answer: Answer, **wanted: Any) -> None:
        if line.program is None:
            raise ConfigError("no device is attached")
        answer({"guid": self.ports.lane(line.program, **wanted)})

    def _ask_administrator(self, line: _Line, answer: Answer, mad: str) -> None:
        if line.program is None:
            raise ConfigError("no device is attached")
        self.ports.ask_administrator(
            line.program.slot,
            bytes.fromhex(mad),
            lambda said: answer({"mad": said.hex()} if said else {"error": "the subnet administrator does not answer"}),
        )


Answer = Callable[..., None]
_QUESTIONS: dict[str, Callable[..., None]] = {
    "devices": VerbsServer._devices,
    "attach": VerbsServer._attach,
    "lane": VerbsServer._lane,
    "sa": VerbsServer._ask_administrator,
}
