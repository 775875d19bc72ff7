"""SimAI's workloads, text files of AICB: the work of every GPU of a training job, layer by layer.

    HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 32 checkpoints: 0 ...
    2
    name  -1  forward: time, collective, bytes  input gradient: the same  weight gradient: the same  update time

Times are nanoseconds. SimAI goes through the rows, computing and then waiting for the collective, and back from the
last: input gradient and its collective, then weight gradient, whose collective is awaited only at the end. Forward
and input gradients talk in the tensor group, weight gradients in the data group, with _EP and _DP_EP at the end of the
name in those of experts. All GPUs do the same.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from weft.collectives.kinds import Collective
from weft.errors import FileError
from weft.training.traces.trace import Kind, Node, Trace

POLICY = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
_COLLECTIVES = {
    "ALLREDUCE": Collective.ALL_REDUCE,
    "ALLGATHER": Collective.ALL_GATHER,
    "REDUCESCATTER": Collective.REDUCE_SCATTER,
    "ALLTOALL": Collective.ALL_TO_ALL,
}
_COLUMNS = 12
_PHASES = (("forward", 2, "TP"), ("input gradient", 5, "TP"), ("weight gradient", 8, "DP"))


def is_simai(head: str) -> bool:
    return head.lstrip().startswith(("HYBRID_TRANSFORMER", "MICRO"))


class _Phase(NamedTuple):
    name: str
    duration_ps: int
    collective: Collective | None
    group: str
    size_bytes: int


class _Row(NamedTuple):
    phases: tuple[_Phase, ...]
    update_ps: int


def read_simai(path: Path, text: str) -> Trace:
    """Read a workload; all ranks share its rows."""
    lines = [(number, line.split()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    head = _head(path, lines[0])
    count = lines[1][1] if len(lines) > 1 else []
    if len(count) != 1 or not count[0].isdecimal():
        raise FileError(path, 2, " ".join(count), "how many rows follow")
    rows = [_row(path, number, cells) for number, cells in lines[2:]]
    if len(rows) != int(count[0]):
        raise FileError(path, 2, count[0], f"the number of rows below, {len(rows):,}: is the file cut short?")
    world = head["all_gpus"]
    groups = _groups(path, head)
    nodes = _nodes(rows)
    notes: tuple[str, ...] = ()
    if head.get("pp", 1) > 1:
        notes = (
            f"{head['pp']} pipeline stages do all rows at the same time: what stages send to each other, and the "
            f"bubble, is not in the rows",
        )
    return Trace(
        source=str(path),
        format="SimAI",
        files=(str(path),) * world,
        ranks=(nodes,) * world,
        groups=groups,
        notes=notes,
    )


def _head(path: Path, line: tuple[int, list[str]]) -> dict[str, int]:
    number, words = line
    if words[0] != POLICY:
        raise FileError(path, number, words[0], f"{POLICY}, the only policy whose groups SimAI defines")
    found = {key: int(value) for key, value in re.findall(r"(\w+):?\s+(\d+)", " ".join(words[1:]))}
    for key in ("model_parallel_NPU_group", "all_gpus"):
        if found.get(key, 0) < 1:
            raise FileError(path, number, " ".join(words), f"{key}: and a number")
    if found.get("checkpoints", 0):
        raise FileError(path, number, f"checkpoints: {found['checkpoints']}", "0: weft does not run layers again")
    return found


def _groups(path: Path, head: dict[str, int]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return groups in Megatron's order: tensor groups of neighbours, then expert, data and pipeline groups."""
    world, tp = head["all_gpus"], head["model_parallel_NPU_group"]
    pp, ep = head.get("pp", 1), head.get("ep", 1)
    if min(pp, ep) < 1 or world % (tp * pp * ep):
        raise FileError(
            path, 1, f"all_gpus: {world}", f"a multiple of tensor {tp} x pipeline {pp} x expert {ep} groups"
        )
    dp = world // (tp * pp)
    stages = [stage * tp * dp for stage in range(pp)]

    def cut(size: int, inner: int) -> tuple[tuple[int, ...], ...]:
        """Return groups of `size` ranks of each stage, `inner` apart."""
        starts = (
            first + block * size * inner + offset
            for first in stages
            for block in range(tp * dp // (size * inner))
            for offset in range(inner)
        )
        return tuple(tuple(range(start, start + size * inner, inner)) for start in starts)

    return {"TP": cut(tp, 1), "DP": cut(dp, tp), "EP": cut(ep, tp), "DP_EP": cut(dp // ep, tp * ep)}


def _row(path: Path, number: int, cells: list[str]) -> _Row:
    if len(cells) != _COLUMNS:
        raise FileError(path, number, " ".join(cells), f"{_COLUMNS} columns, not {len(cells)}")

    def whole(place: int) -> int:
        if not cells[place].isdecimal():
            raise FileError(path, number, cells[place], f"a whole number in column {place + 1}")
        return int(cells[place])

    phases = []
    for what, place, group in _PHASES:
        name, _, suffix = cells[place + 1].partition("_")
        if cells[place + 1] != "NONE" and (name not in _COLLECTIVES or suffix not in ("", "EP", "DP_EP")):
            known = ", ".join(("NONE", *_COLLECTIVES))
            raise FileError(path, number, cells[place + 1], f"{known}, alone or with _EP or _DP_EP")
        kind = _COLLECTIVES.get(name) if whole(place + 2) else None
        phases.append(_Phase(f"{cells[0]} {what}", whole(place) * 1000, kind, suffix or group, whole(place + 2)))
    return _Row(tuple(phases), whole(11) * 1000)


def _nodes(rows: list[_Row]) -> tuple[Node, ...]:
    made = _Writer()
    for row in rows:
        made.add(row.phases[0], blocks=True)
    for row in reversed(rows):
        made.add(row.phases[1], blocks=True)
        made.add(row.phases[2], blocks=False)
        if row.phases[2].collective is not None and row.update_ps:
            last = len(made.nodes) - 1
            update = Node(id=last + 1, name="update", kind=Kind.COMPUTE, duration_ps=row.update_ps, after=(last,))
            made.nodes.append(update)
    return tuple(made.nodes)


class _Writer:
    """A writer of nodes, phase after phase."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.waits: tuple[int, ...] = ()  # dependencies of the next computation

    def add(self, phase: _Phase, *, blocks: bool) -> None:
        """Add a computation and its collective; the next computation waits for it if it blocks."""
        at = len(self.nodes)
        self.nodes.append(
            Node(
                id=at,
                name=phase.name,
                kind=Kind.COMPUTE,
                lane="compute",
                duration_ps=phase.duration_ps,
                after=self.waits,
            )
        )
        self.waits = ()
        if phase.collective is None:
            return
        self.nodes.append(
            Node(
                id=at + 1,
                name=f"{phase.collective} {phase.name}",
                kind=Kind.COLLECTIVE,
                lane=f"group {phase.group}",
                collective=phase.collective,
                group=phase.group,
                size_bytes=phase.size_bytes,
                after=(at,),
            )
        )
        if blocks:
            self.waits = (at + 1,)
