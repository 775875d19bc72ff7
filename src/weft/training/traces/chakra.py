"""Chakra execution traces (MLCommons), as ASTRA-sim and its converters write them: a file a rank, NAME.<rank>.et.

A file is one GlobalMetadata and then Nodes, each after its length (et_def.proto, package ChakraProtoMsg). Nodes of the
CPU take their time on a lane `cpu`, kernels on the lane of their stream. `comm_size` is what a rank puts in: of an
all-gather its own part. A group that the file only names has the ranks whose files name it. Nodes wait for their
`data_deps`; `ctrl_deps` name the operator that called, which ASTRA-sim does not wait for either.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from weft.collectives.kinds import Collective
from weft.errors import FileError
from weft.training.traces.protobuf import (
    FOUR,
    LENGTH,
    VARINT,
    Broken,
    Value,
    fields,
    messages,
    numbers,
    real,
    signed,
    zigzag,
)
from weft.training.traces.trace import Kind, Node, Trace, refuse_missing

WORLD = "world"
_COMPUTE, _SEND, _RECV, _COLLECTIVE = (2, 3, 4), 5, 6, 7  # NodeType; 2 and 3 load and store
COLLECTIVES = (  # CollectiveCommType
    Collective.ALL_REDUCE,
    Collective.REDUCE,
    Collective.ALL_GATHER,
    Collective.GATHER,
    Collective.SCATTER,
    Collective.BROADCAST,
    Collective.ALL_TO_ALL,
    Collective.REDUCE_SCATTER,
    Collective.REDUCE_SCATTER,
    Collective.BARRIER,
)
OWN_PART = (Collective.ALL_GATHER, Collective.GATHER)  # the input of a rank is one part of the whole
_ZIGZAG, _REALS = (15, 17), (3, 5)  # fields of AttributeProto
_LISTS = range(4, 33, 2)
_Groups = dict[str, tuple[tuple[int, ...], ...]]


def is_chakra(head: bytes) -> bool:
    """Return whether a file begins as Chakra's do: with GlobalMetadata or a Node, whose fields are 1 and 2."""
    try:
        for _, (_, message) in zip(range(2), messages(head), strict=False):
            for number, way, _ in fields(message):
                return number in (1, 2) and way in (VARINT, LENGTH)
    except Broken:
        return False
    return False


def read_chakra(files: dict[int, Path], data: dict[int, bytes], source: str) -> Trace:
    """Read a trace with one file for each rank."""
    world = max(files) + 1
    refuse_missing({rank: str(path) for rank, path in files.items()}, world, source)
    raw = [_nodes(files[rank], data[rank]) for rank in range(world)]
    named: dict[str, list[int]] = defaultdict(list)
    for rank, nodes in enumerate(raw):
        for name in {str(node.attributes.get("pg_name", "")) for node in nodes if node.is_collective}:
            named[name].append(rank)
    groups: _Groups = {name or WORLD: (tuple(ranks) if name else tuple(range(world)),) for name, ranks in named.items()}
    return Trace(
        source=source,
        format="Chakra",
        files=tuple(str(files[rank]) for rank in range(world)),
        ranks=tuple(tuple(node.node(files[rank], groups) for node in raw[rank]) for rank in range(world)),
        groups=groups,
    )


