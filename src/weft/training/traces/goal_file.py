"""Write a trace as a GOAL schedule in text: what `goal` reads, and LogGOPSim and ATLAHS.

    l0: calc 20500                      computing, in whole nanoseconds, rounded so that their sum stays right
    l1b: calc 0                         a collective begins,
    l1m0: send 4000b to 1 tag 3         has message 0 of its program,
    l1m1: recv 4000b from 1 tag 4       message 1,
    l1: calc 0                          and ends
    l1b requires l0
    l1m0 requires l1b
    ...
    l1 requires l1m1

Collectives are the programs that `replay` takes where each rank has a server of its own. Each of their messages has a
tag of its own, above those of the trace, so that no order of arrival mixes them up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from weft.collectives.run import count_sends
from weft.collectives.traffic import message_bytes, whole_schedule
from weft.training.traces.link import NONE, CollectiveMatch, Linked
from weft.training.traces.programs import flat
from weft.training.traces.trace import Kind

_NS_PS = 1000


@dataclass(frozen=True, slots=True)
class _Operation:
    """A send or receive of a member, for one message of a program."""

    message: int
    is_send: bool
    peer: int  # member
    size_bytes: int
    after: tuple[int, ...]  # messages to receive first


def count_sends_of(linked: Linked) -> int:
    """Return about as many sends as the file of this trace has."""
    own = sum(node.kind is Kind.SEND for node in linked.nodes)
    return own + sum(count_sends(flat(meeting)[0]) for meeting in linked.meetings if len(meeting.members) > 1)


def write_goal(linked: Linked, path: Path) -> None:
    """Write all ranks into one file."""
    with path.open("w", encoding="utf-8") as file:
        file.write(f"num_ranks {len(linked.ranks)}\n")
        file.writelines(f"{line}\n" for line in _lines(linked))


def _lines(linked: Linked) -> Iterator[str]:
    known: dict[object, list[list[_Operation]]] = {}
    programs = [_program(meeting, known) for meeting in linked.meetings]
    sizes = (sum(operation.is_send for own in program for operation in own) for program in programs)
    own_tags = (node.tag for node in linked.nodes if node.kind in (Kind.SEND, Kind.RECV))
    tags = list(accumulate(sizes, initial=1 + max(own_tags, default=-1)))
    first = 0
    for rank in linked.ranks:
        own = linked.trace.ranks[rank]
        waits: list[str] = []
        exact_ps = written_ns = 0
        yield f"rank {rank} {{"
        for place, node in enumerate(own):
            number, label = linked.meeting[first + place], f"l{place}"
            waits += _waits(linked, first, place)
            if number != NONE:
                members = sorted(linked.meetings[number].members)
                operations = programs[number][members.index(rank)]
                yield from _collective(label, operations, members, tags[number], waits)
            elif node.kind is Kind.COMPUTE:
                exact_ps += node.duration_ps
                ns = round(exact_ps / _NS_PS) - written_ns
                written_ns += ns
                yield f"{label}: calc {ns}"
            else:
                yield f"{label}: {_message(node.kind is Kind.SEND, node.size_bytes, node.peer, node.tag)}"
        yield from waits  # a label may be waited for above its line
        yield "}"
        first += len(own)


def _waits(linked: Linked, first: int, place: int) -> Iterator[str]:
    """Yield the dependencies of a node; a collective begins with a line of its own, which takes no time."""
    at = first + place
    label = f"l{place}" if linked.meeting[at] == NONE else f"l{place}b"
    for other in linked.before[at]:
        yield f"{label} requires l{other - first}"
    for other in linked.begun[at]:
        if linked.meeting[other] == NONE:
            yield f"{label} irequires l{other - first}"
        else:
            yield f"{label} requires l{other - first}b"


def _collective(
    label: str, operations: list[_Operation], members: list[int], tag: int, waits: list[str]
) -> Iterator[str]:
    """Yield the operations of one rank in a collective."""
    yield f"{label}b: calc 0"
    for operation in operations:
        name = f"{label}m{operation.message}"
        peer = members[operation.peer]
        yield f"{name}: {_message(operation.is_send, operation.size_bytes, peer, tag + operation.message)}"
        waits += [f"{name} requires {label}m{other}" for other in operation.after] or [f"{name} requires {label}b"]
    yield f"{label}: calc 0"
    passed = {other for operation in operations for other in operation.after}
    last = [operation.message for operation in operations if operation.message not in passed]
    waits += [f"{label} requires {label}m{message}" for message in last]
    if not operations:
        waits.append(f"{label} requires {label}b")


def _message(is_send: bool, size_bytes: int, peer: int, tag: int) -> str:
    return f"{'send' if is_send else 'recv'} {size_bytes}b {'to' if is_send else 'from'} {peer} tag {tag}"


def _program(meeting: CollectiveMatch, known: dict[object, list[list[_Operation]]]) -> list[list[_Operation]]:
    """Return the operations of each member of a collective, in the order of ranks."""
    n_ranks = len(meeting.members)
    if n_ranks < 2:
        return [[]]
    program, size_bytes = flat(meeting)
    key = (program, size_bytes)  # equal calls have equal programs
    if key not in known:
        made = whole_schedule(program)
        sends, first = made.sends, made.after_first.tolist()
        sizes = message_bytes(program, sends, size_bytes).tolist()
        known[key] = [[] for _ in range(n_ranks)]
        for number, (src, dst) in enumerate(zip(sends.src.tolist(), sends.dst.tolist(), strict=True)):
            after = tuple(made.after[first[number] : first[number + 1]].tolist())
            known[key][src].append(_Operation(number, True, dst, sizes[number], after))
            known[key][dst].append(_Operation(number, False, src, sizes[number], ()))
    return known[key]
