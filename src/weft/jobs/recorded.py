"""What the ranks of a job recorded, as a trace that `weft replay` runs on any fabric, and as a schedule for others.

A rank computes, calls, computes, calls: each waits for the one before. A message that is sent holds nobody up; one that
is received does. Calls that some rank of the group did not come to, and messages that nobody took, are left out:
there the job ended.
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
    trace: Trace
    calls: int  # of all ranks
    talked_s: float  # of the rank that was longest in calls
    computed_s: float  # of the rank that computed longest


def collect(folder: Path, n_ranks: int) -> Recorded:
    """The lines of all ranks; the trace is written beside them, as Chakra's files."""
    lines = [_lines(lines_of(folder, rank)) for rank in range(n_ranks)]
    if not any(lines):
        raise ConfigError(
            "nothing was recorded: no rank called anything of weft.mpi or of a group of weft.collectives.live; what "
            "programs do through libibverbs alone is not recorded"
        )
    trace = _trace(lines, str(folder))
    write_chakra(trace, folder)
    return Recorded(
        trace=trace,
        calls=sum(map(len, lines)),
        talked_s=max(sum(one["end_s"] - one["begin_s"] for one in own) for own in lines),
        computed_s=max(sum(one["compute_s"] for one in own) for own in lines),
    )


def write_schedule(trace: Trace, folder: Path) -> bool:
    """As GOAL, beside the trace; not if it has more messages than `replay` would run one by one."""
    linked = link(trace)
    if count_sends_of(linked) > MOST_MESSAGES:
        return False
    write_goal(linked, folder / GOAL)
    return True


def predict(folder: Path, fabric: Fabric, servers: Sequence[str] = ()) -> float:
    """Seconds that the rank which waits longest is not computing, on this fabric."""
    found = replay(read([folder]), prepare(fabric), servers=servers or None)
    return max(one.exposed_s + one.waiting_s for one in found.ranks)


def _lines(path: Path) -> list[Line]:
    """The last may be cut, if its rank was killed."""
    found: list[Line] = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            found.append(json.loads(text))
        except ValueError:
            break
    return found


def _trace(lines: list[list[Line]], source: str) -> Trace:
    world = range(len(lines))
    members: dict[str, dict[int, int]] = defaultdict(dict)  # of a group: its ranks, and whose they are
    for rank in world:
        for one in lines[rank]:
            members[one["group"]][one["as"]] = rank
    sizes = {one["group"]: one["of"] for own in lines for one in own}
    whole = {name: tuple(found[one] for one in sorted(found)) for name, found in members.items()}
    whole = {name: ranks for name, ranks in whole.items() if len(ranks) == sizes[name]}
    together = {name: min(_collectives(lines[rank], name) for rank in ranks) for name, ranks in whole.items()}
    messages = _messages(lines, members)
    names = {name: WORLD if ranks == tuple(world) else name for name, ranks in whole.items()}
    used = {(one["group"], one["tag"]) for own in lines for one in own if "tag" in one}
    tags = {key: number for number, key in enumerate(sorted(used))}
    made = []
    for rank in world:
        counted: Counter[Any] = Counter()
        nodes: list[Node] = []
        last: tuple[int, ...] = ()
        for one in lines[rank]:
            if (compute_ps := round(one["compute_s"] * _S_PS)) > 0:
                nodes.append(Node(id=len(nodes), name="compute", kind=Kind.COMPUTE, duration_ps=compute_ps, after=last))
                last = (len(nodes) - 1,)
            key = _key(one, rank, members)
            counted[key] += 1
            common: dict[str, Any] = {"id": len(nodes), "after": last, "size_bytes": one["bytes"]}
            if one["call"] in (SEND, RECEIVE):
                if counted[key] > messages[_pair(one, rank, members)]:
                    continue
                peer, tag = members[one["group"]][one["peer"]], tags[one["group"], one["tag"]]
                kind = Kind.SEND if one["call"] == SEND else Kind.RECV
                nodes.append(Node(name=one["call"], kind=kind, peer=peer, tag=tag, **common))
            elif counted[key] <= together.get(one["group"], 0):
                name = names[one["group"]]
                what = {"collective": collective(one["call"]), "group": name, "root": one["root"]}
                nodes.append(Node(name=one["words"], kind=Kind.COLLECTIVE, lane=f"group {name}", **what, **common))
            else:
                continue
            if one["call"] != SEND:
                last = (len(nodes) - 1,)
        made.append(tuple(nodes) or (Node(id=0, name="nothing", kind=Kind.COMPUTE),))
    return Trace(
        source=source,
        format="recorded",
        files=tuple(str(lines_of(Path(source), rank)) for rank in world),
        ranks=tuple(made),
        groups={names[name]: (ranks,) for name, ranks in whole.items()},
    )


def _collectives(own: list[Line], name: str) -> int:
    return sum(one["group"] == name and "tag" not in one for one in own)


def _key(one: Line, rank: int, members: dict[str, dict[int, int]]) -> Any:
    return (one["call"], _pair(one, rank, members)) if "tag" in one else one["group"]


def _pair(one: Line, rank: int, members: dict[str, dict[int, int]]) -> tuple[str, int, int | None, int | None]:
    """Of messages that are counted together: group, tag, from whom, to whom."""
    peer = members[one["group"]].get(one["peer"])
    return (one["group"], one["tag"], *((rank, peer) if one["call"] == SEND else (peer, rank)))


def _messages(lines: list[list[Line]], members: dict[str, dict[int, int]]) -> dict[Any, int]:
    """How many of each were both sent and taken."""
    sent, taken = Counter[Any](), Counter[Any]()
    for rank, own in enumerate(lines):
        for one in own:
            if "tag" in one:
                (sent if one["call"] == SEND else taken)[_pair(one, rank, members)] += 1
    return {key: min(sent[key], taken[key]) for key in sent | taken}