class _Raw:
    """A Node as it is written."""

    def __init__(self, data: bytes) -> None:
        self.id, self.name, self.type, self.duration_us = 0, "", 0, 0
        self.after: list[int] = []
        self.attributes: dict[str, Any] = {}
        for number, way, value in fields(data):
            if number == 2 and isinstance(value, bytes):
                self.name = value.decode(errors="replace")
            elif number == 5:
                self.after += numbers(way, value)
            elif number == 10 and isinstance(value, bytes):
                name, content = _attribute(value)
                self.attributes[name] = content
            elif isinstance(value, int) and number in (1, 3, 7):
                setattr(self, {1: "id", 3: "type", 7: "duration_us"}[number], value)

    @property
    def is_collective(self) -> bool:
        return self.type == _COLLECTIVE and not self.attributes.get("is_cpu_op")

    def node(self, path: Path, groups: _Groups) -> Node:
        has = self.attributes
        common: dict[str, Any] = {"id": self.id, "name": self.name, "after": tuple(dict.fromkeys(self.after))}
        if has.get("is_cpu_op") or self.type not in (_SEND, _RECV, _COLLECTIVE):
            self._refuse_unknown_time(path)
            lane = "cpu" if has.get("is_cpu_op") else f"stream {has.get('stream', 0)}"
            if self.type not in (*_COMPUTE, _SEND, _RECV, _COLLECTIVE):
                lane = ""
            return Node(kind=Kind.COMPUTE, lane=lane, duration_ps=self.duration_us * 1_000_000, **common)
        size_bytes = self._whole(path, "comm_size")
        if self.type == _COLLECTIVE:
            kind = self._whole(path, "comm_type")
            if not 0 <= kind < len(COLLECTIVES):
                raise self._wrong(path, f"comm_type {kind}", f"a CollectiveCommType, 0 to {len(COLLECTIVES) - 1}")
            collective, group = COLLECTIVES[kind], str(has.get("pg_name", "")) or WORLD
            parts = len(groups[group][0]) if collective in OWN_PART else 1
            common |= {"collective": collective, "group": group, "root": self._root(path, groups[group][0])}
            return Node(kind=Kind.COLLECTIVE, lane=f"group {group}", size_bytes=size_bytes * parts, **common)
        peer = self._whole(path, "comm_dst" if self.type == _SEND else "comm_src")
        kinds = {_SEND: Kind.SEND, _RECV: Kind.RECV}
        tag = self._whole(path, "comm_tag") if "comm_tag" in has else 0
        return Node(kind=kinds[self.type], size_bytes=size_bytes, peer=peer, tag=tag, **common)

    def _root(self, path: Path, members: tuple[int, ...]) -> int:
        if "root_rank" not in self.attributes:
            return 0
        root = self._whole(path, "root_rank")
        if root not in members:
            raise self._wrong(path, f"root_rank {root}", "a rank of its group")
        return members.index(root)

    def _whole(self, path: Path, name: str) -> int:
        value = self.attributes.get(name)
        if not isinstance(value, int) or value < 0:
            raise self._wrong(path, f"{name} {value}", f"{name}, a whole number")
        return value

    def _refuse_unknown_time(self, path: Path) -> None:
        if self.type in _COMPUTE and not self.duration_us and self.attributes.get("num_ops"):
            raise self._wrong(
                path,
                f"num_ops {self.attributes['num_ops']} and no duration",
                "duration_micros: how long operations take a trace of a real run says",
            )

    def _wrong(self, path: Path, read: str, expected: str) -> FileError:
        return FileError(path, None, f"node {self.id} ({self.name}): {read}", expected)


def _nodes(path: Path, data: bytes) -> list[_Raw]:
    nodes = []
    try:
        for number, (at, message) in enumerate(messages(data)):
            if number:
                try:
                    nodes.append(_Raw(message))
                except Broken as error:
                    raise Broken(f"the node at byte {at:,}, {error}") from None
    except Broken as error:
        raise FileError(path, None, str(error), "Chakra's GlobalMetadata and Nodes, each after its length") from None
    if not nodes:
        raise FileError(path, None, "no node", "Chakra's GlobalMetadata and Nodes")
    return nodes


def _attribute(data: bytes) -> tuple[str, Any]:
    """Return the name and value of an attribute; lists are ignored."""
    name, content = "", None
    for number, way, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            name = value.decode(errors="replace")
        elif number > 2 and number not in _LISTS:
            content = _value(number, way, value)
    return name, content


def _value(number: int, way: int, value: Value) -> Any:
    if isinstance(value, int):
        return bool(value) if number == 27 else zigzag(value) if number in _ZIGZAG else signed(value)
    if number in _REALS:
        return real(value)
    if number == 29:
        return value.decode(errors="replace")
    return int.from_bytes(value, "little", signed=number in (23, 25)) if way in (FOUR, 1) else value
