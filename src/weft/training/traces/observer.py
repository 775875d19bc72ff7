"""Traces of PyTorch's ExecutionTraceObserver ("1.1.1-chakra.0.0.4"): host events, one file for each rank.

With NCCL communication is nodes `record_param_comms`, with name, type, elements and group since 1.1.0. Other backends
leave the operators, `c10d::allreduce_` and the like, with their tensors and without the group: that is known where
there is only one. Times are not in it: so a rank does its communication in the order of the file and computes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import ConfigError, FileError
from weft.training.traces.pytorch import IGNORED, RECV, SEND, Groups, find_collective, listed, size_bytes
from weft.training.traces.trace import Kind, Node, Trace, refuse_missing

JSON = "PyTorch's ExecutionTraceObserver"
_OPERATOR, _LANE = "c10d::", "communication"
_NOTE = "the host's trace has no times: nothing is computed, and communication goes in the order of the file"


def is_observer(head: str) -> bool:
    return re.search(r'"schema"\s*:\s*"\d', head) is not None and '"nodes"' in head


def read_observer(files: dict[int, Path], data: dict[int, bytes], source: str) -> Trace:
    """Read a trace with one file for each rank."""
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
        """Read process groups and their ranks; an empty list means all ranks."""
        for text in node["inputs"]["values"]:
            for group in json.loads(text):
                self.members[str(group["pg_name"])] = listed(group["ranks"]) or tuple(range(group["group_size"]))

    def nodes(self) -> tuple[Node, ...]:
        calls = [node for node in self.raw if node.get("name") == "record_param_comms"]
        operators = [node for node in self.raw if str(node.get("name", "")).startswith(_OPERATOR)]
        made = map(self._recorded, calls) if calls else map(self._operated, operators)
        found = tuple(node for node in made if node is not None)
        if not found:
            raise FileError(self.path, None, "no record_param_comms or c10d operator", "communication between ranks")
        return found

    def _recorded(self, node: dict[str, Any]) -> Node | None:
        """Return the node of an NCCL call; None if it moves no data."""
        has = {one["name"]: one["value"] for one in node.get("attrs", ())}
        if "collective_name" not in has:
            expected = "collective_name among its attributes: PyTorch 2.5 and later write it"
            raise FileError(self.path, None, f"node {node['id']} (record_param_comms)", expected)
        name = str(has["collective_name"])
        if name in IGNORED:
            return None
        with self._complaints(node, name):
            if name in (SEND, RECV):
                raise ConfigError("the observer does not say to whom it sends")
            size = size_bytes(int(has["in_msg_nelems"]), int(has["out_msg_nelems"]), str(has["dtype"]))
            members = self._members(has)
            return self._collective(node, name, size, str(has.get("pg_desc") or has["pg_name"]), members)

    def _operated(self, node: dict[str, Any]) -> Node:
        """Return the node of an operator of any backend, with size and peer from its arguments."""
        name = str(node["name"]).removeprefix(_OPERATOR).rstrip("_")
        with self._complaints(node, name):
            values = node["inputs"]["values"]
            size = max((_tensor_bytes(one) for one in values), default=0)
            if name in (SEND, RECV):
                common = {"id": node["id"], "name": name, "lane": _LANE, "size_bytes": size}
                return Node(kind=Kind(name), peer=int(values[2]), tag=int(values[3]), **common)
            if len(self.members) != 1:
                raise ConfigError(f"it is not said in which of {len(self.members)} process groups")
            ((group, members),) = self.members.items()
            return self._collective(node, name, size, group, members)

    def _collective(self, node: dict[str, Any], name: str, size: int, group: str, members: tuple[int, ...]) -> Node:
        return Node(
            id=node["id"],
            name=name,
            kind=Kind.COLLECTIVE,
            lane=_LANE,
            collective=find_collective(name),
            size_bytes=size,
            group=self.groups.name(group, members),
        )

    @contextmanager
    def _complaints(self, node: dict[str, Any], name: str) -> Iterator[None]:
        try:
            yield
        except (ConfigError, LookupError, TypeError, ValueError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise FileError(
                self.path, None, f"node {node.get('id')} ({name})", f"a supported operation: {why}"
            ) from None

    def _members(self, has: dict[str, Any]) -> tuple[int, ...]:
        known = self.members.get(str(has["pg_name"]))
        if known is not None:
            return known
        start, stride, size = (int(has[key]) for key in ("global_rank_start", "global_rank_stride", "pg_size"))
        return tuple(range(start, start + size * max(stride, 1), max(stride, 1)))


def _tensor_bytes(value: Any) -> int:
    """Return the bytes of a tensor, [id, storage id, offset, elements, bytes of each, device], or of a list of them."""
    if not isinstance(value, list):
        return 0
    if len(value) == 6 and isinstance(value[5], str):
        return int(value[3]) * int(value[4])
    return sum(map(_tensor_bytes, value))
