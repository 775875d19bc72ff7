"""The lab's end of the lines of RDMA programs: weft.verbs.carriers.lab.connection says what goes over them.

Nothing here waits for a program: see `streams`. A line that ends takes its program's port and metered paths with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.fabric.forwarding import ANY, HEADERS_BYTES, NONE, Reason
from weft.lab.lost_way import why_lost
from weft.lab.planes import leading_port, ports_of
from weft.lab.streams import Stream, Streams
from weft.lab.verbs_ports import Program, VerbsPorts
from weft.mad.routers import walk_global
from weft.verbs.carriers.lab.connection import BELL, NUMBER, QUEUE_PAIR_BITS, Kind, frame, frames_in, packets_in


@dataclass(slots=True, eq=False)
class _Line(Stream):
    program: Program | None = None


class VerbsServer(Streams[_Line]):
    def __init__(self, ports: VerbsPorts, path: Path) -> None:
        self.ports = ports
        super().__init__(path, _Line)

    def slots(self) -> list[int]:
        return self.ports.slots()

    def on_timer(self) -> None:
        """Collect counters regularly, so that they are never far behind."""
        self.ports.metered_paths.collect()

    def after_round(self) -> None:
        """Notify programs of changes, and deliver packets."""
        self.ports.metered_paths.check()
        self.ports.look()
        self.ports.deliver()

    # -- lines --------------------------------------------------------------------------------------------------------

    def _take(self, line: _Line) -> None:
        for kind, body in frames_in(line.received):
            if kind == Kind.PACKETS and line.program is not None:
                self.ports.send(line.program, list(packets_in(body)))
            elif kind == Kind.RING and len(body) == BELL.size and not line.host:
                self.ports.wake(*BELL.unpack(body))
            elif kind == Kind.BAD_KEY and line.program is not None:
                self.ports.on_bad_key(line.program, body[1:], is_q_key=body[:1] == b"\1")
            elif kind == Kind.QUESTION:
                self._on_question(line, body)

    def _forget(self, line: _Line) -> None:
        if line.program is not None:
            self.ports.detach(line.program)
            line.program = None

    # -- questions ----------------------------------------------------------------------------------------------------

    def _on_question(self, line: _Line, body: bytes) -> None:
        number = body[: NUMBER.size]

        def answer(reply: dict[str, Any], files: list[int] | None = None) -> None:
            if line in self:
                self.write(line, frame(Kind.ANSWER, number, json.dumps(reply).encode()), files)

        try:
            parameters = json.loads(body[NUMBER.size :])
            question = _QUESTIONS[parameters.pop("do")]
            question(self, line, answer, **parameters)
        except (ConfigError, OSError) as error:  # OSError: no file is free
            answer({"error": str(error)})
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            answer({"error": f"that is no question: {error}"})

    def _devices(self, line: _Line, answer: Answer, host: str) -> None:
        answer({"devices": self.ports.devices_of(line.host or host)})

    def _find(self, line: _Line, answer: Answer, **parameters: Any) -> None:
        answer(self.ports.find_host(**parameters))

    def _attach(self, line: _Line, answer: Answer, host: str, device: str) -> None:
        if line.program is not None:
            raise ConfigError("a line is for one device: dial again for another")
        slot = self.ports.find(line.host or host, device)
        line.program = self.ports.attach(slot, lambda data: self.push(line, data))
        reply: dict[str, Any] = {"program": line.program.number, "facts": self.ports.facts(slot).hex()}
        reply["guid"] = int.from_bytes(self.ports.devices.port_guid(slot), "big")
        if line.host:
            answer(reply)  # memory cannot be shared with another machine
        else:
            answer(reply | {"has_file": True}, [line.program.meters.file])

    def _metered_path(self, line: _Line, answer: Answer, **parameters: Any) -> None:
        if line.program is None:
            raise ConfigError("no device is attached")
        answer(self.ports.metered_path(line.program, **parameters))

    def _has_not_taken(
        self, line: _Line, answer: Answer, lid: int, sl: int, dest_qp: int, dgid: int = NONE, hop_limit: int = 0
    ) -> None:
        """Answer whether the program of a queue pair has unread data; not if nothing arrives there."""
        if line.program is None:
            raise ConfigError("no device is attached")
        devices = self.ports.devices
        end = self._end(line.program.slot, lid, sl, dgid, hop_limit)
        to = (ports_of(devices, end)[0], dest_qp >> QUEUE_PAIR_BITS) if end is not None else None
        unread = (
            line.program.coming or self.unread_bytes(line)
            for line in self
            if line.program is not None and (line.program.slot, line.program.number) == to
        )
        answer({"has_not_taken": any(unread)})

    def _end(self, slot: int, lid: int, sl: int, dgid: int, hop_limit: int) -> int | None:
        """Return the port where packets from another port arrive; None if they do not."""
        devices = self.ports.devices
        if slot in devices.ethernet:
            return devices.ethernet.slot_at(dgid)
        slot, size_bytes = leading_port(devices, slot), HEADERS_BYTES
        way = walk_global(
            devices, slot, dlid=lid, sl=sl, p_key=ANY, size_bytes=size_bytes, dgid=dgid, hop_limit=hop_limit
        ).path
        return way.end if way.reason is Reason.ARRIVED else None

    def _why_lost(self, line: _Line, answer: Answer, **parameters: Any) -> None:
        if line.program is None:
            raise ConfigError("no device is attached")
        answer({"why": why_lost(self.ports.devices, leading_port(self.ports.devices, line.program.slot), **parameters)})

    def _ask_administrator(self, line: _Line, answer: Answer, mad: str) -> None:
        if line.program is None:
            raise ConfigError("no device is attached")
        self.ports.ask_administrator(
            line.program.slot,
            bytes.fromhex(mad),
            lambda response: answer(
                {"mad": response.hex()} if response else {"error": "the subnet administrator does not answer"}
            ),
        )


Answer = Callable[..., None]
_QUESTIONS: dict[str, Callable[..., None]] = {
    "devices": VerbsServer._devices,
    "find": VerbsServer._find,
    "attach": VerbsServer._attach,
    "metered_path": VerbsServer._metered_path,
    "has_not_taken": VerbsServer._has_not_taken,
    "why_lost": VerbsServer._why_lost,
    "sa": VerbsServer._ask_administrator,
}
