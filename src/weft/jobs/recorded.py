"""Convert the recorded calls of a job into a trace for `weft replay`, and into a GOAL schedule.

Each rank alternates between computing and calls, and each step waits for the one before it; only a send does not block
the next step. Collective calls that some rank of the group did not make, and messages that were not received, are left
out: the job ended there.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.collectives.kinds import collective
from weft.collectives.live.record import RECEIVE, SEND, lines_of
from weft.errors import ConfigError
from weft.fabric.model import Fabric
from weft.sim.perftest import prepare
from weft.training.traces.chakra import WORLD
from weft.training.traces.chakra_file import write_chakra
from weft.training.traces.goal_file import count_sends_of, write_goal
from weft.training.traces.link import link
from weft.training.traces.read import read
from weft.training.traces.replay import MOST_MESSAGES, replay
from weft.training.traces.trace import Kind, Node, Trace

GOAL = "job.goal"
_S_PS = 10**12
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The recorded calls of a job."""

    trace: Trace
    calls: int  # by all ranks
    talked_s: float  # longest time in calls, over the ranks
    computed_s: float  # longest computation, over the ranks


def collect(folder: Path, n_ranks: int) -> Recorded:
    """Read the records of all ranks, and write their trace as Chakra files into the same folder."""
    lines = [_lines(lines_of(folder, rank)) for rank in range(n_ranks)]
    if not any(lines):
        raise ConfigError(
            "nothing was recorded: no rank used weft.collectives.live; calls of libibverbs and MPI are not recorded"
        )
    trace = _trace(lines, str(folder))
    write_chakra(trace, folder)
    return Recorded(
        trace=trace,
        calls=sum(map(len, lines)),
        talked_s=max(sum(line["end_s"] - line["begin_s"] for line in own) for own in lines),
        computed_s=max(sum(line["compute_s"] for line in own) for own in lines),
    )


def write_schedule(trace: Trace, folder: Path) -> bool:
    """Write a trace as a GOAL schedule. Return False if it has more messages than `replay` simulates one by one."""
    linked = link(trace)
    if count_sends_of(linked) > MOST_MESSAGES:
        return False
    write_goal(linked, folder / GOAL)
    return True


def predict(folder: Path, fabric: Fabric, servers: Sequence[str] = ()) -> float:
    """Return the simulated time of the slowest rank outside of computation, in seconds."""
    result = replay(read([folder]), prepare(fabric), servers=servers or None)
    return max(rank.exposed_s + rank.waiting_s for rank in result.ranks)


def _lines(path: Path) -> list[Line]:
    """Return the recorded lines of a rank. The last one is incomplete if the rank was killed."""
    lines: list[Line] = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


def _trace(lines: list[list[Line]], source: str) -> Trace:
    world = range(len(lines))
    members: dict[str, dict[int, int]] = defaultdict(dict)  # group -> rank in the group -> rank in the job
    for rank in world:
        for line in lines[rank]:
            members[line["group"]][line["as"]] = rank
    sizes = {line["group"]: line["of"] for own in lines for line in own}
    whole = {name: tuple(by_rank[rank] for rank in sorted(by_rank)) for name, by_rank in members.items()}
    whole = {name: ranks for name, ranks in whole.items() if len(ranks) == sizes[name]}
    together = {name: min(_collectives(lines[rank], name) for rank in ranks) for name, ranks in whole.items()}
    messages = _messages(lines, members)
    names = {name: WORLD if ranks == tuple(world) else name for name, ranks in whole.items()}
    used = {(line["group"], line["tag"]) for own in lines for line in own if "tag" in line}
    tags = {key: number for number, key in enumerate(sorted(used))}
    ranks_nodes = []
    for rank in world:
        counted: Counter[Any] = Counter()
        nodes: list[Node] = []
        last: tuple[int, ...] = ()
        for line in lines[rank]:
            if (compute_ps := round(line["compute_s"] * _S_PS)) > 0:
                nodes.append(Node(id=len(nodes), name="compute", kind=Kind.COMPUTE, duration_ps=compute_ps, after=last))
                last = (len(nodes) - 1,)
            key = _key(line, rank, members)
            counted[key] += 1
            common: dict[str, Any] = {"id": len(nodes), "after": last, "size_bytes": line["bytes"]}
            if line["call"] in (SEND, RECEIVE):
                if counted[key] > messages[_pair(line, rank, members)]:
                    continue
                peer, tag = members[line["group"]][line["peer"]], tags[line["group"], line["tag"]]
                kind = Kind.SEND if line["call"] == SEND else Kind.RECV
                nodes.append(Node(name=line["call"], kind=kind, peer=peer, tag=tag, **common))
            elif counted[key] <= together.get(line["group"], 0):
                name = names[line["group"]]
                call = {"collective": collective(line["call"]), "group": name, "root": line["root"]}
                nodes.append(Node(name=line["words"], kind=Kind.COLLECTIVE, lane=f"group {name}", **call, **common))
            else:
                continue
            if line["call"] != SEND:
                last = (len(nodes) - 1,)
        ranks_nodes.append(tuple(nodes) or (Node(id=0, name="nothing", kind=Kind.COMPUTE),))
    return Trace(
        source=source,
        format="recorded",
        files=tuple(str(lines_of(Path(source), rank)) for rank in world),
        ranks=tuple(ranks_nodes),
        groups={names[name]: (ranks,) for name, ranks in whole.items()},
    )


def _collectives(own: list[Line], name: str) -> int:
    return sum(line["group"] == name and "tag" not in line for line in own)


def _key(line: Line, rank: int, members: dict[str, dict[int, int]]) -> Any:
    return (line["call"], _pair(line, rank, members)) if "tag" in line else line["group"]


def _pair(line: Line, rank: int, members: dict[str, dict[int, int]]) -> tuple[str, int, int | None, int | None]:
    """Return the key by which messages are counted: group, tag, sender, receiver."""
    peer = members[line["group"]].get(line["peer"])
    return (line["group"], line["tag"], *((rank, peer) if line["call"] == SEND else (peer, rank)))


def _messages(lines: list[list[Line]], members: dict[str, dict[int, int]]) -> dict[Any, int]:
    """Return the number of messages that were both sent and received, by key."""
    sent, received = Counter[Any](), Counter[Any]()
    for rank, own in enumerate(lines):
        for line in own:
            if "tag" in line:
                (sent if line["call"] == SEND else received)[_pair(line, rank, members)] += 1
    return {key: min(sent[key], received[key]) for key in sent | received}
