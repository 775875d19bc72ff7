"""What PyTorch's ExecutionTraceObserver writes, "1.1.1-chakra.0.0.4" and the like: the host, a file a rank.

Communication is in nodes `record_param_comms`, with name, type, elements and group since 1.1.0. Times are not in it: so
a rank does its communication in the order of the file and computes nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import ConfigError, FileError
from weft.training.traces.pytorch import IGNORED, RECV, SEND, Groups, find_collective, listed, size_bytes
from weft.training.traces.trace import Kind, Node, Trace, refuse_missing

JSON = "PyTorch's ExecutionTraceObserver"
_NOTE = "the host's trace has no times: nothing is computed, and communication goes in the order of the file"


def is_observer(head: str) -> bool:
    return re.search(r'"schema"\s*:\s*"\d', head) is not None and '"nodes"' in head


def read_observer(files: dict[int, Path], data: dict[int, bytes], source: str) -> Trace:
    """One file for each rank."""
    world = max(files) + 1
    refuse_missing({rank: str(path) for rank, path in files.items()}, world, source)
    groups = Groups()
    ranks = tuple(_Host(files[rank], data[rank], groups).nodes() for rank in range(world))
    return Trace(
        source=source,
        format=JSON,
        files=tuple(str(files[rank]) for rank in range(world)),
        ranks=ranks,
        groups=groups.by_name,
        notes=(_NOTE,),
    )


class _Host:
    """The file of one rank."""

    def __init__(self, path: Path, data: bytes, groups: Groups) -> None:
        self.path, self.groups = path, groups
        try:
            self.raw: list[dict[str, Any]] = msgspec.json.decode(data)["nodes"]
            self.members: dict[str, tuple[int, ...]] = {}
            for node in self.raw:
                if str(node.get("name", "")).startswith("## process_group:init"):
                    self._init(node)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise FileError(path, None, str(error), f"the JSON of {JSON}") from None

    def _init(self, node: dict[str, Any]) -> None:
        """Process groups with their ranks; a list that is empty means all."""
        for text in node["inputs"]["values"]:
            for group in json.loads(text):
                self.members[str(group["pg_name"])] = listed(group["ranks"]) or tuple(range(group["group_size"]))

    def nodes(self) -> tuple[Node, ...]:
        found = []
        for node in self.raw:
            if node.get("name") == "record_param_comms":
                has = {one["name"]: one["value"] for one in node.get("attrs", ())}
                if "collective_name" not in has:
                    expected = "collective_name among its attributes: PyTorch 2.5 and later write it"
                    raise FileError(self.path, None, f"node {node['id']} (record_param_comms)", expected)
                if has["collective_name"] not in IGNORED:
                    found.append(self._node(node["id"], has))
        if not found:
            raise FileError(self.path, None, "no record_param_comms", "communication: was it profiled with NCCL?")
        return tuple(found)

    def _node(self, number: int, has: dict[str, Any]) -> Node:
        name = str(has["collective_name"])
        try:
            if name in (SEND, RECV):
                raise ConfigError("the observer does not say to whom it sends")
            kind = find_collective(name)
            size = size_bytes(int(has["in_msg_nelems"]), int(has["out_msg_nelems"]), str(has["dtype"]))
            members = self._members(has)
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise FileError(self.path, None, f"node {number} ({name})", f"what can be run: {why}") from None
        return Node(
            id=number,
            name=name,
            kind=Kind.COLLECTIVE,
            lane="communication",
            collective=kind,
            size_bytes=size,
            group=self.groups.name(str(has.get("pg_desc") or has["pg_name"]), members),
        )

    def _members(self, has: dict[str, Any]) -> tuple[int, ...]:
        known = self.members.get(str(has["pg_name"]))
        if known is not None:
            return known
        start, stride, size = (int(has[key]) for key in ("global_rank_start", "global_rank_stride", "pg_size"))
        return tuple(range(start, start + size * max(stride, 1), max(stride, 1)))
