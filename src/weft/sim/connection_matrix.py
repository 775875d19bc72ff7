"""Read connection matrices of htsim (`.cm`) as traffic.

    Nodes 128
    Connections 2
    Triggers 1
    0->5 id 1 start 0 size 2000000 send_done_trigger 1
    5->9 id 2 trigger 1 size 2000000
    trigger id 1 oneshot

Node n is host n of the fabric, counted from 0; `start` is in picoseconds. A connection with a trigger starts when those
that activate it have been delivered: one for `oneshot`, all of them for `barrier count n`. htsim fires a
`send_done_trigger` when the sender has the last acknowledgement, half a round trip later. `id` and `prio` have no
effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from weft.errors import FileError
from weft.fabric.files.text import read_text
from weft.fabric.model import Fabric
from weft.routing.patterns import host_ports
from weft.sim.traffic import Traffic

_HEADS = ("nodes", "connections", "triggers", "failures")
_ACTIVATES = ("send_done_trigger", "recv_done_trigger")
_FIELDS = ("id", "start", "size", "trigger", "prio", *_ACTIVATES)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    line: int
    src: int
    dst: int
    values: dict[str, int]


@dataclass(slots=True)
class _Matrix:
    """The lines of a file by kind."""

    path: Path
    heads: dict[str, int] = field(default_factory=dict)
    connections: list[_Connection] = field(default_factory=list)
    triggers: dict[int, tuple[int, int]] = field(default_factory=dict)  # id -> line, activations needed

    def read(self, line: int, words: list[str]) -> None:
        if words[0].lower() in _HEADS and len(words) == 2:
            self.heads[words[0].lower()] = self._number(line, words[1])
        elif words[0] == "trigger":
            self._read_trigger(line, words)
        else:
            src, arrow, dst = words[0].partition("->")
            names, numbers = words[1::2], words[2::2]
            if not arrow or len(words) % 2 == 0 or not set(names) <= set(_FIELDS) or "size" not in names:
                expected = f"src->dst and pairs of {', '.join(_FIELDS)}, among them size"
                raise FileError(self.path, line, " ".join(words), expected)
            values = {name: self._number(line, text) for name, text in zip(names, numbers, strict=True)}
            ends = (self._number(line, text) for text in (src, dst))
            self.connections.append(_Connection(line=line, src=next(ends), dst=next(ends), values=values))

    def _read_trigger(self, line: int, words: list[str]) -> None:
        kinds = {("oneshot",): "1", ("barrier", "count", words[-1]): words[-1]}
        needed = kinds.get(tuple(words[3:]))
        if words[1:2] != ["id"] or needed is None:
            raise FileError(self.path, line, " ".join(words), "trigger id N oneshot, or trigger id N barrier count N")
        self.triggers[self._number(line, words[2])] = line, self._number(line, needed)

    def _number(self, line: int, text: str) -> int:
        if not text.isdecimal():
            raise FileError(self.path, line, text, "a whole number")
        return int(text)


def read_connection_matrix(path: Path, fabric: Fabric) -> Traffic:
    """Read the connections of a file as messages between the hosts of a fabric."""
    matrix = _Matrix(path)
    for line, text in enumerate(read_text(path).splitlines(), 1):
        if words := text.partition("#")[0].split():
            matrix.read(line, words)
    connections, hosts = matrix.connections, host_ports(fabric)
    expected = matrix.heads.get("connections", len(connections))
    if not connections or expected != len(connections):
        raise FileError(
            path, None, f"{len(connections)} connections", f"{expected or 'at least one'}, as its head says"
        )
    if matrix.heads.get("failures"):
        raise FileError(path, None, "Failures", "no failures: give them with --fault, cut:leaf1/3@0us-")
    for each in connections:
        if bad := [node for node in (each.src, each.dst) if node >= len(hosts)]:
            raise FileError(path, each.line, f"node {bad[0]}", f"0 to {len(hosts) - 1}, the hosts of {fabric.spec}")
        if each.src == each.dst:
            raise FileError(path, each.line, f"{each.src}->{each.dst}", "two different nodes")
    values = [each.values for each in connections]
    waits = np.array(["trigger" in each for each in values])
    start_ps = np.array([each.get("start", 0) for each in values], np.int64)
    return Traffic.make(
        hosts[[each.src for each in connections]],
        hosts[[each.dst for each in connections]],
        np.array([each["size"] for each in values], np.int64),
        description=path.name,
        start_ps=np.where(waits, 0, start_ps),
        delay_ps=np.where(waits, start_ps, 0),
        after=_dependencies(matrix),
        qp=np.arange(len(connections)),  # each connection is its own flow
    )


def _dependencies(matrix: _Matrix) -> list[list[int]]:
    """Return the connections that each one waits for."""
    activators: dict[int, list[int]] = {}
    for number, each in enumerate(matrix.connections):
        for name in _ACTIVATES:
            if name in each.values:
                activators.setdefault(each.values[name], []).append(number)
    after: list[list[int]] = []
    for each in matrix.connections:
        trigger = each.values.get("trigger")
        if trigger is None:
            after.append([])
            continue
        needed = matrix.triggers.get(trigger, (0, 0))[1]
        have = activators.get(trigger, [])
        if len(have) != needed or not needed:
            expected = f"{needed} connections that activate it; {len(have)} do"
            raise FileError(matrix.path, each.line, f"trigger {trigger}", expected)
        after.append(have)
    return after
