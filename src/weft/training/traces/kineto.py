"""Traces of PyTorch's profiler (Kineto), .json or .json.gz, one for each rank: kernels with their times and streams.

    stream 7   |kernels....|..kernels..|        wait        |kernels...
    stream 20              |   all_reduce   |  all_reduce   |

The file has times and no dependencies. They are read off the times: a communication waits for the kernels that had
ended before it began; what comes on a stream after a pause waits for the communication that ended in this pause.
Kernels between are one piece of computing, and so are pauses that no communication explains: the host was late. A rank
begins with its first kernel; clocks of ranks are not compared. On a network as it was, the trace comes out as it was.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from weft.errors import ConfigError, FileError
from weft.training.traces.pytorch import RECV, SEND, Groups, find_collective, listed, size_bytes
from weft.training.traces.trace import Kind, Node, Trace, refuse_missing

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_NAME = "Collective name"
_NOTE = "dependencies are read off the times: who paused while a communication ran is taken to have waited for it"


class _Work(NamedTuple):
    """A kernel, or several without a pause that matters."""

    begin_ps: int
    end_ps: int
    stream: str
    name: str
    args: dict[str, Any] | None  # for communication only


def read_kineto(data: dict[Path, bytes], source: str) -> Trace:
    """Read a trace with one file for each rank."""
    files: dict[int, _File] = {}
    for path, content in data.items():
        file = _File(path, content, alone=len(data) == 1)
        if file.rank in files:
            raise ConfigError(f"{files[file.rank].path} and {path} are both of rank {file.rank}")
        files[file.rank] = file
    world = max(file.world for file in files.values())
    refuse_missing({rank: str(file.path) for rank, file in files.items()}, world, source)
    groups = Groups()
    ranks = tuple(files[rank].nodes(groups) for rank in range(world))
    return Trace(
        source=source,
        format="Kineto",
        files=tuple(str(files[rank].path) for rank in range(world)),
        ranks=ranks,
        groups=groups.by_name,
        notes=(_NOTE,),
    )


class _File:
    """The trace of one rank."""

    def __init__(self, path: Path, content: bytes, *, alone: bool) -> None:
        self.path = path
        try:
            raw = msgspec.json.decode(content)
            self.events = [event for event in raw["traceEvents"] if event.get("ph") == "X"]
            info = raw.get("distributedInfo") or {}
            self.rank, self.world = int(info.get("rank", 0)), int(info.get("world_size", 1))
            groups = info.get("pg_config", ())
            self.members = {str(group.get("pg_name")): listed(group.get("ranks")) for group in groups}
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise FileError(path, None, str(error), "the JSON of PyTorch's profiler, with traceEvents") from None
        if "rank" not in info and not alone:
            raise FileError(
                path, None, "no distributedInfo", "rank and world_size in it: profile after init_process_group"
            )

    def nodes(self, groups: Groups) -> tuple[Node, ...]:
        work = self._work()
        talks = [kernel for kernel in work if kernel.args is not None]
        blocks = [
            block
            for stream in sorted({kernel.stream for kernel in work})
            for block in _blocks([kernel for kernel in work if kernel.stream == stream and kernel.args is None], talks)
        ]
        return _Writer(self, groups).write(blocks, talks)

    def _work(self) -> list[_Work]:
        """Return kernels by time, from the first; communication with the profiler's arguments."""
        calls = {
            event["args"].get("External id"): event["args"]
            for event in self.events
            if event.get("name") == "record_param_comms" and _NAME in event.get("args", {})
        }
        on_gpu = [event for event in self.events if event.get("cat") in _ON_GPU]
        if not on_gpu:
            raise FileError(self.path, None, "no kernel", "kernels of a GPU: profile with ProfilerActivity.CUDA")
        timed = [(self._us(event, "ts"), event) for event in on_gpu]
        first_us = min(us for us, _ in timed)
        kernels = []
        for us, event in sorted(timed, key=lambda pair: pair[0]):
            args = event.get("args", {})
            name = str(event["name"])
            talk = args if _NAME in args else calls.get(args.get("External id")) if name.startswith("nccl") else None
            if talk is None and name.startswith("nccl"):
                raise FileError(self.path, None, name, f"its {_NAME!r} and sizes: PyTorch 2.3 and later write them")
            begin_ps = round((us - first_us) * 1e6)
            end_ps = begin_ps + round(self._us(event, "dur") * 1e6)
            kernels.append(_Work(begin_ps, end_ps, str(args.get("stream", 0)), name, talk))
        return kernels

    def _us(self, event: dict[str, Any], key: str) -> float:
        try:
            return float(event[key])
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(self.path, None, f"{event.get('name')}: {error}", f"{key} in microseconds") from None

    def group(self, args: dict[str, Any]) -> tuple[int, ...]:
        """Return the ranks of a communication, from the list of groups or from its own arguments."""
        known = self.members.get(str(args.get("Process Group Name"))) or listed(args.get("Process Group Ranks"))
        if known is not None:
            return known
        start, stride = int(args["Global rank start"]), max(int(args["Global rank stride"]), 1)
        return tuple(range(start, start + int(args["Group size"]) * stride, stride))


