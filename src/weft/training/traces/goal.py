"""GOAL schedules, as LogGOPSim and ATLAHS read them in text.

    num_ranks 2
    rank 0 {
    l1: calc 1000
    l2: send 8b to 1 tag 0 cpu 0 nic 0
    l2 requires l1
    }

`calc` counts nanoseconds. `requires` waits for the end of a node, `irequires` for its begin. A send is over when all of
it has arrived. `cpu` and `nic` are read and not used: calculations of a rank that do not wait for each other run at
once, where LogGOPSim does one at a time on each cpu.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from weft.errors import FileError
from weft.training.traces.trace import Kind, Label, Node, Trace, refuse_missing

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WORLD = re.compile(r"num_ranks\s+(\d+)")
_RANK = re.compile(r"rank\s+(\d+)\s*\{")
_OPERATION = re.compile(
    r"(?:(?P<label>[A-Za-z]\w*)\s*:\s*)?"
    r"(?:(?P<kind>send|recv)\s+(?P<size>\d+)b\s+(?:to|from)\s+(?P<peer>-?\d+)(?:\s+tag\s+(?P<tag>-?\d+))?"
    r"|calc\s+(?P<calc>\d+))"
    r"(?:\s+(?:cpu|nic)\s+\d+)*;?"
)
_WAIT = re.compile(r"(?P<label>[A-Za-z]\w*)\s+(?P<how>i?requires)\s+(?P<other>[A-Za-z]\w*);?")


def is_goal(head: str) -> bool:
    return _COMMENT.sub(" ", head).lstrip().startswith("num_ranks")


def read_goal(path: Path, text: str) -> Trace:
    """Read a trace whose ranks are all in one file."""
    bare = _COMMENT.sub(lambda match: "\n" * match[0].count("\n"), text)
    reader = _Reader(path)
    for number, line in enumerate(bare.split("\n"), 1):
        if line.strip():
            reader.take(number, line.strip())
    reader.end()
    files = {rank: str(path) for rank in reader.ranks}
    refuse_missing(files, reader.world, str(path))
    ranks = tuple(tuple(reader.ranks[rank].values()) for rank in range(reader.world))
    return Trace(source=str(path), format="GOAL", files=(str(path),) * reader.world, ranks=ranks, groups={})


class _Reader:
    """A parser that reads line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.world = 0
        self.ranks: dict[int, dict[Label, Node]] = {}
        self.open: dict[Label, Node] | None = None

    def take(self, number: int, line: str) -> None:
        if not self.world:
            match = _WORLD.fullmatch(line)
            if match is None or not int(match[1]):
                raise FileError(self.path, number, line, "num_ranks and a number")
            self.world = int(match[1])
        elif self.open is None:
            self._begin(number, line)
        elif line == "}":
            self.open = None
        elif match := _OPERATION.fullmatch(line):
            self._operate(number, line, match, self.open)
        elif match := _WAIT.fullmatch(line):
            self._wait(number, match, self.open)
        else:
            raise FileError(self.path, number, line, "send, recv, calc, requires or irequires, or a closing brace")

    def end(self) -> None:
        if not self.world:
            raise FileError(self.path, None, "no line", "num_ranks and a number")
        if self.open is not None:
            raise FileError(self.path, None, "the end of the file", "a closing brace of the last rank")

    def _begin(self, number: int, line: str) -> None:
        match = _RANK.fullmatch(line)
        if match is None:
            raise FileError(self.path, number, line, "rank N { and its operations, a line each")
        rank = int(match[1])
        if rank >= self.world or rank in self.ranks:
            raise FileError(self.path, number, line, f"each rank of 0 to {self.world - 1} once")
        self.open = self.ranks[rank] = {}

    def _operate(self, number: int, line: str, match: re.Match[str], nodes: dict[Label, Node]) -> None:
        label = match["label"] or number
        if label in nodes:
            raise FileError(self.path, number, line, f"another label: this rank has a {label}")
        if match["calc"]:
            duration_ps = int(match["calc"]) * 1000
            nodes[label] = Node(id=label, name=f"calc {label}", kind=Kind.COMPUTE, duration_ps=duration_ps)
            return
        peer, tag = int(match["peer"]), int(match["tag"] or 0)
        if peer < 0 or tag < 0:
            raise FileError(self.path, number, line, "a rank and a tag: who of several comes first is not known before")
        kind = Kind(match["kind"])
        nodes[label] = Node(
            id=label, name=f"{kind} {label}", kind=kind, size_bytes=int(match["size"]), peer=peer, tag=tag
        )

    def _wait(self, number: int, match: re.Match[str], nodes: dict[Label, Node]) -> None:
        for label in (match["label"], match["other"]):
            if label not in nodes:
                raise FileError(self.path, number, match[0], f"labels of this rank, and above it there is no {label}")
        node, other = nodes[match["label"]], match["other"]
        if match["how"] == "requires":
            nodes[node.id] = replace(node, after=(*node.after, other))
        else:
            nodes[node.id] = replace(node, after_start=(*node.after_start, other))
