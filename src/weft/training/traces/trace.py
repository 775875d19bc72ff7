"""A trace: the work of every rank of a job, and the dependencies between ranks.

    trace = read(["run/trace.0.et", "run/trace.1.et"])      weft.training.traces.read
    trace.ranks[1][7].name

A node waits for those it names, and, in a lane, for the one before it: a lane is a stream of a GPU. The nth collective
of a group on one rank and the nth on another are the same one; so are the nth send to a rank and the nth receive there
with the same tag. `link` checks that before a run.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.collectives.kinds import Collective
from weft.errors import ConfigError


class Kind(enum.StrEnum):
    COMPUTE = "compute"
    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"


Label = int | str  # as the file names a node


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A computation, collective, send or receive of one rank."""

    id: Label
    name: str
    kind: Kind
    lane: str = ""  # nodes of one lane go one after the other, in the order of the file; empty: as they can
    duration_ps: int = 0  # computation
    collective: Collective | None = None
    size_bytes: int = 0  # of collectives the larger of a rank's two buffers, as nccl-tests counts
    group: str = ""  # collective
    root: int = 0  # rooted collective: number in its group
    peer: int = -1  # send or receive
    tag: int = 0
    after: tuple[Label, ...] = ()  # must have ended before
    after_start: tuple[Label, ...] = ()  # must have begun before


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The work of all ranks."""

    source: str  # description of the files
    format: str
    files: tuple[str, ...]  # [rank] -> its file, for error messages
    ranks: tuple[tuple[Node, ...], ...]  # [rank]; ranks that do the same share one
    groups: Mapping[str, tuple[tuple[int, ...], ...]]  # by name; a rank is in at most one group of a name
    notes: tuple[str, ...] = ()  # parts of the file that weft does not run

    @property
    def alike(self) -> bool:
        """Return whether all ranks do the same work."""
        return all(one is self.ranks[0] for one in self.ranks)

    def group_of(self, rank: int, name: str) -> tuple[int, ...]:
        """Return the members of a rank's group of this name."""
        for members in self.groups.get(name, ()):
            if rank in members:
                return members
        known = ", ".join(self.groups) or "none"
        raise ConfigError(f"{self.files[rank]}: rank {rank} is in no group {name!r}; groups of the trace: {known}")


def refuse_bad_groups(trace: Trace) -> None:
    """Raise an error if a group has missing or repeated ranks."""
    for name, groups in trace.groups.items():
        for members in groups:
            for rank in members:
                if not 0 <= rank < len(trace.ranks):
                    raise ConfigError(
                        f"{trace.source}: group {name!r} has rank {rank}, and the trace has ranks 0 to "
                        f"{len(trace.ranks) - 1}: give the files of all ranks"
                    )
            if len(set(members)) != len(members):
                raise ConfigError(f"{trace.source}: group {name!r} names a rank twice: {_list(members)}")


def refuse_missing(ranks: Mapping[int, str], world: int, source: str) -> None:
    """Raise an error if the files of some ranks are missing."""
    missing = [rank for rank in range(world) if rank not in ranks]
    if missing:
        raise ConfigError(
            f"{source}: {'rank' if len(missing) == 1 else 'ranks'} {_list(missing)} of {world} "
            f"{'is' if len(missing) == 1 else 'are'} missing; there are files of {_list(sorted(ranks))}. "
            f"A job waits for all of its ranks: give the files of all"
        )


def _list(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown} ... ({len(numbers):,})"