def _blocks(kernels: list[_Work], talks: list[_Work]) -> list[_Work]:
    """Merge the kernels of a stream into blocks, cut where a communication began or was waited for."""
    if not kernels:
        return []
    begin = np.array([kernel.begin_ps for kernel in kernels])
    end = np.maximum.accumulate([kernel.end_ps for kernel in kernels])
    ends = np.sort([kernel.end_ps for kernel in talks]) if talks else np.zeros(0, np.int64)
    paused = np.searchsorted(ends, begin[1:], "right") > np.searchsorted(ends, end[:-1], "right")
    begun = np.searchsorted(end, [kernel.begin_ps for kernel in talks], "right")
    cuts = np.unique(np.concatenate(([0], np.flatnonzero(paused) + 1, begun[begun < len(kernels)], [len(kernels)])))
    made = []
    for first, last in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        more = f" and {last - first - 1} more" if last - first > 1 else ""
        name = f"{kernels[first].name[:60]}{more}"
        made.append(_Work(int(begin[first]), int(end[last - 1]), kernels[first].stream, name, None))
    return made


class _Writer:
    """A converter of blocks and communications to nodes, in the order of time."""

    def __init__(self, file: _File, groups: Groups) -> None:
        self.file, self.groups = file, groups
        self.made: list[Node] = []
        self.on_stream: dict[str, list[tuple[int, int]]] = {}  # ends and numbers of its nodes, in order
        self.talked: list[tuple[int, int]] = []  # ends and numbers of communications, in order

    def write(self, blocks: list[_Work], talks: list[_Work]) -> tuple[Node, ...]:
        for work in sorted([*blocks, *talks], key=lambda kernel: (kernel.begin_ps, kernel.end_ps)):
            number = self._block(work) if work.args is None else self._talk(work)
            insort(self.on_stream.setdefault(work.stream, []), (work.end_ps, number))
            if work.args is not None:
                insort(self.talked, (work.end_ps, number))
        return tuple(self.made)

    def _block(self, work: _Work) -> int:
        """Add a block that waits for the communication that ended in the pause before it."""
        before_ps = self.on_stream[work.stream][-1][0] if work.stream in self.on_stream else 0
        waits = self.talked[_until(self.talked, before_ps) : _until(self.talked, work.begin_ps)]
        since_ps = min(waits[-1][0] if waits else before_ps, work.begin_ps)
        after = tuple(number for _, number in waits)
        return self._add(work, kind=Kind.COMPUTE, duration_ps=work.end_ps - since_ps, after=after)

    def _talk(self, work: _Work) -> int:
        """Add a communication that waits for all work that ended before it; a longer pause is host time."""
        counts = ((done, _until(done, work.begin_ps)) for done in self.on_stream.values())
        waits = [done[count - 1] for done, count in counts if count]
        late_ps = work.begin_ps - max((end_ps for end_ps, _ in waits), default=0)
        after = tuple(number for _, number in waits)
        if late_ps > 0:
            late = Node(id=len(self.made), name="host", kind=Kind.COMPUTE, duration_ps=late_ps, after=after)
            self.made.append(late)
            after = (len(self.made) - 1,)
        return self._add(work, after=after, **self._communication(work))

    def _communication(self, work: _Work) -> dict[str, Any]:
        args = work.args or {}
        name = str(args[_NAME])
        try:
            sent, got = int(args.get("In msg nelems", 0)), int(args.get("Out msg nelems", 0))
            size = size_bytes(sent, got, str(args["dtype"]))
            if name in (SEND, RECV):
                peer = int(args["Dst Rank" if name == SEND else "Src Rank"])
                return {"kind": Kind(name), "size_bytes": size, "peer": peer}
            members = self.file.group(args)
            group = self.groups.name(str(args.get("Process Group Description") or args["Process Group Name"]), members)
            return {"kind": Kind.COLLECTIVE, "collective": find_collective(name), "size_bytes": size, "group": group}
        except (ConfigError, KeyError, TypeError, ValueError) as error:
            why = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise FileError(
                self.file.path, None, f"{work.name[:40]} ({name})", f"a supported operation: {why}"
            ) from None

    def _add(self, work: _Work, **what: Any) -> int:
        self.made.append(Node(id=len(self.made), name=work.name, lane=f"stream {work.stream}", **what))
        return len(self.made) - 1


def _until(done: list[tuple[int, int]], time_ps: int) -> int:
    """Return how many of these had ended by a time."""
    return bisect_right(done, (time_ps, 1 << 62))
